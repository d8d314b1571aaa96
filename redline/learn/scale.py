"""The unit that returns are measured in, when their size is not known beforehand."""

from __future__ import annotations

import math

import numpy as np

SMALLEST = 1e-4
"""The smallest unit: returns that differ by less are as good as equal."""
MEMORY = 100
"""Rollouts that the unit follows from; what was seen earlier fades away."""
MOST_AT_ONCE = 10.0
"""How many times smaller a unit may get at once. The critic's estimates, right or wrong, get so many times larger."""
CLIP = 10.0
"""A reward that is so many times larger than returns are counts as no more than that."""

CLIP_AT_FIRST = 1e6
"""Where no returns were seen yet, only what could not be reckoned with is cut down."""


class Scale:
    """Standard deviation of the returns seen of late, and the mean and the count it follows from."""

    def __init__(self) -> None:
        self.unit = 1.0
        self._mean = self._squares = self._count = 0.0

    def see(self, returns: np.ndarray) -> float:
        """Count returns in, given in the present unit. Returns the factor that takes that unit to the new one."""
        values = returns.astype(np.float64) * self.unit
        self._fade(len(values))
        count, mean = self._count + len(values), float(values.mean())
        apart = mean - self._mean
        self._squares += float(((values - mean) ** 2).sum()) + apart**2 * self._count * len(values) / count
        self._mean += apart * len(values) / count
        self._count = count
        before, self.unit = self.unit, self._next_unit((self._squares / count) ** 0.5)
        return before / self.unit

    def scaled(self, rewards: np.ndarray, factor: float) -> np.ndarray:
        """Rewards times a factor in the present unit, float32, with none that dwarfs all returns so far."""
        most = CLIP * math.hypot(self.unit, self._mean) / self.unit if self._count else CLIP_AT_FIRST
        return np.asarray(np.clip(rewards * np.float32(factor / self.unit), -most, most))

    def _fade(self, coming: int) -> None:
        """Let what was seen before count no more than the rollouts that are remembered."""
        most = (MEMORY - 1) * coming
        if self._count > most:
            self._squares *= most / self._count
            self._count = float(most)

    def _next_unit(self, deviation: float) -> float:
        """The deviation, where there is any; returns that are all the same tell nothing about a unit."""
        return max(SMALLEST, self.unit / MOST_AT_ONCE, deviation) if deviation else self.unit

    def snapshot(self) -> np.ndarray:
        """Everything needed to go on from here."""
        return np.array([self.unit, self._mean, self._squares, self._count])

    def restore(self, snapshot: np.ndarray | None) -> None:
        """Go on from a snapshot, if there is one."""
        if snapshot is not None:
            self.unit, self._mean, self._squares, self._count = snapshot.tolist()
