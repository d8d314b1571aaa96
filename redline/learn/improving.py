"""Improvement by rollouts in a run folder: what is over is kept there, so that it can be gone on with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redline.learn import checkpoint
from redline.learn.adopt import adopt
from redline.learn.improve import improve
from redline.learn.improvement import START, Gains, Improvement, Progress
from redline.learn.judge import Arena
from redline.learn.policy import Policy
from redline.learn.restoring import refusing
from redline.learn.stored import from_json
from redline.learn.train import below, load_weights
from redline.runs import BREAKDOWN, IMPROVEMENT, PROGRESS, Run
from redline.timing.breakdown import Breakdown, merge
from redline.timing.stopwatch import Stopwatch

WHOLE = ("improve",)
"""The span of all of it."""


def begun(folder: Path, config: dict[str, Any]) -> Run:
    """The run in a folder, if a part of its improvement is over; else a new one."""
    if checkpoint.has_any(folder / PROGRESS):
        return Run.open(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return Run.at(folder, config)


def improve_in(
    run: Run, policy: Policy, arena: Arena, how: Improvement, seed: int, say: Callable[[str], None]
) -> list[Gains]:
    """Improve a policy in place, from where a run folder says that this was broken off. Returns what each round gained."""
    progress, before = _found(run.path / PROGRESS, policy)
    watch = Stopwatch()

    def keep(progress: Progress) -> None:
        arrays = {f"policy.{name}": array for name, array in policy.arrays().items()}
        values = {"progress": asdict(progress), "times": merge([before, _so_far(watch)]).to_json()}
        checkpoint.save(run.path / PROGRESS, progress.parts, arrays, values, 1)

    if progress == START:
        keep(progress)
    gains = improve(policy, arena, how, seed, watch, say, progress, keep)
    return _written(run, gains, merge([before, _so_far(watch)]))


def adopt_in(
    run: Run, policy: Policy, other: Policy, arena: Arena, how: Improvement, seed: int, say: Callable[[str], None]
) -> list[Gains]:
    """Have a policy take over what another does better. One that was broken off is done again from its beginning."""
    watch = Stopwatch()
    gains = adopt(policy, other, arena, how, seed, watch, say)
    return _written(run, gains, _so_far(watch))


def _written(run: Run, gains: list[Gains], times: Breakdown) -> list[Gains]:
    run.write_json(IMPROVEMENT, {"rounds": [each.to_json() for each in gains]})
    run.write_json(BREAKDOWN, times.to_json())
    return gains


def _found(folder: Path, policy: Policy) -> tuple[Progress, Breakdown]:
    """How far it has come, and the time that this took; the policy is put to where it was."""
    if not checkpoint.has_any(folder):
        return START, Breakdown(0.0)
    found = checkpoint.load(checkpoint.latest(folder))
    with refusing(str(found.path)):
        load_weights(policy, below(found.arrays, "policy"))
        return from_json(Progress, found.values["progress"], "progress"), Breakdown.from_json(found.values["times"])


def _so_far(watch: Stopwatch) -> Breakdown:
    """The time since the watch was started, all of it spent on improvement."""
    now = watch.breakdown()
    inside = {(*WHOLE, *path): spent for path, spent in now.seconds.items()}
    calls = {(*WHOLE, *path): count for path, count in now.calls.items()}
    return Breakdown(now.total_seconds, {**inside, WHOLE: now.total_seconds}, {**calls, WHOLE: 1})
