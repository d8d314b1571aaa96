"""Charts as SVG strings: lines, bars and shares, with nothing to install and nothing to load.

Colours are CSS variables, so a chart follows the light or dark mode of the page around it. With `standalone=True` it
brings its own colours and background along, and can be shown as an image in a README.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from redline.report.page import FONT, HUES, NOTHING, escape, fit, paint, palette_css, percent, short, text_width

MAX_POINTS = 600
TINY, HUGE = 1e-300, 1e300  # beyond these, sums and powers of ten leave the range of a float
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


@dataclass(frozen=True)
class Bar:
    """A labelled value, with an optional interval. `colour` is one of `HUES` or any CSS colour."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    colour: str | None = None


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
    standalone: bool = False,
) -> str:
    """Curves over a shared x axis, each with its last value written at its right end."""
    series = sorted(series, key=lambda line: line.quiet)
    curves = [_points(line, log_y) for line in series]
    if not any(np.isfinite(curve[1]).any() for curve in curves):
        return _no_data(title, width, height, standalone)
    marks = [mark for mark in marks if _drawable(mark.y, log_y)]
    loud = [line.name for line in series if not line.quiet]
    legend, legend_bottom = _legend(loud, width)
    bottom, top = height - 46, legend_bottom + 36
    y_axis = _axis([*(y for curve in curves for y in curve[1:].flat), *(mark.y for mark in marks)], bottom, top, log_y)
    labels = [_SideLabel(mark.label, None, mark.y, "axis") for mark in marks]
    labels += _last_values(curves[: len(loud)], y_axis, max_labels=(bottom - top) / LABEL_GAP - len(labels))
    left = max(text_width(words) for words in y_axis.labels()) + 10
    right = width - max([24.0, *(min(text_width(label.words), width / 3) + 20 for label in labels)])
    x_axis = _axis([x for curve in curves for x in curve[0]], left, right, rounded=False)

    scale = f"{y_label} (log scale)" if log_y else y_label
    parts = [legend, _text(0, legend_bottom + 22, scale, "muted", room=width)]
    parts += _rows(y_axis, left, right) + _columns(x_axis, bottom, x_label)
    parts += [_line(left, y_axis.at(m.y), right, y_axis.at(m.y), "muted", stroke_dasharray="5 4") for m in marks]
    drawn = [_curve(line, curve, x_axis, y_axis, k) for k, (line, curve) in enumerate(zip(series, curves, strict=True))]
    parts += drawn[len(loud) :] + drawn[: len(loud)]
    parts += _side_labels(labels, x_axis, y_axis, width)
    return _svg(parts, title, width, height, standalone)


def bar_chart(
    bars: Sequence[Bar], *, title: str, unit: str, width: int = 760, log_x: bool = False, standalone: bool = False
) -> str:
    """Horizontal bars with their values at the end. What cannot be drawn, such as 0 on a log scale, shows a dash."""
    drawn = [bar for bar in bars if _drawable(bar.value, log_x)]
    row_height, top = 32, 42
    bottom = top + row_height * len(bars)
    if not drawn:
        return _no_data(title, width, max(bottom, 140), standalone)
    reach = [end for bar in drawn for end in (bar.value, *_interval(bar, log_x))]
    value_room = max(text_width(short(bar.value), 13) for bar in drawn) + 12
    label_room = min(max(text_width(bar.label, 13) for bar in bars), width * 0.4)
    start = label_room + 12 + (value_room if min(reach) < 0 else 0)
    axis = _axis([*reach, *_origin(reach, log_x)], start, width - value_room, log_x, rounded=False)
    parts = _columns(axis, bottom + 4, f"{unit} (log scale)" if log_x else unit, top - 4)
    parts.append(_line(axis.zero(), bottom + 4, axis.zero(), top - 4, "axis"))
    for row, bar in enumerate(bars):
        middle = top + row_height * (row + 0.5)
        parts.append(_text(label_room, middle + 4.5, bar.label, text_anchor="end", size=13, room=label_room))
        parts.append(_bar(bar, axis, middle, unit) if bar in drawn else _text(start + 6, middle + 4.5, NOTHING))
    return _svg(parts, title, width, bottom + 50, standalone)


def share_bar(parts: Sequence[tuple[str, float]], *, title: str, width: int = 760, standalone: bool = False) -> str:
    """One bar cut into shares of the whole, with a legend that gives each in percent."""
    parts = _fold([(name, value) for name, value in parts if 0 < value < HUGE])
    if not parts:
        return _no_data(title, width, 140, standalone)
    total = math.fsum(value for _, value in parts)
    percents = [percent(value / total) for _, value in parts]
    indent = 17 + max(text_width(words, 13) for words in percents)
    widest = max(text_width(name, 13) for name, _ in parts) + indent + 32
    num_columns = int(min(len(parts), max(1, width // widest)))
    column_width = min(widest, width / num_columns)
    drawn, x = [], 0.0
    for k, (name, value) in enumerate(parts):
        length = value / total * width
        block = _tag(
            "rect", x=x, y=36, width=max(length - 2, 0.5), height=30, rx=min(3, length / 4), fill=paint(_hue(k))
        )
        drawn.append(_tag("g", _hover(f"{name}: {percents[k]}") + block))
        left, baseline = column_width * (k % num_columns), 94 + 24 * (k // num_columns)
        drawn.append(_tag("rect", x=left, y=baseline - 10, width=11, height=11, rx=2.5, fill=paint(_hue(k))))
        drawn.append(_text(left + indent, baseline, percents[k], text_anchor="end", size=13, font_weight=600))
        drawn.append(_text(left + indent + 8, baseline, name, size=13, room=column_width - indent - 12))
        x += length
    return _svg(drawn, title, width, 104 + 24 * ((len(parts) - 1) // num_columns), standalone)


@dataclass(frozen=True)
class _Axis:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: list[float]
    log: bool

    def at(self, value: Any) -> Any:
        """The pixel of a value, or the pixels of an array of them."""
        low, high, value = (np.log10(v) if self.log else np.asarray(v) for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def zero(self) -> float:
        """Where bars begin."""
        return float(self.at(self.low if self.log else 0.0))

    def labels(self) -> list[str]:
        return [short(tick, self.digits(tick)) for tick in self.ticks]

    def digits(self, value: float) -> int:
        """How many digits of a value it takes to tell neighbouring ticks apart."""
        if self.log or len(self.ticks) < 2 or value == 0:
            return 1
        last_digit = _exponent(self.ticks[1] - self.ticks[0]) - 1  # one more than the step's, for steps of 2.5
        return max(1, _exponent(value) - last_digit + 1)


def _axis(values: Sequence[float], start: float, end: float, log: bool = False, rounded: bool = True) -> _Axis:
    """An axis that holds all values. A `rounded` one begins and ends on a tick."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, TINY):  # a constant goes in the middle
        margin = size / 10 if size > TINY else 1.0
        low, high = low - margin, high + margin
    count = max(2.0, abs(end - start) / (90 if end > start else 34))
    ticks = _log_ticks(low, high, count) if log else _ticks(low, high, count)
    if rounded:
        low, high = min(low, ticks[0]), max(high, ticks[-1])
    slack = 1e-9 * (high - low)  # 3 * 0.1 is more than 0.3
    return _Axis(low, high, start, end, [tick for tick in ticks if low - slack <= tick <= high + slack], log)


def _ticks(low: float, high: float, count: float) -> list[float]:
    """Round numbers from just below `low` to just above `high`."""
    raw = (high - low) / count
    magnitude = 10.0 ** _exponent(raw)
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if raw <= factor * magnitude * (1 + 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float, count: float) -> list[float]:
    """Powers of ten around `low` and `high`; where there are few, 2 and 5 times those as well."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = math.ceil((last - first) / count)
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [factor * 10.0 ** min(power, 308) for power in range(first, last + stride, stride) for factor in factors]
    below, above = sum(tick <= low for tick in ticks), sum(tick < high for tick in ticks)
    return ticks[max(0, below - 1) : above + 1]


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value)) + 1e-9)


def _drawable(value: float, log: bool) -> bool:
    return abs(value) < HUGE and (value > TINY or not log)


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


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _curve(line: Series, points: np.ndarray, x_axis: _Axis, y_axis: _Axis, k: int) -> str:
    """The line itself, a dot on its last point and on points without neighbours, and its band."""
    x, (y, low, high) = x_axis.at(points[0]), y_axis.at(points[1:])
    runs = _runs(np.isfinite(y))
    path = "".join(f"M{_path(x[run], y[run])}" for run in runs)
    if line.quiet:
        thin = _tag("path", d=path, fill="none", stroke=paint("axis"), stroke_opacity=0.6, stroke_linejoin="round")
        return _tag("g", _hover(line.name) + thin)
    drawn = _tag(
        "path", d=path, fill="none", stroke=paint(_hue(k)), stroke_width=2, stroke_linejoin="round", **_dash(k)
    )
    dots = {run.stop - 1 for run in runs if run.stop - run.start == 1 or run is runs[-1]}
    drawn += "".join(_tag("circle", cx=x[p], cy=y[p], r=3.5, fill=paint(_hue(k))) for p in sorted(dots))
    if line.low is not None or line.high is not None:
        runs = _runs(np.isfinite(low) & np.isfinite(high))
        loops = (f"M{_path(x[run], high[run])}L{_path(x[run][::-1], low[run][::-1])}Z" for run in runs)
        drawn = _tag("path", d="".join(loops), fill=paint(_hue(k)), fill_opacity=0.18) + drawn
    return _tag("g", _hover(line.name) + drawn)


def _rows(axis: _Axis, left: float, right: float) -> list[str]:
    """Grid lines across the chart, with the value of each on the left."""
    parts = []
    for y, words in zip(axis.at(axis.ticks), axis.labels(), strict=True):
        parts += [_line(left, y, right, y, "grid"), _text(left - 8, y + 4, words, "muted", text_anchor="end")]
    return parts


def _columns(axis: _Axis, bottom: float, name: str, top: float | None = None) -> list[str]:
    """Ticks along the bottom, or grid lines up to `top` where given, and the name of the axis under them."""
    parts = [] if top else [_line(axis.start, bottom, axis.end, bottom, "axis")]
    for x, words in zip(axis.at(axis.ticks), axis.labels(), strict=True):
        parts.append(_line(x, bottom, x, top or bottom + 4, "grid" if top else "axis"))
        parts.append(_text(x, bottom + 18, words, "muted", text_anchor="middle"))
    middle, room = (axis.start + axis.end) / 2, axis.end - axis.start
    return [*parts, _text(middle, bottom + 40, name, "muted", room=room, text_anchor="middle")]


class _SideLabel(NamedTuple):
    """Words on the right of a chart about a point in it. Without an x, the point is on the right edge."""

    words: str
    x: float | None
    y: float
    colour: str


def _last_values(curves: Sequence[np.ndarray], axis: _Axis, max_labels: float) -> list[_SideLabel]:
    """The last value of each curve; nothing where that would be too crowded."""
    points = [(k, *point) for k, curve in enumerate(curves) for point in curve[:2, np.isfinite(curve[1])].T[-1:]]
    labels = [_SideLabel(short(y, max(3, axis.digits(y))), x, y, _hue(k)) for k, x, y in points]
    return labels if len(labels) <= max_labels else []


def _side_labels(labels: Sequence[_SideLabel], x_axis: _Axis, y_axis: _Axis, width: float) -> list[str]:
    """The labels, moved apart where they would touch, and a thin line to each from its point."""
    parts, right, heights = [], x_axis.end, [float(y_axis.at(label.y)) for label in labels]
    for label, y, text_y in zip(labels, heights, _spread(heights, y_axis.end, y_axis.start), strict=True):
        x = right if label.x is None else x_axis.at(label.x)
        leader = f"M{x:.1f} {y:.1f}H{right + 3:.1f}L{right + 12:.1f} {text_y:.1f}"
        colour, weight = ("muted", 400) if label.x is None else ("ink", 600)
        parts.append(_tag("path", d=leader, fill="none", stroke=paint(label.colour), stroke_opacity=0.8))
        parts.append(_text(right + 16, text_y + 4, label.words, colour, room=width - right - 16, font_weight=weight))
    return parts


def _spread(wanted: Sequence[float], top: float, bottom: float) -> np.ndarray:
    """Positions near the wanted ones, in the same order, at least `LABEL_GAP` apart."""
    order = np.argsort(wanted, kind="stable")
    offsets = LABEL_GAP * np.arange(len(order))
    free = np.asarray(wanted, dtype=float)[order] - offsets
    pushed_down, pushed_up = np.maximum.accumulate(free), np.minimum.accumulate(free[::-1])[::-1]
    placed = np.empty(len(order))
    placed[order] = np.clip((pushed_down + pushed_up) / 2, top, bottom - LABEL_GAP * (len(order) - 1)) + offsets
    return placed


def _legend(names: Sequence[str], width: float) -> tuple[str, float]:
    """Coloured names in as many lines as they need, and how far down they reach."""
    parts, x, y = [], 0.0, 44.0
    for k, name in enumerate(names):
        entry_width = min(text_width(name, 13) + 46, width)
        if x and x + entry_width > width:
            x, y = 0.0, y + 20
        parts.append(_line(x, y - 4.5, x + 18, y - 4.5, _hue(k), stroke_width=3, **_dash(k)))
        parts.append(_text(x + 25, y, name, size=13, room=width - 25))
        x += entry_width
    return "".join(parts), y


def _bar(bar: Bar, axis: _Axis, middle: float, unit: str) -> str:
    """A bar from the origin to its value, its interval, and the value beyond both."""
    zero = axis.zero()
    value, low, high = (axis.at(v) for v in (bar.value, *_interval(bar, axis.log)))
    colour = paint(bar.colour or HUES[0])
    parts = [_hover(f"{bar.label}: {short(bar.value)} {unit}")]
    parts.append(_tag("rect", x=min(zero, value), y=middle - 10, width=abs(value - zero), height=20, rx=2, fill=colour))
    if low != high:
        whisker = f"M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8"
        parts.append(_tag("path", d=whisker, stroke=paint("ink"), stroke_width=1.5))
    negative = bar.value < 0
    label_x = min(value, low) - 6 if negative else max(value, high) + 6
    parts.append(_text(label_x, middle + 4.5, short(bar.value), text_anchor="end" if negative else "start", size=13))
    return _tag("g", "".join(parts))


def _interval(bar: Bar, log: bool) -> tuple[float, float]:
    low, high = (bar.value if v is None or not _drawable(v, log) else v for v in (bar.low, bar.high))
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


def _hue(k: int) -> str:
    return HUES[k % len(HUES)]


def _dash(k: int) -> dict[str, str]:
    """Hues come round again after eight; dashes tell the second round from the first."""
    return {"stroke_dasharray": "7 3"} if k >= len(HUES) else {}


def _text(
    x: float, y: float, words: str, colour: str = "ink", size: float = 12, room: float = math.inf, **style: str | float
) -> str:
    """Words on a baseline, cut to `room` pixels. What was cut can be read by pointing at it."""
    shown = fit(words, room, size)
    full = _hover(words) if shown != words else ""
    return _tag("text", escape(shown) + full, x=x, y=y, font_size=size, fill=paint(colour), **style)


def _hover(words: str) -> str:
    """What pointing at a shape says."""
    return _tag("title", escape(words))


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, **attributes: str | float) -> str:
    return _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=paint(colour), **attributes)


def _tag(name: str, content_svg: str = "", /, **attributes: str | float) -> str:
    given = "".join(
        f' {key.replace("_", "-")}="{escape(value) if isinstance(value, str) else f"{round(float(value), 2):g}"}"'
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{content_svg}</{name}>" if content_svg else f"<{name}{given}/>"


def _no_data(title: str, width: int, height: int, standalone: bool) -> str:
    frame = _tag("rect", x=0.5, y=32.5, width=width - 1, height=height - 33, rx=8, fill=paint("soft"))
    words = _text(width / 2, 16 + height / 2 + 4, "no data yet", "muted", text_anchor="middle", size=14)
    return _svg([frame, words], title, width, height, standalone)


def _svg(parts: Sequence[str], title: str, width: float, height: float, standalone: bool) -> str:
    margin = 20 if standalone else 0
    x, y, full_width, full_height = -margin, -margin, width + 2 * margin, height + 2 * margin
    heading = _text(0, 17, title, size=15, room=width, font_weight=600)
    own_look = f"<style>{palette_css()}</style>" if standalone else ""
    if standalone:
        own_look += _tag("rect", x=x, y=y, width=full_width, height=full_height, rx=8, fill=paint("surface"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{escape(title)}"'
        f' viewBox="{x} {y} {full_width:g} {full_height:g}" width="{full_width:g}" height="{full_height:g}"'
        f' font-family="{FONT}">{own_look}{heading}{"".join(parts)}</svg>'
    )
