"""What the CAGE-2 env promises on top of what every world does (see test_worlds.py), and the ways to reach it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

import redline
from redline.errors import RedlineError
from redline.testing.contract import plain
from redline.worlds.cage2.env import Cage2Env, Cage2VectorEnv
from redline.worlds.cage2.rules.scenario import DECOYS, HOSTS, Scenario
from redline.worlds.registry import make_env, register_envs

register_envs()
LENGTH = 6
"""Steps of an episode in these tests."""
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "cage2": [
        {},
        {"turbo": False},
        {"encoded": True},
        {"red_agent": "B_lineAgent,RedMeanderAgent,SleepAgent", "green_agent": "GreenAgent"},
        {"red_agent": "RedMeanderAgent", "rules": "leaderboard", "wrapper": "cw2"},
        {"actions": "reduced"},
        {"actions": "reduced", "turbo": False},
        {"observation": "table+scan"},
        {"observation": "history", "history": 2},
        {"observation": "history", "encoded": True},
    ]
}
CASES = [(name, {**options, "max_steps": LENGTH}) for name in OPTIONS for options in OPTIONS[name]]
every_env = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=[" ".join([name, *map(str, options.values())]) for name, options in CASES]
)


def script(env: VectorEnv, num_steps: int) -> np.ndarray:
    """Random actions [T, N]."""
    return np.random.default_rng(0).integers(env.single_action_space.n, size=(num_steps, env.num_envs))  # type: ignore[attr-defined]


def play(env: VectorEnv, actions: np.ndarray) -> list[list[Any]]:
    """Everything the env answers, as plain values."""
    return [plain(env.step(row)) for row in actions]


def played_from_reset(env: VectorEnv, seed: Any, num_steps: int = 2 * LENGTH + 1) -> list[Any]:
    obs, _ = env.reset(seed=seed)
    return [obs.tolist(), *play(env, script(env, num_steps))]


@every_env
def test_final_observations_are_those_of_an_episode_that_goes_on(name, options):
    env, endless = make_env(name, 3, **options), make_env(name, 3, **{**options, "max_steps": 0})
    env.reset(seed=4)
    endless.reset(seed=4)
    for actions in script(env, LENGTH):
        *_, infos = env.step(actions)
        obs, *_ = endless.step(actions)
    assert (infos["final_obs"] == obs).all()


def test_every_episode_begins_alike_and_is_truncated_after_its_steps():
    env = make_env("cage2", 3, max_steps=LENGTH)
    first_obs, infos = env.reset(seed=0)
    assert infos == {}
    for t, actions in enumerate(script(env, 3 * LENGTH)):
        obs, _, terminated, truncated, infos = env.step(actions)
        assert not terminated.any()
        assert truncated.all() == truncated.any() == bool(infos) == ((t + 1) % LENGTH == 0)
        if truncated.any():
            assert infos["episode"]["l"].tolist() == [LENGTH] * 3
            assert (obs == first_obs).all()


def test_only_envs_that_end_tell_of_an_episode():
    env = make_env("cage2", 3, max_steps=LENGTH)
    env.reset(seed=0)
    actions = script(env, LENGTH)
    play(env, actions[:2])
    env.reset(options={"reset_mask": np.array([False, True, False])})
    for row in actions[2:]:
        *_, truncated, infos = env.step(row)
    assert truncated.tolist() == infos["_final_obs"].tolist() == infos["_episode"].tolist() == [True, False, True]
    assert infos["episode"]["l"].tolist() == [LENGTH, 0, LENGTH]
    assert infos["episode"]["r"][1] == 0


def test_other_seeds_and_no_seed_play_other_episodes():
    env = make_env("cage2", 20, max_steps=LENGTH, red_agent="RedMeanderAgent")
    plays = [played_from_reset(env, seed) for seed in (5, 6, None, None)]
    plays.append(played_from_reset(make_env("cage2", 20, max_steps=LENGTH, red_agent="RedMeanderAgent"), seed=None))
    assert all(plays[i] != plays[j] for i in range(5) for j in range(i))


@pytest.mark.parametrize("difference", [{"num_envs": 4}, {"observation": "history"}])
def test_a_snapshot_of_another_kind_of_env_is_refused(difference):
    env, other = Cage2VectorEnv(3), Cage2VectorEnv(**{"num_envs": 3, **difference})
    env.reset(seed=0)
    with pytest.raises(RedlineError, match="cannot go on"):
        other.restore(env.snapshot())


# Gymnasium


def test_the_single_env_tells_the_truth_too():
    env = Cage2Env(red_agent="SleepAgent")
    env.reset(seed=0)
    env.step(28 + HOSTS.index("User1"))
    assert env.true_state().decoys.tolist() == [[1 if host == "User1" else 0 for host in HOSTS]]


def test_gymnasium_makes_the_batched_env():
    env = gym.make_vec("redline/Cage2-v0", 3, vectorization_mode="vector_entry_point", max_steps=LENGTH)
    assert isinstance(env, Cage2VectorEnv)
    assert played_from_reset(env, seed=5) == played_from_reset(make_env("cage2", 3, max_steps=LENGTH), seed=5)


def test_gymnasium_can_also_batch_the_single_env():
    options = {"max_steps": LENGTH, "red_agent": "RedMeanderAgent"}
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    theirs = gym.make_vec("redline/Cage2-v0", 3, vectorization_mode="sync", vector_kwargs=same_step, **options)
    ours = make_env("cage2", 3, **options)
    actions = script(ours, 2 * LENGTH)
    assert (theirs.reset(seed=5)[0] == ours.reset(seed=5)[0]).all()
    for row in actions:
        for mine, other in zip(ours.step(row)[:4], theirs.step(row)[:4], strict=True):
            assert (mine == other).all()


def test_any_gymnasium_id_becomes_an_env_that_resets_in_the_same_step():
    env = make_env("CartPole-v1", 2)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert env.reset(seed=0)[0].shape == (2, 4)


def test_make_env_is_the_front_door():
    assert redline.make_env is make_env
    assert make_env("cage2").num_envs == 1


# Stable-Baselines3


def sb3_env(num_envs: int, **options: Any) -> Any:
    pytest.importorskip("stable_baselines3")
    from redline.sb3 import Sb3VecEnv

    return Sb3VecEnv(make_env("cage2", num_envs, **options), seed=5)


def test_stable_baselines3_gets_last_observations_and_episodes_its_own_way():
    theirs, ours = sb3_env(3, max_steps=LENGTH), make_env("cage2", 3, max_steps=LENGTH)
    assert (theirs.reset() == ours.reset(seed=5)[0]).all()
    for actions in script(ours, 2 * LENGTH):
        obs, rewards, done, infos = theirs.step(actions)
        our_obs, our_rewards, _, truncated, our_infos = ours.step(actions)
        assert (obs == our_obs).all()
        assert (rewards == our_rewards.astype(np.float32)).all()
        assert (done == truncated).all()
        for i, info in enumerate(infos):
            assert bool(info) == done[i]
            if info:
                assert (info["terminal_observation"] == our_infos["final_obs"][i]).all()
                assert info["TimeLimit.truncated"] is True
                assert info["episode"]["r"] == pytest.approx(our_infos["episode"]["r"][i])
                assert info["episode"]["l"] == LENGTH


def test_stable_baselines3_reaches_through_to_the_env():
    env = sb3_env(3)
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecNormalize

    assert env.render_mode is None
    assert [scenario.max_steps for scenario in env.get_attr("scenario", indices=[0, 2])] == [100, 100]
    assert env.has_attr("scenario")
    assert not env.has_attr("scneario")
    assert env.env_is_wrapped(Monitor) == [True] * 3  # as far as SB3 asks: episodes are reported
    assert env.env_is_wrapped(VecNormalize) == [False] * 3
    env.reset()
    assert env.env_method("true_state", indices=1)[0].clock.tolist() == [0, 0, 0]


def test_stable_baselines3_seeds_the_next_reset():
    env = sb3_env(3, red_agent="RedMeanderAgent")
    actions = script(env.env, 30)

    def rewards() -> list[Any]:
        env.reset()
        return [[part.tolist() for part in env.step(row)[:2]] for row in actions]

    first, second = rewards(), rewards()
    assert env.seed(5) == [5, 6, 7]
    assert rewards() == first != second


# Errors that a user can fix, in one line


def complaint(call: Any) -> str:
    with pytest.raises(RedlineError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (np.array([0.0, 1.0, 2.0]), "shape (3,) and type float64"),
        (np.array([True, False, True]), "type bool"),
        (np.array([0, 1]), "shape (2,)"),
        (np.array([[0], [1], [2]]), "shape (3, 1)"),
        (np.array(3), "shape ()"),
        (np.array([0, 1, 145]), "must be 0 to 144; got 0 to 145"),
        (np.array([0, -1, 5]), "must be 0 to 144; got -1 to 5"),
        (np.array([0, 1, 1 << 63], np.uint64), "must be 0 to 144"),
    ],
)
def test_actions_that_do_not_fit_are_refused_and_change_nothing(actions, words):
    env = make_env("cage2", 3)
    env.reset(seed=0)
    before = env.snapshot()  # type: ignore[attr-defined]
    assert words in complaint(lambda: env.step(actions))
    after = env.snapshot()  # type: ignore[attr-defined]
    assert all((before[part] == after[part]).all() for part in before)


def test_the_reduced_set_refuses_actions_of_the_full_one():
    env = make_env("cage2", 1, actions="reduced")
    env.reset(seed=0)
    assert "must be 0 to 53; got 54 to 54" in complaint(lambda: env.step(np.array([54])))


@pytest.mark.parametrize("action", [145, -1, 0.5, "Restore User1"])
def test_the_single_env_refuses_actions_that_do_not_fit(action):
    env = Cage2Env()
    env.reset(seed=0)
    complaint(lambda: env.step(action))


def test_a_step_needs_a_reset():
    env = make_env("cage2", 3)
    assert "Call reset first" in complaint(lambda: env.step(np.zeros(3, np.int64)))
    env.reset(options={"reset_mask": np.array([True, False, True])})
    assert "Call reset first" in complaint(lambda: env.step(np.zeros(3, np.int64)))


@pytest.mark.parametrize("mask", [np.ones(2, np.bool_), np.ones(4, np.bool_), np.array([0, 1, 2]), True])
def test_a_reset_mask_that_does_not_fit_is_refused(mask):
    env = make_env("cage2", 3)
    assert "reset mask" in complaint(lambda: env.reset(options={"reset_mask": mask}))


def test_seeds_that_do_not_go_round_are_refused():
    assert "2 seeds cannot be dealt to 3 envs" in complaint(lambda: make_env("cage2", 3).reset(seed=[1, 2]))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cage", {}, "There is no env 'cage'. Did you mean 'cage"),
        ("CartPole-v9", {}, "There is no env 'CartPole-v9'. Did you mean 'CartPole-v1'?"),
        ("cage2", {"red_agnet": "SleepAgent"}, "There is no cage2 option 'red_agnet'. Did you mean 'red_agent'?"),
        ("cage2", {"turob": True}, "Did you mean 'turbo'?"),
        ("cage2", {"red_agent": "BlineAgent"}, "There is no red agent 'BlineAgent'. Did you mean 'B_lineAgent'?"),
        ("cage2", {"red_agent": "B_lineAgent,Meander"}, "There is no red agent 'Meander'."),
        ("cage2", {"red_agent": ""}, "There is no red agent ''."),
        ("cage2", {"green_agent": "Green"}, "Did you mean 'GreenAgent'?"),
        ("cage2", {"rules": "leaderbord"}, "Did you mean 'leaderboard'?"),
        ("cage2", {"wrapper": "cw1"}, "Did you mean 'cw2'?"),
        ("cage2", {"observation": "tables"}, "Did you mean 'table'?"),
        ("cage2", {"actions": "reduce"}, "Did you mean 'reduced'?"),
        ("cage2", {"max_steps": -1}, "Try --max-steps 100."),
        ("cage2", {"history": 0}, "Try --history 4"),
        ("cage2", {"history": 17}, "Try --history 4"),
    ],
)
def test_a_name_that_does_not_exist_suggests_the_nearest_that_does(name, options, words):
    assert words in complaint(lambda: make_env(name, 1, **options))


@pytest.mark.parametrize("num_envs", [0, -3])
def test_no_envs_at_all_cannot_be_stepped(num_envs):
    assert f"{num_envs} envs cannot be stepped" in complaint(lambda: make_env("cage2", num_envs))
    assert f"{num_envs} envs cannot be stepped" in complaint(lambda: Cage2VectorEnv(num_envs))


# CAGE-2


@pytest.mark.parametrize(
    ("options", "size", "num_actions"),
    [
        ({}, 52, 145),
        ({"actions": "reduced"}, 52, 54),
        ({"observation": "table+scan"}, 62, 145),
        ({"observation": "history", "history": 4}, 4 * 52 + 13 * 8 + 13 + 13, 145),
        ({"encoded": True}, 1, 145),
    ],
)
def test_spaces_have_the_documented_sizes(options, size, num_actions):
    env = Cage2VectorEnv(2, **options)
    assert env.single_observation_space.shape == (size,)
    assert env.single_action_space == gym.spaces.Discrete(num_actions)


def test_the_plain_observation_is_52_bits():
    space = Cage2VectorEnv(2).single_observation_space
    assert isinstance(space, gym.spaces.Box)
    assert (space.dtype, space.low.tolist(), space.high.tolist()) == (np.int8, [0] * 52, [1] * 52)


def test_options_override_the_scenario():
    env = Cage2VectorEnv(1, Scenario(rules="leaderboard", max_steps=30), max_steps=50)
    assert (env.scenario.rules, env.scenario.max_steps) == ("leaderboard", 50)


def test_zero_max_steps_never_end_an_episode():
    env = Cage2VectorEnv(1, max_steps=0)
    env.reset(seed=0)
    assert not any(env.step(np.zeros(1, np.int64))[3].any() for _ in range(500))


def test_the_true_state_at_the_start_is_reds_foothold_and_nothing_else():
    env = Cage2VectorEnv(2, red_agent="RedMeanderAgent")
    env.reset(seed=0)
    truth = env.true_state()
    assert truth.access.tolist() == [[2 if host == "User0" else 0 for host in HOSTS]] * 2
    for nothing in (truth.malware, truth.decoys):
        assert nothing.shape == (2, 13)
        assert not nothing.any()
    assert truth.ot_service.tolist() == truth.clock.tolist() == [0, 0]
    assert truth.red_agent.tolist() == [1, 1]
    assert truth.red_action.tolist() == [[0, -1, 2]] * 2  # Sleep on nobody, success unknown


def test_the_true_state_shows_what_blue_and_red_have_done():
    env = Cage2VectorEnv(2, red_agent="B_lineAgent")
    env.reset(seed=0)
    for t in range(60):
        tomcat_on_user0 = 28 + 13 * DECOYS.index("Tomcat") + HOSTS.index("User0")
        _, rewards, *_ = env.step(np.array([tomcat_on_user0 if t == 0 else 0, 0]))
    truth = env.true_state()
    assert truth.access[:, HOSTS.index("Op_Server0")].tolist() == [2, 2]
    assert truth.malware[:, HOSTS.index("Op_Server0")].tolist() == [1, 1]
    assert truth.ot_service.tolist() == [1, 1]
    assert truth.red_action.tolist() == [[5, HOSTS.index("Op_Server0"), 1]] * 2  # Impact, again and again
    assert truth.decoys[:, HOSTS.index("User0")].tolist() == [1 << DECOYS.index("Tomcat"), 0]
    assert truth.clock.tolist() == [60, 60]
    assert (rewards < -10).all()


def test_the_true_state_is_a_copy():
    env = Cage2VectorEnv(1)
    env.reset(seed=0)
    truth = env.true_state()
    before = {name: array.tolist() for name, array in vars(truth).items()}
    play(env, script(env, 30))
    assert {name: array.tolist() for name, array in vars(truth).items()} == before
