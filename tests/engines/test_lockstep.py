from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from redline.engines import make_engine
from redline.engines.lockstep import Lockstep
from redline.errors import RedlineError
from redline.rollout import Decision, Rollout
from redline.timing.stopwatch import Stopwatch

WAIT, FINISH = 0, 1
LIMIT = 4
FINAL_BONUS = 0.5


class Stairs(gym.Env[np.ndarray, int]):
    """One step up each time. FINISH terminates the episode, and `LIMIT` steps truncate it; both may happen at once.

    An observation is (episode, height), so every state of an env's life is a different one.
    """

    observation_space = gym.spaces.Box(0, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self.episode = seed - 1
        self.episode, self.height = self.episode + 1, 0
        return self._seen(), self._infos()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.height += 1
        reward = self.height + FINAL_BONUS * (action == FINISH)
        return self._seen(), reward, bool(action == FINISH), self.height == LIMIT, self._infos()

    def _seen(self) -> np.ndarray:
        return np.array([self.episode, self.height], np.float32)

    def _infos(self) -> dict[str, Any]:
        return {}


class MaskedStairs(Stairs):
    """Stairs on which one may finish only at an even height, said in Gymnasium's own way: with int8 ones and zeros."""

    def _infos(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, self.height % 2 == 0], np.int8)}


class SavableStairs(SyncVectorEnv):
    """Masked stairs that can tell where they stand."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([MaskedStairs] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"seen": np.array([env._seen() for env in self.envs])}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        for env, (episode, height) in zip(self.envs, snapshot["seen"], strict=True):
            env.episode, env.height = int(episode), int(height)
        return snapshot["seen"].copy()


def worth(obs: np.ndarray) -> np.ndarray:
    """The scripted policy's idea of a state's value: different for every state of `Stairs`."""
    return (1000 * obs[:, 0] + obs[:, -1]).astype(np.float32)


class Scripted:
    """Acts by a script [T, N] and notes what it was shown."""

    version = 0

    def __init__(self, script: Any) -> None:
        self.script = np.array(script)
        self.clock = 0
        self.masks: list[np.ndarray | None] = []

    def begin(self, num_steps: int) -> None:
        self.seen: list[np.ndarray] = []

    def act(self, obs: np.ndarray, masks: np.ndarray | None) -> Decision:
        actions = self.script[self.clock]
        first = len(obs) * len(self.seen)
        self.seen.append(obs.copy())
        self.masks.append(masks)
        self.clock += 1
        rows = np.arange(first, first + len(obs), dtype=np.int32)
        return Decision(actions, (-1.0 - actions).astype(np.float32), worth(obs), rows)

    def value(self, obs: np.ndarray) -> np.ndarray:
        assert len(obs), "asked for the value of nothing"
        return worth(obs)

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        return np.concatenate(self.seen), None


class AtRandom(Scripted):
    """Acts for any env."""

    def __init__(self, num_steps: int, num_envs: int, num_actions: int) -> None:
        super().__init__(np.random.default_rng(0).integers(num_actions, size=(num_steps, num_envs)))


def stairs(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([Stairs] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def play(script: Any, seed: int = 0) -> Rollout:
    """One collect from `Stairs` under a script [T, N]."""
    policy = Scripted(script)
    engine = Lockstep(stairs(policy.script.shape[1]), seed)
    return engine.collect(policy, len(script), Stopwatch())


def play_alone(script: list[int], seed: int) -> list[tuple]:
    """One env driven by hand: for every step observation, reward, terminated, truncated and the value of what follows."""
    env, steps = Stairs(), []
    obs, _ = env.reset(seed=seed)
    for action in script:
        after, reward, terminated, truncated, _ = env.step(action)
        steps.append((tuple(obs), reward, terminated, truncated, float(worth(after[None])[0])))
        obs = env.reset()[0] if terminated or truncated else after
    return steps


def column(rollout: Rollout, i: int) -> list[tuple]:
    """The same from a rollout."""
    return [
        (
            tuple(rollout.observations[rollout.rows[t, i]]),
            float(rollout.rewards[t, i]),
            bool(rollout.terminated[t, i]),
            bool(rollout.truncated[t, i]),
            float(rollout.next_values[t, i]),
        )
        for t in range(len(rollout.rows))
    ]


def without_futures(steps: list[tuple]) -> list[tuple]:
    """Steps, but for the next value of terminated ones: it means nothing, and nothing reads it."""
    return [(*step[:4], None if step[2] else step[4]) for step in steps]


@pytest.mark.parametrize(("env", "num_actions"), [("cage2", 145), ("CartPole-v1", 2)])
def test_every_cell_of_a_rollout_is_written(env, num_actions):
    engine = make_engine("vector", env, 3, 0, {})
    rollout = engine.collect(AtRandom(120, 3, num_actions), 120, Stopwatch())
    engine.close()
    assert rollout.terminated.any() or rollout.truncated.any()
    for floats in (rollout.log_probs, rollout.values, rollout.next_values, rollout.rewards):
        assert not np.isnan(floats).any()
    for numbers in (rollout.rows, rollout.actions):
        assert (numbers >= 0).all()
    assert rollout.rows.max() < len(rollout.observations)


def test_a_rollout_is_what_driving_each_env_by_hand_gives():
    script = np.random.default_rng(1).random((40, 5)) < 0.2
    rollout = play(script.astype(int), seed=7)
    for i in range(5):
        by_hand = play_alone(script[:, i].astype(int).tolist(), seed=7 + i)
        assert without_futures(column(rollout, i)) == without_futures(by_hand)


def test_a_rollout_holds_what_the_policy_decided():
    script = [[WAIT, FINISH], [FINISH, WAIT]]
    rollout = play(script)
    assert rollout.actions.tolist() == script
    assert rollout.log_probs.tolist() == [[-1, -2], [-2, -1]]
    assert rollout.values.reshape(-1).tolist() == worth(rollout.observations[rollout.rows.reshape(-1)]).tolist()


def test_a_step_is_linked_to_the_value_of_the_state_it_led_to():
    rollout = play([[WAIT], [WAIT], [WAIT]])
    assert rollout.values[:, 0].tolist() == [0, 1, 2]
    assert rollout.next_values[:, 0].tolist() == [1, 2, 3]


def test_a_truncated_step_bootstraps_from_the_last_observation_of_its_own_episode():
    rollout = play([[WAIT]] * (LIMIT + 2))
    assert rollout.truncated[:, 0].tolist() == [False, False, False, True, False, False]
    assert rollout.values[:, 0].tolist() == [0, 1, 2, 3, 1000, 1001]
    assert rollout.next_values[:, 0].tolist() == [1, 2, 3, 4, 1001, 1002]


def test_only_the_envs_that_were_truncated_bootstrap():
    rollout = play([[WAIT, WAIT], [WAIT, FINISH], [WAIT, WAIT], [WAIT, WAIT], [WAIT, WAIT]])
    assert rollout.next_values[:, 0].tolist() == [1, 2, 3, 4, 1001]
    assert np.delete(rollout.next_values[:, 1], 1).tolist() == [1001, 2001, 2002, 2003]


def test_a_truncated_last_step_bootstraps_from_its_own_episode_too():
    assert play([[WAIT]] * LIMIT).next_values[-1, 0] == LIMIT


def test_an_episode_may_terminate_in_the_very_step_that_truncates_it():
    rollout = play([[WAIT], [WAIT], [WAIT], [FINISH], [WAIT]])
    assert rollout.terminated[3, 0] and rollout.truncated[3, 0]
    assert not np.isnan(rollout.next_values).any()
    assert rollout.episode_lengths.tolist() == [LIMIT]


def test_returns_and_lengths_are_those_of_whole_episodes():
    rollout = play([[WAIT, FINISH], [FINISH, WAIT], [WAIT, FINISH]])
    assert rollout.episode_returns.tolist() == [1 + FINAL_BONUS, 1 + 2 + FINAL_BONUS, 1 + 2 + FINAL_BONUS]
    assert rollout.episode_lengths.tolist() == [1, 2, 2]


def test_an_episode_is_counted_across_collects():
    engine, policy = Lockstep(stairs(1), seed=0), Scripted([[WAIT]] * 9)
    rollouts = [engine.collect(policy, 3, Stopwatch()) for _ in range(3)]
    assert [rollout.episode_returns.tolist() for rollout in rollouts] == [[], [1 + 2 + 3 + 4], [1 + 2 + 3 + 4]]
    assert [rollout.episode_lengths.tolist() for rollout in rollouts] == [[], [LIMIT], [LIMIT]]


def test_a_collect_goes_on_where_the_last_one_stopped():
    script = np.random.default_rng(2).integers(2, size=(12, 3))
    whole = play(script)
    engine, policy = Lockstep(stairs(3), seed=0), Scripted(script)
    parts = [engine.collect(policy, 4, Stopwatch()) for _ in range(3)]
    for i in range(3):
        pieces = [step for part in parts for step in column(part, i)]
        assert without_futures(pieces) == without_futures(column(whole, i))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_an_env_that_resets_at_another_time_is_refused(mode):
    with pytest.raises(RedlineError, match="SAME_STEP"):
        Lockstep(SyncVectorEnv([Stairs], autoreset_mode=mode), seed=0)


def test_the_policy_is_shown_masks_as_claims_about_each_action():
    env = SyncVectorEnv([MaskedStairs] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    policy = Scripted([[WAIT, FINISH], [WAIT, WAIT]])
    Lockstep(env, seed=0).collect(policy, 2, Stopwatch())
    first, second = policy.masks
    assert first.dtype == second.dtype == np.bool_
    assert first.tolist() == [[True, True], [True, True]]
    assert second.tolist() == [[True, False], [True, True]]


def test_an_engine_goes_on_from_a_snapshot_as_if_nothing_had_happened():
    script = [[WAIT, WAIT], [WAIT, FINISH], [FINISH, WAIT], [WAIT, WAIT], [WAIT, FINISH], [WAIT, WAIT]]
    engine = Lockstep(SavableStairs(2), seed=0)
    engine.collect(Scripted(script), 3, Stopwatch())
    snapshot = engine.snapshot()
    other = Lockstep(SavableStairs(2), seed=50)
    other.restore(snapshot)
    rollouts, masks = [], []
    for each in (engine, other):
        policy = Scripted(script[3:])
        rollouts.append(each.collect(policy, 3, Stopwatch()))
        masks.append(np.array(policy.masks))
    for name, expected in vars(rollouts[0]).items():
        np.testing.assert_array_equal(getattr(rollouts[1], name), expected, err_msg=name)
    np.testing.assert_array_equal(masks[1], masks[0])


def test_a_snapshot_is_not_touched_by_what_comes_after():
    engine = make_engine("vector", "cage2", 2, 0, {"max_steps": 7})
    engine.collect(AtRandom(5, 2, 145), 5, Stopwatch())
    snapshot = engine.snapshot()
    before = {name: array.copy() for name, array in snapshot.items()}
    engine.collect(AtRandom(5, 2, 145), 5, Stopwatch())
    for name, array in before.items():
        np.testing.assert_array_equal(snapshot[name], array, err_msg=name)


def test_an_env_that_cannot_be_saved_has_no_snapshot():
    assert Lockstep(stairs(1), seed=0).snapshot() is None


def test_time_is_spent_in_policy_env_and_record():
    watch = Stopwatch()
    Lockstep(stairs(1), seed=0).collect(Scripted([[WAIT]] * 3), 3, watch)
    breakdown = watch.breakdown()
    assert set(breakdown.seconds) == {("policy",), ("env",), ("record",)}
    assert breakdown.calls["env",] == 3
    assert breakdown.calls["record",] == 4  # each step, and the episodes at the end


def test_closing_an_engine_closes_its_env():
    env = stairs(1)
    Lockstep(env, seed=0).close()
    assert env.closed


def test_an_unknown_engine_is_answered_with_the_nearest_one():
    with pytest.raises(RedlineError, match="Did you mean 'vector'"):
        make_engine("vectors", "cage2", 4, 0, {})


def test_an_engine_without_envs_is_refused_with_a_number_that_works():
    with pytest.raises(RedlineError, match="Try --num-envs 512"):
        make_engine("vector", "cage2", 0, 0, {})
