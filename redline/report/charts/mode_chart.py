"""Two modes side by side: the time of every row in both, and how much faster the second is."""

from __future__ import annotations

from collections.abc import Sequence

from redline.profiler.modes import RowComparison
from redline.report.charts.bar_chart import whisker
from redline.report.charts.row_looks import WIDTH, look_of
from redline.report.draw import (
    Axis,
    Box,
    Circle,
    Drawing,
    Group,
    Point,
    Polyline,
    Shape,
    Stroke,
    Text,
    axis_of,
    drawable,
    grid_columns,
    no_data,
    short,
    text_width,
)

FARTHEST = 100.0
"""Speed-ups beyond this, and below 1 over this, stand at the edge."""


def mode_chart(
    compared: Sequence[RowComparison], before: str, after: str, *, title: str, width: int = WIDTH
) -> Drawing:
    """A line per row: its time in both modes, and how much faster the second is."""
    values = [row.after.high for row in compared] + [row.before.high for row in compared]
    if not any(drawable(value, log=True) for value in values):
        return no_data(title, width, 140)
    pitch, top = 34, 86
    bottom = top + pitch * len(compared)
    indent = [14 * row.depth for row in compared]
    label_room = max(text_width(row.name, 13) + more for row, more in zip(compared, indent, strict=True))
    said = [_said(row, before, after) for row in compared]
    words_room = min(max(text_width(words) for words in said) + 8, width * 0.25)
    left, right = label_room + 12, width - words_room
    bars_end = left + (right - left) * 0.5
    bars = axis_of([0.0, max(values)], left, bars_end, rounded=False)
    both = [row.speed_up for row in compared if row.before.median and row.after.median]
    ends = [_near(each) for gain in both for each in (gain.low, gain.ratio, gain.high)]
    gains = axis_of([1.0, *ends], bars_end + 66, right - 10, log=True)
    shapes = _mode_legend(before, after, width)
    shapes.append(Text(left, top - 14, "µs per env step", "muted"))
    shapes.append(Text(gains.start, top - 14, "times faster (log scale)", "muted"))
    shapes += [*grid_columns(bars, bottom + 4, top=top - 4), *grid_columns(gains, bottom + 4, top=top - 4)]
    shapes.append(Stroke(gains.at(1.0), bottom + 4, gains.at(1.0), top - 4, "muted", 1.5))
    for k, row in enumerate(compared):
        middle = top + pitch * (k + 0.5)
        told = row.speed_up in both and not row.speed_up.within_noise
        colour, weight = "ink" if told else "muted", 400 if row.depth else 600
        shapes.append(Text(indent[k], middle + 4.5, row.name, size=13, weight=weight))
        shapes.append(Text(width, middle + 4, said[k], colour, anchor="end", room=words_room))
        shapes += _pair(row, bars, middle, before, after)
        if row.speed_up in both:
            shapes.append(_gain(row, gains, middle))
    return Drawing(title, width, bottom + 30, shapes)


def _said(row: RowComparison, before: str, after: str) -> str:
    """A speed-up in words. A row that only one mode has is no speed-up."""
    if row.before.median and row.after.median:
        return str(row.speed_up)
    return f"only in {after if row.after.median else before}" if row.before.median or row.after.median else "too short"


def _mode_legend(before: str, after: str, width: float) -> list[Shape]:
    shapes: list[Shape] = []
    x = 0.0
    for name, solid in ((before, False), (after, True)):
        shapes += _bar("total", Box(x + 0.5, 34.5, 10, 10, "", radius=2), solid)
        shapes.append(Text(x + 17, 44, name, size=13, room=width / 2 - 40))
        x += min(text_width(name, 13), width / 2 - 40) + 40
    return shapes


def _bar(row: str, place: Box, solid: bool) -> list[Shape]:
    """The first mode is pale with an outline, the second solid."""
    look = look_of(row)
    filled = place._replace(colour=look.colour, opacity=look.strength * (1.0 if solid else 0.25))
    return [filled, place._replace(colour=look.colour, opacity=look.strength, outlined=True)]


def _pair(row: RowComparison, axis: Axis, middle: float, before: str, after: str) -> list[Shape]:
    shapes: list[Shape] = []
    for mode, spread, y, solid in ((before, row.before, middle - 12, False), (after, row.after, middle + 1, True)):
        value, low, high = (axis.at(each) for each in (spread.median, spread.low, spread.high))
        tip = (
            f"{mode}, {row.name}: {short(spread.median)} µs per env step "
            f"(quartiles {short(spread.low)} – {short(spread.high)})"
        )
        bar = _bar(row.name, Box(axis.start, y + 0.5, max(value - axis.start, 0.4), 10, ""), solid)
        interval = [whisker(low, high, y + 5.5, 3, 1.2)] if high - low > 0.3 else []
        shapes.append(Group([*bar, *interval], tip))
        shapes.append(Text(max(value, high) + 5, y + 9.5, short(spread.median), "muted", 11))
    return shapes


def _near(ratio: float) -> float:
    """A speed-up that can be drawn."""
    return min(max(ratio, 1 / FARTHEST), FARTHEST) if ratio == ratio else 1.0


def _gain(row: RowComparison, axis: Axis, y: float) -> Group:
    """A dot with its interval; one that leaves the axis ends in an arrow."""
    gain = row.speed_up
    grey = gain.within_noise
    low, value, high = (axis.at(_near(each)) for each in (gain.low, gain.ratio, gain.high))
    left = _end(low, y, 4 if gain.low < 1 / FARTHEST else 0)
    right = _end(high, y, -4 if gain.high > FARTHEST else 0)
    line = Polyline([[(low, y), (high, y)], left, right], "axis" if grey else "ink", 1.5)
    dot = Circle(value, y, 4, "axis" if grey else look_of(row.name).colour)
    tip = f"{row.name}: {gain.ratio:.2f}x, 95 % interval {gain.low:.2f} – {gain.high:.2f}"
    return Group([line, dot], tip + (", within noise" if grey else ""))


def _end(x: float, y: float, back: float) -> list[Point]:
    """A stroke across the end of an interval; an arrow head where it bends back."""
    return [(x + back, y - 4), (x, y), (x + back, y + 4)]
