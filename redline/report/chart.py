"""Charts as SVG strings: lines, bars and shares, with nothing to install and nothing to load.

Colours are CSS variables, so a chart follows the light or dark mode of the page around it (`page.py` sets them). With
`standalone=True` a chart brings its own colours and background, and can be shown as an image in a README.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

# Every hue has a contrast of at least 3 with its surface, and stays apart from the others for colour-blind readers.
HUES = ("blue", "orange", "green", "violet", "pink", "gold", "red", "sky")
LIGHT = dict(zip(HUES, "#137af7 #bb4f03 #169f82 #7a3fc0 #aa3577 #b48c21 #af112d #3a9bd6".split(), strict=True))
LIGHT |= {"ink": "#1b1e25", "muted": "#5c6470", "grid": "#e4e7ec", "axis": "#a9b0bb", "surface": "#ffffff"}
DARK = dict(zip(HUES, "#3f7cf5 #ea7e29 #2fc79a #af92f2 #ca679a #debb36 #e14953 #7cc8f5".split(), strict=True))
DARK |= {"ink": "#eceef2", "muted": "#a0a8b5", "grid": "#2b2f38", "axis": "#5b6370", "surface": "#16181d"}

FONT = "-apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
MAX_POINTS = 600
TINY, HUGE = 1e-300, 1e300  # beyond these, sums and powers of ten leave the range of a float
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Series:
    """A named curve, with an optional band from `low` to `high`. A value that is not finite leaves a gap."""

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None


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
    curves = [_points(line, log_y) for line in series]
    if not any(np.isfinite(curve[1]).any() for curve in curves):
        return _no_data(title, width, height, standalone)
    marks = [mark for mark in marks if abs(mark.y) < HUGE and (mark.y > TINY or not log_y)]
    legend, top = _legend([line.name for line in series], y=46, width=width)
    top, bottom = top + 26, height - 46

    y_values = np.concatenate([curve[1:].ravel() for curve in curves] + [np.array([mark.y for mark in marks])])
    y_axis = _axis(y_values, bottom, top, log=log_y)
    last_values = [curve[1, np.isfinite(curve[1])][-1:] for curve in curves]
    side = [(float(y_axis.at(mark.y)), mark.label, "axis") for mark in marks]
    ends = [(float(y_axis.at(v)), short(v), _hue(k)) for k, last in enumerate(last_values) for v in last]
    side += ends if len(side) + len(ends) <= (bottom - top) / 16 else []
    left = max(text_width(label) for label in y_axis.labels()) + 10
    right = width - max([24.0, *(min(text_width(label), width / 3) + 26 for _, label, _ in side)])
    x_axis = _axis(np.concatenate([curve[0] for curve in curves]), left, right, rounded=False)

    return _svg(
        [
            _title(title, width),
            legend,
            _text(0, top - 12, y_label, paint="muted"),
            *_rows(y_axis, left, right),
            *_columns(x_axis, bottom, None),
            _text((left + right) / 2, height - 6, x_label, paint="muted", anchor="middle"),
            *(_rule(left, right, float(y_axis.at(mark.y)), mark.label) for mark in marks),
            *(_band(curve, x_axis, y_axis, k) for k, curve in enumerate(curves)),
            *(_curve(line.name, curve, x_axis, y_axis, k) for k, (line, curve) in enumerate(zip(series, curves))),
            *_side_labels(side, right, width, top, bottom),
        ],
        title,
        width,
        height,
        standalone,
    )


def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    unit: str,
    width: int = 760,
    log_x: bool = False,
    standalone: bool = False,
) -> str:
    """Horizontal bars with their values written at the end. On a log scale only positive values have a bar."""
    row_height, top = 32, 40
    bottom = top + row_height * len(bars)
    drawn = [bar for bar in bars if abs(bar.value) < HUGE and (bar.value > TINY or not log_x)]
    if not drawn:
        return _no_data(title, width, max(bottom, 140), standalone)
    reach = np.array([[bar.value, *_interval(bar)] for bar in drawn])
    value_width = max(text_width(short(bar.value)) for bar in drawn) + 14
    left = min(max(text_width(bar.label, 13) for bar in bars), width * 0.4) + 12
    start = left + (value_width if reach.min() < 0 else 0)
    axis = _axis(np.append(reach, _origin(reach, log_x)), start, width - value_width, log=log_x, rounded=False)
    scale = f"{unit} (log scale)" if log_x else unit
    parts = [_title(title, width), *_columns(axis, bottom + 4, top - 4)]
    for row, bar in enumerate(bars):
        middle = top + row_height * (row + 0.5)
        parts.append(_text(left - 12, middle + 4.5, _fit(bar.label, left - 12, 13), size=13, anchor="end"))
        parts.append(_bar(bar, axis, middle, unit) if bar in drawn else _text(start + 6, middle + 4.5, "–"))
    parts.append(_text((start + width - value_width) / 2, bottom + 42, scale, paint="muted", anchor="middle"))
    return _svg(parts, title, width, bottom + 48, standalone)


def share_bar(
    parts: Sequence[tuple[str, float]], *, title: str, width: int = 760, standalone: bool = False
) -> str:
    """One bar cut into shares of the whole, with a legend that gives each in percent."""
    parts = _fold([(name, value) for name, value in parts if 0 < value < HUGE])
    if not parts:
        return _no_data(title, width, 140, standalone)
    total = math.fsum(value for _, value in parts)
    column = max(text_width(name, 13) + 84 for name, _ in parts)
    num_columns = max(1, min(len(parts), int(width // column)))
    drawn, x = [_title(title, width)], 0.0
    for k, (name, value) in enumerate(parts):
        length, percent = value / total * width, _percent(value / total)
        block = _tag("rect", x=x, y=36, width=max(length - 2, 0.5), height=30, rx=min(3, length / 4), fill=_hue(k))
        drawn.append(_tag("g", _tag("title", escape(f"{name}: {percent}")) + block))
        column_x, row_y = (k % num_columns) * (width / num_columns), 92 + 24 * (k // num_columns)
        name = _fit(name, width / num_columns - 84, 13)
        drawn.append(_tag("rect", x=column_x, y=row_y - 10, width=11, height=11, rx=2.5, fill=_hue(k)))
        drawn.append(_text(column_x + 64, row_y, percent, size=13, weight=600, anchor="end"))
        drawn.append(_text(column_x + 72, row_y, name, size=13))
        x += length
    return _svg(drawn, title, width, 104 + 24 * ((len(parts) - 1) // num_columns), standalone)


def palette_css() -> str:
    """The colours as CSS variables of the page or image they are put in, for light and for dark."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def escape(words: object) -> str:
    """Text that is safe inside HTML and SVG, attributes included."""
    return html.escape(NOT_XML.sub("\ufffd", str(words)))


def short(value: float, digits: int = 3) -> str:
    """A number in few characters: 270, 2.5 M, −18.2."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else "–"
    value = float(f"{value:.{digits - 1}e}")  # round first: 999,999 is 1 M and not 1000 k
    power = min(int(math.floor(math.log10(abs(value)) + 1e-9)) // 3, 5) if abs(value) >= 1000 else 0
    if power == 5 or abs(value) < 1e-4:
        number = re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.{digits}g}")
    else:
        scaled = value / 1000**power
        number = f"{scaled:.{max(0, digits - 1 - math.floor(math.log10(abs(scaled)) + 1e-9))}f}"
        number = number.rstrip("0").rstrip(".") if "." in number else number
        number += ("", " k", " M", " G", " T")[power]
    return number.replace("-", "−") if number[0] == "-" else number


def text_width(words: str, size: float = 12) -> float:
    """Roughly how many pixels the words take. A little too many is better than too few."""
    return size * sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.57 for letter in words)


@dataclass(frozen=True)
class _Axis:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: list[float]
    log: bool

    def at(self, value: ArrayLike) -> np.ndarray:
        low, high, value = (np.log10(v) if self.log else np.asarray(v) for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def labels(self) -> list[str]:
        """Ticks with as many digits as it takes to tell neighbours apart."""
        if self.log or len(self.ticks) < 2:
            return [short(tick) for tick in self.ticks]
        step = (self.ticks[1] - self.ticks[0]) / 10  # a tenth, because steps of 2.5 need one digit more
        return [short(t, max(1, math.floor(math.log10(max(abs(t), step) / step) + 1e-9) + 1)) for t in self.ticks]


def _axis(values: np.ndarray, start: float, end: float, *, log: bool = False, rounded: bool = True) -> _Axis:
    """An axis that holds all values. `rounded` lets it begin and end on a tick."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, TINY):  # a constant goes in the middle
        margin = size / 10 if size > TINY else 1.0
        low, high = low - margin, high + margin
    room = abs(end - start)
    ticks = _log_ticks(low, high, room) if log else _ticks(low, high, max(2, room / (90 if end > start else 44)))
    if rounded:
        low, high = min(low, ticks[0]), max(high, ticks[-1])
    return _Axis(low, high, start, end, [tick for tick in ticks if low <= tick <= high], log)


def _ticks(low: float, high: float, count: float) -> list[float]:
    """Round numbers from just below `low` to just above `high`."""
    raw = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if raw <= factor * magnitude * (1 + 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float, room: float) -> list[float]:
    """Powers of ten around `low` and `high`; with few of them, 2 and 5 times those as well."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / (room / 44)))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [factor * 10.0**power for power in range(first, last + stride, stride) for factor in factors]
    first_needed = max(k for k, tick in enumerate(ticks) if tick <= low * (1 + 1e-9))
    last_needed = min(k for k, tick in enumerate(ticks) if tick >= high * (1 - 1e-9))
    return ticks[first_needed : last_needed + 1]


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


def _curve(name: str, points: np.ndarray, x_axis: _Axis, y_axis: _Axis, k: int) -> str:
    runs = _runs(np.isfinite(points[1]))
    path = "".join("M" + _path(x_axis.at(points[0, run]), y_axis.at(points[1, run])) for run in runs)
    line = _tag("path", d=path, fill="none", stroke=_hue(k), stroke_width=2, stroke_linejoin="round", **_dash(k))
    lone = [run.start for run in runs if run.stop - run.start == 1]  # a path of one point is invisible
    dots = [
        _tag("circle", cx=x_axis.at(points[0, p]), cy=y_axis.at(points[1, p]), r=3.5, fill=_hue(k))
        for p in sorted({*lone, *(run.stop - 1 for run in runs[-1:])})
    ]
    return _tag("g", _tag("title", escape(name)) + line + "".join(dots))


def _band(points: np.ndarray, x_axis: _Axis, y_axis: _Axis, k: int) -> str:
    x, y, low, high = points
    if not ((low != y) | (high != y))[np.isfinite(y)].any():
        return ""
    runs = _runs(np.isfinite(low) & np.isfinite(high))
    there = ["M" + _path(x_axis.at(x[run]), y_axis.at(high[run])) for run in runs]
    back = ["L" + _path(x_axis.at(x[run][::-1]), y_axis.at(low[run][::-1])) + "Z" for run in runs]
    path = "".join(a + b for a, b in zip(there, back, strict=True))
    return _tag("path", d=path, fill=_hue(k), fill_opacity=0.18)


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
