"""Gantt charts of schedules.

Wafers and jobs have colours and, where there is room, their number. Solid is what a lane is for: processing, or carrying
a wafer; moving in and out is lighter, waiting lighter still. The thin frame under a stay is the time the wafer may
wait, filled as far as it did. A long schedule is broken into panels, like lines of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from redline.errors import RedlineError
from redline.report.draw import (
    HUES,
    Axis,
    Box,
    Drawing,
    Shape,
    Stroke,
    Text,
    axis_of,
    fit,
    no_data,
    text_width,
    write_picture,
)
from redline.worlds.petri.instances import PREFIX, parse_petri
from redline.worlds.petri.lanes import CLEANING, Lane, LaneBar, Window, by_visit, end_of, is_timed, lanes
from redline.worlds.petri.schedule import Schedule

WIDTH = 900
TOKEN_HUES = (*(hue for hue in HUES if hue != "red"), "muted")
"""Red is for what is too late."""
SOLID, LIGHT, FAINT = 1.0, 0.5, 0.25
OPACITY = {
    "processing": SOLID, "travelling": SOLID, "firing": SOLID, "late": SOLID,
    "placing": LIGHT, "picking": LIGHT, "waiting": FAINT, "holding": FAINT, CLEANING: FAINT,
}  # fmt: skip
BAR_HEIGHT, FRAME_HEIGHT, GAP = 15.0, 4.0, 2.0
NUMBER_SIZE = 10.5
THINNEST = 0.8
VISITS_PER_PANEL = 56
MOST_PANELS = 8
TALLEST = 4000
"""Pixels that all panels together may take before some are left out."""
BEYOND = 1.1
"""A bound that is later than the end by more than this factor is not shown: it would squeeze the chart."""


@dataclass(frozen=True)
class Reference:
    """A makespan to compare with."""

    name: str
    time: int


def write_gantt(schedule: Schedule, path: Path) -> None:
    """Write a schedule's chart as .svg or .png; the latter needs resvg-py."""
    write_picture(draw_gantt(schedule), path)


def known_makespans(schedule: Schedule) -> tuple[int | None, int | None]:
    """The lower bound and the proven optimum of a schedule's net, as far as its name tells."""
    if not schedule.name:
        return None, None
    try:
        instance = parse_petri(schedule.name)
    except RedlineError:  # such as a file that is gone
        return None, None
    return instance.lower_bound, instance.optimum


def name_of(schedule: Schedule) -> str:
    """The net with its options, files without their folder."""
    name = schedule.name.removeprefix(PREFIX) or schedule.net.name
    path, _, options = name.partition("?")
    return name if not path.endswith((".pnml", ".xml")) else Path(path).name + (f"?{options}" if options else "")


def title_of(schedule: Schedule) -> str:
    """Which net it was and what came of it, in one line."""
    return f"{name_of(schedule)}: {outcome_of(schedule)}"


def outcome_of(schedule: Schedule) -> str:
    """How it ended and when; of a scrap also who it was."""
    time = f"{schedule.makespan:,}{unit_of(schedule)}"
    if schedule.outcome == "done":
        return f"done, makespan {time}"
    windows = [window for lane in lanes(schedule) for window in lane.windows]
    late = [window for window in windows if window.is_late and window.is_hard and not window.is_taken]
    who = f" ({min(late, key=lambda window: window.token).label})" if schedule.outcome == "scrap" and late else ""
    return f"{schedule.outcome} at {time}{who}"


def unit_of(schedule: Schedule) -> str:
    """The unit behind a time: cluster tools count seconds, job shops and other nets their own units."""
    return " s" if any(place.kind == "robot" for place in schedule.net.places) else ""


# Layout


@dataclass(frozen=True)
class _Common:
    """Everything that the panels of a chart share."""

    lanes: Sequence[Lane]
    references: Sequence[Reference]
    width: float
    left: float
    unit: str


def _slot_height(lane: Lane) -> float:
    """Room for bars and, where there are any, the frames under them."""
    return GAP + BAR_HEIGHT + (FRAME_HEIGHT + 2 if lane.windows else 0)


def _lane_height(lane: Lane) -> float:
    return lane.slots * _slot_height(lane) + GAP


@dataclass(frozen=True)
class Panel:
    """Where a stretch of time stands on a chart."""

    axis: Axis
    top: float
    bottom: float

    def cursor(self, time: float) -> list[Shape]:
        """A line at a time, where the panel shows it."""
        if not self.axis.low <= time <= self.axis.high:
            return []
        x = self.axis.at(time)
        return [Stroke(x, self.top, x, self.bottom, "blue", 2)]


def draw_gantt(schedule: Schedule, width: int = WIDTH) -> Drawing:
    """A schedule as shapes."""
    return lay_out(schedule, width)[0]


def lay_out(schedule: Schedule, width: int = WIDTH) -> tuple[Drawing, list[Panel]]:
    """A schedule as shapes, and where its panels are."""
    rows = lanes(schedule)
    title = title_of(schedule)
    if not rows:
        return no_data(title, width, 140, "nothing fired"), []
    left = min(max(text_width(lane.name) for lane in rows), width / 4) + 16
    common = _Common(rows, list(_references(schedule)), width, left, unit_of(schedule))
    shapes, y = _legend(common)
    before, panels = 0, []
    for start, stop in _panels(rows, max([1, end_of(schedule), *(each.time for each in common.references)])):
        if start > before:
            shapes.append(Text(left, y + 16, f"… {before:,} to {start:,}{common.unit} are left out …", "muted"))
            y += 30
        drawn, panel = _panel(common, start, stop, y)
        shapes += drawn
        panels.append(panel)
        y = panel.bottom + 30
        before = stop
    shapes.append(Text((left + width) / 2, y + 12, _axis_name(schedule), "muted", anchor="middle"))
    return Drawing(title, width, y + 18, shapes), panels


def _axis_name(schedule: Schedule) -> str:
    if not is_timed(schedule):
        return "firings in order; no time passed"
    return "seconds" if unit_of(schedule) else "time"


def _references(schedule: Schedule) -> Iterator[Reference]:
    bound, optimum = known_makespans(schedule)
    pairs = [("lower bound", bound), ("optimum", optimum)]
    if bound == optimum:
        pairs = [("lower bound = optimum", bound)]
    for name, time in pairs:
        if time is not None and time <= BEYOND * end_of(schedule):
            yield Reference(name, time)


def _panels(rows: Sequence[Lane], end: int) -> list[tuple[int, int]]:
    """(start, stop) of each panel, as many as it takes to keep bars apart; of too many, the first ones and the last."""
    most = min(MOST_PANELS, int(TALLEST // sum(_lane_height(lane) for lane in rows)))
    visits = max(len(lane.visits) // lane.slots for lane in rows)
    count = min(-(-visits // VISITS_PER_PANEL), end) if most > 1 else 1
    panels = list(pairwise(round(k * end / max(1, count)) for k in range(max(1, count) + 1)))
    return panels if count <= most else [*panels[: most - 1], panels[-1]]


def _panel(common: _Common, start: int, stop: int, top: float) -> tuple[list[Shape], Panel]:
    """One stretch of time, and where it is."""
    marks = [each for each in common.references if start < each.time <= stop]
    axis = axis_of([start, stop], common.left, common.width - 14, rounded=False)
    first = top + 16 * len(marks) + 4
    tops = [first]
    for lane in common.lanes:
        tops.append(tops[-1] + _lane_height(lane))
    shapes = [*_bands(common, tops), *_grid(axis, first, tops[-1])]
    for lane, y in zip(common.lanes, tops, strict=False):
        shapes += _lane(common, lane, axis, y)
    for k, mark in enumerate(sorted(marks, key=lambda mark: -mark.time)):  # no line crosses the name of a later one
        shapes += _mark(mark, common, axis, top + 16 * k, tops[-1])
    return shapes, Panel(axis, first, tops[-1])


def _bands(common: _Common, tops: Sequence[float]) -> list[Shape]:
    """Every other lane on a soft ground, and all names."""
    grounds: list[Shape] = [
        Box(0, y, common.width, below - y, "soft") for k, (y, below) in enumerate(pairwise(tops)) if k % 2 == 0
    ]
    names = [
        Text(common.left - 8, (y + below) / 2 + 4, fit(lane.name, common.left - 10), anchor="end")
        for lane, (y, below) in zip(common.lanes, pairwise(tops), strict=True)
    ]
    return grounds + names


def _grid(axis: Axis, top: float, bottom: float) -> list[Shape]:
    xs = axis.each(axis.ticks).tolist()
    lines: list[Shape] = [Stroke(x, top, x, bottom + 4, "grid") for x in xs]
    return lines + [
        Text(x, bottom + 18, words, "muted", anchor="middle") for x, words in zip(xs, axis.labels(), strict=True)
    ]


def _mark(mark: Reference, common: _Common, axis: Axis, top: float, bottom: float) -> list[Shape]:
    x = axis.at(mark.time)
    words = f"{mark.name} {mark.time:,}{common.unit}"
    side = "end" if x > text_width(words) + 10 else "start"
    label = Text(x + (-5 if side == "end" else 5), top + 12, words, "muted", 11.5, side)
    return [Stroke(x, top + 2, x, bottom, "ink" if mark.name.endswith("optimum") else "muted", 1.5, (5, 4)), label]


# Lanes


def _lane(common: _Common, lane: Lane, axis: Axis, top: float) -> list[Shape]:
    """Bars, then frames, then numbers: those lie on top."""
    shapes: list[Shape] = []
    for slot in range(lane.slots):
        y = top + GAP + slot * _slot_height(lane)
        bars = [bar for bar in lane.bars if bar.slot == slot and _is_in(axis, bar.start, bar.end)]
        boxes = [_box(common, lane, bar, axis, y) for bar in bars]
        windows = [each for each in lane.windows if each.slot == slot and _shows(lane, each, axis)]
        shapes += [*boxes, *_frames(common, windows, axis, y), *_numbers(bars, boxes)]
    return shapes


def _shows(lane: Lane, window: Window, axis: Axis) -> bool:
    """Whether a window is in the panel, and worth showing: on an arm, where every wafer has one, only if it was used."""
    is_here = _is_in(axis, window.start, max(window.deadline, window.taken))
    return is_here and (lane.kind != "robot" or window.taken > window.start)


def _is_in(axis: Axis, start: int, end: int) -> bool:
    """Whether any of a time is in the panel. An instant may be on its edge."""
    if start == end:
        return axis.low <= start <= axis.high
    return start < axis.high and end > axis.low


def hue_of(token: int | None) -> str:
    """The colour of a wafer, a job or a token."""
    return TOKEN_HUES[(token or 0) % len(TOKEN_HUES)]


def _span(axis: Axis, start: float, end: float) -> tuple[float, float]:
    """Where a time lies in the panel, and how wide it is: never too thin to be seen."""
    x, right = (axis.at(min(max(time, axis.low), axis.high)) for time in (start, end))
    return x, max(right - x, THINNEST)


def _box(common: _Common, lane: Lane, bar: LaneBar, axis: Axis, y: float) -> Box:
    colour = {"late": "red", CLEANING: "ink"}.get(bar.phase, hue_of(bar.token))
    x, width = _span(axis, bar.start, bar.end)
    if lane.kind in ("machine", "transition") and width > 4:  # neighbours there may have the same colour
        width -= 1
    return Box(x, y, width, BAR_HEIGHT, colour, OPACITY[bar.phase], tip=_tip(common, bar))


def _tip(common: _Common, bar: LaneBar) -> str:
    words = f"{bar.label}: {bar.phase} {bar.start:,}–{bar.end:,}{common.unit}"
    if bar.margin is None:
        return words
    margin = f"{bar.margin}{common.unit} left" if bar.margin >= 0 else f"{-bar.margin}{common.unit} too late"
    return f"{words}, {margin}"


def _numbers(bars: Sequence[LaneBar], boxes: Sequence[Box]) -> list[Shape]:
    """Who it is, once a visit: in a solid bar if one is wide enough, else in the widest that is."""
    box_of = dict(zip(bars, boxes, strict=True))
    shapes: list[Shape] = []
    for visit in by_visit(bars):
        words = _inscription(visit[0])
        fitting = [box_of[bar] for bar in visit if text_width(words, NUMBER_SIZE) + 3 <= box_of[bar].width]
        if words and fitting:
            box = max(fitting, key=lambda box: (box.opacity == SOLID, box.width))
            colour = "surface" if box.opacity == SOLID else "ink"
            shapes.append(
                Text(box.x + box.width / 2, box.y + 11.5, words, colour, NUMBER_SIZE, "middle", 600, inside=True)
            )
    return shapes


def _inscription(bar: LaneBar) -> str:
    if bar.phase == CLEANING:
        return CLEANING
    return "" if bar.token is None else str(bar.token)


def _frames(common: _Common, windows: Sequence[Window], axis: Axis, top: float) -> list[Shape]:
    """The frames of a lane. Where the next begins before a deadline, it hides the rest of the frame; its tip knows."""
    shapes: list[Shape] = []
    for window in windows:
        later = [each.start for each in windows if each.start > window.start]
        shapes += _frame(common, window, min([window.deadline, *later]), axis, top)
    return shapes


def _frame(common: _Common, window: Window, until: int, axis: Axis, top: float) -> list[Shape]:
    """The time a wafer may wait, filled as far as it did; red and crossed out where that was too long."""
    y, colour = top + BAR_HEIGHT + 1.5, "red" if window.is_late else hue_of(window.token)
    waited = f"waited {window.taken - window.start:,} of {window.deadline - window.start:,}{common.unit}"
    tip = f"{window.label}: {waited}, until {window.deadline:,}{common.unit}"
    shapes: list[Shape] = []
    if window.taken > window.start:
        x, width = _span(axis, window.start, window.taken)
        shapes.append(Box(x, y, width, FRAME_HEIGHT - 1, colour, tip=tip))
    if until > window.start:
        x, width = _span(axis, window.start, until)
        shapes.append(Box(x, y, width, FRAME_HEIGHT - 1, colour, outlined=True, tip=tip))
    if window.is_late and axis.low <= window.deadline <= axis.high:
        shapes += _cross(axis.at(window.deadline), top + BAR_HEIGHT / 2)
    return shapes


def _cross(x: float, y: float) -> list[Sample]:
    arms = [(x - 5, y - 5, x + 5, y + 5), (x - 5, y + 5, x + 5, y - 5)]
    return [*(Stroke(*arm, "surface", 5) for arm in arms), *(Stroke(*arm, "red", 2.5) for arm in arms)]


# Legend

Sample = Box | Stroke
Entry = tuple[list[Sample], str]
"""A sample, drawn from (0, 0), and its meaning."""


def _legend(common: _Common) -> tuple[list[Shape], float]:
    """The meaning of the looks, then whose the colours are; and how far down that reaches."""
    entries = _phase_entries(common)
    shapes, y = _line_up(entries, common.width, 44) if len(entries) > 1 else ([], 24)
    tokens = sorted({bar.token for lane in common.lanes for bar in lane.bars if bar.token is not None})
    if tokens:
        kind = "job" if common.lanes[0].kind == "machine" else "wafer" if common.unit else "token"
        more, y = _line_up(_token_entries(kind, tokens), common.width, y + 20)
        shapes += more
    return shapes, y + 14


def _phase_entries(common: _Common) -> list[Entry]:
    """A sample, drawn from (0, 0), and its meaning, for everything that occurs."""
    seen = {bar.phase for lane in common.lanes for bar in lane.bars}
    entries: list[Entry] = []
    for opacity in (SOLID, LIGHT, FAINT):
        phases = [phase for phase in OPACITY if OPACITY[phase] == opacity and phase in seen - {"late", CLEANING}]
        if phases:
            entries.append(([Box(0, -10, 18, 11, "blue", opacity)], ", ".join(phases)))
    if CLEANING in seen:
        entries.append(([Box(0, -10, 18, 11, "ink", FAINT)], CLEANING))
    windows = [window for lane in common.lanes for window in lane.windows]
    if any(window.deadline > window.start for window in windows):
        frame = [Box(0, -6, 8, 3, "blue"), Box(0, -6, 18, 3, "blue", outlined=True)]
        entries.append(([*frame], "waited, of the time allowed"))
    if any(window.is_late for window in windows):
        entries.append((_cross(9, -4), "too late"))
    return entries


def _token_entries(kind: str, tokens: Sequence[int]) -> list[Entry]:
    """The colours, each with those it stands for."""
    entries: list[Entry] = [([], kind)]
    for k, hue in enumerate(TOKEN_HUES):
        mine = [str(token) for token in tokens if token % len(TOKEN_HUES) == k]
        if mine:
            entries.append(([Box(0, -10, 11, 11, hue)], ", ".join(mine[:2]) + (", …" if len(mine) > 2 else "")))
    return entries


def _line_up(entries: Sequence[Entry], width: float, y: float) -> tuple[list[Shape], float]:
    """Entries side by side, in as many lines as they need."""
    shapes: list[Shape] = []
    x = 0.0
    for sample, words in entries:
        indent = max(
            [shape.x + shape.width + 7 for shape in sample if isinstance(shape, Box)], default=26 if sample else 0
        )
        needed = indent + text_width(words)
        if x and x + needed > width:
            x, y = 0.0, y + 20
        shapes += [_moved(shape, x, y) for shape in sample]
        shapes.append(Text(x + indent, y, words, "muted" if not sample else "ink"))
        x += needed + 20
    return shapes, y


def _moved(shape: Sample, x: float, y: float) -> Sample:
    if isinstance(shape, Stroke):
        return shape._replace(x1=shape.x1 + x, y1=shape.y1 + y, x2=shape.x2 + x, y2=shape.y2 + y)
    return shape._replace(x=shape.x + x, y=shape.y + y)
