"""The last batch of a run on a time axis: what the collector and every worker did, span by span."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from redline.report.charts.row_looks import WIDTH, in_order, look_of, row_legend
from redline.report.draw import (
    Area,
    Box,
    Drawing,
    Group,
    Shape,
    Text,
    axis_of,
    duration,
    grid_columns,
    percent,
    text_width,
    time_unit,
)
from redline.timing.rows import OWN, PARTS
from redline.timing.trace import MAIN, Trace

MOST_LANES = 128
"""Tracks drawn; of more, the first ones."""
MOST_BLOCKS = 2400
"""Blocks in the lanes of a timeline, all together."""
MOST_IN_A_LANE = 150
SLICES = 160
"""Columns in the picture of the whole batch."""

SPAN_ROWS = {
    (path[-2] if path[-1] == OWN else path[-1]): leaf.name
    for part in PARTS
    for leaf in part.parts or (part,)
    for path in leaf.paths
} | {"gradient": "backward"}  # a trace sees loss and backward as this one span
"""The row that the time of a span goes to."""


class Block(NamedTuple):
    """A stretch of a track in which no span inside the named one was open; nanoseconds."""

    name: str
    start: int
    end: int

    @property
    def row(self) -> str:
        """The row its time goes to."""
        return SPAN_ROWS.get(self.name, self.name)


def own_blocks(spans: Iterable[tuple[str, int, int]]) -> list[Block]:
    """Spans that lie inside one another, as blocks side by side."""
    blocks: list[Block] = []
    around: list[tuple[str, int]] = []  # open spans and their ends, outermost first
    at = 0

    def close_until(moment: float) -> None:
        nonlocal at
        while around and around[-1][1] <= moment:
            name, end = around.pop()
            if end > at:
                blocks.append(Block(name, at, end))
                at = end

    for name, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        close_until(start)
        if around and start > at:
            blocks.append(Block(around[-1][0], at, start))
        around.append((name, end))
        at = max(at, start)
    close_until(math.inf)
    return blocks


class LastBatch(NamedTuple):
    """The last batch in a trace, and the part of it that can be shown span by span."""

    lanes: dict[str, list[Block]]
    begin: int
    end: int
    window: tuple[int, int]

    @property
    def whole(self) -> bool:
        """Whether all of it can be shown."""
        return self.window == (self.begin, self.end)


def last_batch(trace: Trace) -> LastBatch:
    """The last collect and what came after it, lane by lane, the collector first."""
    collects = [
        (start, start + length) for track, name, start, length in trace.events if (track, name) == (MAIN, "collect")
    ]
    end = max(start + length for _, _, start, length in trace.events)
    begin = collects[-1][0] if collects else min(start for _, _, start, _ in trace.events)
    spans: dict[str, list[tuple[str, int, int]]] = {MAIN: []}
    tracks = {track for track, _, _, _ in trace.events} - {MAIN}
    spans |= {track: [] for track in sorted(tracks, key=lambda track: (len(track), track))}
    for track, name, start, length in trace.events:
        if start + length > begin:
            spans[track].append((name, max(start, begin), start + length))
    lanes = {track: own_blocks(each) for track, each in spans.items()}
    middle = sum(collects[-1]) // 2 if collects else (begin + end) // 2
    return LastBatch(lanes, begin, end, _window(list(lanes.values())[:MOST_LANES], begin, end, middle))


def _window(lanes: Sequence[list[Block]], begin: int, end: int, middle: int) -> tuple[int, int]:
    """The longest stretch around `middle` that is not too crowded to read."""
    starts = [[block.start for block in lane] for lane in lanes]
    window, length = (begin, end), float(end - begin)
    while length > 1:
        counts = [bisect_right(each, window[1]) - bisect_left(each, window[0]) for each in starts]
        if max(counts) <= MOST_IN_A_LANE and sum(counts) <= MOST_BLOCKS:
            break
        length *= 0.85
        window = max(begin, int(middle - length / 2)), min(end, int(middle + length / 2))
    return window


def timeline_caption(batch: LastBatch, trace: Trace) -> str:
    """The words under the timeline of a batch."""
    length = duration((batch.end - batch.begin) * 1e-9)
    if batch.whole:
        caption = f"The last batch, {length}, span by span. "
    else:
        low, high = batch.window
        caption = (
            f"Above, the last batch, {length}: each column shows what the collector did in its slice of time. "
            f"Below, {duration((high - low) * 1e-9)} from the middle of collecting, span by span. "
        )
    caption += "Point at a block to read its span and duration."
    if any(block.name == "gradient" for block in batch.lanes[MAIN]):
        caption += " Loss and backward are one span, gradient, in the colour of backward."
    hidden = len(batch.lanes) - MOST_LANES
    if hidden > 0:
        caption += f" {hidden} more tracks are not drawn; --trace writes them all."
    if trace.left_out:
        caption += f" The trace was full: {trace.left_out:,} later spans are not in it."
    return caption


def timeline(batch: LastBatch, *, title: str, width: int = WIDTH) -> Drawing:
    """A lane per track over a shared time axis; under a picture of the whole batch where only a part fits."""
    lanes = dict(list(batch.lanes.items())[:MOST_LANES])
    low, high = batch.window
    shown = {
        track: [block for block in lane if block.end > low and block.start < high] for track, lane in lanes.items()
    }
    seen = [block.row for lane in (*shown.values(), [] if batch.whole else lanes[MAIN]) for block in lane]
    legend, top = row_legend(seen, width)
    left = max(text_width(track) for track in lanes) + 12
    right = width - 8.0
    shapes = [*legend]
    if not batch.whole:
        shapes += _whole_batch(lanes[MAIN], batch, left, right, top)
        top += 72
    scale, unit = time_unit((high - low) * 1e-9)
    axis = axis_of([(each - batch.begin) * 1e-9 * scale for each in (low, high)], left, right, rounded=False)
    heights = _lane_heights(len(lanes))
    bottom = top + sum(heights)
    every = math.ceil(14 / heights[-1])
    y = top
    for k, (track, blocks) in enumerate(shown.items()):
        room = heights[k]
        shapes.append(Box(left, y, right - left, room * 0.86, "soft"))
        if k == 0 or (k - 1) % every == 0:
            shapes.append(Text(left - 8, y + room * 0.43 + 4, track, "muted", anchor="end"))
        for block in blocks:
            x, end = (axis.at((min(max(each, low), high) - batch.begin) * 1e-9 * scale) for each in block[1:])
            if end - x < 0.15 and block.name in ("collect", "learn"):  # slivers between the spans in them
                continue
            tip = f"{track}, {block.name}: {duration((block.end - block.start) * 1e-9)}"
            gap = 0.6 if end - x > 2 else 0  # so that neighbours of one colour can be told apart
            shapes.append(look_of(block.row).box(x, y, max(end - x - gap, 0.35), room * 0.86, tip))
        y += room
    shapes += grid_columns(axis, bottom + 4, f"{unit} since the batch began")
    return Drawing(title, width, bottom + 50, shapes)


def _lane_heights(count: int) -> list[float]:
    """The collector's lane is high, the others share what room there is."""
    return [30.0] + [max(5.0, min(24.0, 640 / max(1, count - 1)))] * (count - 1)


def _whole_batch(blocks: Sequence[Block], batch: LastBatch, left: float, right: float, top: float) -> list[Shape]:
    """A strip of columns, each cut into what its slice of the collector's time went into, and what is seen below."""
    height, length = 34, (right - left) / SLICES
    strip: list[Shape] = [Box(left, top, right - left, height, "soft")]
    for k, column in enumerate(slices(blocks, batch.begin, batch.end)):
        y = top + height
        for name in in_order(column):
            part = column[name] * height
            y -= part
            if part >= 0.2:
                moment = duration((batch.end - batch.begin) * 1e-9 * k / SLICES)
                tip = f"at {moment}, {name}: {percent(column[name])}"
                strip.append(look_of(name).box(left + length * k, y, length, part, tip))
    scale = (right - left) / (batch.end - batch.begin)
    first, last = (left + (each - batch.begin) * scale for each in batch.window)
    funnel = [(first, top + height), (left, top + 68), (right, top + 68), (last, top + height)]
    frame = Box(first - 1, top - 3, max(last - first, 1) + 2, height + 5, "ink", outlined=True, radius=1.5)
    label = Text(left - 8, top + 21, "the batch", "muted", anchor="end")
    return [label, Group(strip, crisp=True), Area([funnel], "axis", 0.25), frame._replace(line_width=1.5)]


def slices(blocks: Iterable[Block], begin: int, end: int, count: int = SLICES) -> list[dict[str, float]]:
    """Rows and their shares of each of `count` equal slices of the time from `begin` to `end`."""
    found: list[dict[str, float]] = [{} for _ in range(count)]
    length = (end - begin) / count
    for block in blocks:
        first, last = (min(count - 1, int((each - begin) / length)) for each in block[1:])
        for k in range(first, last + 1):
            inside = min(block.end - begin, (k + 1) * length) - max(block.start - begin, k * length)
            if inside > 0:
                found[k][block.row] = found[k].get(block.row, 0.0) + inside / length
    return found
