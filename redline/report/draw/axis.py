"""Axes: where a value lies on the paper, and which round numbers stand beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from redline.report.draw.numbers import short
from redline.report.draw.shapes import Shape, Stroke, Text

TINY, HUGE = 1e-300, 1e300  # beyond these, sums and powers of ten leave the range of a float


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: list[float]
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return float(self.each(value))

    def each(self, values: ArrayLike) -> np.ndarray:
        """The pixels of many values."""
        low, high, wanted = (np.log10(v) if self.log else np.asarray(v) for v in (self.low, self.high, values))
        return self.start + (wanted - low) / (high - low) * (self.end - self.start)

    def zero(self) -> float:
        """Where bars begin."""
        return self.at(self.low if self.log else 0.0)

    def labels(self) -> list[str]:
        """The ticks in words."""
        return [short(tick, self.digits(tick)) for tick in self.ticks]

    def digits(self, value: float) -> int:
        """How many digits of a value it takes to tell neighbouring ticks apart."""
        if self.log or len(self.ticks) < 2 or value == 0:
            return 1
        last_digit = _exponent(self.ticks[1] - self.ticks[0]) - 1  # one more than the step's, for steps of 2.5
        return max(1, _exponent(value) - last_digit + 1)


def axis_of(values: ArrayLike, start: float, end: float, log: bool = False, rounded: bool = True) -> Axis:
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
    return Axis(low, high, start, end, [tick for tick in ticks if low - slack <= tick <= high + slack], log)


def drawable(value: float, log: bool = False) -> bool:
    """Whether a value has a place on an axis."""
    return abs(value) < HUGE and (value > TINY or not log)


def grid_rows(axis: Axis, left: float, right: float) -> list[Shape]:
    """Grid lines across the chart, with the value of each on the left."""
    shapes: list[Shape] = []
    for y, words in zip(axis.each(axis.ticks).tolist(), axis.labels(), strict=True):
        shapes += [Stroke(left, y, right, y, "grid"), Text(left - 8, y + 4, words, "muted", anchor="end")]
    return shapes


def grid_columns(axis: Axis, bottom: float, name: str = "", top: float | None = None) -> list[Shape]:
    """Ticks along the bottom, or grid lines up to `top` where given, and the name of the axis under them."""
    shapes: list[Shape] = [] if top else [Stroke(axis.start, bottom, axis.end, bottom, "axis")]
    for x, words in zip(axis.each(axis.ticks).tolist(), axis.labels(), strict=True):
        shapes.append(Stroke(x, bottom, x, top or bottom + 4, "grid" if top else "axis"))
        shapes.append(Text(x, bottom + 18, words, "muted", anchor="middle"))
    middle, room = (axis.start + axis.end) / 2, axis.end - axis.start
    return shapes + ([Text(middle, bottom + 40, name, "muted", anchor="middle", room=room)] if name else [])


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
