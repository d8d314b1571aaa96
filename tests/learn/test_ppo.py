from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from redline.learn import autograd
from redline.learn.batch import Gatherer, Minibatch, Steps, cut_between_observations, parts, plain_batch
from redline.learn.config import PPOConfig
from redline.learn.gradient import InOneCall
from redline.learn.heads.categorical import Categorical
from redline.learn.policy import Policy
from redline.learn.ppo import PPO
from redline.learn.reuse import as_seen_today
from redline.learn.summing import sum_up
from redline.rollout import Rollout
from redline.threads import use_threads
from redline.timing.stopwatch import Stopwatch
from redline.worlds.encoding import plain
from tests.oracles import ppo as oracle

use_threads(1)  # as in training, where threads work on parts of a batch instead

ROUNDING = 1e-5
"""How far a gradient may be from the oracle's, relative to the largest number in it."""

STILL = PPOConfig(learning_rate=0.0, epochs=1, max_grad_norm=1e9, entropy=0.02)
"""Works out gradients and leaves the weights alone."""

NUM_STEPS, NUM_ENVS, NUM_ROWS, OBS_SIZE, NUM_ACTIONS = 16, 12, 40, 5, 7


def make_policy(hidden: tuple[int, ...] = (16, 9), shared: bool = False) -> Policy:
    torch.manual_seed(0)
    policy = Policy(plain((OBS_SIZE,), np.float32), Categorical(NUM_ACTIONS), hidden, shared)
    with torch.no_grad():
        policy.network.actor.weight.mul_(50)  # a fresh policy has no opinion, and almost no gradient to compare
    return policy


def cut_into_parts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Have batches cut into parts of that size, whoever works out their gradients."""
    monkeypatch.setattr(autograd, "PART_SIZE", size)
    monkeypatch.setattr(InOneCall, "PIECE", size)


def random_rollout(policy: Policy, masked: bool = False, moved: float = 0.0, seed: int = 0) -> Rollout:
    """Steps as `policy` could have taken them, before its log-probabilities moved by about `moved`."""
    rng = np.random.default_rng(seed)
    shape = (NUM_STEPS, NUM_ENVS)
    observations = rng.normal(size=(NUM_ROWS, OBS_SIZE)).astype(np.float32)
    masks = rng.random((NUM_ROWS, NUM_ACTIONS)) < 0.6 if masked else None
    if masks is not None:
        masks[:, 3] = True
    with torch.no_grad():
        logits, values = policy.network(torch.from_numpy(observations))
        if masks is not None:
            logits[~torch.from_numpy(masks)] = -1e9
        log_probs = torch.log_softmax(logits, dim=-1).numpy()
    rollout = Rollout.empty(*shape)
    rollout.rows[:] = rng.integers(NUM_ROWS, size=shape)
    likelihoods = np.exp(log_probs)[rollout.rows]
    rollout.actions[:] = (likelihoods.cumsum(axis=-1) > rng.random(shape)[..., None] * 0.999).argmax(axis=-1)
    log_probs = log_probs + moved * rng.normal(size=log_probs.shape).astype(np.float32)
    rollout.log_probs[:] = log_probs[rollout.rows, rollout.actions]
    rollout.values[:] = values.numpy()[rollout.rows]
    rollout.rewards[:] = 10 * rng.normal(size=shape)
    rollout.terminated[:] = rng.random(shape) < 0.1
    rollout.truncated[:] = rng.random(shape) < 0.1
    rollout.next_values[rollout.truncated] = rng.normal(size=int(rollout.truncated.sum()))
    rollout.link_values(rng.normal(size=NUM_ENVS).astype(np.float32))
    rollout.observations, rollout.masks = observations, masks
    return rollout


def gradients(learner: PPO, rollout: Rollout, **options: Any) -> list[np.ndarray]:
    """The gradient of every optimiser step of an update."""
    found: list[np.ndarray] = []
    step = learner.optimizer.step

    def noted_step() -> None:
        found.append(learner.policy.weights.grad.numpy().copy())  # type: ignore[union-attr]
        step()

    with mock.patch.object(learner.optimizer, "step", noted_step):
        learner.update(rollout, Stopwatch(), **options)
    return found


def assert_same_gradient(gradient: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(gradient - expected).max() <= ROUNDING * np.abs(expected).max()


def updated_weights(rollout: Rollout, config: PPOConfig, **options: Any) -> np.ndarray:
    """Weights after one update of a fresh policy."""
    policy = make_policy()
    PPO(policy, config, **options).update(rollout, Stopwatch())
    return policy.weights.numpy().copy()


def metrics(
    rollout: Rollout, config: PPOConfig = STILL, policy: Policy | None = None, **options: Any
) -> dict[str, float]:
    return PPO(policy or make_policy(), config, **options).update(rollout, Stopwatch())


either_way = pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "autograd"])
both_batches = pytest.mark.parametrize("dedup", [True, False], ids=["dedup", "plain"])


# The gradient


@either_way
@both_batches
@pytest.mark.parametrize("minibatches", [1, 4])
@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
@pytest.mark.parametrize("moved", [0.0, 2.0], ids=["fresh", "clipped"])
def test_the_gradient_is_that_of_the_textbook(by_hand, dedup, minibatches, masked, shared, moved):
    policy = make_policy(shared=shared)
    rollout = random_rollout(policy, masked, moved)
    config = dataclasses.replace(STILL, minibatches=minibatches)
    found = gradients(PPO(policy, config, dedup=dedup, by_hand=by_hand), rollout)
    assert len(found) == minibatches
    # minibatches are of equal size, so the mean of their gradients is that of the whole
    assert_same_gradient(np.mean(found, axis=0), oracle.ppo_gradient(policy, rollout, config))


@either_way
def test_minibatches_of_whole_observations_add_up_to_the_textbook(by_hand):
    policy = make_policy()
    rollout = random_rollout(policy, masked=True, moved=0.5)
    config = dataclasses.replace(STILL, minibatches=4, whole_observations=True)
    found = gradients(PPO(policy, config, by_hand=by_hand), rollout)
    assert len(found) == 4
    assert_same_gradient(np.mean(found, axis=0), oracle.ppo_gradient(policy, rollout, config))


def test_an_observation_is_in_one_of_the_minibatches_with_all_its_steps():
    policy = make_policy()
    rollout = random_rollout(policy, moved=0.5)
    whole = sum_up(rollout, rollout.rewards, np.float32(0.9), np.float32(0.9), True, policy.head).batch
    found = list(cut_between_observations(whole, np.random.default_rng(0).permutation(len(whole.rows)), 3))
    assert sorted(np.concatenate([part.rows for part in found])) == sorted(whole.rows)
    for part in found:
        np.testing.assert_array_equal(np.bincount(part.pair_rows, part.pair_visits), part.visits)
        for row, visits in zip(part.rows, part.visits, strict=True):
            assert visits == (rollout.rows == row).sum()


def test_whole_observations_are_for_dedup_only():
    """Without it there are steps to cut between."""
    config = PPOConfig(minibatches=4)
    rollout = random_rollout(make_policy(), moved=0.1)
    expected = updated_weights(rollout, config, dedup=False)
    whole = dataclasses.replace(config, whole_observations=True)
    np.testing.assert_array_equal(updated_weights(rollout, whole, dedup=False), expected)


def test_some_ratios_are_far_outside_the_clip_range_on_either_side():
    policy = make_policy()
    rollout = random_rollout(policy, moved=2.0)
    today, _ = as_seen_today(rollout, policy)
    ratios = np.exp(today.log_probs - rollout.log_probs)
    assert (ratios < 0.4).mean() > 0.1
    assert (ratios > 3).mean() > 0.1
    assert 0.1 < oracle.ppo_loss(oracle.in_double(policy), rollout, STILL).clipped < 0.99


@either_way
@pytest.mark.parametrize("hidden", [(), (3,), (4, 5, 6)])
@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_is_right_for_any_network(hidden, shared, by_hand):
    policy = make_policy(hidden, shared)
    rollout = random_rollout(policy, masked=True, moved=0.5)
    (found,) = gradients(PPO(policy, STILL, by_hand=by_hand), rollout)
    assert_same_gradient(found, oracle.ppo_gradient(policy, rollout, STILL))


@either_way
@pytest.mark.parametrize(
    "change",
    [
        {"normalise": False},
        {"clip": 0.0},
        {"clip": 0.5},
        {"entropy": 0.0},
        {"entropy": 1.0},
        {"value": 0.0},
        {"value": 3.0},
        {"gamma": 0.5, "gae_lambda": 0.3},
        {"reward_scale": 2.0, "normalise": False},
    ],
    ids=str,
)
def test_the_gradient_follows_every_setting(change, by_hand):
    policy = make_policy()
    rollout = random_rollout(policy, moved=0.5)
    config = dataclasses.replace(STILL, **change)
    (found,) = gradients(PPO(policy, config, by_hand=by_hand), rollout)
    assert_same_gradient(found, oracle.ppo_gradient(policy, rollout, config))


@either_way
@both_batches
@pytest.mark.parametrize("part_size", [1, 7, 39])
def test_parts_of_any_size_add_up_to_the_whole(part_size, dedup, by_hand, monkeypatch):
    cut_into_parts(monkeypatch, part_size)
    policy = make_policy()
    rollout = random_rollout(policy, masked=True, moved=0.5)
    (found,) = gradients(PPO(policy, STILL, dedup=dedup, by_hand=by_hand), rollout)
    assert_same_gradient(found, oracle.ppo_gradient(policy, rollout, STILL))


@pytest.mark.parametrize("minibatches", [1, 4])
def test_the_number_of_threads_changes_no_bit(minibatches, monkeypatch):
    cut_into_parts(monkeypatch, 6)
    config = PPOConfig(minibatches=minibatches)
    rollout = random_rollout(make_policy(), moved=0.1)
    alone = updated_weights(rollout, config, threads=1)
    np.testing.assert_array_equal(updated_weights(rollout, config, threads=2), alone)
    np.testing.assert_array_equal(updated_weights(rollout, config, threads=3), alone)


def test_all_ways_to_the_gradient_lead_to_nearly_the_same_weights(monkeypatch):
    config = PPOConfig(learning_rate=1e-3)
    rollout = random_rollout(make_policy(), moved=0.1)
    before, after = make_policy().weights.numpy(), updated_weights(rollout, config)
    moved = np.abs(after - before).max()
    for options in ({"dedup": False}, {"by_hand": False}, {"dedup": False, "by_hand": False}):
        np.testing.assert_allclose(updated_weights(rollout, config, **options), after, atol=0.01 * moved)
    cut_into_parts(monkeypatch, 5)
    np.testing.assert_allclose(updated_weights(rollout, config), after, atol=0.01 * moved)


# The loss


@either_way
@both_batches
@pytest.mark.parametrize("moved", [0.0, 2.0], ids=["fresh", "clipped"])
def test_metrics_are_those_of_the_textbook(moved, dedup, by_hand):
    policy = make_policy()
    rollout = random_rollout(policy, masked=True, moved=moved)
    found = metrics(rollout, policy=policy, dedup=dedup, by_hand=by_hand)
    expected = oracle.ppo_loss(oracle.in_double(policy), rollout, STILL)
    assert found["loss"] == pytest.approx(expected.total.item(), rel=1e-5, abs=1e-6)
    assert found["policy_loss"] == pytest.approx(expected.policy.item(), rel=1e-5, abs=1e-6)
    assert found["value_loss"] == pytest.approx(expected.value.item(), rel=1e-5)
    assert found["entropy"] == pytest.approx(expected.entropy.item(), rel=1e-5)
    assert found["kl"] == pytest.approx(expected.kl.item(), rel=1e-5, abs=1e-6)
    assert found["clipped"] == pytest.approx(expected.clipped.item(), rel=1e-6)


@either_way
@pytest.mark.parametrize("part_size", [1, 7])
def test_metrics_do_not_depend_on_parts(part_size, by_hand, monkeypatch):
    rollout = random_rollout(make_policy(), moved=0.5)
    whole = metrics(rollout, by_hand=by_hand)
    cut_into_parts(monkeypatch, part_size)
    assert metrics(rollout, by_hand=by_hand) == pytest.approx(whole, rel=1e-5, abs=1e-6)


def test_explained_variance_is_one_for_a_critic_that_knows_and_zero_for_one_that_guesses_the_mean():
    rollout = random_rollout(make_policy())
    rollout.terminated[:] = True
    rollout.rewards[:] = 10 * rollout.values  # scaled by 0.1 they are just what was expected
    assert metrics(rollout)["explained_variance"] == pytest.approx(1.0)
    rollout.values[:] = 0.0
    assert metrics(rollout)["explained_variance"] == pytest.approx(0.0, abs=1e-6)


def test_returns_that_never_vary_cannot_be_explained():
    rollout = random_rollout(make_policy())
    rollout.terminated[:], rollout.rewards[:], rollout.values[:] = True, 0.0, 1.0
    assert np.isnan(metrics(rollout)["explained_variance"])


# The update


def test_every_epoch_goes_through_every_minibatch():
    rollout = random_rollout(make_policy())
    assert metrics(rollout, PPOConfig(epochs=3, minibatches=4))["gradient_steps"] == 12


def test_minibatches_follow_from_the_seed():
    config = PPOConfig(minibatches=4)
    rollout = random_rollout(make_policy())
    weights = updated_weights(rollout, config, seed=0)
    np.testing.assert_array_equal(updated_weights(rollout, config, seed=0), weights)
    assert (updated_weights(rollout, config, seed=1) != weights).any()


def test_a_policy_that_moved_too_far_is_left_where_it_is():
    rollout = random_rollout(make_policy(), moved=2.0)
    config = PPOConfig(epochs=5, target_kl=0.05)
    found = metrics(rollout, config)
    assert found["kl"] > 0.05
    assert found["gradient_steps"] == 1
    np.testing.assert_array_equal(updated_weights(rollout, config), make_policy().weights.numpy())


def test_passes_stop_as_soon_as_the_policy_has_moved_far_enough():
    rollout = random_rollout(make_policy())
    without = metrics(rollout, PPOConfig(epochs=50))
    found = metrics(rollout, PPOConfig(epochs=50, target_kl=without["kl"] / 4))
    assert 1 < found["gradient_steps"] < without["gradient_steps"] == 50
    assert without["kl"] / 4 < found["kl"] < without["kl"]


def test_the_step_size_falls_linearly_to_zero():
    rollout, policy = random_rollout(make_policy()), make_policy()
    learner = PPO(policy, PPOConfig(learning_rate=0.01))
    rates = [learner.update(rollout, Stopwatch(), progress)["learning_rate"] for progress in (0.0, 0.25, 1.0)]
    assert rates == [0.01, 0.0075, 0.0]


def test_without_annealing_the_step_size_stays():
    learner = PPO(make_policy(), PPOConfig(learning_rate=0.01, anneal=False))
    assert learner.update(random_rollout(make_policy()), Stopwatch(), progress=0.75)["learning_rate"] == 0.01


def test_at_the_end_of_annealing_nothing_moves():
    policy = make_policy()
    PPO(policy, PPOConfig()).update(random_rollout(policy), Stopwatch(), progress=1.0)
    np.testing.assert_array_equal(policy.weights.numpy(), make_policy().weights.numpy())


@either_way
def test_a_long_gradient_is_shortened_and_keeps_its_direction(by_hand):
    policy = make_policy()
    rollout = random_rollout(policy)
    (whole,) = gradients(PPO(policy, STILL, by_hand=by_hand), rollout)
    length = float(np.linalg.norm(whole))
    (cut,) = gradients(PPO(policy, dataclasses.replace(STILL, max_grad_norm=length / 4), by_hand=by_hand), rollout)
    assert_same_gradient(cut, whole / 4)


@either_way
def test_a_short_gradient_is_left_alone(by_hand):
    policy = make_policy()
    rollout = random_rollout(policy)
    (whole,) = gradients(PPO(policy, STILL, by_hand=by_hand), rollout)
    limit = 1.01 * float(np.linalg.norm(whole))
    (same,) = gradients(PPO(policy, dataclasses.replace(STILL, max_grad_norm=limit), by_hand=by_hand), rollout)
    np.testing.assert_array_equal(same, whole)


def test_normalised_advantages_make_the_size_of_rewards_irrelevant_to_the_actor():
    policy = make_policy()
    rollout = random_rollout(policy)
    rollout.values[:], rollout.next_values[:] = 0.0, 0.0
    config = dataclasses.replace(STILL, value=0.0)
    (small,) = gradients(PPO(policy, config), rollout)
    rollout.rewards *= 64
    (large,) = gradients(PPO(policy, config), rollout)
    assert_same_gradient(large, small)


def test_an_update_raises_the_probability_of_what_paid_off():
    policy = make_policy()
    rollout = random_rollout(policy)
    rollout.rewards[:] = rollout.actions == 2
    rollout.terminated[:] = True
    before, _ = as_seen_today(rollout, policy)
    PPO(policy, PPOConfig()).update(rollout, Stopwatch())
    after, _ = as_seen_today(rollout, policy)
    paid = rollout.actions == 2
    assert after.log_probs[paid].mean() > before.log_probs[paid].mean()
    assert after.log_probs[~paid].mean() < before.log_probs[~paid].mean()


def test_time_is_spent_in_named_spans():
    watch = Stopwatch()
    PPO(make_policy(), PPOConfig(), by_hand=True).update(random_rollout(make_policy()), watch)
    assert set(watch.lap().seconds) == {
        ("gae",),
        ("batch",),
        ("gradient",),
        ("gradient", "both"),
        ("optimizer",),
        ("metrics",),
    }
    PPO(make_policy(), PPOConfig(), by_hand=False).update(random_rollout(make_policy()), watch)
    assert set(watch.lap().seconds) == {("gae",), ("batch",), ("loss",), ("backward",), ("optimizer",), ("metrics",)}


def test_a_learner_goes_on_from_a_snapshot_as_if_nothing_had_happened():
    rollouts = [random_rollout(make_policy(), seed=seed) for seed in range(3)]
    policy, other_policy = make_policy(), make_policy()
    learner = PPO(policy, PPOConfig(minibatches=4), seed=0)
    learner.update(rollouts[0], Stopwatch())
    other = PPO(other_policy, PPOConfig(minibatches=4), seed=9)
    other_policy.load(policy.arrays())
    other.restore(learner.snapshot_arrays(), learner.order_state())
    for rollout in rollouts[1:]:
        assert learner.update(rollout, Stopwatch()) == other.update(rollout, Stopwatch())
    np.testing.assert_array_equal(other_policy.weights.numpy(), policy.weights.numpy())


# Batches


def four_steps() -> Steps:
    """Two observations, three pairs; the second and the last step are the same pair."""
    return Steps(
        rows=np.array([5, 2, 5, 2], np.int32),
        actions=np.array([0, 1, 1, 1]),
        log_probs=np.array([-1, -2, -3, -2], np.float32),
        advantages=np.array([1, 2, -4, -8], np.float32),
        returns=np.array([1, 2, 5, 4], np.float32),
    )


def assert_same_batch(batch: Minibatch, expected: dict[str, Any]) -> None:
    assert {name: np.asarray(value).tolist() for name, value in batch._asdict().items()} == expected


def test_a_batch_adds_up_the_steps_of_each_observation_and_pair():
    expected = {
        "rows": [5, 2],
        "visits": [2, 2],
        "mean_returns": [3, 3],
        "spread": 4 + 4 + 1 + 1,
        "pair_rows": [0, 1, 0],
        "pair_actions": [0, 1, 1],
        "pair_log_probs": [-1, -2, -3],
        "pair_visits": [1, 2, 1],
        "gains": [1, 2, 0],
        "losses": [0, -8, -4],
        "num_steps": 4,
    }
    gatherer = Gatherer(6, Categorical(2))
    for _ in range(2):  # the first leaves no traces for the second
        assert_same_batch(gatherer.batch(four_steps(), np.arange(4)), expected)


def test_a_batch_holds_only_the_chosen_steps():
    expected = {
        "rows": [2],
        "visits": [2],
        "mean_returns": [3],
        "spread": 2,
        "pair_rows": [0],
        "pair_actions": [1],
        "pair_log_probs": [-2],
        "pair_visits": [2],
        "gains": [2],
        "losses": [-8],
        "num_steps": 2,
    }
    assert_same_batch(Gatherer(6, Categorical(2)).batch(four_steps(), np.array([3, 1])), expected)


def test_a_plain_batch_lists_the_chosen_steps():
    expected = {
        "rows": [2, 5],
        "visits": [1, 1],
        "mean_returns": [4, 1],
        "spread": 0,
        "pair_rows": [0, 1],
        "pair_actions": [1, 0],
        "pair_log_probs": [-2, -1],
        "pair_visits": [1, 1],
        "gains": [0, 1],
        "losses": [-8, 0],
        "num_steps": 2,
    }
    assert_same_batch(plain_batch(four_steps(), np.array([3, 0])), expected)


def test_parts_of_a_batch_hold_each_observation_with_its_pairs():
    batch = Gatherer(6, Categorical(2)).batch(four_steps(), np.arange(4))
    first, second = parts(batch, 1)
    assert (first.rows.tolist(), second.rows.tolist()) == ([5], [2])
    assert (first.pair_actions.tolist(), second.pair_actions.tolist()) == ([0, 1], [1])
    assert (first.pair_rows.tolist(), second.pair_rows.tolist()) == ([0, 0], [0])
    assert (first.spread, second.spread) == (batch.spread, 0)
    assert first.num_steps == second.num_steps == 4


@pytest.mark.parametrize(
    ("size", "expected"), [(1, [1] * 11), (2, [1, *[2] * 5]), (4, [2, 3, 3, 3]), (10, [5, 6]), (20, [5, 6]), (22, [11])]
)
def test_parts_are_about_as_large_as_each_other_and_even_in_number(size, expected):
    steps = np.arange(11.0, dtype=np.float32)
    batch = plain_batch(
        Steps(np.arange(11, dtype=np.int32), np.zeros(11, np.int64), steps, steps, steps), np.arange(11)
    )
    found = list(parts(batch, size))
    assert sorted(len(each.rows) for each in found) == sorted(expected)
    assert np.concatenate([each.rows for each in found]).tolist() == list(range(11))


# Reuse


def test_to_an_unchanged_policy_an_old_rollout_looks_as_it_did():
    policy = make_policy()
    rollout = random_rollout(policy, masked=True)
    today, weights = as_seen_today(rollout, policy)
    np.testing.assert_array_equal(weights, np.ones_like(rollout.log_probs))
    for name, expected in vars(rollout).items():
        np.testing.assert_array_equal(getattr(today, name), expected, err_msg=name)


def test_a_changed_policy_sees_its_own_log_probs_and_values_and_weights_of_at_most_one():
    rollout = random_rollout(make_policy())
    policy = make_policy()
    with torch.no_grad():
        policy.weights.add_(0.1 * torch.randn_like(policy.weights))
        logits, values = policy.network(torch.from_numpy(rollout.observations))
    log_probs = torch.log_softmax(logits, dim=-1).numpy()[rollout.rows, rollout.actions]
    today, weights = as_seen_today(rollout, policy)
    np.testing.assert_array_equal(today.log_probs, log_probs)
    np.testing.assert_array_equal(today.values, values.numpy()[rollout.rows])
    np.testing.assert_allclose(weights, np.minimum(np.exp(log_probs - rollout.log_probs), 1), rtol=1e-6)
    assert weights.max() == 1.0
    assert weights.min() < 0.99


def test_the_values_that_follow_are_todays_except_where_the_rollout_does_not_hold_the_state():
    rollout = random_rollout(make_policy())
    policy = make_policy()
    with torch.no_grad():
        policy.weights.add_(0.1)
    today, _ = as_seen_today(rollout, policy)
    ended = rollout.terminated | rollout.truncated
    unseen = ended.copy()
    unseen[-1] = True
    np.testing.assert_array_equal(today.next_values[unseen], rollout.next_values[unseen])
    np.testing.assert_array_equal(today.next_values[:-1][~ended[:-1]], today.values[1:][~ended[:-1]])


@pytest.mark.parametrize("minibatches", [1, 4])
@both_batches
def test_learning_twice_from_one_rollout_points_in_the_same_direction(dedup, minibatches):
    policy = make_policy()
    rollout = random_rollout(policy, masked=True)
    config = dataclasses.replace(STILL, minibatches=minibatches)
    found = gradients(PPO(policy, config, dedup=dedup), rollout, earlier=(rollout, rollout))
    assert_same_gradient(np.mean(found, axis=0), oracle.ppo_gradient(policy, rollout, config))


@pytest.mark.parametrize("minibatches", [1, 4])
@both_batches
@either_way
def test_an_old_rollout_counts_as_much_as_a_fresh_one_with_vtrace_instead_of_gae(by_hand, dedup, minibatches):
    policy = make_policy()
    fresh, old = random_rollout(policy), random_rollout(policy, moved=0.5, seed=1)
    today, weights = as_seen_today(old, policy)
    assert weights.min() < 0.5
    config = dataclasses.replace(STILL, minibatches=minibatches, normalise=False)
    found = gradients(PPO(policy, config, dedup=dedup, by_hand=by_hand), fresh, earlier=(old,))
    parts = [oracle.ppo_gradient(policy, fresh, config), oracle.ppo_gradient(policy, today, config, weights)]
    assert_same_gradient(np.mean(found, axis=0), np.mean(parts, axis=0))


def test_learning_from_an_old_rollout_leaves_it_as_it_was():
    policy = make_policy()
    fresh, old = random_rollout(policy), random_rollout(policy, moved=0.5, seed=1)
    before = {name: np.copy(array) for name, array in vars(old).items() if array is not None}
    PPO(policy, PPOConfig()).update(fresh, Stopwatch(), earlier=(old,))
    for name, expected in before.items():
        np.testing.assert_array_equal(getattr(old, name), expected, err_msg=name)


def test_an_old_rollout_is_kept_in_the_unit_that_is_learned_in():
    policy = make_policy()
    fresh, old = random_rollout(policy), random_rollout(policy, seed=1)
    learner = PPO(policy, dataclasses.replace(STILL, normalise_returns=True))
    before, last = policy.state_values(old.observations)[old.rows], old.next_values.copy()
    learner.update(fresh, Stopwatch(), earlier=(old,))
    change = np.float32(1 / learner.scale.unit)
    assert change != 1
    today, _ = as_seen_today(old, policy)
    np.testing.assert_allclose(today.values, change * before, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(today.next_values[-1], last[-1] * change)


def test_metrics_of_a_fresh_rollout_do_not_count_old_ones():
    policy = make_policy()
    fresh, old = random_rollout(policy), random_rollout(policy, seed=1)
    learner = PPO(policy, STILL)
    alone = learner.update(fresh, Stopwatch())
    together = learner.update(fresh, Stopwatch(), earlier=(old,))
    for name in ("distinct", "explained_variance"):
        assert together[name] == pytest.approx(alone[name], rel=1e-3)
