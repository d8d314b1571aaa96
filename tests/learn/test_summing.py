"""A rollout summed up in two passes is what `gae` and `Gatherer` make of it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from redline.learn.batch import Gatherer, Minibatch, Steps
from redline.learn.gae import gae
from redline.learn.heads import head_for
from redline.learn.heads.categorical import Categorical
from redline.learn.summing import sum_up
from redline.rollout import Rollout

NUM_STEPS, NUM_ENVS, NUM_ROWS, HEAD = 20, 6, 9, Categorical(4)
SCALE, GAMMA, LAM = np.float32(0.5), np.float32(0.9), np.float32(0.8)


def random_rollout(order: str) -> Rollout:
    """Values and log-probabilities that follow from observation and action, in the order of a lockstep engine or not."""
    random, shape = np.random.default_rng(0), (NUM_STEPS, NUM_ENVS)
    rollout = Rollout.empty(*shape)
    rollout.rows[:] = random.integers(1, NUM_ROWS, shape)
    rollout.actions[:] = random.integers(0, 4, shape)
    rollout.values[:] = random.normal(size=NUM_ROWS)[rollout.rows]
    rollout.log_probs[:] = -random.random((NUM_ROWS, 4))[rollout.rows, rollout.actions]
    rollout.next_values[:], rollout.rewards[:] = random.normal(size=shape), random.normal(size=shape)
    rollout.terminated[:], rollout.truncated[:] = random.random(shape) < 0.1, random.random(shape) < 0.1
    rollout.observations = np.zeros((NUM_ROWS, 1))
    for name, value in vars(rollout).items():
        if isinstance(value, np.ndarray) and value.ndim == 2 and name != "observations":
            setattr(rollout, name, np.array(value, order=order))
    return rollout


def obvious(rollout: Rollout, normalise: bool) -> tuple[Minibatch[np.ndarray], np.ndarray, np.ndarray]:
    scaled, ends = rollout.rewards * SCALE, (rollout.terminated, rollout.truncated)
    advantages = gae(scaled, rollout.values, rollout.next_values, *ends, GAMMA, LAM)
    returns = advantages + rollout.values
    used = (advantages - advantages.mean()) / (advantages.std() + 1e-8) if normalise else advantages
    steps = Steps(*(rollout.flat(each) for each in (rollout.rows, rollout.actions, rollout.log_probs, used, returns)))
    return Gatherer(NUM_ROWS, HEAD).batch(steps, np.arange(NUM_STEPS * NUM_ENVS)), advantages, returns


def by_pair(batch: Minibatch[np.ndarray]) -> dict[tuple[int, int], tuple[float, ...]]:
    rows = batch.rows[batch.pair_rows]
    numbers = zip(batch.pair_log_probs, batch.pair_visits, batch.gains, batch.losses, strict=True)
    return {(int(row), int(action)): each for row, action, each in zip(rows, batch.pair_actions, numbers, strict=True)}


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_it_is_the_obvious_batch_in_another_order(order, normalise):
    rollout = random_rollout(order)
    batch, spread, advantages, _ = sum_up(rollout, rollout.rewards * SCALE, GAMMA, LAM, normalise, HEAD)
    expected, expected_advantages, returns = obvious(rollout, normalise)
    np.testing.assert_array_equal(advantages.T, expected_advantages)
    assert spread.return_variance == pytest.approx(np.var(returns.astype(np.float64)))
    assert spread.advantage_variance == pytest.approx(np.var(expected_advantages.astype(np.float64)))
    assert batch.num_steps == expected.num_steps
    assert batch.spread == pytest.approx(expected.spread)
    ours, theirs = by_pair(batch), by_pair(expected)
    assert ours.keys() == theirs.keys()
    for pair, numbers in theirs.items():
        np.testing.assert_allclose(ours[pair], numbers, rtol=1e-5, atol=1e-6)
    places = {int(row): place for place, row in enumerate(expected.rows)}
    assert sorted(batch.rows) == sorted(places)
    order_of = [places[int(row)] for row in batch.rows]
    np.testing.assert_array_equal(batch.visits, expected.visits[order_of])
    np.testing.assert_allclose(batch.mean_returns, expected.mean_returns[order_of], rtol=1e-6)
    assert (np.diff(batch.pair_rows) >= 0).all()


def test_neither_the_numbers_of_rows_nor_the_layout_change_a_bit():
    rollout, other = random_rollout("C"), random_rollout("F")
    renumbered = np.random.default_rng(5).permutation(NUM_ROWS)
    other.rows[:] = renumbered[other.rows]
    first, second = (sum_up(each, each.rewards * SCALE, GAMMA, LAM, True, HEAD).batch for each in (rollout, other))
    np.testing.assert_array_equal(renumbered[first.rows], second.rows)
    for name, ours, theirs in zip(Minibatch._fields, first, second, strict=True):
        if name != "rows":
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


@pytest.mark.parametrize(
    "space", [gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary((2, 1))], ids=["MultiDiscrete", "MultiBinary"]
)
def test_actions_of_several_components_are_summed_up_as_one_choice_is(space):
    head, plain = head_for(space), random_rollout("C")
    choices = plain.actions % head.num_choices
    components = np.stack(np.unravel_index(choices, head.sizes), axis=-1)
    several = Rollout.empty(NUM_STEPS, NUM_ENVS, 0, space)
    for name, value in vars(plain).items():
        if name != "actions":
            setattr(several, name, value)
    several.actions[:] = components.reshape(several.actions.shape)
    plain.actions[:] = choices
    expected = sum_up(plain, plain.rewards, GAMMA, LAM, True, Categorical(head.num_choices)).batch
    batch = sum_up(several, several.rewards, GAMMA, LAM, True, head).batch
    np.testing.assert_array_equal(head.choices(batch.pair_actions), expected.pair_actions)
    for found, due in zip(batch, expected, strict=True):
        if due is not expected.pair_actions:
            np.testing.assert_array_equal(found, due)
