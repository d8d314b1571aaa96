from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from redline.learn.gae import gae, normalised, vtrace
from tests.oracles import ppo as oracle

GAMMA, LAM = np.float32(0.97), np.float32(0.9)
HALF = np.float32(0.5)
NEVER = (False, False, False)


class Case(NamedTuple):
    """Everything `gae` wants but gamma and lambda."""

    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def random_case(seed: int, num_steps: int = 23, num_envs: int = 5) -> Case:
    rng = np.random.default_rng(seed)
    shape = (num_steps, num_envs)
    floats = [rng.normal(size=shape).astype(np.float32) for _ in range(3)]
    return Case(*floats, rng.random(shape) < 0.15, rng.random(shape) < 0.15)


def random_weights(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.minimum(np.random.default_rng(seed).gamma(1.0, size=shape), 1.0).astype(np.float32)


def three_steps(terminated: tuple[bool, ...] = NEVER, truncated: tuple[bool, ...] = NEVER) -> list[float]:
    """Advantages of one env with gamma = lambda = 1/2, so that every number is exact.

    Surprises, unless the episode ends, are 1 + 1/2 - 0 = 1.5, then 2 + 2/2 - 1 = 2, then 4 + 8/2 - 2 = 6.
    """
    rewards, values, next_values = np.array([[[1], [2], [4]], [[0], [1], [2]], [[1], [2], [8]]], np.float32)
    ends = np.array(terminated)[:, None], np.array(truncated)[:, None]
    return gae(rewards, values, next_values, *ends, HALF, HALF)[:, 0].tolist()


def test_credit_flows_back_through_an_episode():
    assert three_steps() == [1.5 + 0.25 * 3.5, 2 + 0.25 * 6, 6]


def test_a_terminated_step_has_no_future():
    assert three_steps(terminated=(False, True, False)) == [1.5 + 0.25 * 1, 2 - 1, 6]


def test_a_truncated_step_counts_on_a_future_it_did_not_see():
    assert three_steps(truncated=(False, True, False)) == [1.5 + 0.25 * 2, 2, 6]


def test_a_step_that_is_both_terminated_and_truncated_has_no_future():
    ended = (False, True, False)
    assert three_steps(terminated=ended, truncated=ended) == three_steps(terminated=ended)


def test_the_next_value_of_a_terminated_step_is_never_read():
    case = random_case(0)
    case.next_values[case.terminated] = np.nan
    assert not np.isnan(gae(*case, GAMMA, LAM)).any()


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_discounted_sums_over_the_rest_of_the_episode(seed):
    case = random_case(seed)
    expected = oracle.gae(*case, float(GAMMA), float(LAM))
    np.testing.assert_allclose(gae(*case, GAMMA, LAM), expected, rtol=1e-5, atol=1e-5)


def test_with_lambda_zero_only_the_step_itself_counts():
    case = random_case(1)._replace(terminated=np.zeros((23, 5), bool))
    expected = case.rewards + GAMMA * case.next_values - case.values
    np.testing.assert_array_equal(gae(*case, GAMMA, np.float32(0)), expected)


def test_an_env_does_not_notice_its_neighbours():
    case = random_case(2)
    alone = Case(*(array[:, 3:4] for array in case))
    np.testing.assert_array_equal(gae(*case, GAMMA, LAM)[:, 3:4], gae(*alone, GAMMA, LAM))


@pytest.mark.parametrize("seed", range(5))
def test_vtrace_with_weights_of_one_is_gae(seed):
    case = random_case(seed)
    expected = gae(*case, GAMMA, LAM)
    advantages, targets = vtrace(*case, np.ones_like(case.rewards), GAMMA, LAM)
    np.testing.assert_array_equal(advantages, expected)
    np.testing.assert_array_equal(targets, expected + case.values)


@pytest.mark.parametrize("seed", range(5))
def test_vtrace_follows_its_definition(seed):
    case = random_case(seed)
    weights = random_weights(seed, case.rewards.shape)
    advantages, targets = vtrace(*case, weights, GAMMA, LAM)
    expected = oracle.vtrace_targets(*case, weights, float(GAMMA), float(LAM))
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(weights * advantages, expected - case.values, rtol=1e-5, atol=1e-5)


def test_a_step_of_weight_zero_teaches_nothing_and_passes_no_credit_back():
    case = random_case(3)._replace(terminated=np.zeros((23, 5), bool), truncated=np.zeros((23, 5), bool))
    weights = np.ones_like(case.rewards)
    weights[10] = 0.0
    later = Case(*(array[:10] for array in case))
    advantages, targets = vtrace(*case, weights, GAMMA, LAM)
    np.testing.assert_array_equal(targets[10], case.values[10])
    np.testing.assert_array_equal(advantages[:10], gae(*later, GAMMA, LAM))


def test_a_step_that_hardly_counts_has_hardly_an_advantage():
    advantages = np.array([5.0, 7.0, -20.0], np.float32)
    found = normalised(advantages, np.array([1.0, 1.0, 4e-9], np.float32))
    np.testing.assert_allclose(found[:2], [-1.0, 1.0], rtol=1e-6)
    assert abs(found[2]) < 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_one_leave_normalised_advantages_as_they_are(seed):
    advantages = random_case(seed).rewards.reshape(-1)
    expected = normalised(advantages, None)
    np.testing.assert_allclose(normalised(advantages, np.ones_like(advantages)), expected, rtol=1e-5, atol=1e-6)
