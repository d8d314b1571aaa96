"""Bars: one for each of several values, or one that is cut into shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redline.report.draw import (
    HUES,
    HUGE,
    NOTHING,
    Axis,
    Box,
    Drawing,
    Group,
    Polyline,
    Shape,
    Stroke,
    Text,
    axis_of,
    drawable,
    grid_columns,
    hue,
    no_data,
    percent,
    short,
    text_width,
)


@dataclass(frozen=True)
class Bar:
    """A labelled value, with an optional interval. `colour` is one of `HUES` or any CSS colour."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    colour: str | None = None


def bar_chart(bars: Sequence[Bar], *, title: str, unit: str, width: int = 760, log_x: bool = False) -> Drawing:
    """Horizontal bars with their values at the end. What cannot be drawn, such as 0 on a log scale, shows a dash."""
    drawn = [bar for bar in bars if drawable(bar.value, log_x)]
    row_height, top = 32, 42
    bottom = top + row_height * len(bars)
    if not drawn:
        return no_data(title, width, max(bottom, 140))
    reach = [end for bar in drawn for end in (bar.value, *_interval(bar, log_x))]
    value_room = max(text_width(short(bar.value), 13) for bar in drawn) + 12
    label_room = min(max(text_width(bar.label, 13) for bar in bars), width * (0.4 if width > 500 else 0.5))
    start = label_room + 12 + (value_room if min(reach) < 0 else 0)
    axis = axis_of([*reach, *_origin(reach, log_x)], start, width - value_room, log_x, rounded=False)
    shapes = grid_columns(axis, bottom + 4, f"{unit} (log scale)" if log_x else unit, top - 4)
    shapes.append(Stroke(axis.zero(), bottom + 4, axis.zero(), top - 4, "axis"))
    for row, bar in enumerate(bars):
        middle = top + row_height * (row + 0.5)
        shapes.append(Text(label_room, middle + 4.5, bar.label, size=13, anchor="end", room=label_room))
        shapes.append(_bar(bar, axis, middle, unit) if bar in drawn else Text(start + 6, middle + 4.5, NOTHING))
    return Drawing(title, width, bottom + 50, shapes)


def share_bar(parts: Sequence[tuple[str, float]], *, title: str, width: int = 760) -> Drawing:
    """One bar cut into shares of the whole, with a legend that gives each in percent."""
    parts = _fold([(name, value) for name, value in parts if 0 < value < HUGE])
    if not parts:
        return no_data(title, width, 140)
    total = math.fsum(value for _, value in parts)
    percents = [percent(value / total) for _, value in parts]
    indent = 17 + max(text_width(words, 13) for words in percents)
    widest = max(text_width(name, 13) for name, _ in parts) + indent + 32
    num_columns = int(min(len(parts), max(1, width // widest)))
    column_width = min(widest, width / num_columns)
    shapes: list[Shape] = []
    x = 0.0
    for k, (name, value) in enumerate(parts):
        length = value / total * width
        block = Box(x, 36, max(length - 2, 0.5), 30, hue(k), radius=min(3, length / 4))
        shapes.append(Group([block], f"{name}: {percents[k]}"))
        left, baseline = column_width * (k % num_columns), 94 + 24 * (k // num_columns)
        shapes.append(Box(left, baseline - 10, 11, 11, hue(k), radius=2.5))
        shapes.append(Text(left + indent, baseline, percents[k], size=13, anchor="end", weight=600))
        shapes.append(Text(left + indent + 8, baseline, name, size=13, room=column_width - indent - 12))
        x += length
    return Drawing(title, width, 104 + 24 * ((len(parts) - 1) // num_columns), shapes)


def _bar(bar: Bar, axis: Axis, middle: float, unit: str) -> Group:
    """A bar from the origin to its value, its interval, and the value beyond both."""
    zero = axis.zero()
    value, low, high = (axis.at(v) for v in (bar.value, *_interval(bar, axis.log)))
    block = Box(min(zero, value), middle - 10, abs(value - zero), 20, bar.colour or HUES[0], radius=2)
    shapes: list[Shape] = [block]
    if low != high:
        shapes.append(whisker(low, high, middle, 4, 1.5))
    negative = bar.value < 0
    label_x = min(value, low) - 6 if negative else max(value, high) + 6
    shapes.append(Text(label_x, middle + 4.5, short(bar.value), size=13, anchor="end" if negative else "start"))
    return Group(shapes, f"{bar.label}: {short(bar.value)} {unit}")


def whisker(low: float, high: float, y: float, reach: float, width: float) -> Polyline:
    """An interval: a line with a short one across each end."""
    ends = [[(x, y - reach), (x, y + reach)] for x in (low, high)]
    return Polyline([[(low, y), (high, y)], *ends], "ink", width)


def _interval(bar: Bar, log: bool) -> tuple[float, float]:
    low, high = (bar.value if v is None or not drawable(v, log) else v for v in (bar.low, bar.high))
    return low, high


def _origin(reach: Sequence[float], log: bool) -> tuple[float, ...]:
    """Values the axis of a bar chart must hold so that every bar has a visible length."""
    if log:
        return (10.0 ** math.floor(math.log10(min(reach) / 1.5)),)
    return (0.0,) if any(reach) else (0.0, 1.0)


def _fold(parts: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The same parts, with the smallest ones put together where there are more than there are hues."""
    if len(parts) <= len(HUES):
        return parts
    kept = sorted(parts, key=lambda part: -part[1])[: len(HUES) - 1]
    return [*(part for part in parts if part in kept), ("other", math.fsum(v for n, v in parts if (n, v) not in kept))]
