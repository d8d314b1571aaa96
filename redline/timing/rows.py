"""The rows of a time table: what the spans of a training run come to, in the words of whoever reads it.

Every nanosecond of the run stands in exactly one of the rows without rows of their own. Where workers collect, the
collector waits; what they did meanwhile, on average, is what that time went into, and the rest is real waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

from redline.timing.breakdown import UNACCOUNTED, Breakdown, SpanPath

OWN = "·"
"""Ends a path that means a span without the spans in it."""


@dataclass(frozen=True)
class Part:
    """A row: its name, and the spans whose time it shows."""

    name: str
    paths: tuple[SpanPath, ...]
    parts: tuple[Part, ...] = ()


PARTS = (
    Part(
        "Data collection",
        (("collect",),),
        (
            Part("playing on", (("collect", "play"),)),
            Part("env step", (("collect", "env", OWN), ("collect", "env", "step"), ("collect", "wait", "step"))),
            Part("env reset", (("collect", "env", "reset"), ("collect", "wait", "reset"))),
            Part(
                "policy forward",
                (("collect", "policy", OWN), ("collect", "policy", "forward"), ("collect", "wait", "forward")),
            ),
            Part("action sampling", (("collect", "policy", "sample"), ("collect", "wait", "sample"))),
            Part("buffer writes", (("collect", "record"), ("collect", "wait", "record"))),
            Part("wait / transfer", (("collect", "wait", OWN), ("collect", "send"))),
            Part("the loop itself", (("collect", OWN),)),
        ),
    ),
    Part("GAE", (("learn", "gae"),)),
    Part("Buffer operations", (("learn", "batch"),)),
    Part(
        "Training loop",
        (
            ("learn", OWN), ("learn", "gradient"), ("learn", "loss"), ("learn", "backward"), ("learn", "optimizer"),
            ("learn", "metrics"), ("learn", "imitate"), ("learn", "elite"),
        ),
        (
            Part("loss and backward", (("learn", "gradient", "both"),)),
            Part("loss", (("learn", "loss"), ("learn", "gradient", "loss"))),
            Part("backward", (("learn", "backward"), ("learn", "gradient", "backward"))),
            Part("optimizer step", (("learn", "optimizer"),)),
            Part("imitation", (("learn", "imitate"), ("learn", "elite"), ("learn", "gradient", "imitate"))),
            Part("gathering and metrics", (("learn", OWN), ("learn", "gradient", OWN), ("learn", "metrics"))),
        ),
    ),
    Part("Logging and checkpoints", (("log",),)),
)  # fmt: skip
IMPROVEMENT = Part(
    "Improvement by rollouts",
    (("improve",),),
    (
        Part("meeting states", (("improve", "visit"),)),
        Part("rollouts", (("improve", "rollouts"),)),
        Part("distillation", (("improve", "distil"),)),
        Part("acceptance test", (("improve", "judge"),)),
        Part("the rest of it", (("improve", OWN),)),
    ),
)
"""A row of runs that have it only."""


@dataclass(frozen=True)
class Row:
    """One line of a time table."""

    name: str
    depth: int
    seconds: float
    share: float
    calls: int = 0


def rows(breakdown: Breakdown, details: bool = True) -> list[Row]:
    """All rows, parents before children, and last what no span accounts for. Details without time are left out."""
    found: list[Row] = []
    for part in (*PARTS, *((IMPROVEMENT,) if ("improve",) in breakdown.seconds else ())):
        found.append(_row(breakdown, part, 0))
        if details:
            found += [row for row in (_row(breakdown, each, 1) for each in part.parts) if row.seconds or row.calls]
    return [*found, _unaccounted(breakdown)]


def leaves(breakdown: Breakdown) -> list[Row]:
    """Rows that have no rows below them."""
    every = rows(breakdown)
    return [row for row, after in zip(every, [*every[1:], every[-1]], strict=True) if after.depth <= row.depth]


def row_seconds(breakdown: Breakdown) -> dict[str, float]:
    """Seconds by the name of the row."""
    return {row.name: row.seconds for row in rows(breakdown)}


def _row(breakdown: Breakdown, part: Part, depth: int) -> Row:
    seconds = sum(_seconds(breakdown, path) for path in part.paths)
    calls = sum(breakdown.calls.get(tuple(name for name in path if name != OWN), 0) for path in part.paths)
    return Row(part.name, depth, seconds, _share(breakdown, seconds), calls)


def _seconds(breakdown: Breakdown, path: SpanPath) -> float:
    if path[-1] != OWN:
        return breakdown.seconds.get(path, 0.0)
    return breakdown.own_seconds(*path[:-1]) if path[:-1] in breakdown.seconds else 0.0


def _unaccounted(breakdown: Breakdown) -> Row:
    """Total minus the rows before it."""
    known = {("collect",), ("learn",), ("log",), ("improve",)}
    strangers = sum(breakdown.seconds[path] for path in breakdown.children() if path not in known)
    seconds = breakdown.unaccounted_seconds + strangers
    return Row(UNACCOUNTED, 0, seconds, _share(breakdown, seconds))


def _share(breakdown: Breakdown, seconds: float) -> float:
    return seconds / breakdown.total_seconds if breakdown.total_seconds else 0.0
