"""Curves over a shared axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from redline.report.draw import (
    HUES,
    HUGE,
    TINY,
    Area,
    Axis,
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
    grid_rows,
    hue,
    no_data,
    short,
    text_width,
)

MAX_POINTS = 600
LABEL_GAP = 16  # pixels from one line of text to the next


@dataclass(frozen=True)
class Series:
    """A named curve, with an optional band from `low` to `high`. A value that is not finite leaves a gap.

    A `quiet` one is thin and grey, behind the others, and has neither a legend nor its last value written.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    quiet: bool = False


@dataclass(frozen=True)
class Mark:
    """A horizontal line to compare with, such as a published score."""

    y: float
    label: str


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    marks: Sequence[Mark] = (),
    width: int = 760,
    height: int = 340,
    log_y: bool = False,
) -> Drawing:
    """Curves over a shared x axis, each with its last value written at its right end."""
    series = sorted(series, key=lambda line: line.quiet)
    curves = [_points(line, log_y) for line in series]
    if not any(np.isfinite(curve[1]).any() for curve in curves):
        return no_data(title, width, height)
    marks = [mark for mark in marks if drawable(mark.y, log_y)]
    loud = [line.name for line in series if not line.quiet]
    legend, legend_bottom = _legend(loud, width)
    bottom, top = height - 46, legend_bottom + 36
    y_axis = axis_of(
        [*(y for curve in curves for y in curve[1:].flat), *(mark.y for mark in marks)], bottom, top, log_y
    )
    labels = [_SideLabel(mark.label, None, mark.y, "axis") for mark in marks]
    labels += _last_values(curves[: len(loud)], y_axis, max_labels=(bottom - top) / LABEL_GAP - len(labels))
    left = max(text_width(words) for words in y_axis.labels()) + 10
    right = width - max([24.0, *(min(text_width(label.words), width / 3) + 20 for label in labels)])
    x_axis = axis_of([x for curve in curves for x in curve[0]], left, right, rounded=False)

    scale = f"{y_label} (log scale)" if log_y else y_label
    shapes = [*legend, Text(0, legend_bottom + 22, scale, "muted", room=width)]
    shapes += grid_rows(y_axis, left, right) + grid_columns(x_axis, bottom, x_label)
    shapes += [Stroke(left, y_axis.at(m.y), right, y_axis.at(m.y), "muted", dash=(5, 4)) for m in marks]
    drawn = [_curve(line, curve, x_axis, y_axis, k) for k, (line, curve) in enumerate(zip(series, curves, strict=True))]
    shapes += drawn[len(loud) :] + drawn[: len(loud)]
    shapes += _side_labels(labels, x_axis, y_axis, width)
    return Drawing(title, width, height, shapes)


def _points(line: Series, log_y: bool) -> np.ndarray:
    """x, y, low and high as float [4, P], thinned out, with NaN for all that cannot be drawn."""
    edges = [line.y if edge is None else edge for edge in (line.low, line.high)]
    points = np.stack([np.asarray(values, dtype=float) for values in (line.x, line.y, *edges)])
    points[~(np.abs(points) < HUGE)] = np.nan
    if log_y:
        points[1:][~(points[1:] > TINY)] = np.nan
    points[:, np.isnan(points[0])] = np.nan
    return points[:, _thin(points[1])]


def _thin(values: np.ndarray) -> np.ndarray:
    """Indices of at most `MAX_POINTS` values: the ends, and the lowest and highest of each stretch in between."""
    everything = np.arange(len(values))
    if len(values) <= MAX_POINTS:
        return everything
    keep = {0, len(values) - 1}
    for stretch in np.array_split(everything, MAX_POINTS // 2 - 1):
        found = stretch[np.isfinite(values[stretch])]
        keep |= {found[values[found].argmin()], found[values[found].argmax()]} if len(found) else {stretch[0]}
    return np.array(sorted(keep))


def _runs(solid: np.ndarray) -> list[slice]:
    """The unbroken stretches of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], solid, [False]))))
    return [slice(first, last) for first, last in edges.reshape(-1, 2)]


def _joined(x: np.ndarray, y: np.ndarray) -> list[Point]:
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _curve(line: Series, points: np.ndarray, x_axis: Axis, y_axis: Axis, k: int) -> Group:
    """The line itself, a dot on its last point and on points without neighbours, and its band."""
    x, (y, low, high) = x_axis.each(points[0]), y_axis.each(points[1:])
    runs = _runs(np.isfinite(y))
    solid = [_joined(x[run], y[run]) for run in runs]
    if line.quiet:
        return Group([Polyline(solid, "axis", opacity=0.6)], line.name)
    shapes: list[Shape] = [Polyline(solid, hue(k), 2, dash=_dash(k))]
    dots = {run.stop - 1 for run in runs if run.stop - run.start == 1 or run is runs[-1]}
    shapes += [Circle(float(x[p]), float(y[p]), 3.5, hue(k)) for p in sorted(dots)]
    if line.low is not None or line.high is not None:
        runs = _runs(np.isfinite(low) & np.isfinite(high))
        loops = [_joined(x[run], high[run]) + _joined(x[run][::-1], low[run][::-1]) for run in runs]
        shapes.insert(0, Area(loops, hue(k), 0.18))
    return Group(shapes, line.name)


class _SideLabel(NamedTuple):
    """Text on the right of a chart about a point in it. Without an x, the point is on the right edge."""

    words: str
    x: float | None
    y: float
    colour: str


def _last_values(curves: Sequence[np.ndarray], axis: Axis, max_labels: float) -> list[_SideLabel]:
    """The last value of each curve; nothing where that would be too crowded."""
    points = [(k, *point) for k, curve in enumerate(curves) for point in curve[:2, np.isfinite(curve[1])].T[-1:]]
    labels = [_SideLabel(short(y, max(3, axis.digits(y))), x, y, hue(k)) for k, x, y in points]
    return labels if len(labels) <= max_labels else []


def _side_labels(labels: Sequence[_SideLabel], x_axis: Axis, y_axis: Axis, width: float) -> list[Shape]:
    """The labels, moved apart where they would touch, and a thin line to each from its point."""
    shapes: list[Shape] = []
    right, heights = x_axis.end, [y_axis.at(label.y) for label in labels]
    for label, y, text_y in zip(labels, heights, _spread(heights, y_axis.end, y_axis.start), strict=True):
        x = right if label.x is None else x_axis.at(label.x)
        colour, weight = ("muted", 400) if label.x is None else ("ink", 600)
        leader = [(x, y), (right + 3, y), (right + 12, text_y)]
        shapes.append(Polyline([leader], label.colour, opacity=0.8))
        shapes.append(Text(right + 16, text_y + 4, label.words, colour, weight=weight, room=width - right - 16))
    return shapes


def _spread(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Positions near the wanted ones, in the same order, at least `LABEL_GAP` apart."""
    order = np.argsort(wanted, kind="stable")
    offsets = LABEL_GAP * np.arange(len(order))
    free = np.asarray(wanted, dtype=float)[order] - offsets
    pushed_down, pushed_up = np.maximum.accumulate(free), np.minimum.accumulate(free[::-1])[::-1]
    placed = np.empty(len(order))
    placed[order] = np.clip((pushed_down + pushed_up) / 2, top, bottom - LABEL_GAP * (len(order) - 1)) + offsets
    return placed.tolist()


def _legend(names: Sequence[str], width: float) -> tuple[list[Shape], float]:
    """Coloured names in as many lines as they need, and how far down they reach."""
    shapes: list[Shape] = []
    x, y = 0.0, 44.0
    for k, name in enumerate(names):
        entry_width = min(text_width(name, 13) + 46, width)
        if x and x + entry_width > width:
            x, y = 0.0, y + 20
        shapes.append(Stroke(x, y - 4.5, x + 18, y - 4.5, hue(k), 3, _dash(k)))
        shapes.append(Text(x + 25, y, name, size=13, room=width - 25))
        x += entry_width
    return shapes, y


def _dash(k: int) -> tuple[float, float] | None:
    """Hues come round again after eight; dashes tell the second round from the first."""
    return (7, 3) if k >= len(HUES) else None
