"""Improvement by rollouts in a run folder: what it found, and the time that it took."""

from __future__ import annotations

from collections.abc import Callable

from redline.learn.adopt import adopt
from redline.learn.improve import improve
from redline.learn.improvement import Gains, Improvement
from redline.learn.judge import Arena
from redline.learn.policy import Policy
from redline.runs import BREAKDOWN, IMPROVEMENT, Run
from redline.timing.breakdown import Breakdown
from redline.timing.stopwatch import Stopwatch

WHOLE = ("improve",)
"""The span of all of it."""


def improve_in(
    run: Run, policy: Policy, arena: Arena, how: Improvement, seed: int, say: Callable[[str], None]
) -> list[Gains]:
    """Improve a policy in place. Returns what each round gained. One that was interrupted begins anew."""
    watch = Stopwatch()
    gains = improve(policy, arena, how, seed=seed, watch=watch, say=say)
    return _written(run, gains, _so_far(watch))


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


def _so_far(watch: Stopwatch) -> Breakdown:
    """The time since the watch was started, all of it spent on improvement."""
    now = watch.breakdown()
    inside = {(*WHOLE, *path): spent for path, spent in now.seconds.items()}
    calls = {(*WHOLE, *path): count for path, count in now.calls.items()}
    return Breakdown(now.total_seconds, {**inside, WHOLE: now.total_seconds}, {**calls, WHOLE: 1})
