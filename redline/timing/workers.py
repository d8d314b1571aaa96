"""How busy workers were, and how long the others waited for the slowest."""

from __future__ import annotations

from typing import Any

import numpy as np


class WorkerTimes:
    """Adds up what workers report about their own work, as seconds.

    In lockstep everybody waits for the slowest worker of a step; `straggler_seconds` is what the others lost to that.
    """

    def __init__(self, num_workers: int) -> None:
        self.step_seconds = np.zeros(num_workers)
        self.reset_seconds = np.zeros(num_workers)
        self.straggler_seconds = 0.0
        self.slowest_seconds = 0.0

    def add(self, worker: int, times: Any) -> None:
        """One worker's account of one request."""
        self.step_seconds[worker] += times.step * 1e-9
        self.reset_seconds[worker] += times.reset * 1e-9
        self.slowest_seconds = max(self.slowest_seconds, times.slowest * 1e-9)

    def add_all(self, by_worker: dict[int, Any]) -> None:
        """The accounts of one step that all workers took together."""
        spent = [times.step + times.reset for times in by_worker.values()]
        for worker, times in by_worker.items():
            self.add(worker, times)
        if spent:
            self.straggler_seconds += (max(spent) - sum(spent) / len(spent)) * 1e-9

    @property
    def busy_seconds(self) -> np.ndarray:
        """Seconds each worker was at work."""
        return self.step_seconds + self.reset_seconds

    def lap(self) -> WorkerTimes:
        """What was added since the last lap, and a fresh start."""
        done = WorkerTimes(len(self.step_seconds))
        done.step_seconds, done.reset_seconds = self.step_seconds, self.reset_seconds
        done.straggler_seconds, done.slowest_seconds = self.straggler_seconds, self.slowest_seconds
        self.__init__(len(self.step_seconds))  # type: ignore[misc]
        return done
