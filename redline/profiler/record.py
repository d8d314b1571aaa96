"""Watches a real training run for a few batches: the same trainer, the same session, the same spans as `redline train`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redline.learn.config import Saving, TrainConfig, config_to_json
from redline.learn.session import Session
from redline.learn.train import Trainer
from redline.runs import Run
from redline.timing.breakdown import Breakdown, merge
from redline.timing.memory import tree_memory_mb
from redline.timing.rows import rows
from redline.timing.trace import Trace
from redline.timing.workers import WorkerTimes


@dataclass(frozen=True)
class WatchedUpdate:
    """One update: how long its parts took, and what it did."""

    breakdown: Breakdown
    steps: int
    episodes: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "steps": self.steps,
            "episodes": self.episodes,
            **self.breakdown.to_json(),
            "rows": row_json(self.breakdown),
        }


@dataclass
class Profile:
    """All that was seen of one mode. The warm-up batch (compilation, first touch) stands apart."""

    mode: str
    config: TrainConfig
    start_up_seconds: float = 0.0
    warm_up: WatchedUpdate | None = None
    batches: list[WatchedUpdate] = field(default_factory=list)
    workers: WorkerTimes | None = None  # of the batches, without the warm-up
    num_workers: int = 1
    collect_seconds: float = 0.0
    memory_mb: float = 0.0
    device_share: float | None = None

    @property
    def breakdown(self) -> Breakdown:
        """All batches together."""
        return merge(batch.breakdown for batch in self.batches)

    @property
    def steps(self) -> int:
        """Env steps of all batches."""
        return sum(batch.steps for batch in self.batches)

    @property
    def steps_per_second(self) -> float:
        """Env steps per second of wall time, learning and logging included."""
        return self.steps / self.breakdown.total_seconds

    @property
    def episodes_per_second(self) -> float:
        """Episodes that ended, per second."""
        return sum(batch.episodes for batch in self.batches) / self.breakdown.total_seconds

    @property
    def sampling_to_training(self) -> float:
        """Seconds of collecting per second of learning."""
        learning = self.breakdown.seconds.get(("learn",), 0.0)
        return self.breakdown.seconds.get(("collect",), 0.0) / learning if learning else float("inf")

    @property
    def busy_share(self) -> float | None:
        """Part of the collecting time that workers were at work; None where there are none."""
        if self.workers is None or not self.collect_seconds:
            return None
        return float(self.workers.busy_seconds.sum()) / (self.num_workers * self.collect_seconds)

    @property
    def straggler_share(self) -> float | None:
        """Part of the collecting time that workers in lockstep lost to the slowest of them."""
        if self.workers is None or not self.collect_seconds:
            return None
        return self.workers.straggler_seconds / self.collect_seconds

    def to_json(self) -> dict[str, Any]:
        """As plain data; docs/profile.md says what is what."""
        breakdown, workers = self.breakdown, self.workers
        return {
            "mode": self.mode,
            "env": self.config.env,
            "engine": self.config.engine,
            "config": config_to_json(self.config),
            "steps": self.steps,
            "steps_per_second": self.steps_per_second,
            "episodes_per_second": self.episodes_per_second,
            "sampling_to_training": self.sampling_to_training,
            "unaccounted_share": breakdown.unaccounted_seconds / breakdown.total_seconds,
            "start_up_seconds": self.start_up_seconds,
            "memory_mb": self.memory_mb,
            "device_share": self.device_share,
            "rows": row_json(breakdown),
            **breakdown.to_json(),
            "warm_up": None if self.warm_up is None else self.warm_up.to_json(),
            "batches": [batch.to_json() for batch in self.batches],
            "workers": None
            if workers is None
            else {
                "count": self.num_workers,
                "busy_share": self.busy_share,
                "straggler_share": self.straggler_share,
                "slowest_step_seconds": workers.slowest_seconds,
                "step_seconds": workers.step_seconds.tolist(),
                "reset_seconds": workers.reset_seconds.tolist(),
            },
        }


def row_json(breakdown: Breakdown) -> list[dict[str, Any]]:
    """The rows of the table as plain data."""
    return [
        {"name": row.name, "depth": row.depth, "seconds": row.seconds, "share": row.share, "calls": row.calls}
        for row in rows(breakdown)
    ]


class Watched:
    """A training run that is watched batch by batch. Close it to end its workers and delete its folder."""

    def __init__(self, mode: str, config: TrainConfig, warn: Callable[[str], None], trace: Trace | None = None) -> None:
        started = time.perf_counter()
        self._folder = Path(tempfile.mkdtemp(prefix="redline-profile-"))
        try:
            self.trainer = Trainer(config)
            run = Run.at(self._folder / "run", config_to_json(config))
            self._session = Session.begin(run, self.trainer, Saving(), warn)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self.profile = Profile(mode, config, time.perf_counter() - started)
        self._trace = trace
        self._episodes = 0

    def batch(self) -> WatchedUpdate:
        """One update of the real loop. The first is the warm-up."""
        engine, profile = self.trainer.engine, self.profile
        if self._trace is not None:
            self.trainer.watch.events = self._trace.span
            engine.times.trace = self._trace
        self.trainer.watch.lap()  # others had their turn meanwhile
        engine.times.lap()
        update = self._session.update()
        logging = self.trainer.watch.lap()
        times = engine.times.lap()
        batch = WatchedUpdate(merge([update.breakdown, logging]), update.steps, update.episodes - self._episodes)
        self._episodes = update.episodes
        if profile.warm_up is None:
            profile.warm_up = batch
            return batch
        profile.batches.append(batch)
        profile.collect_seconds += batch.breakdown.seconds.get(("collect",), 0.0)
        profile.num_workers = engine.num_workers
        if engine.plan:
            profile.workers = times if profile.workers is None else profile.workers.plus(times)
        if self.trainer.device == "cuda":
            import torch

            profile.device_share = torch.cuda.utilization() / 100
        return batch

    def weigh(self) -> None:
        """Note how much memory all of it holds; not in a batch, which this would lengthen."""
        self.profile.memory_mb = tree_memory_mb()

    def close(self) -> None:
        """End it."""
        self._session.close()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def watching(
    mode: str, config: TrainConfig, warn: Callable[[str], None], trace: Trace | None = None
) -> Iterator[Watched]:
    """A watched run for as long as the block lasts."""
    watched = Watched(mode, config, warn, trace)
    try:
        yield watched
    finally:
        watched.close()
