"""What every engine promises: the same episodes, whatever the engine, the number of workers and the batch size."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from redline.engines import ENGINES, Collecting, Engine, engines_to_try, make_engine
from redline.engines.faults import Supervisor
from redline.engines.spec import EnvDescription
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.reuse import as_seen_today
from redline.learn.train import Trainer
from redline.rollout import Rollout
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes
from tests.engines.scripted import Scripted, columns

NAMES = engines_to_try(address=None)  # ray has a file of its own, since it is slow to start
LOCKSTEP = [name for name, kind in ENGINES.items() if kind.is_lockstep]
WHOLE_EPISODES = ("pool",)
TOYS = ("Shifted", "SeveralMasked", "SwitchesMasked", "Levers", "NestedMasked", "Wheels", "Pictures")
ENVS: dict[str, dict[str, Any]] = {
    "cage2": {
        "max_steps": 12,
        "red_agent": "B_lineAgent,RedMeanderAgent",
        "workflow": "user,op_host,op_server,enterprise,defender",
    },
    "CartPole-v1": {},
    "slow": {"mean_ms": 0.001, "max_ms": 0.02, "max_steps": 9},
    "external:tests.contracts.masked:make": {},
    "FrozenLake-v1": {},
    "petri:jobshop/ft06": {},
    **{f"external:tests.contracts.toys:{toy}": {} for toy in TOYS},
}
TOY_ENVS = [env for env in ENVS if env.startswith("external:tests.contracts.toys:")]
NUM_ENVS, NUM_STEPS, SEED = 6, 25, 11

every_engine = pytest.mark.parametrize("name", NAMES)
every_env = pytest.mark.parametrize("env", ENVS)


@contextmanager
def engine(name: str, env: str, num_envs: int = NUM_ENVS, workers: int = 2, **collecting: Any) -> Iterator[Engine]:
    made = make_engine(name, env, num_envs, SEED, ENVS[env], Collecting(workers=workers, **collecting))
    try:
        yield made
    finally:
        made.close()


def collect(name: str, env: str, times: int = 2, **settings: Any) -> list[Rollout]:
    with engine(name, env, **settings) as made:
        policy = Scripted(made.env.single_action_space)
        return [made.collect(policy, NUM_STEPS, Stopwatch()) for _ in range(times)]


@functools.cache
def played(name: str, env: str) -> list[Rollout]:
    """Two collects, played once for all who only look at them."""
    return collect(name, env)


def lives(rollouts: list[Rollout]) -> list[list[Any]]:
    """What happened in each env over several collects."""
    whole: list[list[Any]] = [[] for _ in range(rollouts[0].rows.shape[1])]
    for rollout in rollouts:
        for life, column in zip(whole, columns(rollout), strict=True):
            life.extend(column)
    return whole


@pytest.fixture(scope="module")
def by_hand() -> dict[str, list[list[Any]]]:
    """What each env lives through under the obvious engine."""
    return {env: lives(collect("serial", env, times=8)) for env in ENVS}


@every_env
@every_engine
def test_every_engine_plays_the_same_episodes(name, env, by_hand):
    for life, expected in zip(lives(played(name, env)), by_hand[env], strict=True):
        assert len(life) >= 2 * NUM_STEPS
        shared = min(len(life), len(expected))
        assert life[:shared] == expected[:shared]


@pytest.mark.parametrize(("workers", "num_envs"), [(1, 6), (3, 6), (2, 3), (5, 5), (2, 1)])
@pytest.mark.parametrize("name", [name for name in NAMES if ENGINES[name].has_workers])
def test_neither_workers_nor_batch_size_change_an_episode(name, workers, num_envs, by_hand):
    found = lives(collect(name, "slow", workers=workers, num_envs=num_envs))
    assert len(found) == num_envs
    for life, expected in zip(found, by_hand["slow"], strict=False):
        shared = min(len(life), len(expected))
        assert life[:shared] == expected[:shared]


@pytest.mark.parametrize("fraction", [0.01, 0.5, 1.0])
def test_how_many_must_be_ready_changes_nothing_but_the_order(fraction, by_hand):
    for life, expected in zip(lives(collect("ready", "slow", ready_fraction=fraction)), by_hand["slow"], strict=True):
        assert life == expected[: len(life)]


@every_env
@every_engine
def test_every_cell_of_a_rollout_is_written(name, env):
    for rollout in played(name, env):
        cells = rollout.cells()
        for array in (rollout.log_probs, rollout.values, rollout.rewards):
            assert np.isfinite(array[cells]).all()
        goes_on = cells & ~rollout.terminated
        assert np.isfinite(rollout.next_values[goes_on]).all()
        assert rollout.rows[cells].min() >= 0
        assert rollout.rows[cells].max() < len(rollout.observations)
        assert rollout.num_steps == cells.sum() >= NUM_ENVS * NUM_STEPS


@every_env
@every_engine
def test_a_step_is_linked_to_the_value_of_the_state_it_led_to(name, env):
    for rollout in played(name, env):
        cells, policy = rollout.cells(), Scripted(2)
        values = policy.value(rollout.observations)[rollout.rows]
        np.testing.assert_array_equal(rollout.values[cells], values[cells])
        inside = cells[1:] & cells[:-1] & ~(rollout.terminated | rollout.truncated)[:-1]
        np.testing.assert_array_equal(rollout.next_values[:-1][inside], values[1:][inside])


@every_env
@every_engine
def test_episodes_are_counted_as_they_end(name, env):
    ends = counted = 0
    for rollout in played(name, env):
        ends += int(((rollout.terminated | rollout.truncated) & rollout.cells()).sum())
        counted += len(rollout.episode_returns)
        assert len(rollout.episode_lengths) == len(rollout.episode_returns)
    assert counted == ends
    assert ends or env.startswith("petri:")  # whose episodes are longer than this


def told(rollouts: list[Rollout]) -> Counter[tuple[tuple[str, float], ...]]:
    """Everything that is told about the episodes that ended."""
    found: Counter[tuple[tuple[str, float], ...]] = Counter()
    for rollout in rollouts:
        columns = {"return": rollout.episode_returns, "length": rollout.episode_lengths, **rollout.episode_metrics}
        for values in zip(*columns.values(), strict=True):
            found[tuple((name, float(value)) for name, value in zip(columns, values, strict=True))] += 1
    return found


@every_engine
def test_every_engine_tells_the_same_about_the_episodes_that_ended(name):
    obvious = told(played("vector", "cage2"))
    assert {"env_return", "compliance"} <= {key for episode in obvious for key, _ in episode}
    found = told(played(name, "cage2"))
    assert obvious <= found  # engines that play whole episodes play more of them
    assert name in WHOLE_EPISODES or obvious == found


@pytest.mark.parametrize("name", WHOLE_EPISODES)
def test_an_episode_engine_hands_out_whole_episodes_only(name):
    for rollout in played(name, "external:tests.contracts.masked:make"):
        cells = rollout.cells()
        for i in range(NUM_ENVS):
            last = np.flatnonzero(cells[:, i])[-1]
            assert rollout.terminated[last, i] | rollout.truncated[last, i]
            assert cells[: last + 1, i].all()


@every_engine
def test_an_episode_that_does_not_end_cannot_hold_up_a_collect(name):
    endless = make_engine(name, "slow", 2, SEED, {**ENVS["slow"], "max_steps": 0}, Collecting(workers=2))
    rollout = endless.collect(Scripted(4), 3, Stopwatch())
    endless.close()
    assert rollout.num_steps <= 2 * 300
    assert not rollout.terminated[rollout.cells()].any()


@every_engine
def test_columns_carry_the_version_of_the_weights_that_wrote_them(name):
    with engine(name, "slow") as made:
        for version in (0, 3):
            rollout = made.collect(Scripted(4, version), 5, Stopwatch())
            assert rollout.version.tolist() == [version] * NUM_ENVS


@every_engine
def test_closing_twice_is_fine(name):
    with engine(name, "slow") as made:
        made.close()


@every_engine
def test_an_engine_is_made_whole(name):
    kind = ENGINES[name]
    with engine(name, "slow") as made:
        assert isinstance(made.env, EnvDescription)
        assert isinstance(made.faults, Supervisor) and not made.faults.dropped.any()
        assert isinstance(made.times, WorkerTimes) and len(made.times.step_seconds) == made.num_workers
        assert made.num_workers == (2 if kind.has_workers else 1)
        assert ("2 workers" in made.plan) == kind.has_workers == bool(made.plan)


@pytest.mark.parametrize("env", ["cage2", "FrozenLake-v1"])
def test_every_engine_describes_its_envs_alike(env):
    found = []
    for name in NAMES:
        with engine(name, env, num_envs=2) as made:
            spaces, encoding = (made.env.single_observation_space, made.env.single_action_space), made.env.encoding
            found.append((*spaces, encoding.shape, encoding.dtype, encoding.size))
    assert found == [found[0]] * len(NAMES)


def test_no_two_engines_are_as_simple_as_each_other():
    assert len({kind.rank for kind in ENGINES.values()}) == len(ENGINES)


# Under a learned policy


def config(name: str, env: str = "CartPole-v1", **more: Any) -> TrainConfig:
    ppo = PPOConfig(minibatches=2, epochs=2)
    settings: dict[str, Any] = {"num_envs": NUM_ENVS, "num_steps": 20, "device": "cpu", "ppo": ppo, "seed": 4}
    options = {} if env == "CartPole-v1" else ENVS[env]
    return TrainConfig(env, options, engine=name, collecting=Collecting(workers=2), **{**settings, **more})


@contextmanager
def trainer(*args: Any, **settings: Any) -> Iterator[Trainer]:
    made = Trainer(config(*args, **settings))
    try:
        yield made
    finally:
        made.close()


def trained_weights(name: str, env: str) -> np.ndarray:
    with trainer(name, env) as made:
        for _ in range(3):
            made.update()
        return made.policy.weights.detach().numpy().copy()


@pytest.mark.parametrize("env", ["cage2", "CartPole-v1", "external:tests.contracts.masked:make", *TOY_ENVS])
def test_lockstep_engines_train_the_very_same_policy(env):
    expected = trained_weights("serial", env)
    for name in LOCKSTEP[1:]:
        np.testing.assert_array_equal(trained_weights(name, env), expected, err_msg=name)


@pytest.mark.parametrize("env", ["cage2", "CartPole-v1", "external:tests.contracts.masked:make", *TOY_ENVS])
@pytest.mark.parametrize("name", ["vector", "ready", "pool"])
def test_what_a_policy_said_is_what_its_weights_say(name, env):
    with trainer(name, env) as made:
        for _ in range(2):
            rollout = made.engine.collect(made.actor, 20, made.watch)
            again, _ = as_seen_today(rollout, made.policy)
            cells = rollout.cells()
            np.testing.assert_allclose(rollout.log_probs[cells], again.log_probs[cells], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(rollout.values[cells], again.values[cells], rtol=1e-4, atol=1e-5)
            made.ppo.update(rollout, made.watch)
            made.actor.version += 1


@pytest.mark.parametrize("name", [*LOCKSTEP[1:], "ready", "pool"])
def test_every_engine_learns_to_balance_a_pole(name):
    ppo = PPOConfig(learning_rate=1e-3, minibatches=8, anneal=False, entropy=0.01, reward_scale=1.0)
    with trainer(name, num_envs=16, num_steps=128, ppo=ppo, total_steps=10**9) as made:
        lengths = [made.update().metrics["length"] for _ in range(8)]
    assert max(lengths[-3:]) > 2 * lengths[0]


@pytest.mark.parametrize("name", ["vector", "pipes", "shared"])
def test_training_goes_on_from_a_snapshot_as_if_nothing_had_happened(name):
    with trainer(name, "cage2") as whole:
        whole.update()
        arrays, values = whole.snapshot()
        whole.update()
        expected = whole.policy.weights.detach().numpy().copy()
    with trainer(name, "cage2") as resumed:
        assert resumed.restore(arrays, values)
        resumed.update()
        np.testing.assert_array_equal(resumed.policy.weights.detach().numpy(), expected)


def test_envs_that_cannot_be_saved_do_not_play_their_first_episodes_again():
    with trainer("serial", "slow") as made:
        first = made.engine.collect(made.actor, 5, made.watch)
        made.step = 30
        arrays, values = made.snapshot()
    with trainer("serial", "slow") as resumed:
        assert not resumed.restore(arrays, values)
        again = resumed.engine.collect(resumed.actor, 5, resumed.watch)
    assert columns(first) != columns(again)


def test_steps_of_different_weights_are_never_taken_for_one():
    with trainer("pool") as made:
        old = made.engine.collect(made.actor, 20, made.watch)
        made.ppo.update(old, made.watch)
        made.actor.version += 1
        new = made.engine.collect(made.actor, 20, made.watch)
    from redline.rollout import join

    both = join([old, new])
    assert set(both.version.tolist()) == {0, 1}
    rows_of = [set(both.rows[:, both.version == v][both.cells()[:, both.version == v]].tolist()) for v in (0, 1)]
    assert not rows_of[0] & rows_of[1]


def test_episodes_of_unequal_length_are_kept_for_reuse_and_resumed():
    with trainer("pool", "CartPole-v1", reuse=1) as made:
        made.update()
        arrays, values = made.snapshot()
    with trainer("pool", "CartPole-v1", reuse=1) as resumed:
        resumed.restore(arrays, values)


def test_minibatches_need_not_divide_what_whole_episodes_come_to():
    with trainer("pool", ppo=dataclasses.replace(PPOConfig(), minibatches=8)) as made:
        assert made.update().metrics["gradient_steps"] == 32
