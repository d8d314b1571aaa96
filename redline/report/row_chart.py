"""Two modes side by side: the time of every row in both, and how much faster the second is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redline.profiler.modes import RowComparison
from redline.report.chart import _Axis, _axis, _columns, _drawable, _hover, _line, _no_data, _svg, _tag, _text
from redline.report.page import paint, short, text_width
from redline.report.row_looks import WIDTH, look_of

FARTHEST = 100.0
"""Speed-ups beyond this, and below 1 over this, stand at the edge."""


def row_chart(
    compared: Sequence[RowComparison],
    before: str,
    after: str,
    *,
    title: str,
    width: int = WIDTH,
    standalone: bool = False,
) -> str:
    """A line per row: its time in both modes, and how much faster the second is."""
    values = [row.after.high for row in compared] + [row.before.high for row in compared]
    if not any(_drawable(value, log=True) for value in values):
        return _no_data(title, width, 140, standalone)
    pitch, top = 34, 86
    bottom = top + pitch * len(compared)
    indent = [14 * row.depth for row in compared]
    label_room = max(text_width(row.name, 13) + more for row, more in zip(compared, indent, strict=True))
    said = [_said(row, before, after) for row in compared]
    words_room = min(max(text_width(words) for words in said) + 8, width * 0.25)
    left, right = label_room + 12, width - words_room
    bars_end = left + (right - left) * 0.5
    bars = _axis([0.0, max(values)], left, bars_end, rounded=False)
    both = [row.speed_up for row in compared if row.before.median and row.after.median]
    ends = [_near(each) for gain in both for each in (gain.low, gain.ratio, gain.high)]
    gains = _axis([1.0, *ends], bars_end + 66, right - 10, log=True)
    parts = _mode_legend(before, after, width)
    parts.append(_text(left, top - 14, "µs per env step", "muted"))
    parts.append(_text(gains.start, top - 14, "times faster (log scale)", "muted"))
    parts += [*_columns(bars, bottom + 4, "", top - 4), *_columns(gains, bottom + 4, "", top - 4)]
    parts.append(_line(float(gains.at(1.0)), bottom + 4, float(gains.at(1.0)), top - 4, "muted", stroke_width=1.5))
    for k, row in enumerate(compared):
        middle = top + pitch * (k + 0.5)
        told = row.speed_up in both and not row.speed_up.within_noise
        colour, weight = "ink" if told else "muted", 400 if row.depth else 600
        parts.append(_text(indent[k], middle + 4.5, row.name, size=13, font_weight=weight))
        parts.append(_text(width, middle + 4, said[k], colour, text_anchor="end", room=words_room))
        parts += _pair(row, bars, middle, before, after)
        if row.speed_up in both:
            parts.append(_gain(row, gains, middle))
    return _svg(parts, title, width, bottom + 30, standalone)


def _said(row: RowComparison, before: str, after: str) -> str:
    """A speed-up in words. A row that only one mode has is no speed-up."""
    if row.before.median and row.after.median:
        return str(row.speed_up)
    return f"only in {after if row.after.median else before}" if row.before.median or row.after.median else "too short"


def _mode_legend(before: str, after: str, width: float) -> list[str]:
    parts, x = [], 0.0
    for name, solid in ((before, False), (after, True)):
        parts.append(_tag("rect", x=x + 0.5, y=34.5, width=10, height=10, rx=2, **_bar_look("total", solid)))
        parts.append(_text(x + 17, 44, name, size=13, room=width / 2 - 40))
        x += min(text_width(name, 13), width / 2 - 40) + 40
    return parts


def _bar_look(row: str, solid: bool) -> dict[str, Any]:
    """The first mode is pale with an outline, the second solid."""
    look = look_of(row)
    outline = {"stroke": paint(look.colour), "stroke_width": 1, "stroke_opacity": look.strength}
    return {**look.fill(1.0 if solid else 0.25), **outline}


def _pair(row: RowComparison, axis: _Axis, middle: float, before: str, after: str) -> list[str]:
    parts = []
    for mode, spread, y, solid in ((before, row.before, middle - 12, False), (after, row.after, middle + 1, True)):
        value, low, high = (float(axis.at(each)) for each in (spread.median, spread.low, spread.high))
        words = (
            f"{mode}, {row.name}: {short(spread.median)} µs per env step "
            f"(quartiles {short(spread.low)} – {short(spread.high)})"
        )
        shape = {"x": axis.start, "y": y + 0.5, "width": max(value - axis.start, 0.4), "height": 10}
        bar = _tag("rect", **shape, **_bar_look(row.name, solid))
        whisker = f"M{low:.1f} {y + 5.5}H{high:.1f}M{low:.1f} {y + 2.5}v6M{high:.1f} {y + 2.5}v6"
        line = _tag("path", d=whisker, stroke=paint("ink"), stroke_width=1.2) if high - low > 0.3 else ""
        parts.append(_tag("g", _hover(words) + bar + line))
        parts.append(_text(max(value, high) + 5, y + 9.5, short(spread.median), "muted", size=11))
    return parts


def _near(ratio: float) -> float:
    """A speed-up that can be drawn."""
    return min(max(ratio, 1 / FARTHEST), FARTHEST) if ratio == ratio else 1.0


def _gain(row: RowComparison, axis: _Axis, y: float) -> str:
    """A dot with its interval; one that leaves the axis ends in an arrow."""
    gain = row.speed_up
    grey = gain.within_noise
    colour = "axis" if grey else "ink"
    low, value, high = (float(axis.at(_near(each))) for each in (gain.low, gain.ratio, gain.high))
    stroke = f"M{low:.1f} {y}H{high:.1f}"
    stroke += f"M{low + 4:.1f} {y - 4}l-4 4l4 4" if gain.low < 1 / FARTHEST else f"M{low:.1f} {y - 4}v8"
    stroke += f"M{high - 4:.1f} {y - 4}l4 4l-4 4" if gain.high > FARTHEST else f"M{high:.1f} {y - 4}v8"
    line = _tag("path", d=stroke, fill="none", stroke=paint(colour), stroke_width=1.5)
    dot = _tag("circle", cx=value, cy=y, r=4, fill=paint("axis" if grey else look_of(row.name).colour))
    words = f"{row.name}: {gain.ratio:.2f}x, 95 % interval {gain.low:.2f} – {gain.high:.2f}"
    return _tag("g", _hover(words + (", within noise" if grey else "")) + line + dot)
