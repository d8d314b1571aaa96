"""The page of a profile: where the time of a training run goes, what the workers did, and what would make it faster.

A row of the time table has the same colour wherever it is drawn.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from redline.errors import RedlineError
from redline.files import reason
from redline.learn.config import config_to_json
from redline.profiler.advise import Advice
from redline.profiler.modes import Comparison, RowComparison
from redline.profiler.record import Profile
from redline.report.chart import _Axis, _axis, _columns, _drawable, _line, _no_data, _svg, _tag, _text
from redline.report.learning import _leaves
from redline.report.page import (
    NOTHING,
    Section,
    escape,
    facts,
    figure,
    note,
    page,
    paint,
    percent,
    short,
    table,
    text_width,
)
from redline.timing.breakdown import UNACCOUNTED, Breakdown
from redline.timing.rows import OWN, PARTS, Row, rows
from redline.timing.trace import MAIN, Trace

WIDTH = 760
MOST_UNACCOUNTED = 0.02
MOST_BARS = 60
"""Batches drawn; of more, the last ones."""
MOST_LANES = 128
"""Tracks drawn; of more, the first ones."""
MOST_BLOCKS = 2400
"""Blocks in the lanes of a timeline, all together."""
MOST_IN_A_LANE = 150
SLICES = 160
"""Columns in the picture of the whole batch."""
FARTHEST = 100.0
"""Speed-ups beyond this, and below 1 over this, stand at the edge."""


GOALS = ("total_steps", "total_episodes")
"""Settings that say when to stop, which a profile does after its batches."""


class Look(NamedTuple):
    """A colour of the palette, and how strongly it is laid on."""

    colour: str
    strength: float = 1.0

    def fill(self, part: float = 1.0) -> dict[str, str | float]:
        """As attributes of a shape."""
        faint: dict[str, str | float] = {"fill_opacity": self.strength * part} if self.strength * part < 1 else {}
        return {"fill": paint(self.colour), **faint}


LOOKS = {
    "env step": Look("blue"),
    "env reset": Look("sky"),
    "policy forward": Look("orange"),
    "action sampling": Look("gold"),
    "buffer writes": Look("pink"),
    "wait / transfer": Look("axis"),
    "the loop itself": Look("orange", 0.5),
    "GAE": Look("pink", 0.5),
    "Buffer operations": Look("gold", 0.5),
    "loss": Look("green"),
    "backward": Look("violet"),
    "optimizer step": Look("green", 0.5),
    "imitation": Look("blue", 0.5),
    "gathering and metrics": Look("violet", 0.5),
    "Logging and checkpoints": Look("red"),
    UNACCOUNTED: Look("ink"),
}
ORDER = [name for part in PARTS for name in (part.name, *(each.name for each in part.parts))] + [UNACCOUNTED]
OTHERWISE = Look("muted")
"""Rows that hold other rows, and spans of nobody we know."""

SPAN_ROWS = {
    (path[-2] if path[-1] == OWN else path[-1]): leaf.name
    for part in PARTS
    for leaf in part.parts or (part,)
    for path in leaf.paths
} | {"gradient": "backward"}  # a trace sees loss and backward as this one span
"""The row that the time of a span goes to."""


def write_profile(
    path: Path, comparison: Comparison, advice: list[Advice], applied: Comparison | None, trace: Trace | None
) -> Path:
    """Write the page and return its path."""
    first = comparison.profiles[0]
    several = len(comparison.profiles) > 1
    sections = [Section("In short", _in_short(comparison))]
    if several or comparison.failed:
        sections.append(Section("Comparison", _comparison(comparison)))
    sections.append(Section("Where the time goes", _time(comparison)))
    if trace is not None and trace.events:
        title = f"{first.mode}: the last batch" if several else "The last batch"
        sections.append(Section("Timeline", _timeline(trace, title)))
    sections.append(Section("What would make it faster", _advice(advice, applied)))
    sections.append(Section("Settings", _settings(comparison.profiles)))
    try:
        path.write_text(page(f"Redline profile: {first.config.env}", headline(comparison), sections), encoding="utf-8")
    except OSError as error:
        raise RedlineError(
            f"The profile cannot be written to {path}: {reason(error)}. Try --html profile.html."
        ) from error
    return path


def headline(comparison: Comparison) -> str:
    """The profile in two sentences: how fast it is, and where the time goes."""
    first = comparison.profiles[0]
    named = "" if first.mode == first.config.engine else f"{first.mode}: "
    leaves = sorted(_leaves(first.breakdown), key=lambda row: -row.seconds)
    words = f"{named}engine {first.config.engine}, {short(first.steps_per_second)} steps/s. "
    words = words[:1].upper() + words[1:] if not named else words
    words += f"{percent(leaves[0].share)} of the run is {leaves[0].name}"
    return words + (f", {percent(leaves[1].share)} is {leaves[1].name}." if leaves[1].share > 0.1 else ".")


def _in_short(comparison: Comparison) -> str:
    profiles = comparison.profiles
    if len(profiles) == 1:
        body = facts(_facts(profiles[0]))
    else:
        columns = [dict(_facts(profile)) for profile in profiles]
        labels = dict.fromkeys(label for column in sorted(columns, key=len, reverse=True) for label in column)
        lines = [[label, *(column.get(label, NOTHING) for column in columns)] for label in labels]
        body = "".join(f"<p>{_verdict(comparison, other)}</p>" for other in profiles[1:])
        body += table(["", *(profile.mode for profile in profiles)], lines)
    for profile in profiles:
        lost = _unaccounted(profile)
        if lost > MOST_UNACCOUNTED:
            body += note(
                f"! {profile.mode}: {percent(lost)} of the time is in no span, more than the {percent(MOST_UNACCOUNTED)} "
                "that we allow. Shares of the other rows are uncertain by as much."
            )
    return body


def _verdict(comparison: Comparison, other: Profile) -> str:
    gain, first = comparison.total(other), comparison.profiles[0]
    if gain.within_noise:
        return f"<strong>{escape(other.mode)}</strong> cannot be told from {escape(first.mode)}: within noise."
    return (
        f"<strong>{escape(other.mode)}</strong> is <strong>{gain.ratio:.2f}×</strong> as fast as {escape(first.mode)} "
        f"({gain.low:.2f} – {gain.high:.2f})."
    )


def _facts(profile: Profile) -> list[tuple[str, object]]:
    lost = _unaccounted(profile)
    ratio = profile.sampling_to_training
    found: list[tuple[str, object]] = [
        ("env steps/s", short(profile.steps_per_second)),
        ("episodes/s", short(profile.episodes_per_second)),
        ("sampling : training", f"{short(ratio, 2)} : 1" if math.isfinite(ratio) else NOTHING),
    ]
    if profile.workers is not None:
        found += [
            ("workers", profile.num_workers),
            ("workers busy", NOTHING if profile.busy_share is None else percent(profile.busy_share)),
            ("lost to the slowest", NOTHING if profile.straggler_share is None else percent(profile.straggler_share)),
            ("slowest step", duration(profile.workers.slowest_seconds)),
        ]
    if profile.device_share is not None:
        found.append(("device in use", percent(profile.device_share)))
    found += [
        ("memory", f"{profile.memory_mb:,.0f} MB" if profile.memory_mb else NOTHING),
        ("start-up", duration(profile.start_up_seconds) if profile.start_up_seconds else NOTHING),
        (UNACCOUNTED, percent(lost) + (" !" if lost > MOST_UNACCOUNTED else "")),
    ]
    return found


def _unaccounted(profile: Profile) -> float:
    return rows(profile.breakdown)[-1].share


def duration(seconds: float) -> str:
    """A time in the unit that suits it: 1.25 s, 12.3 ms, 79 µs."""
    scale, unit = _unit(seconds)
    return f"{short(seconds * scale)} {unit}"


def _unit(seconds: float) -> tuple[float, str]:
    size = abs(seconds)
    return (1.0, "s") if size >= 0.9995 or not size else (1e3, "ms") if size >= 0.9995e-3 else (1e6, "µs")


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


def _time(comparison: Comparison) -> str:
    body = ""
    for profile in comparison.profiles:
        shown = profile.batches[-MOST_BARS:]
        first = len(profile.batches) - len(shown) + 1
        stacks = [_stack(f"batch {k}", batch.breakdown) for k, batch in enumerate(shown, start=first)]
        if profile.warm_up is not None:
            stacks.insert(0, _stack("warm-up", profile.warm_up.breakdown, apart=True))
        mode = f"{profile.mode}: " if len(comparison.profiles) > 1 else ""
        left_out = f"The last {len(shown)} of {len(profile.batches)} batches. " if first > 1 else ""
        apart = (
            "The warm-up (compilation, first touch) is in no average; two strokes: longer than drawn. "
            if profile.warm_up is not None
            else ""
        )
        chart = stack_chart(stacks, title=f"{mode}seconds per batch" if mode else "Seconds per batch", unit="seconds")
        body += figure(chart, f"{left_out}{apart}Point at a block to read its row and time.")
        body += time_table(profile.breakdown)
    return body


def _stack(label: str, breakdown: Breakdown, apart: bool = False, scale: float = 1.0) -> Stack:
    return Stack(label, [(row.name, max(0.0, row.seconds) * scale) for row in _leaves(breakdown)], apart)


def stack_chart(stacks: Sequence[Stack], *, title: str, unit: str, width: int = WIDTH, standalone: bool = False) -> str:
    """Horizontal bars cut into rows, with their totals at the end."""
    legend, top = _legend([name for stack in stacks for name, value in stack.parts if value > 0], width)
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
        shape = _tag("rect", _title(words), x=x, y=y, width=max(right - x - 0.6, 0.4), height=height, **_look(name))
        blocks.append(shape)
    if shown < 1 - 1e-6:
        for x in (axis.end - 14, axis.end - 9):
            stroke = f"M{x:.1f} {y + height + 2:.1f}l5 {-height - 4:.1f}"
            blocks.append(_tag("path", d=stroke, stroke=paint("surface"), stroke_width=2.5))
    return [_tag("g", "".join(blocks), opacity=0.55)] if stack.apart else blocks


def time_table(breakdown: Breakdown) -> str:
    """All rows with seconds, share, bar and calls. The bar of a row with rows of its own shows them."""
    leaves = {row.name for row in _leaves(breakdown)}
    lines, every, number = "", rows(breakdown), 0
    longest = max(row.share for row in every) or 1.0
    for k, row in enumerate(every):
        number += row.depth == 0
        mine = [row] if row.name in leaves else _below(every, k)
        label = f"{number}. {row.name}" if not row.depth and row.name != UNACCOUNTED else row.name
        swatch = _swatch(_of(row.name)) if row.name in leaves else ""
        name = f"{'&emsp;' * row.depth}{swatch}{escape(label)}"
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
            blocks += _tag("rect", _title(words), x=x, y=0, width=max(length, 0.5), height=12, **_look(row.name))
        x += length
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 12" width="100%" height="12" '
        f'style="display:block;min-width:6rem" preserveAspectRatio="none">{blocks}</svg>'
    )


def _swatch(look: Look) -> str:
    square = _tag("rect", x=0, y=0, width=10, height=10, rx=2, **look.fill())
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="18" height="10" viewBox="0 0 18 10">{square}</svg>'


def _of(row: str) -> Look:
    return LOOKS.get(row, OTHERWISE)


def _look(row: str) -> dict[str, Any]:
    return _of(row).fill()


def _title(words: str) -> str:
    return _tag("title", escape(words))


def _legend(names: Iterable[str], width: float, y: float = 44.0) -> tuple[str, float]:
    """The rows that occur, in the order of the table, and where a chart may begin under them."""
    given = dict.fromkeys(names)
    parts, x = [], 0.0
    for name in [*(each for each in LOOKS if each in given), *(each for each in given if each not in LOOKS)]:
        room = text_width(name, 13) + 36
        if x and x + room > width:
            x, y = 0.0, y + 20
        parts.append(_tag("rect", x=x, y=y - 10, width=11, height=11, rx=2.5, **_look(name)))
        parts.append(_text(x + 17, y, name, size=13, room=width - 17))
        x += room
    return "".join(parts), y + 20


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


class Batch(NamedTuple):
    """What a trace has of its last batch, and the part of it that can be shown span by span."""

    lanes: dict[str, list[Block]]
    begin: int
    end: int
    window: tuple[int, int]

    @property
    def whole(self) -> bool:
        """Whether all of it can be shown."""
        return self.window == (self.begin, self.end)


def last_batch(trace: Trace) -> Batch:
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
    return Batch(lanes, begin, end, _window(list(lanes.values())[:MOST_LANES], begin, end, middle))


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


def _timeline(trace: Trace, title: str) -> str:
    batch = last_batch(trace)
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
    return figure(timeline(batch, title=title), caption)


def timeline(batch: Batch, *, title: str, width: int = WIDTH, standalone: bool = False) -> str:
    """A lane per track over a shared time axis; under a picture of the whole batch where only a part fits."""
    lanes = dict(list(batch.lanes.items())[:MOST_LANES])
    low, high = batch.window
    shown = {
        track: [block for block in lane if block.end > low and block.start < high] for track, lane in lanes.items()
    }
    seen = [block.row for lane in (*shown.values(), [] if batch.whole else lanes[MAIN]) for block in lane]
    legend, top = _legend(seen, width)
    left = max(text_width(track) for track in lanes) + 12
    right = width - 8.0
    parts = [legend]
    if not batch.whole:
        parts += _whole_batch(lanes[MAIN], batch, left, right, top)
        top += 72
    scale, unit = _unit((high - low) * 1e-9)
    axis = _axis([(each - batch.begin) * 1e-9 * scale for each in (low, high)], left, right, rounded=False)
    heights = _lane_heights(len(lanes))
    bottom = top + sum(heights)
    every = math.ceil(14 / heights[-1])
    y = top
    for k, (track, blocks) in enumerate(shown.items()):
        room = heights[k]
        parts.append(_tag("rect", x=left, y=y, width=right - left, height=room * 0.86, fill=paint("soft")))
        if k == 0 or (k - 1) % every == 0:
            parts.append(_text(left - 8, y + room * 0.43 + 4, track, "muted", text_anchor="end"))
        for block in blocks:
            x, end = (float(axis.at((min(max(each, low), high) - batch.begin) * 1e-9 * scale)) for each in block[1:])
            if end - x < 0.15 and block.name in ("collect", "learn"):  # slivers between the spans in them
                continue
            words = f"{track}, {block.name}: {duration((block.end - block.start) * 1e-9)}"
            gap = 0.6 if end - x > 2 else 0  # so that neighbours of one colour can be told apart
            shape = {"x": x, "y": y, "width": max(end - x - gap, 0.35), "height": room * 0.86}
            parts.append(_tag("rect", _title(words), **shape, **_look(block.row)))
        y += room
    parts += _columns(axis, bottom + 4, f"{unit} since the batch began")
    return _svg(parts, title, width, bottom + 50, standalone)


def _lane_heights(count: int) -> list[float]:
    """The collector's lane is high, the others share what room there is."""
    return [30.0] + [max(5.0, min(24.0, 640 / max(1, count - 1)))] * (count - 1)


def _whole_batch(blocks: Sequence[Block], batch: Batch, left: float, right: float, top: float) -> list[str]:
    """A strip of columns, each cut into what its slice of the collector's time went into, and what is seen below."""
    height, length = 34, (right - left) / SLICES
    columns = slices(blocks, batch.begin, batch.end)
    parts = [_text(left - 8, top + 21, "the batch", "muted", text_anchor="end")]
    blocks_svg = [_tag("rect", x=left, y=top, width=right - left, height=height, fill=paint("soft"))]
    for k, column in enumerate(columns):
        y = top + height
        for name in [*(each for each in LOOKS if each in column), *(each for each in column if each not in LOOKS)]:
            part = column[name] * height
            y -= part
            if part >= 0.2:
                moment = duration((batch.end - batch.begin) * 1e-9 * k / SLICES)
                words = _title(f"at {moment}, {name}: {percent(column[name])}")
                shape = {"x": left + length * k, "y": y, "width": length, "height": part}
                blocks_svg.append(_tag("rect", words, **shape, **_look(name)))
    parts.append(_tag("g", "".join(blocks_svg), shape_rendering="crispEdges"))
    scale = (right - left) / (batch.end - batch.begin)
    first, last = (left + (each - batch.begin) * scale for each in batch.window)
    funnel = f"M{first:.1f} {top + height}L{left:.1f} {top + 68}H{right:.1f}L{last:.1f} {top + height}Z"
    parts.append(_tag("path", d=funnel, fill=paint("axis"), fill_opacity=0.25))
    frame = {"x": first - 1, "y": top - 3, "width": max(last - first, 1) + 2, "height": height + 5, "rx": 1.5}
    parts.append(_tag("rect", **frame, fill="none", stroke=paint("ink"), stroke_width=1.5))
    return parts


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


def _comparison(comparison: Comparison) -> str:
    first, others = comparison.profiles[0], comparison.profiles[1:]
    body = ""
    if others:
        stacks = [_stack(p.mode, p.breakdown, scale=1e6 / p.steps) for p in comparison.profiles]
        body += figure(stack_chart(stacks, title="Time per env step", unit="µs per env step"))
    for other in others:
        body += _row_figure(comparison, other)
    if others:
        body += note(
            f"Modes ran in turns, a batch each, so that noise hit all alike: {len(first.batches)} turns. Bars are medians, "
            "their whiskers quartiles; the interval of a speed-up holds 95 % of its bootstrap."
        )
    if comparison.failed:
        body += table(["could not run here", "why"], comparison.failed.items())
    return body


def _row_figure(comparison: Comparison, other: Profile) -> str:
    found = [row for row in comparison.against_first(other) if row.before.high or row.after.high]
    found.sort(key=lambda row: ORDER.index(row.name) if row.name in ORDER else len(ORDER))
    title = f"{other.mode} against {comparison.profiles[0].mode}: {comparison.total(other)}"
    chart = row_chart(found, comparison.profiles[0].mode, other.mode, title=title)
    return figure(chart, "Right of 1 is faster. Grey: cannot be told from no change at all.")


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
    look = _of(row)
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
        parts.append(_tag("g", _title(words) + bar + line))
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
    dot = _tag("circle", cx=value, cy=y, r=4, fill=paint("axis" if grey else _of(row.name).colour))
    words = f"{row.name}: {gain.ratio:.2f}x, 95 % interval {gain.low:.2f} – {gain.high:.2f}"
    return _tag("g", _title(words + (", within noise" if grey else "")) + line + dot)


def _advice(advice: Sequence[Advice], applied: Comparison | None) -> str:
    if not advice:
        return note("Nothing stands out that another setting would make faster.")
    lines = [
        [each.options, f"{each.row} is {percent(each.share)} of the run{each.why}", f"{each.estimate:.1f}×", NOTHING]
        for each in advice
    ]
    body = ""
    if applied is not None:
        lines[0][3] = _gave(applied)
        if len(applied.profiles) > 1:
            body = _row_figure(applied, applied.profiles[1])
    how = note("Estimates follow Amdahl's law from the measured shares. --apply tries the first suggestion for real.")
    return table(["try", "because", "estimated", "measured"], lines) + how + body


def _gave(applied: Comparison) -> str:
    if len(applied.profiles) < 2:
        return f"could not run: {next(iter(applied.failed.values()), 'no reason given')}"
    return str(applied.total(applied.profiles[1])).replace("x", "×", 1)


def _settings(profiles: Sequence[Profile]) -> str:
    """All settings, a column per mode; those in which the modes differ come first."""
    columns = [dict(_flat(config_to_json(profile.config))) for profile in profiles]
    names = dict.fromkeys(name for column in columns for name in column if name not in GOALS)
    lines = [[name, *(column.get(name, NOTHING) for column in columns)] for name in names]
    if len(profiles) == 1:
        return table(["setting", "value"], lines)
    lines.sort(key=lambda line: len(set(line[1:])) == 1)
    return table(["setting", *(profile.mode for profile in profiles)], lines)


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, str(value)
