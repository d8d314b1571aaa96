"""Where the time of a run goes: bars cut into rows, and the table of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redline.report.chart import _Axis, _axis, _columns, _drawable, _hover, _no_data, _svg, _tag, _text
from redline.report.page import NOTHING, duration, escape, paint, percent, short, text_width
from redline.report.row_looks import WIDTH, look_of, row_legend, swatch
from redline.timing.breakdown import UNACCOUNTED, Breakdown
from redline.timing.rows import Row, leaves, rows

MOST_UNACCOUNTED = 0.02
"""Share of the time that may be in no span; where it is more, we say so."""


@dataclass(frozen=True)
class Stack:
    """A bar made of rows. One that stands `apart` is not in the averages, and may be cut short."""

    label: str
    parts: list[tuple[str, float]]
    apart: bool = False

    @property
    def total(self) -> float:
        """Its length."""
        return math.fsum(value for _, value in self.parts)


def stack_of(label: str, breakdown: Breakdown, apart: bool = False, scale: float = 1.0) -> Stack:
    """The rows of a breakdown as a bar, their seconds times `scale`."""
    return Stack(label, [(row.name, max(0.0, row.seconds) * scale) for row in leaves(breakdown)], apart)


def stack_chart(stacks: Sequence[Stack], *, title: str, unit: str, width: int = WIDTH, standalone: bool = False) -> str:
    """Horizontal bars cut into rows, with their totals at the end."""
    legend, top = row_legend([name for stack in stacks for name, value in stack.parts if value > 0], width)
    longest = max((stack.total for stack in stacks if not stack.apart), default=0.0)
    if not _drawable(longest, log=True):
        return _no_data(title, width, 140, standalone)
    pitch = max(9.0, min(30.0, 600 / len(stacks)))
    gap = 10.0 if any(stack.apart for stack in stacks) else 0.0
    bottom = top + pitch * len(stacks) + gap
    label_room = min(max(text_width(stack.label, 13) for stack in stacks), width * 0.3)
    totals = [_total(stack, unit) for stack in stacks]
    end = width - max(text_width(words, 13) for words in totals) - 12
    reach = max(longest, min(1.4 * longest, max(stack.total for stack in stacks)))
    axis = _axis([0.0, reach], label_room + 12, end, rounded=False)
    parts = [legend, *_columns(axis, bottom + 4, unit, top - 4)]
    for k, (stack, words) in enumerate(zip(stacks, totals, strict=True)):
        y = top + pitch * k + (0 if stack.apart else gap)
        parts += _stack_blocks(stack, axis, y + pitch * 0.14, pitch * 0.72, unit)
        if pitch >= 15 or k % math.ceil(15 / pitch) == 0:
            look: dict[str, Any] = {"colour": "muted", "font_style": "italic"} if stack.apart else {}
            middle = y + pitch / 2 + 4.5
            parts.append(_text(label_room, middle, stack.label, text_anchor="end", size=13, room=label_room, **look))
            if pitch >= 15 or stack.apart:  # else it would lie on the neighbours
                parts.append(_text(min(axis.at(stack.total), axis.end) + 8, middle, words, size=13, **look))
    return _svg(parts, title, width, bottom + 50, standalone)


def _total(stack: Stack, unit: str) -> str:
    return duration(stack.total) if unit == "seconds" else short(stack.total)


def _stack_blocks(stack: Stack, axis: _Axis, y: float, height: float, unit: str) -> list[str]:
    """The blocks of one bar. One that is longer than the axis is pressed into it, and two strokes say so."""
    blocks, begin = [], 0.0
    shown = min(1.0, axis.high / stack.total) if stack.total else 1.0
    for name, value in stack.parts:
        x, right = (float(axis.at(each * shown)) for each in (begin, begin + value))
        begin += value
        if right - x < 0.05:
            continue
        length = duration(value) if unit == "seconds" else f"{short(value)} {unit}"
        words = f"{stack.label}, {name}: {length} ({percent(value / stack.total)})"
        shape = {"x": x, "y": y, "width": max(right - x - 0.6, 0.4), "height": height}
        blocks.append(_tag("rect", _hover(words), **shape, **look_of(name).fill()))
    if shown < 1 - 1e-6:
        for x in (axis.end - 14, axis.end - 9):
            stroke = f"M{x:.1f} {y + height + 2:.1f}l5 {-height - 4:.1f}"
            blocks.append(_tag("path", d=stroke, stroke=paint("surface"), stroke_width=2.5))
    return [_tag("g", "".join(blocks), opacity=0.55)] if stack.apart else blocks


def time_table(breakdown: Breakdown) -> str:
    """All rows with seconds, share, bar and calls. The bar of a row with rows of its own shows them."""
    lowest = {row.name for row in leaves(breakdown)}
    lines, every, number = "", rows(breakdown), 0
    longest = max(row.share for row in every) or 1.0
    for k, row in enumerate(every):
        number += row.depth == 0
        mine = [row] if row.name in lowest else _below(every, k)
        label = f"{number}. {row.name}" if not row.depth and row.name != UNACCOUNTED else row.name
        square = swatch(look_of(row.name)) if row.name in lowest else ""
        name = f"{'&emsp;' * row.depth}{square}{escape(label)}"
        name = name if row.depth else f"<strong>{name}</strong>"
        mark = " !" if row.name == UNACCOUNTED and row.share > MOST_UNACCOUNTED else ""
        lines += _line_of(
            name,
            f"{row.seconds:.3f}",
            percent(row.share) + mark,
            _share_blocks(mine, longest),
            f"{row.calls:,}" if row.calls else NOTHING,
        )
    lines += _line_of("<strong>total</strong>", f"{breakdown.total_seconds:.3f}", "100 %", "", "")
    head = _line_of("row", "seconds", "share", "", "calls", cell="th")
    return f'<div class="scroll"><table>\n<thead>{head}</thead>\n<tbody>\n{lines}</tbody>\n</table></div>'


def _line_of(name_html: str, seconds: str, share: str, bar_svg: str, calls: str, cell: str = "td") -> str:
    first, number = f'<{cell} style="white-space:nowrap">', f'<{cell} class="number">'
    figures = "".join(f"{number}{escape(words)}</{cell}>" for words in (seconds, share))
    bar = f'<{cell} style="width:34%">{bar_svg}</{cell}>'
    return f"<tr>{first}{name_html}</{cell}>{figures}{bar}{number}{escape(calls)}</{cell}></tr>\n"


def _below(every: Sequence[Row], k: int) -> list[Row]:
    """The rows that belong to row k."""
    found = []
    for row in every[k + 1 :]:
        if row.depth <= every[k].depth:
            break
        found.append(row)
    return found


def _share_blocks(mine: Sequence[Row], longest: float) -> str:
    blocks, x = "", 0.0
    for row in mine:
        length = 200 * max(0.0, row.share) / longest
        words = f"{row.name}: {duration(row.seconds)} ({percent(row.share)})"
        if length > 0.02:
            shape = {"x": x, "y": 0, "width": max(length, 0.5), "height": 12}
            blocks += _tag("rect", _hover(words), **shape, **look_of(row.name).fill())
        x += length
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 12" width="100%" height="12" '
        f'style="display:block;min-width:6rem" preserveAspectRatio="none">{blocks}</svg>'
    )
