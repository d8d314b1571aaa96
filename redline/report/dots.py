"""Dots with error bars as SVG strings, in the style of `redline.report.chart`.

Bars begin at zero, which hides the differences between scores such as −18 and −19. Dots need no zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redline.report.chart import _Axis, _axis, _columns, _drawable, _hover, _no_data, _rows, _svg, _tag, _text
from redline.report.page import _show, paint, text_width


@dataclass(frozen=True)
class Kind:
    """What a dot stands for, and how it looks: a `disc`, a `ring` or a `cross` in a colour of the palette."""

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
        spread = self.spread if _drawable(self.spread, log=False) else 0.0
        return self.value - spread, self.value + spread


def dot_rows(
    dots: Sequence[Dot],
    *,
    title: str,
    unit: str,
    floor: float = -math.inf,
    width: int = 760,
    standalone: bool = False,
) -> str:
    """A row per dot, with its value on the right. Dots below the floor are arrows at the left edge."""
    drawn = [dot for dot in dots if _drawable(dot.value, log=False)]
    legend, row_height, top = _legend(dots), 26, 66
    bottom = top + row_height * len(dots)
    if not drawn:
        return _no_data(title, width, max(bottom, 140), standalone)
    shown = [dot for dot in drawn if dot.value >= floor] or drawn
    label_room = min(max(text_width(dot.label) for dot in dots), width * 0.46)
    value_room = max(text_width(_value(dot)) for dot in drawn) + 14
    start, end = label_room + 28, width - value_room - 10
    axis = _axis([max(x, floor) for dot in shown for x in (dot.value, *dot.ends)], start, end, rounded=False)
    parts = [legend, *_columns(axis, bottom + 4, unit, top - 4)]
    for row, dot in enumerate(dots):
        y = top + row_height * (row + 0.5)
        parts.append(_text(label_room, y + 4, dot.label, text_anchor="end", room=label_room))
        parts.append(_text(width, y + 4, _value(dot), text_anchor="end"))
        if dot in shown:
            low, high = (float(axis.at(max(x, floor))) for x in dot.ends)
            parts.append(_dot(dot, float(axis.at(dot.value)), y, f"M{low:.1f} {y:.1f}H{high:.1f}", 5))
        elif dot in drawn:
            arrow = f"M{start - 12:.1f} {y:.1f}l9 -5v10Z"
            parts.append(_tag("g", _hover(_words(dot)) + _tag("path", d=arrow, fill=paint(dot.kind.colour))))
    return _svg(parts, title, width, bottom + 50, standalone)


def dot_columns(
    dots: Sequence[Dot],
    *,
    title: str,
    x_label: str,
    y_label: str,
    width: int = 760,
    height: int = 360,
    standalone: bool = False,
) -> str:
    """Many dots side by side, in the order given. Their labels show by pointing at them."""
    drawn = [(k, dot) for k, dot in enumerate(dots) if _drawable(dot.value, log=False)]
    if not drawn:
        return _no_data(title, width, height, standalone)
    top, bottom = 80, height - 46
    y_axis = _axis([y for _, dot in drawn for y in (dot.value, *dot.ends)], bottom, top)
    left = max(text_width(words) for words in y_axis.labels()) + 10
    x_axis = _Axis(0, len(dots) + 1, left, width - 4, _places(len(dots)), log=False)
    parts = [_legend(dots), _text(0, 66, y_label, "muted", room=width)]
    parts += _rows(y_axis, left, width - 4) + _columns(x_axis, bottom, x_label)
    for k, dot in sorted(drawn, key=lambda pair: pair[1].kind.shape != "ring"):  # rings go behind the rest
        x, y, (low, high) = float(x_axis.at(k + 1)), float(y_axis.at(dot.value)), y_axis.at(dot.ends)
        parts.append(_dot(dot, x, y, f"M{x:.1f} {low:.1f}V{high:.1f}", 3.5))
    return _svg(parts, title, width, height, standalone)


def _places(count: int) -> list[float]:
    step = max(1, 10 * round(count / 60)) if count > 12 else 1
    return [1.0, *(float(k) for k in range(step, count + 1, step) if k > 1)]


def _dot(dot: Dot, x: float, y: float, whisker: str, size: float) -> str:
    line = _tag("path", d=whisker, stroke=paint(dot.kind.colour), stroke_width=size / 3, stroke_opacity=0.6)
    return _tag("g", _hover(_words(dot)) + (line if dot.spread > 0 else "") + _marker(dot.kind, x, y, size))


def _marker(kind: Kind, x: float, y: float, size: float) -> str:
    colour = paint(kind.colour)
    if kind.shape == "cross":
        d = size * 0.85
        strokes = f"M{x - d:.1f} {y - d:.1f}l{2 * d:.1f} {2 * d:.1f}M{x - d:.1f} {y + d:.1f}l{2 * d:.1f} {-2 * d:.1f}"
        return _tag("path", d=strokes, stroke=colour, stroke_width=size / 2.2, stroke_linecap="round")
    if kind.shape == "ring":
        return _tag("circle", cx=x, cy=y, r=size * 0.85, fill=paint("surface"), stroke=colour, stroke_width=size / 3)
    return _tag("circle", cx=x, cy=y, r=size, fill=colour)


def _words(dot: Dot) -> str:
    return f"{dot.label}: {_value(dot)} ({dot.kind.name})"


def _value(dot: Dot) -> str:
    return _show(float(dot.value)) + (f" ± {_show(float(dot.spread))}" if dot.spread > 0 else "")


def _legend(dots: Sequence[Dot]) -> str:
    """The kinds that occur, each with its marker."""
    parts, x = [], 6.0
    for kind in dict.fromkeys(dot.kind for dot in dots):
        parts += [_marker(kind, x, 39.5, 5), _text(x + 12, 44, kind.name, size=13)]
        x += text_width(kind.name, 13) + 40
    return "".join(parts)
