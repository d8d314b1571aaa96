"""The unit that returns are measured in, when their size is not known beforehand."""

from __future__ import annotations

import numpy as np

SMALLEST = 1e-6


class Scale:
    """Standard deviation of all returns seen so far, and the mean and the count it follows from."""

    def __init__(self) -> None:
        self.unit = 1.0
        self._mean = self._squares = self._count = 0.0

    def see(self, returns: np.ndarray) -> float:
        """Count returns in, given in the present unit. Returns the factor that takes that unit to the new one."""
        values = returns.astype(np.float64) * self.unit
        count, mean = self._count + len(values), float(values.mean())
        apart = mean - self._mean
        self._squares += float(((values - mean) ** 2).sum()) + apart**2 * self._count * len(values) / count
        self._mean += apart * len(values) / count
        self._count = count
        before, self.unit = self.unit, max(SMALLEST, (self._squares / count) ** 0.5)
        return before / self.unit

    def snapshot(self) -> np.ndarray:
        """Everything needed to go on from here."""
        return np.array([self.unit, self._mean, self._squares, self._count])

    def restore(self, snapshot: np.ndarray | None) -> None:
        """Go on from a snapshot, if there is one."""
        if snapshot is not None:
            self.unit, self._mean, self._squares, self._count = snapshot.tolist()
