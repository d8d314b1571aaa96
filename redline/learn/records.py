"""Whether a run still gets better: the best and the usual return of an update so far, and when either was last raised."""

from __future__ import annotations

import numpy as np

IDLE = 1 / 3
"""The part of a run's steps after which records that have not been raised are taken to stand."""


class Records:
    """The greatest return, and the greatest median of an update's returns."""

    def __init__(self) -> None:
        self.best = self.usual = -np.inf
        self.raised_at = 0

    def see(self, returns: np.ndarray, step: int) -> None:
        """Take note of the episodes that an update ended, `step` steps into the run."""
        if not len(returns):
            return
        best, usual = float(returns.max()), float(np.median(returns))
        if best > self.best or usual > self.usual:
            self.raised_at = step
        self.best, self.usual = max(self.best, best), max(self.usual, usual)

    def stand(self, step: int, goal: int) -> bool:
        """Whether neither has been raised for a third of the steps of the run."""
        return step - self.raised_at >= IDLE * goal

    def snapshot(self) -> np.ndarray:
        """As plain numbers: best, usual, and the step."""
        return np.array([self.best, self.usual, self.raised_at])

    def restore(self, numbers: np.ndarray | None) -> None:
        """Go on from a snapshot; earlier versions kept none."""
        if numbers is not None:
            self.best, self.usual, self.raised_at = float(numbers[0]), float(numbers[1]), int(numbers[2])
