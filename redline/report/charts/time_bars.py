"""The time of a run: bars cut into the rows of the time table, and that table itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redline.report.charts.row_looks import WIDTH, look_of, row_legend, swatch
from redline.report.draw import (
    NOTHING,
    Axis,
    Drawing,
    Group,
    Shape,
    Stroke,
    Text,
    axis_of,
    drawable,
    duration,
    escape,
    grid_columns,
    inline_svg,
    no_data,
    percent,
    short,
    text_width,
)
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


def stack_chart(stacks: Sequence[Stack], *, title: str, unit: str, width: int = WIDTH) -> Drawing:
    """Horizontal bars cut into rows, with their totals at the end."""
    legend, top = row_legend([name for stack in stacks for name, value in stack.parts if value > 0], width)
    longest = max((stack.total for stack in stacks if not stack.apart), default=0.0)
    if not drawable(longest, log=True):
        return no_data(title, width, 140)
    pitch = max(9.0, min(30.0, 600 / len(stacks)))
    gap = 10.0 if any(stack.apart for stack in stacks) else 0.0
    bottom = top + pitch * len(stacks) + gap
    label_room = min(max(text_width(stack.label, 13) for stack in stacks), width * 0.3)
    totals = [_total(stack, unit) for stack in stacks]
    end = width - max(text_width(words, 13) for words in totals) - 12
    reach = max(longest, min(1.4 * longest, max(stack.total for stack in stacks)))
    axis = axis_of([0.0, reach], label_room + 12, end, rounded=False)
    shapes = [*legend, *grid_columns(axis, bottom + 4, unit, top - 4)]
    for k, (stack, words) in enumerate(zip(stacks, totals, strict=True)):
        y = top + pitch * k + (0 if stack.apart else gap)
        shapes += _stack_blocks(stack, axis, y + pitch * 0.14, pitch * 0.72, unit)
        if pitch >= 15 or k % math.ceil(15 / pitch) == 0:
            colour, middle = "muted" if stack.apart else "ink", y + pitch / 2 + 4.5
            shapes.append(Text(label_room, middle, stack.label, colour, 13, "end", room=label_room))
            if pitch >= 15 or stack.apart:  # else it would lie on the neighbours
                shapes.append(Text(min(axis.at(stack.total), axis.end) + 8, middle, words, colour, 13))
    return Drawing(title, width, bottom + 50, shapes)


def _total(stack: Stack, unit: str) -> str:
    return duration(stack.total) if unit == "seconds" else short(stack.total)


def _stack_blocks(stack: Stack, axis: Axis, y: float, height: float, unit: str) -> list[Shape]:
    """The blocks of one bar. One that is longer than the axis is pressed into it, and two strokes say so."""
    shapes: list[Shape] = []
    begin = 0.0
    shown = min(1.0, axis.high / stack.total) if stack.total else 1.0
    for name, value in stack.parts:
        x, right = (axis.at(each * shown) for each in (begin, begin + value))
        begin += value
        if right - x < 0.05:
            continue
        length = duration(value) if unit == "seconds" else f"{short(value)} {unit}"
        tip = f"{stack.label}, {name}: {length} ({percent(value / stack.total)})"
        shapes.append(look_of(name).box(x, y, max(right - x - 0.6, 0.4), height, tip))
    if stack.apart:
        shapes = [Group(shapes, opacity=0.55)]
    if shown < 1 - 1e-6:
        cuts = (axis.end - 14, axis.end - 9)
        shapes += [Stroke(x, y + height + 2, x + 5, y - 2, "surface", 2.5) for x in cuts]
    return shapes


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
    blocks: list[Shape] = []
    x = 0.0
    for row in mine:
        length = 200 * max(0.0, row.share) / longest
        if length > 0.02:
            tip = f"{row.name}: {duration(row.seconds)} ({percent(row.share)})"
            blocks.append(look_of(row.name).box(x, 0, max(length, 0.5), 12, tip))
        x += length
    return inline_svg(blocks, 200, 12, stretched=True)
