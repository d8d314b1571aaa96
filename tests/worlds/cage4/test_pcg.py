"""The generator of an env against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from redline.compiled.speed import at_speed, kernel
from redline.worlds.cage4.rules import pcg
from redline.worlds.cage4.rules.state import new_state

PICK, SHUFFLE, RANDOM = range(3)


@kernel
def draw(envs, kinds, counts, drawn):
    env = envs[0]
    for k in range(len(kinds)):
        if kinds[k] == PICK:
            drawn[k] = pcg.pick(env, counts[k])
        elif kinds[k] == SHUFFLE:
            pcg.shuffle(env, counts[k])
        else:
            drawn[k] = pcg.uniform(env)


def numpys(generator: np.random.Generator, kind: int, count: int) -> float:
    """What numpy draws; the three calls for a whole number are equal to each other."""
    if kind == RANDOM:
        return generator.random()
    if kind == SHUFFLE:
        generator.shuffle(list(range(count)))
        return 0
    if count % 3 == 0:
        return int(generator.choice(count))
    return int(generator.integers(0, count)) if count % 3 == 1 else int(generator.choice(count, replace=False))


@pytest.mark.parametrize("turbo", [True, False])
def test_whole_numbers_fractions_and_shuffles_are_numpys_and_leave_the_same_state(turbo):
    mixed, num_draws = np.random.default_rng(0), 2000 if turbo else 300
    kinds, counts = mixed.integers(0, 3, num_draws), mixed.integers(1, 90, num_draws)
    counts[::7] = 10_848
    counts[::50] = 3_000_000_001  # often refused at first, so that the loop is seen
    kinds[::50] = kinds[::7] = PICK
    envs, drawn = new_state(1, room=1), np.zeros(num_draws)
    pcg.seed_generator(envs[0], 123)
    at_speed(draw, turbo)(envs, kinds, counts, drawn)
    generator = np.random.default_rng(123)
    assert drawn.tolist() == [
        numpys(generator, kind, count) for kind, count in zip(kinds, counts.tolist(), strict=True)
    ]
    after = new_state(1, room=1)
    pcg.write_generator(after[0], generator.bit_generator.state)
    assert (after == envs).all()
