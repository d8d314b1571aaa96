"""Where training spends its time with each engine: sampling, learning, and what an episode costs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redline.bench.measure import Throughput
from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.learn.train import Trainer, warm_up
from redline.timing.breakdown import Breakdown, merge
from redline.timing.rows import row_seconds

PARTS = {
    "action_selection": ("policy forward", "action sampling"),
    "env_step": ("playing on", "env step", "env reset"),
    "wait": ("wait / transfer",),
    "storage": ("buffer writes",),
}
"""Parts of an episode's time, and the rows of the time table that each of them sums up."""


@dataclass
class EngineTimes:
    """The times of training with one engine, or the reason why there are none."""

    name: str
    rates: list[float] = field(default_factory=list)
    laps: list[Breakdown] = field(default_factory=list)
    steps: int = 0
    episodes: int = 0
    episode_steps: float = 0.0
    reason: str = ""

    @property
    def rate(self) -> Throughput | None:
        """Steps per second, learning included."""
        return Throughput.of(self.rates) if self.rates and not self.reason else None

    @property
    def breakdown(self) -> Breakdown:
        """Of all measured updates together."""
        return merge(self.laps)

    def seconds_per_step(self, *path: str) -> float:
        """Time in a span, per step; the whole without a path."""
        spent = self.breakdown.seconds.get(path, 0.0) if path else self.breakdown.total_seconds
        return spent / self.steps

    @property
    def mean_episode_steps(self) -> float | None:
        """Steps of an episode, if one has ended."""
        return self.episode_steps / self.episodes if self.episodes else None

    def parts(self) -> dict[str, tuple[float | None, float]]:
        """Seconds per episode and share of sampling of each part, and of what no part accounts for."""
        sampling, episode = self.seconds_per_step("collect"), self.mean_episode_steps
        shown = row_seconds(self.breakdown)
        spent = {part: sum(shown.get(row, 0.0) for row in rows) / self.steps for part, rows in PARTS.items()}
        spent["other"] = sampling - sum(spent.values())
        return {part: (None if episode is None else each * episode, each / sampling) for part, each in spent.items()}


def time_engines(
    config: TrainConfig, engines: Sequence[str], turns: int, seconds: float, say: Callable[[str], None]
) -> list[EngineTimes]:
    """Real updates with every engine, in turns of at least `seconds`. The first update of each is thrown away."""
    warm_up(config)
    found = [EngineTimes(name) for name in engines]
    trainers: dict[str, Trainer] = {}
    try:
        for entry in found:
            say(f"Bringing up {entry.name}")
            _try(entry, lambda name=entry.name: _bring_up(trainers, config, name))  # type: ignore[misc]
        for k in range(turns):
            say(f"turn {k + 1} of {turns}")
            for entry in found:
                if not entry.reason:
                    _try(entry, lambda entry=entry: _turn(trainers[entry.name], entry, seconds))  # type: ignore[misc]
    finally:
        for trainer in trainers.values():
            trainer.close()
    return found


def _try(entry: EngineTimes, work: Callable[[], None]) -> None:
    try:
        work()
    except RedlineError as error:
        entry.reason = str(error).strip().splitlines()[0]


def _bring_up(trainers: dict[str, Trainer], config: TrainConfig, name: str) -> None:
    endless = dataclasses.replace(config, engine=name, total_steps=10**12, total_episodes=None)
    trainers[name] = Trainer(endless)
    trainers[name].update()


def _turn(trainer: Trainer, entry: EngineTimes, seconds: float) -> None:
    trainer.watch.lap()
    began, steps, spent = time.perf_counter(), 0, 0.0
    while spent < seconds or not steps:
        episodes_before = trainer.episodes
        update = trainer.update()
        spent = time.perf_counter() - began
        entry.laps.append(update.breakdown)
        steps += update.steps
        if update.episodes > episodes_before:
            entry.episodes += update.episodes - episodes_before
            entry.episode_steps += update.metrics["length"] * (update.episodes - episodes_before)
    entry.steps += steps
    entry.rates.append(steps / spent)


def as_row(entry: EngineTimes, update_steps: int) -> dict[str, Any]:
    """One engine as plain data. Seconds are those of an update of `update_steps` steps."""
    rate = entry.rate
    if rate is None:
        return {"name": entry.name, "reason": entry.reason}
    sampling, training, total = (
        entry.seconds_per_step(*path) * update_steps for path in (("collect",), ("learn",), ())
    )
    return {
        "name": entry.name,
        "steps_per_second": rate.median,
        "low": rate.low,
        "high": rate.high,
        "turns": rate.turns,
        "sampling_seconds": sampling,
        "training_seconds": training,
        "total_seconds": total,
        "sampling_to_training": sampling / training,
        "per_episode": {part: {"seconds": spent, "share": share} for part, (spent, share) in entry.parts().items()},
        "mean_episode_steps": entry.mean_episode_steps,
        "breakdown": entry.breakdown.to_json(),
        "reason": None,
    }
