"""The original's random numbers: numpy's PCG64 and what its `Generator` makes of it, one generator per env.

Equal seeds give equal episodes only if every number is consumed as numpy consumes it. So `pick` rejects as numpy's
`integers` and `choice` do (Lemire's method on 32 bits), `shuffle` by a mask, and the upper half of a word waits for the
next caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.compiled.speed import apart, rule

_MULTIPLIER_HIGH, _MULTIPLIER_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_LOW_HALF, _HALF_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)
_LOW_UPPER, _LOW_LOWER = _MULTIPLIER_LOW >> _HALF_BITS, _MULTIPLIER_LOW & _LOW_HALF
_ROTATION, _WORD, _WORD_MASK, _TO_FRACTION = np.uint64(58), np.uint64(64), np.uint64(63), np.uint64(11)
_ONE, _ALL_HALVES = np.uint64(1), np.uint64(1 << 32)
_TO_UNIT = 1.0 / (1 << 53)


@rule
def next_word(env):
    """The next 64 bits."""
    low = env.state_low
    lower, upper = low & _LOW_HALF, low >> _HALF_BITS
    cross = lower * _LOW_UPPER + ((lower * _LOW_LOWER) >> _HALF_BITS)
    other = upper * _LOW_LOWER + (cross & _LOW_HALF)
    carried = upper * _LOW_UPPER + (cross >> _HALF_BITS) + (other >> _HALF_BITS)
    high = carried + env.state_high * _MULTIPLIER_LOW + low * _MULTIPLIER_HIGH + env.increment_high
    product = low * _MULTIPLIER_LOW
    low = product + env.increment_low
    if low < product:
        high = high + _ONE
    env.state_high, env.state_low = high, low
    turn, mixed = high >> _ROTATION, high ^ low
    return (mixed >> turn) | (mixed << ((_WORD - turn) & _WORD_MASK))


@rule
def next_half(env):
    """The next 32 bits: the lower half of a word, then its upper one."""
    if env.has_half:
        env.has_half = 0
        return env.half
    word = next_word(env)
    env.half, env.has_half = word >> _HALF_BITS, 1
    return word & _LOW_HALF


@rule
def uniform(env):
    """A float in [0, 1), as numpy's `random` gives it."""
    return np.float64(next_word(env) >> _TO_FRACTION) * _TO_UNIT


@rule
def pick(env, count):
    """A whole number below `count`, as numpy's `integers` and `choice` give it. Of one, nothing is drawn."""
    if count == 1:
        return 0
    below = np.uint64(count)
    product = next_half(env) * below
    if (product & _LOW_HALF) < below:
        product = pick_again(env, below, product)
    return np.int64(product >> _HALF_BITS)


@apart
def pick_again(env, below, product):
    """A number may have been one of those that would make some numbers likelier than others: then another is drawn."""
    threshold = (_ALL_HALVES - below) % below
    while (product & _LOW_HALF) < threshold:
        product = next_half(env) * below
    return product


@rule
def shuffle(env, count):
    """Consumes what numpy's `shuffle` of a list consumes. The order never matters, so nothing is put into it."""
    mask = np.uint64(1)
    while mask < np.uint64(count - 1):
        mask = (mask << _ONE) | _ONE
    for last in range(count - 1, 0, -1):
        highest = np.uint64(last)
        while (mask >> _ONE) >= highest:
            mask = mask >> _ONE
        while (next_half(env) & mask) > highest:
            pass


def seed_generator(env: np.record, seed: int) -> None:
    """Start an env's generator where `numpy.random.default_rng(seed)` starts."""
    write_generator(env, np.random.PCG64(seed).state)


def write_generator(env: np.record, state: Any) -> None:
    """Set an env's generator from the state of a numpy bit generator."""
    whole, step = state["state"]["state"], state["state"]["inc"]
    env.state_high, env.state_low = split(whole)
    env.increment_high, env.increment_low = split(step)
    env.half, env.has_half = state["uinteger"], state["has_uint32"]


def split(number: int) -> tuple[int, int]:
    """The upper and the lower 64 bits of a number of 128."""
    return number >> 64, number & ((1 << 64) - 1)
