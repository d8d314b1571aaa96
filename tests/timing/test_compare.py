"""A speed-up is said only where it can be told from noise."""

from __future__ import annotations

import numpy as np
import pytest

from redline.timing.compare import Spread, speed_up

rng = np.random.default_rng(5)


def test_twice_as_fast_is_twice_as_fast():
    found = speed_up(np.full(9, 2.0), np.full(9, 1.0))
    assert (found.ratio, found.low, found.high) == (2.0, 2.0, 2.0)
    assert not found.within_noise
    assert str(found) == "2.00x (2.00 – 2.00)"


def test_two_runs_of_the_same_thing_are_within_noise():
    verdicts = [
        speed_up(np.random.default_rng(k).normal(1, 0.1, 15), np.random.default_rng(k + 500).normal(1, 0.1, 15))
        for k in range(40)
    ]
    assert sum(verdict.within_noise for verdict in verdicts) >= 34  # a 95 % interval is wrong now and then
    assert str(next(each for each in verdicts if each.within_noise)) == "within noise"


def test_a_real_difference_is_found_behind_noise():
    found = speed_up(rng.normal(2, 0.1, 15), rng.normal(1, 0.1, 15))
    assert found.low < 2.0 < found.high
    assert found.low > 1.5


def test_noise_that_hits_both_alike_does_not_hide_a_difference():
    weather = rng.uniform(1, 4, 25)
    found = speed_up(1.2 * weather, weather)
    assert found.low > 1.0


def test_two_turns_are_too_few_to_say_anything():
    assert speed_up(np.array([2.0, 2.0]), np.array([1.0, 1.0])).within_noise


def test_a_row_that_one_mode_does_not_have_is_no_speed_up():
    assert speed_up(np.zeros(5), np.zeros(5)).within_noise
    assert speed_up(np.ones(5), np.zeros(5)).within_noise


def test_turns_must_come_in_pairs():
    with pytest.raises(ValueError, match="cannot be paired"):
        speed_up(np.ones(3), np.ones(4))


def test_a_spread_is_median_and_quartiles():
    assert Spread.of(np.arange(5.0)) == Spread(2.0, 1.0, 3.0)
