from __future__ import annotations

import numpy as np
import pytest
import torch

from redline.engines import make_engine
from redline.engines.lockstep import Lockstep
from redline.learn.acting import TRY_AGAIN, WORTH_SHARING, Actor
from redline.learn.config import TrainConfig
from redline.learn.heads.categorical import Categorical
from redline.learn.network import steady_pass
from redline.learn.network.torch_pass import TorchNetwork
from redline.learn.policy import Policy
from redline.learn.train import make_policy
from redline.rollout import Decision, Rollout
from redline.threads import use_threads
from redline.timing.stopwatch import Stopwatch
from redline.worlds.encoding import plain
from tests.learn.masks import random_masks
from tests.learn.streams import LARGEST_UNIT, stream_that_draws

use_threads(1)  # as in training: networks this small gain nothing from torch's own threads

CAGE2_ENVS, CAGE2_STEPS = 32, 50


def cage2() -> tuple[Lockstep, Policy]:
    """An engine whose episodes are cut in the middle of a collect, and a fresh policy for it."""
    engine = make_engine("vector", "cage2", CAGE2_ENVS, 0, {"max_steps": 30})
    return engine, make_policy(engine.env, TrainConfig(), seed=0)


def collect_twice(dedup: bool) -> list[Rollout]:
    """Two rollouts of CAGE-2, with other weights for the second."""
    engine, policy = cage2()
    actor = Actor(policy, CAGE2_ENVS, seed=1, dedup=dedup)
    first = engine.collect(actor, CAGE2_STEPS, Stopwatch())
    nudge(policy)
    return [first, engine.collect(actor, CAGE2_STEPS, Stopwatch())]


def nudge(policy: Policy) -> None:
    with torch.no_grad():
        policy.weights.add_(0.05)


def toy_policy(num_actions: int = 4) -> Policy:
    """A policy over one number with opinions."""
    torch.manual_seed(0)
    policy = Policy(plain((1,), np.float32), Categorical(num_actions), (8,))
    with torch.no_grad():
        policy.weights.copy_(torch.randn_like(policy.weights))
    return policy


def opinionated_policy(scale: float) -> Policy:
    """A policy over four numbers with random weights, all of them multiplied by `scale`."""
    torch.manual_seed(0)
    policy = Policy(plain((4,), np.float32), Categorical(6), (8,))
    with torch.no_grad():
        policy.weights.copy_(scale * torch.randn_like(policy.weights))
    return policy


def four_numbers(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)[:, None]


def expected_log_probs(policy: Policy, obs: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray:
    with torch.no_grad():
        logits, _ = policy.network(policy.inputs(obs))
    if masks is not None:
        logits[~torch.from_numpy(masks)] = -1e9
    return torch.log_softmax(logits, dim=-1).numpy()


def expected_values(policy: Policy, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return policy.network(policy.inputs(obs))[1].numpy()


def act_once(actor: Actor, obs: np.ndarray, masks: np.ndarray | None = None) -> Decision:
    actor.begin(1)
    return actor.act(obs, masks)


# Looking up changes nothing


def test_actions_are_the_same_with_and_without_dedup():
    for every, deduplicated in zip(collect_twice(dedup=False), collect_twice(dedup=True), strict=True):
        np.testing.assert_array_equal(deduplicated.actions, every.actions)
        np.testing.assert_array_equal(deduplicated.rewards, every.rewards)
        np.testing.assert_array_equal(deduplicated.observations[deduplicated.rows], every.observations[every.rows])
        for name in ("log_probs", "values", "next_values"):
            expected = getattr(every, name)
            np.testing.assert_allclose(getattr(deduplicated, name), expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_each_distinct_observation_goes_through_the_network_once_per_collect(monkeypatch):
    asked: list[np.ndarray] = []

    def counting_forward(network, weights, inputs):
        asked.append(inputs.copy())
        return forward(network, weights, inputs)

    def never(*_):
        raise AssertionError("the network was asked in another way")

    forward = steady_pass.forward
    monkeypatch.setattr(steady_pass, "forward", counting_forward)
    monkeypatch.setattr(TorchNetwork, "forward", never)
    engine, policy = cage2()
    actor = Actor(policy, CAGE2_ENVS, seed=1)
    for _ in range(2):
        rollout = engine.collect(actor, CAGE2_STEPS, Stopwatch())
        rows = np.concatenate(asked)
        assert len(rows) == len(np.unique(rows, axis=0)) == len(rollout.observations)
        assert len(rows) < rollout.num_steps / 2
        asked.clear()


def test_a_collect_begins_by_asking_at_once_about_all_that_the_last_one_acted_on(monkeypatch):
    asked: list[list[float]] = []

    def counting_forward(network, weights, inputs):
        asked.append(inputs[:, 0].tolist())
        return forward(network, weights, inputs)

    forward = steady_pass.forward
    monkeypatch.setattr(steady_pass, "forward", counting_forward)
    actor = Actor(toy_policy(), 3, seed=0)
    actor.begin(2)
    actor.act(column(1, 2, 1), None)
    actor.act(column(1, 3, 2), None)
    actor.value(column(4))
    actor.observations()
    assert asked == [[1, 2], [3], [4]]
    asked.clear()
    actor.begin(2)
    assert asked == [[1, 2, 3]]


def test_without_dedup_every_observation_stands_in_the_table_by_itself():
    rollout = collect_twice(dedup=False)[1]
    assert rollout.rows.reshape(-1).tolist() == list(range(CAGE2_STEPS * CAGE2_ENVS))
    assert len(rollout.observations) == CAGE2_STEPS * CAGE2_ENVS


def test_with_dedup_no_observation_stands_in_the_table_twice():
    for rollout in collect_twice(dedup=True):
        assert len(np.unique(rollout.observations, axis=0)) == len(rollout.observations)


@pytest.mark.parametrize("dedup", [True, False])
def test_new_weights_are_asked_anew(dedup):
    policy, obs = toy_policy(), column(1, 2, 1)
    actor = Actor(policy, 3, seed=0, dedup=dedup)
    act_once(actor, obs)
    actor.observations()
    nudge(policy)
    decision = act_once(actor, obs)
    np.testing.assert_allclose(decision.values, expected_values(policy, obs), rtol=1e-5, atol=1e-6)
    expected = expected_log_probs(policy, obs)[np.arange(3), decision.actions]
    np.testing.assert_allclose(decision.log_probs, expected, rtol=1e-5, atol=1e-6)


def test_a_table_grows_with_the_observations_and_loses_nothing():
    policy = toy_policy()
    actor = Actor(policy, 2, seed=0)
    actor.begin(100)
    seen, decisions = [], []
    for t in range(100):
        obs = column(t, t // 2)
        seen.append(obs)
        decisions.append(actor.act(obs, None))
    obs = np.concatenate(seen)
    rows = np.concatenate([decision.rows for decision in decisions])
    table, _ = actor.observations()
    assert len(table) == 100
    np.testing.assert_array_equal(table[rows], obs)
    values = np.concatenate([decision.values for decision in decisions])
    np.testing.assert_allclose(values, expected_values(policy, obs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dedup", [True, False])
def test_the_value_of_an_observation_needs_no_action(dedup):
    policy = toy_policy()
    actor = Actor(policy, 2, seed=0, dedup=dedup)
    act_once(actor, column(1, 2))
    obs = column(2, 3, 4, 3)
    np.testing.assert_allclose(actor.value(obs), expected_values(policy, obs), rtol=1e-5, atol=1e-6)


def test_observations_are_copied_since_an_env_may_write_over_them():
    for dedup in (True, False):
        actor, obs = Actor(toy_policy(), 2, seed=0, dedup=dedup), column(1, 2)
        act_once(actor, obs)
        obs[:] = 9
        assert actor.observations()[0].tolist() == [[1], [2]]


# Masks


def test_an_observation_with_other_masks_is_another_one():
    policy = toy_policy()
    obs = column(1, 1, 1)
    masks = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]], bool)
    actor = Actor(policy, 3, seed=0)
    decision = act_once(actor, obs, masks)
    table, table_masks = actor.observations()
    assert decision.rows.tolist() == [0, 1, 0]
    assert table.tolist() == [[1], [1]]
    np.testing.assert_array_equal(table_masks, masks[:2])
    expected = expected_log_probs(policy, obs, masks)[np.arange(3), decision.actions]
    np.testing.assert_allclose(decision.log_probs, expected, rtol=1e-5, atol=1e-6)


def test_masks_and_dedup_go_together_over_collects():
    rng = np.random.default_rng(0)
    obs = rng.integers(3, size=(20, 50, 1)).astype(np.float32)
    masks = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]], bool)[rng.integers(3, size=(20, 50))]
    actions = {}
    for dedup in (True, False):
        actor, actions[dedup] = Actor(toy_policy(), 50, seed=0, dedup=dedup), []
        for first in (0, 10):
            actor.begin(10)
            for t in range(first, first + 10):
                decision = actor.act(obs[t], masks[t])
                assert masks[t, np.arange(50), decision.actions].all()
                actions[dedup].append(decision.actions)
            actor.value(obs[first])
            table, table_masks = actor.observations()
            assert len(table) == len(table_masks) == (9 if dedup else 500)
    np.testing.assert_array_equal(actions[True], actions[False])


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("drawn", [0.0, 2.0**-53, 0.5, LARGEST_UNIT])
def test_a_masked_action_is_not_drawn_by_the_most_extreme_numbers(drawn, scale, dedup):
    count = 2000
    masks = random_masks(count)
    actor = Actor(opinionated_policy(scale), count, seed=0, dedup=dedup)
    actor.streams[:] = stream_that_draws(drawn)
    actor.begin(1)
    actions = actor.act(four_numbers(count), masks).actions
    assert masks[np.arange(count), actions].all()


@pytest.mark.parametrize("dedup", [True, False])
def test_many_draws_find_all_the_allowed_actions_and_no_other(dedup):
    masks, obs = random_masks(1000), four_numbers(1000)
    actor = Actor(Policy(plain((4,), np.float32), Categorical(6)), 1000, seed=0, dedup=dedup)
    actor.begin(200)
    drawn = np.zeros((1000, 6), bool)
    for _ in range(200):
        drawn[np.arange(1000), actor.act(obs, masks).actions] = True
    np.testing.assert_array_equal(drawn, masks)


# Draws


@pytest.mark.parametrize("dedup", [True, False])
def test_draws_follow_the_distribution(dedup):
    num_envs, num_steps = 500, 40
    policy, obs = toy_policy(num_actions=5), column(0.5).repeat(num_envs, axis=0)
    actor = Actor(policy, num_envs, seed=0, dedup=dedup)
    actor.begin(num_steps)
    counts = sum(np.bincount(actor.act(obs, None).actions, minlength=5) for _ in range(num_steps))
    expected = np.exp(expected_log_probs(policy, obs[:1])[0]) * num_envs * num_steps
    assert expected.min() > 100
    assert ((counts - expected) ** 2 / expected).sum() < 18.47  # chi-square, 4 degrees of freedom, p = 0.001


@pytest.mark.parametrize("dedup", [True, False])
def test_an_env_draws_the_same_whoever_plays_beside_it(dedup):
    policy = toy_policy()
    obs = np.random.default_rng(0).integers(5, size=(60, 8, 1)).astype(np.float32)
    crowd, alone = Actor(policy, 8, seed=3, dedup=dedup), Actor(policy, 1, seed=3 + 5, dedup=dedup)
    crowd.begin(60)
    alone.begin(60)
    for t in range(60):
        assert crowd.act(obs[t], None).actions[5] == alone.act(obs[t, 5:6], None).actions[0]


def test_envs_draw_different_numbers():
    actor = Actor(Policy(plain((1,), np.float32), Categorical(1000), ()), 100, seed=0)
    assert len(set(act_once(actor, np.zeros((100, 1), np.float32)).actions)) > 50


@pytest.mark.parametrize("dedup", [True, False])
def test_a_deterministic_actor_takes_the_likeliest_action_allowed(dedup):
    policy, obs = toy_policy(), column(-2, 1, 3, 1)
    masks = np.array([[1, 1, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], bool)
    decision = act_once(Actor(policy, 4, seed=0, dedup=dedup, deterministic=True), obs, masks)
    log_probs = expected_log_probs(policy, obs, masks)
    assert decision.actions.tolist() == log_probs.argmax(axis=1).tolist()
    np.testing.assert_allclose(decision.log_probs, log_probs.max(axis=1), rtol=1e-5, atol=1e-6)


# When looking up is not worth it


def test_dedup_switches_itself_off_where_observations_hardly_repeat():
    engine = make_engine("vector", "CartPole-v1", 4, 0, {})
    actor = Actor(make_policy(engine.env, TrainConfig(env="CartPole-v1"), seed=0), 4, seed=1)
    rollouts = []
    for _ in range(2):
        rollouts.append(engine.collect(actor, 30, Stopwatch()))
        assert not actor.dedup
    assert rollouts[1].rows.reshape(-1).tolist() == list(range(120))
    for rollout in rollouts:
        seen = rollout.observations[rollout.rows.reshape(-1)]
        values = expected_values(actor.policy, seen)
        np.testing.assert_allclose(rollout.values.reshape(-1), values, rtol=1e-5, atol=1e-6)
    engine.close()


def test_dedup_stays_on_where_observations_repeat():
    actor = Actor(toy_policy(), 4, seed=0)
    act_once(actor, column(1, 1, 2, 2))
    actor.observations()
    assert actor.dedup


def test_an_actor_that_was_told_not_to_look_up_never_starts():
    actor = Actor(toy_policy(), 4, seed=0, dedup=False)
    act_once(actor, column(1, 1, 1, 1))
    actor.observations()
    assert not actor.dedup


# Snapshots


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_an_actor_goes_on_from_a_snapshot_as_if_nothing_had_happened(masked, dedup):
    policy, obs = toy_policy(), column(1, 2, 1, 2)
    masks = np.array([[1, 1, 0, 0], [1, 0, 1, 1]] * 2, bool) if masked else None
    actor = Actor(policy, 4, seed=0, dedup=dedup)
    act_once(actor, obs, masks)
    actor.observations()
    other = Actor(policy, 4, seed=99, dedup=not dedup)
    other.restore(actor.snapshot())
    for later in (column(2, 3, 2, 3), obs):
        for expected, array in zip(act_once(actor, later, masks), act_once(other, later, masks), strict=True):
            np.testing.assert_array_equal(array, expected)
        actor.observations()
        other.observations()


def test_a_snapshot_is_not_touched_by_what_comes_after():
    actor, obs = Actor(toy_policy(), 4, seed=0), column(1, 2, 1, 2)
    act_once(actor, obs)
    actor.observations()
    snapshot = actor.snapshot()
    before = {name: array.copy() for name, array in snapshot.items()}
    act_once(actor, column(5, 6, 5, 6))
    actor.observations()
    for name, array in before.items():
        np.testing.assert_array_equal(snapshot[name], array, err_msg=name)


def test_lookups_that_were_given_up_are_tried_again():
    actor = Actor(toy_policy(), 4, seed=0)
    wanted = []
    for version in range(2 * TRY_AGAIN + 1):
        actor.version = version
        repeats = version >= TRY_AGAIN
        actor.begin(2)
        for shift in range(2):
            actor.act(column(1, 1, 1, 1) if repeats else column(*np.arange(4) + 4 * shift), None)
        wanted.append(actor.dedup)
        actor.observations()
    assert wanted == [True] + [False] * (TRY_AGAIN - 1) + [True] * (TRY_AGAIN + 1)


@pytest.mark.parametrize("dedup", [True, False])
def test_threads_that_share_the_asking_change_no_bit(dedup):
    obs = np.random.default_rng(0).normal(size=(2 * WORTH_SHARING + 1, 4)).astype(np.float32)
    masks = random_masks(len(obs))
    policy = opinionated_policy(1.0)
    alone, shared = (Actor(policy, len(obs), 1, dedup, threads=threads).act(obs, masks) for threads in (1, 2))
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(one, other)
