"""Observations brought to mean 0 and deviation 1, as far as they are known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FARTHEST = np.float32(10.0)
"""Deviations from the mean beyond which a number is taken for that far away."""


class Shift(NamedTuple):
    """What is done to numbers before a network sees them. Picklable."""

    offsets: np.ndarray  # float32 [inputs]
    factors: np.ndarray  # float32 [inputs]

    def apply(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers float32 [n, inputs] as the network is to see them."""
        shifted = (numbers - self.offsets) * self.factors
        return np.clip(shifted, -FARTHEST, FARTHEST, out=shifted)


class Normaliser:
    """Mean and variance of each input over all steps that were learned from.

    They change between updates only, so that acting and learning from it see the same.
    """

    def __init__(self, size: int) -> None:
        self._count = 0.0
        self._means, self._squares = np.zeros(size), np.zeros(size)
        self.shift = self._shift()

    def see(self, numbers: np.ndarray, visits: np.ndarray) -> None:
        """Count in distinct observations [n, inputs], each so many times."""
        numbers, visits = numbers.astype(np.float64), visits.astype(np.float64)
        count = visits.sum()
        means = visits @ numbers / count
        squares = visits @ (numbers - means) ** 2
        whole, apart = self._count + count, means - self._means
        self._squares += squares + apart**2 * self._count * count / whole
        self._means += apart * count / whole
        self._count = whole
        self.shift = self._shift()

    def _shift(self) -> Shift:
        variances = self._squares / self._count if self._count else np.ones_like(self._squares)
        return Shift(self._means.astype(np.float32), (1 / np.sqrt(variances + 1e-8)).astype(np.float32))

    def snapshot(self) -> np.ndarray:
        """Everything needed to go on from here: float64 [3, inputs]."""
        return np.stack([np.full_like(self._means, self._count), self._means, self._squares])

    def restore(self, snapshot: np.ndarray) -> None:
        """Go on from a snapshot."""
        self._count, self._means, self._squares = float(snapshot[0, 0]), snapshot[1].copy(), snapshot[2].copy()
        self.shift = self._shift()
