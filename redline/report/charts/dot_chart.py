"""Dots with error bars.

Bars begin at zero, which hides the differences between scores such as −18 and −19. Dots need no zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redline.report.draw import (
    Area,
    Axis,
    Circle,
    Drawing,
    Group,
    Point,
    Polyline,
    Shape,
    Text,
    axis_of,
    drawable,
    grid_columns,
    grid_rows,
    no_data,
    show,
    text_width,
)

NARROW = 500
"""Pixels below which labels and values no longer fit beside each other."""


@dataclass(frozen=True)
class Kind:
    """The meaning of a dot, and its look: a `disc`, a `ring` or a `cross` in a colour of the palette."""

    name: str
    colour: str
    shape: str = "disc"


@dataclass(frozen=True)
class Dot:
    """A labelled value, with an optional interval of so much to both sides."""

    label: str
    value: float
    kind: Kind
    spread: float = math.nan

    @property
    def ends(self) -> tuple[float, float]:
        """Where its interval begins and ends."""
        spread = self.spread if drawable(self.spread) else 0.0
        return self.value - spread, self.value + spread

    @property
    def words(self) -> str:
        """Its value with its interval."""
        return show(float(self.value)) + (f" ± {show(float(self.spread))}" if self.spread > 0 else "")

    @property
    def tip(self) -> str:
        """All there is to say about it."""
        return f"{self.label}: {self.words} ({self.kind.name})"


def dot_rows(dots: Sequence[Dot], *, title: str, unit: str, floor: float = -math.inf, width: int = 760) -> Drawing:
    """A row per dot, with its value on the right. Dots below the floor are arrows at the left edge.

    Where it is narrow, a label stands above its row.
    """
    drawn = [dot for dot in dots if drawable(dot.value)]
    legend, legend_bottom = _legend(dots, width)
    narrow = width < NARROW
    row_height, top = 46 if narrow else 26, legend_bottom + 22
    bottom = top + row_height * len(dots)
    if not drawn:
        return no_data(title, width, max(bottom, 140))
    shown = [dot for dot in drawn if dot.value >= floor] or drawn
    label_room = min(max(text_width(dot.label) for dot in dots), width * 0.46)
    value_room = max(text_width(dot.words) for dot in drawn) + 14
    start, end = 18 if narrow else label_room + 28, width - value_room - 10
    axis = axis_of([max(x, floor) for dot in shown for x in (dot.value, *dot.ends)], start, end, rounded=False)
    shapes = [*legend, *grid_columns(axis, bottom + 4, unit, top - 4)]
    for row, dot in enumerate(dots):
        y = top + row_height * (row + (0.72 if narrow else 0.5))
        above = Text(0, y - 14, dot.label, room=width)
        shapes.append(above if narrow else Text(label_room, y + 4, dot.label, anchor="end", room=label_room))
        shapes.append(Text(width, y + 4, dot.words, anchor="end"))
        if dot in shown:
            low, high = (axis.at(max(x, floor)) for x in dot.ends)
            shapes.append(_dot(dot, axis.at(dot.value), y, [(low, y), (high, y)], 5))
        elif dot in drawn:
            arrow = [(start - 12, y), (start - 3, y - 5), (start - 3, y + 5)]
            shapes.append(Group([Area([arrow], dot.kind.colour)], dot.tip))
    return Drawing(title, width, bottom + 50, shapes)


def dot_columns(
    dots: Sequence[Dot], *, title: str, x_label: str, y_label: str, width: int = 760, height: int = 360
) -> Drawing:
    """Many dots side by side, in the order given. Their labels show by pointing at them."""
    drawn = [(k, dot) for k, dot in enumerate(dots) if drawable(dot.value)]
    if not drawn:
        return no_data(title, width, height)
    legend, legend_bottom = _legend(dots, width)
    top, bottom = legend_bottom + 36, height - 46
    y_axis = axis_of([y for _, dot in drawn for y in (dot.value, *dot.ends)], bottom, top)
    left = max(text_width(words) for words in y_axis.labels()) + 10
    x_axis = Axis(0, len(dots) + 1, left, width - 4, _places(len(dots)))
    shapes = [*legend, Text(0, legend_bottom + 22, y_label, "muted", room=width)]
    shapes += grid_rows(y_axis, left, width - 4) + grid_columns(x_axis, bottom, x_label)
    for k, dot in sorted(drawn, key=lambda pair: pair[1].kind.shape != "ring"):  # rings go behind the rest
        x, (low, high) = x_axis.at(k + 1), map(y_axis.at, dot.ends)
        shapes.append(_dot(dot, x, y_axis.at(dot.value), [(x, low), (x, high)], 3.5))
    return Drawing(title, width, height, shapes)


def _places(count: int) -> list[float]:
    step = max(1, 10 * round(count / 60)) if count > 12 else 1
    return [1.0, *(float(k) for k in range(step, count + 1, step) if k > 1)]


def _dot(dot: Dot, x: float, y: float, interval: Sequence[Point], size: float) -> Group:
    line = [Polyline([interval], dot.kind.colour, size / 3, opacity=0.6)] if dot.spread > 0 else []
    return Group([*line, *_marker(dot.kind, x, y, size)], dot.tip)


def _marker(kind: Kind, x: float, y: float, size: float) -> list[Shape]:
    if kind.shape == "cross":
        d = size * 0.85
        arms = [[(x - d, y - d), (x + d, y + d)], [(x - d, y + d), (x + d, y - d)]]
        return [Polyline(arms, kind.colour, size / 2.2, round_ends=True)]
    if kind.shape == "ring":
        r = size * 0.85
        return [Circle(x, y, r, "surface"), Circle(x, y, r, kind.colour, outlined=True, line_width=size / 3)]
    return [Circle(x, y, size, kind.colour)]


def _legend(dots: Sequence[Dot], width: float) -> tuple[list[Shape], float]:
    """The kinds that occur, each with its marker, in as many lines as they need; and where the last line stands."""
    shapes: list[Shape] = []
    x, y = 6.0, 44.0
    for kind in dict.fromkeys(dot.kind for dot in dots):
        room = text_width(kind.name, 13) + 12
        if x > 6 and x + room > width:
            x, y = 6.0, y + 20
        shapes += [*_marker(kind, x, y - 4.5, 5), Text(x + 12, y, kind.name, size=13)]
        x += room + 28
    return shapes, y
