from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.nasim.rules.generate import SIZES
from redline.worlds.nasim.scenarios import FIXED
from redline.worlds.nasim.verify import FLAGS, Told, play_both
from tests.worlds.nasim.networks import write_network

both_views = pytest.mark.parametrize("fully_obs", [False, True], ids=["partial", "full"])


def walk_both(name: str, options: NetworkOptions, steps: int, seed: int, turbo: bool = True) -> Counter[str]:
    """Play ours and the original, and compare all they say. Returns what happened how often."""
    ours, theirs = play_both(name, options, steps, seed, turbo)
    for what, mine, original in zip(Told._fields, ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, original, err_msg=what, strict=True)
    ends = {"terminated": int(ours.terminated.sum()), "truncated": int(ours.truncated.sum())}
    return Counter(ends | dict(zip(FLAGS, ours.flags.sum(0).tolist(), strict=True)))


@both_views
@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_network_plays_as_the_original_does(name, fully_obs):
    seen = walk_both(name, NetworkOptions(fully_obs), steps=10_000, seed=1)
    assert all(seen[flag] for flag in FLAGS)
    assert seen["terminated"] + seen["truncated"]


@both_views
@pytest.mark.parametrize("name", SIZES)
def test_a_generated_network_plays_as_the_original_does(name, fully_obs):
    for seed in (0, 3, 8):  # of those that can be won
        walk_both(name, NetworkOptions(fully_obs, seed), steps=2_000, seed=seed)


@both_views
def test_networks_with_everything_that_files_allow_play_as_the_original_does(tmp_path, fully_obs):
    path = tmp_path / "net.yaml"
    seen: Counter[str] = Counter()
    for seed in range(24):
        write_network(path, seed, most_subnets=5 if seed % 4 else 25)
        seen.update(walk_both(str(path), NetworkOptions(fully_obs), steps=500, seed=seed))
    assert all(seen[event] > 10 for event in seen)


@both_views
def test_the_interpreted_kernel_plays_as_the_original_does(fully_obs):
    walk_both("small-honeypot", NetworkOptions(fully_obs), steps=500, seed=2, turbo=False)
