"""Random streams that draw what a test wants them to."""

from __future__ import annotations

import numpy as np

from redline.compiled import rng
from redline.compiled.rng import GOLDEN

LARGEST_UNIT = 1 - 2.0**-53


def stream_that_draws(wanted: float) -> np.uint64:
    """The stream whose next number is `wanted`: `scramble` undone, one reversible operation after the other."""

    def undo_xor_shift(bits: int, shift: int) -> int:
        result = bits
        for _ in range(64 // shift + 1):
            result = bits ^ (result >> shift)
        return result

    def undo_multiply(bits: int, factor: np.uint64) -> int:
        return bits * pow(int(factor), -1, 1 << 64) % (1 << 64)

    bits = int(wanted * 2**53) << 11
    bits = undo_multiply(undo_xor_shift(bits, 31), rng._MIX_2)
    bits = undo_multiply(undo_xor_shift(bits, 27), rng._MIX_1)
    return np.uint64((undo_xor_shift(bits, 30) - int(GOLDEN)) % (1 << 64))
