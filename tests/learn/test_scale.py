from __future__ import annotations

import numpy as np
import pytest

from redline.learn.scale import CLIP, MEMORY, MOST_AT_ONCE, SMALLEST, Scale


def returns(seed: int, size: float, count: int = 100) -> np.ndarray:
    return (size * np.random.default_rng(seed).normal(size=count)).astype(np.float32)


def see(scale: Scale, raw: np.ndarray) -> float:
    """Returns as the learner gives them: in the unit of the moment."""
    return scale.see((raw / scale.unit).astype(np.float32))


def test_the_unit_is_the_deviation_of_all_returns():
    scale = Scale()
    parts = [returns(seed, 3.0) for seed in range(4)]
    for part in parts:
        see(scale, part)
    assert scale.unit == pytest.approx(np.concatenate(parts).std(), rel=1e-5)


@pytest.mark.parametrize("same", [0.0, 5.0])
def test_returns_that_are_all_the_same_leave_the_unit_alone(same):
    scale = Scale()
    assert scale.see(np.full(10, same, np.float32)) == 1.0
    assert scale.unit == 1.0


def test_a_unit_shrinks_a_step_at_a_time_and_never_to_nothing():
    scale = Scale()
    changes = [see(scale, returns(seed, 1e-9)) for seed in range(10)]
    assert changes[0] == MOST_AT_ONCE
    assert scale.unit == SMALLEST


def test_a_unit_grows_as_far_as_it_has_to_at_once():
    scale = Scale()
    see(scale, returns(0, 1e6))
    assert scale.unit == pytest.approx(1e6, rel=0.2)


def test_what_was_seen_long_ago_fades():
    scale = Scale()
    see(scale, returns(0, 1000.0))
    for seed in range(5 * MEMORY):
        see(scale, returns(seed, 1.0))
    assert scale.unit < 20.0  # of 45, if nothing were ever forgotten


def test_a_reward_that_dwarfs_all_returns_is_cut_down():
    scale = Scale()
    see(scale, returns(0, 2.0))
    common, rare = scale.scaled(np.array([1.0, -1e30], np.float32), 1.0)
    assert common == np.float32(1.0) * np.float32(1 / scale.unit)
    assert -2 * CLIP < rare < -0.9 * CLIP


def test_rewards_that_are_as_large_as_returns_are_never_cut_down():
    scale = Scale()
    for seed in range(30):
        see(scale, 1000.0 + returns(seed, 1.0))
    assert scale.scaled(np.array([1000.0], np.float32), 1.0)[0] == pytest.approx(1000.0 / scale.unit)


def test_a_scale_goes_on_from_a_snapshot():
    one, other = Scale(), Scale()
    see(one, returns(0, 7.0))
    other.restore(one.snapshot())
    assert see(one, returns(1, 3.0)) == see(other, returns(1, 3.0))
    assert one.unit == other.unit
