"""The cost of watching: the same training with spans and without, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from redline.learn.config import TrainConfig
from redline.learn.train import Trainer
from redline.timing.compare import SpeedUp, speed_up
from redline.timing.stopwatch import Stopped, Stopwatch


@dataclass(frozen=True)
class Overhead:
    """Seconds per update with and without the profiler, and what it adds, as a share with its interval."""

    watched: np.ndarray
    unwatched: np.ndarray
    spans: float  # opened in an update
    span_seconds: float  # what opening and closing one takes

    @property
    def by_count(self) -> float:
        """The share of an update that its spans take, by their number: one that noise does not blur."""
        return self.spans * self.span_seconds / float(np.median(self.unwatched))

    @property
    def ratio(self) -> SpeedUp:
        """How many times longer a watched update takes."""
        return speed_up(self.watched, self.unwatched)

    @property
    def share(self) -> float:
        """The share of its time that watching adds to an update."""
        return self.ratio.ratio - 1.0


def bench_profiler(config: TrainConfig, turns: int, seconds: float, say: Callable[[str], None]) -> Overhead:
    """Measure, the two in turns; every turn lasts at least `seconds`, as many updates as the first one needed."""
    watched, unwatched = Trainer(config, Stopwatch()), Trainer(config, Stopped())
    try:
        for trainer in (watched, unwatched):
            trainer.update()
        count = _updates_in(watched, seconds)
        say(f"{turns} turns of {count} updates each, with and without the profiler")
        pairs = [_turn(watched, unwatched, count, flipped=bool(k % 2)) for k in range(turns)]
        first, second = zip(*pairs, strict=True)
        watched.watch.lap()
        spans = sum(watched.update().breakdown.calls.values())
        return Overhead(np.array(first), np.array(second), spans, span_seconds())
    finally:
        watched.close()
        unwatched.close()


def span_seconds(count: int = 20_000) -> float:
    """Seconds to open and close a span inside another: the best of several tries."""
    watch, best = Stopwatch(), float("inf")
    with watch.span("outer"):
        for _ in range(7):
            started = time.perf_counter()
            for _ in range(count):
                with watch.span("inner"):
                    pass
            best = min(best, (time.perf_counter() - started) / count)
    return best


def _updates_in(trainer: Trainer, seconds: float) -> int:
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        trainer.update()
        count += 1
    return count


def _turn(watched: Trainer, unwatched: Trainer, count: int, flipped: bool) -> tuple[float, float]:
    """Seconds per update of both. They train alike, so they have the same work; who goes first alternates."""
    order = (unwatched, watched) if flipped else (watched, unwatched)
    spent = {id(trainer): _seconds(trainer, count) for trainer in order}
    return spent[id(watched)], spent[id(unwatched)]


def _seconds(trainer: Trainer, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        trainer.update()
    return (time.perf_counter() - started) / count
