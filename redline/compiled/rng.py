"""One random stream per env, kept in the env's own state.

A stream is a single 64-bit counter (SplitMix64: Steele, Lea and Flood, 2014). What an env draws depends on its seed and
on what it drew before, never on its neighbours, so a trajectory is the same in any batch, engine or process.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_11, _SHIFT_27, _SHIFT_30, _SHIFT_31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_TO_UNIT = 1.0 / (1 << 53)
_BEYOND_ENVS = 1 << 63  # nobody seeds envs with so large a number


@kernel
def scramble(counter):
    """64 well-mixed bits of a counter."""
    bits = (counter ^ (counter >> _SHIFT_30)) * _MIX_1
    bits = (bits ^ (bits >> _SHIFT_27)) * _MIX_2
    return bits ^ (bits >> _SHIFT_31)


@kernel
def unit(counter):
    """A float uniform in [0, 1) made of the counter's 53 best bits."""
    return np.float64(scramble(counter) >> _SHIFT_11) * _TO_UNIT


@kernel
def uniform(env):
    """The next number of the env's stream, uniform in [0, 1)."""
    env.rng = env.rng + GOLDEN
    return unit(env.rng)


def seed_streams(seed: int, num_envs: int) -> np.ndarray:
    """Starting counters uint64 [N]. Env `i` of seed `s` starts where env 0 of seed `s + i` does, as Gymnasium has it."""
    with np.errstate(over="ignore"):
        seeds = np.uint64(seed % (1 << 64)) + np.arange(num_envs, dtype=np.uint64)
        return _scramble_array(_scramble_array(seeds + GOLDEN) ^ GOLDEN)


def actor_seed(seed: int) -> int:
    """The seed of whoever acts in envs that are seeded by `seed`. It leads to streams that none of them can have.

    Envs count on from their seed, so a seed nearby would be a stream of theirs, and an action would foretell their draws.
    """
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) | _BEYOND_ENVS


def _scramble_array(counters: np.ndarray) -> np.ndarray:
    bits = (counters ^ (counters >> _SHIFT_30)) * _MIX_1
    bits = (bits ^ (bits >> _SHIFT_27)) * _MIX_2
    return np.asarray(bits ^ (bits >> _SHIFT_31))
