"""The shapes that drawings are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Point = tuple[float, float]
Dash = tuple[float, float]
"""Pixels drawn and pixels left out, in turns."""


class Box(NamedTuple):
    """A rectangle, filled or only outlined. `tip` is what pointing at it says."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    opacity: float = 1.0
    outlined: bool = False
    tip: str = ""
    radius: float = 0.0
    """Of its corners."""
    line_width: float = 1.0
    """Of an outline."""


class Circle(NamedTuple):
    """A circle around (x, y), filled or only outlined."""

    x: float
    y: float
    radius: float
    colour: str
    outlined: bool = False
    line_width: float = 1.0


class Stroke(NamedTuple):
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    dash: Dash | None = None


class Polyline(NamedTuple):
    """Points joined by straight lines, in one or several runs."""

    runs: Sequence[Sequence[Point]]
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    dash: Dash | None = None
    round_ends: bool = False


class Area(NamedTuple):
    """All that one or several closed runs of points enclose."""

    runs: Sequence[Sequence[Point]]
    colour: str
    opacity: float = 1.0


class Text(NamedTuple):
    """Words on a baseline; `anchor` is start, middle or end."""

    x: float
    y: float
    words: str
    colour: str = "ink"
    size: float = 12.0
    anchor: str = "start"
    weight: int = 400
    inside: bool = False
    """Whether it lies on a box, whose tip it then lets through."""
    room: float = math.inf
    """Pixels it may take. What is cut off can be read by pointing at it."""


class Group(NamedTuple):
    """Shapes that belong together. `tip` is what pointing at any of them says."""

    shapes: Sequence[Shape]
    tip: str = ""
    opacity: float = 1.0
    """Of each of its shapes, which must not lie on each other."""
    crisp: bool = False
    """Whether edges snap to pixels, so that no seam shows between neighbours."""
    shift: Point = (0.0, 0.0)
    """How far they are moved, right and down."""


Shape = Box | Circle | Stroke | Polyline | Area | Text | Group


@dataclass(frozen=True)
class Drawing:
    """Shapes under a title."""

    title: str
    width: float
    height: float
    shapes: Sequence[Shape]

    @property
    def heading(self) -> Text:
        """The title as words above the shapes."""
        return Text(0, 17, self.title, size=15, weight=600, room=self.width)


def no_data(title: str, width: float, height: float, words: str = "no data yet") -> Drawing:
    """An empty frame that says so."""
    frame = Box(0.5, 32.5, width - 1, height - 33, "soft", radius=8)
    return Drawing(title, width, height, [frame, Text(width / 2, 20 + height / 2, words, "muted", 14, "middle")])
