"""How busy workers were, and how long the others waited for the slowest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from redline.timing.stopwatch import Stopwatch
from redline.timing.trace import Trace


class RequestTimes(Protocol):
    """A worker's own account of one request, in nanoseconds."""

    @property
    def step(self) -> int:
        """Time in steps."""

    @property
    def reset(self) -> int:
        """Time in resets."""

    @property
    def slowest(self) -> int:
        """Time of the slowest step."""

    @property
    def began(self) -> int:
        """When it began, by the clock of this machine; 0 where that was not noted."""


class WorkerTimes:
    """Adds up what workers report about their own work, as seconds.

    In lockstep everybody waits for the slowest worker of a step; `straggler_seconds` is what the others lost to that.
    With a `trace`, every report becomes an event on its worker's track.
    """

    def __init__(self, num_workers: int) -> None:
        self.trace: Trace | None = None
        self._clear(num_workers)

    def _clear(self, num_workers: int) -> None:
        self.step_seconds = np.zeros(num_workers)
        self.reset_seconds = np.zeros(num_workers)
        self.other_seconds: dict[str, np.ndarray] = {}  # by span: what workers that act by themselves do besides
        self.straggler_seconds = 0.0
        self.slowest_seconds = 0.0
        self._credited = dict.fromkeys(("step", "reset"), 0.0)

    def add(self, worker: int, times: RequestTimes) -> None:
        """One worker's account of one request."""
        self.step_seconds[worker] += times.step * 1e-9
        self.reset_seconds[worker] += times.reset * 1e-9
        self.slowest_seconds = max(self.slowest_seconds, times.slowest * 1e-9)
        if self.trace is not None and times.began:
            self._show(worker, times)

    def _show(self, worker: int, times: RequestTimes) -> None:
        assert self.trace is not None
        track = f"worker {worker}"
        if times.step:
            self.trace.add(track, "step", times.began, times.step)
        if times.reset:  # resets are spread over the steps; shown together, behind them
            self.trace.add(track, "reset", times.began + times.step, times.reset)

    def add_all(self, by_worker: Mapping[int, RequestTimes]) -> None:
        """The accounts of one step that all workers took together."""
        spent = [times.step + times.reset for times in by_worker.values()]
        for worker, times in by_worker.items():
            self.add(worker, times)
        if spent:
            self.straggler_seconds += (max(spent) - sum(spent) / len(spent)) * 1e-9

    def add_spans(self, worker: int, nanoseconds: dict[str, int], events: Iterable[tuple[str, int, int]] = ()) -> None:
        """Add the spans of a worker that does more than step envs, and when they were."""
        for name, spent in nanoseconds.items():
            self.other_seconds.setdefault(name, np.zeros(len(self.step_seconds)))[worker] += spent * 1e-9
        if self.trace is not None:
            for name, start, duration in events:
                self.trace.add(f"worker {worker}", name, start, duration)

    @property
    def busy_seconds(self) -> np.ndarray:
        """Seconds each worker was at work."""
        return self.step_seconds + self.reset_seconds + sum(self.other_seconds.values(), np.zeros(1))

    def credit(self, watch: Stopwatch, most_seconds: float = float("inf")) -> None:
        """Tell a watch, in the span that is open, what workers did since the last time, on average.

        Workers of some engines go on while the collector is not waiting: what they did then is not what it waited for,
        so no more than `most_seconds` are told of, in proportion.
        """
        totals = {"step": self.step_seconds, "reset": self.reset_seconds, **self.other_seconds}
        means = {name: float(each.mean()) for name, each in totals.items()}
        news = {name: mean - self._credited.get(name, 0.0) for name, mean in means.items()}
        whole = sum(news.values())
        scale = min(1.0, most_seconds / whole) if whole else 1.0
        for name, seconds in news.items():
            if seconds:
                watch.credit(name, seconds * scale * 1e9)
        self._credited = means

    def plus(self, other: WorkerTimes) -> WorkerTimes:
        """Both accounts together."""
        whole = WorkerTimes(len(self.step_seconds))
        whole.step_seconds = self.step_seconds + other.step_seconds
        whole.reset_seconds = self.reset_seconds + other.reset_seconds
        none = np.zeros(len(self.step_seconds))
        for name in {**self.other_seconds, **other.other_seconds}:
            whole.other_seconds[name] = self.other_seconds.get(name, none) + other.other_seconds.get(name, none)
        whole.straggler_seconds = self.straggler_seconds + other.straggler_seconds
        whole.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)
        return whole

    def lap(self) -> WorkerTimes:
        """The sums since the last lap, and a fresh start."""
        done = self.plus(WorkerTimes(len(self.step_seconds)))
        self._clear(len(self.step_seconds))
        return done
