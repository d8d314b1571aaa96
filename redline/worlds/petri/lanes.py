"""A schedule as lanes: what every robot, chamber, machine or transition was busy with, and when.

Pure data; `gantt` draws it. A lane has as many slots as it needs for its bars not to overlap: the arms of a robot, the
places in a buffer. What was still under way when the schedule ended is cut off there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from redline.worlds.petri.rules.net import Place
from redline.worlds.petri.schedule import Firing, Schedule

MOST_LANES = 40
"""Nets with more transitions show the busiest, and all others in one lane."""
MOST_SLOTS = 8
"""Firings of one transition that are drawn side by side; further ones lie on top of them."""
AT_STATION = ("placing", "processing", "waiting", "late", "picking")
ON_ARM = ("picking", "travelling", "holding", "late", "placing")
CLEANING, FIRING = "cleaning", "firing"


class LaneBar(NamedTuple):
    """A time in which a lane was in one phase."""

    start: int
    end: int
    token: int | None
    """The wafer or the job; None where nobody in particular was meant."""
    phase: str
    label: str
    """Who was where, in words."""
    slot: int = 0
    margin: int | None = None
    """How long before its deadline the token was taken, if it had one and was; below 0 it was late."""


class Window(NamedTuple):
    """How long a finished token may wait where it is, and how long it did."""

    start: int
    deadline: int
    taken: int
    """When its next move began; the end of the schedule if none did."""
    token: int
    label: str
    slot: int = 0
    is_taken: bool = True
    is_hard: bool = True
    """Whether waiting longer scraps the token."""

    @property
    def margin(self) -> int:
        """Time that was left."""
        return self.deadline - self.taken

    @property
    def is_late(self) -> bool:
        """Whether the token stayed too long."""
        return self.taken > self.deadline


@dataclass(frozen=True)
class Lane:
    """One robot, chamber, buffer, machine or transition: all it was busy with, bars in the order of their start."""

    name: str
    kind: str
    bars: tuple[LaneBar, ...]
    windows: tuple[Window, ...] = ()

    @property
    def slots(self) -> int:
        """How many bars lie side by side."""
        return 1 + max((bar.slot for bar in self.bars), default=0)

    @property
    def visits(self) -> list[list[LaneBar]]:
        """The bars, those of one stay, operation or firing together; cleaning aside."""
        return by_visit([bar for bar in self.bars if bar.phase != CLEANING])

    def seconds(self, *phases: str) -> int:
        """Time in which it was in any of these phases, in all if none are named; two at once count once."""
        return covered((bar.start, bar.end) for bar in self.bars if not phases or bar.phase in phases)


def lanes(schedule: Schedule) -> list[Lane]:
    """The lanes of a schedule: robots and stations, or machines, or else the transitions that fired."""
    places = schedule.net.places
    if schedule.net.routes and any(place.kind == "robot" for place in places):
        return _tool_lanes(schedule)
    if any(place.kind == "machine" for place in places) and any(place.job >= 0 for place in places):
        return _shop_lanes(schedule)
    return _transition_lanes(schedule)


def margins(schedule: Schedule) -> list[int]:
    """The rest of every hard residency limit when a wafer was taken out, as the kernel counts it: robots aside."""
    stations = [lane for lane in lanes(schedule) if lane.kind in ("chamber", "buffer")]
    return [each.margin for lane in stations for each in lane.windows if each.is_taken and each.is_hard]


def is_timed(schedule: Schedule) -> bool:
    """Whether time passed at all. Where none did, firings are shown one after the other."""
    return schedule.makespan > 0 or bool(len(schedule.log) and schedule.log[:, 1].max() > 0)


def end_of(schedule: Schedule) -> int:
    """Where the lanes end: at the makespan, or with the last firing of a schedule that is not over."""
    if not is_timed(schedule):
        return len(schedule.log)
    last = int(schedule.log[:, 1].max(initial=0))
    return max(schedule.makespan, last) if schedule.outcome == "running" else schedule.makespan or last


def by_visit(bars: Iterable[LaneBar]) -> list[list[LaneBar]]:
    """Bars of the same slot that belong together: they follow each other at once and say the same."""
    visits: list[list[LaneBar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.slot, bar.start)):
        before = visits[-1][-1] if visits else None
        goes_on = before and (before.slot, before.end, before.label) == (bar.slot, bar.start, bar.label)
        if goes_on and bar.phase != FIRING:
            visits[-1].append(bar)
        else:
            visits.append([bar])
    return visits


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Time covered by at least one of the spans."""
    return sum(end - start for start, end in _merged(spans))


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


class _Slots:
    """Gives each of several spans, in the order of their start, the first slot that is free again."""

    def __init__(self, most: int | None = None) -> None:
        self._ends: list[int] = []
        self._most = most

    def take(self, start: int, end: int) -> int:
        free = [slot for slot, until in enumerate(self._ends) if until <= start]
        if free:
            slot = free[0]
        elif self._most is None or len(self._ends) < self._most:
            slot = len(self._ends)
            self._ends.append(end)
        else:
            slot = min(range(len(self._ends)), key=self._ends.__getitem__)
        self._ends[slot] = max(end, self._ends[slot])
        return slot


# Cluster tools


class _Stay(NamedTuple):
    """A wafer in a place: its way in, its time there, its way out."""

    place: Place
    token: int
    step: int
    came_from: str | None
    arrives: int
    entered: int
    ready: int
    taken: int | None = None
    left: int | None = None
    goes_to: str | None = None


def _tool_lanes(schedule: Schedule) -> list[Lane]:
    """Robots, then stations in the order in which wafers come by."""
    by_place: dict[str, list[_Stay]] = {}
    for stay in sorted(_stays(schedule), key=lambda stay: stay.arrives):
        by_place.setdefault(stay.place.name, []).append(stay)
    used = [place for place in schedule.net.places if place.name in by_place and place.kind not in ("source", "sink")]
    robots = [place for place in used if place.kind == "robot"]
    stations = [place for place in used if place.kind != "robot"]
    stations.sort(key=lambda place: min(stay.step for stay in by_place[place.name]))
    return [_tool_lane(place, by_place[place.name], end_of(schedule)) for place in (*robots, *stations)]


def _stays(schedule: Schedule) -> Iterator[_Stay]:
    """All stays of all wafers, where they begin included. The last one of each is open."""
    net, places = schedule.net, {place.name: place for place in schedule.net.places}
    homes = [place for place in net.places for _ in range(place.tokens)]
    here = {token: _Stay(place, token, 0, None, 0, 0, place.min_stay) for token, place in enumerate(homes)}
    for start, end, transition, token in schedule:
        if token is None:
            continue
        stay, (target, _) = here[token], transition.outputs[0]
        yield stay._replace(taken=start, left=end, goes_to=target)
        time = net.routes[net.token_types[token]][stay.step].stay
        here[token] = _Stay(places[target], token, stay.step + 1, stay.place.name, start, end, end + time)
    yield from here.values()


def _tool_lane(place: Place, stays: Sequence[_Stay], end: int) -> Lane:
    bars: list[LaneBar] = []
    windows: list[Window] = []
    slots, gone = _Slots(), []
    for stay in stays:
        left = end if stay.left is None else min(stay.left, end)
        slot = slots.take(stay.arrives, left)
        window = _window(stay, slot, end)
        bars += _phases(stay, slot, window, end)
        windows += [window] if window else []
        if stay.left is not None and stay.left <= end:
            gone.append((stay.left, slot))
    bars += _cleanings(place, sorted(gone), end)
    kind = {"robot": "robot", "process": "chamber"}.get(place.kind, "buffer")
    return Lane(place.name, kind, tuple(sorted(bars, key=lambda bar: bar.start)), tuple(windows))


def _window(stay: _Stay, slot: int, end: int) -> Window | None:
    place = stay.place
    taken = end if stay.taken is None else stay.taken
    if place.max_stay is None or place.on_overstay == "ignore" or stay.ready > taken:
        return None
    hard = place.on_overstay == "fail"
    deadline = stay.ready + place.max_stay
    return Window(stay.ready, deadline, taken, stay.token, _where(stay), slot, stay.taken is not None, hard)


def _phases(stay: _Stay, slot: int, window: Window | None, end: int) -> list[LaneBar]:
    """The stay, cut where one phase becomes the next."""
    left = end if stay.left is None else stay.left
    taken = left if stay.taken is None else stay.taken
    ready = min(stay.ready, taken)
    due = taken if window is None else min(window.deadline, taken)
    margin = window.margin if window and (window.is_taken or window.is_late) else None
    times = [min(time, end) for time in (stay.arrives, stay.entered, ready, due, taken, left)]
    phases = ON_ARM if stay.place.kind == "robot" else AT_STATION
    return [
        LaneBar(start, stop, stay.token, phase, _where(stay), slot, margin)
        for phase, (start, stop) in zip(phases, pairwise(times), strict=True)
        if start < stop
    ]


def _where(stay: _Stay) -> str:
    if stay.place.kind != "robot":
        return f"wafer {stay.token} in {stay.place.name}"
    return f"wafer {stay.token} on {stay.place.name}, {stay.came_from or '…'} → {stay.goes_to or '…'}"


def _cleanings(place: Place, gone: Sequence[tuple[int, int]], end: int) -> list[LaneBar]:
    """A chamber is cleaned after every so many wafers; each cleaning is shown where the last of them was."""
    if place.cleaning is None:
        return []
    due = gone[place.cleaning.after_wafers - 1 :: place.cleaning.after_wafers]
    bars = [
        LaneBar(left, min(left + place.cleaning.duration, end), None, CLEANING, place.name, slot) for left, slot in due
    ]
    return [bar for bar in bars if bar.start < bar.end]


# Job shops


class _Visit(NamedTuple):
    """An operation on its machine, and the time its job blocked the machine afterwards."""

    machine: str
    job: int
    operation: int
    start: int
    done: int
    limit: int | None
    left: int | None = None


def _shop_lanes(schedule: Schedule) -> list[Lane]:
    visits = sorted(_visits(schedule), key=lambda visit: visit.start)
    machines = [place.name for place in schedule.net.places if place.kind == "machine"]
    end = end_of(schedule)
    return [
        _shop_lane(machine, [visit for visit in visits if visit.machine == machine], end)
        for machine in machines
        if any(visit.machine == machine for visit in visits)
    ]


def _visits(schedule: Schedule) -> Iterator[_Visit]:
    """All operations that began. One that is followed by another holds its machine until then, unless it gave it back."""
    places = {place.name: place for place in schedule.net.places}
    here: dict[int, _Visit] = {}
    for firing in schedule:
        visit = _visit(firing, places, here)
        if visit is None:
            continue
        before = here.pop(visit.job, None)
        if before is not None:
            yield before._replace(left=firing.start if before.left is None else before.left)
        if visit.machine:
            here[visit.job] = visit
    yield from here.values()


def _visit(firing: Firing, places: dict[str, Place], here: dict[int, _Visit]) -> _Visit | None:
    """The operation that a firing begins; on no machine if it only ends one. None if no job is moved."""
    inputs, outputs = (
        [places[name] for name, _ in arcs] for arcs in (firing.transition.inputs, firing.transition.outputs)
    )
    held = next((place for place in inputs if place.job >= 0), None)
    if held is None:
        return None
    taken, freed = ([place.name for place in side if place.kind == "machine"] for side in (inputs, outputs))
    machine = taken[0] if taken else "" if freed or held.job not in here else here[held.job].machine
    work = firing.transition.work
    done = firing.start + (firing.transition.duration if work is None else work)
    limits = [place.max_stay for place in outputs if place.job >= 0 and place.on_overstay == "fail"]
    left = firing.end if machine in freed else None
    return _Visit(machine, held.job, held.operation, firing.start, done, limits[0] if limits else None, left)


def _shop_lane(machine: str, visits: Sequence[_Visit], end: int) -> Lane:
    bars: list[LaneBar] = []
    windows: list[Window] = []
    for visit in visits:
        label = f"job {visit.job}, operation {visit.operation} on {_machine_name(machine)}"
        left = end if visit.left is None else visit.left
        deadline = left if visit.limit is None else visit.done + visit.limit
        if visit.limit is not None and visit.done <= left:
            windows.append(Window(visit.done, deadline, left, visit.job, label, is_taken=visit.left is not None))
        times = [min(time, left, end) for time in (visit.start, visit.done, max(deadline, visit.done), left)]
        bars += [
            LaneBar(start, stop, visit.job, phase, label)
            for phase, (start, stop) in zip(("processing", "waiting", "late"), pairwise(times), strict=True)
            if start < stop
        ]
    return Lane(_machine_name(machine), "machine", tuple(bars), tuple(windows))


def _machine_name(place: str) -> str:
    return f"machine {place[1:]}" if re.fullmatch(r"I\d+", place) else place


# Other nets


def _transition_lanes(schedule: Schedule) -> list[Lane]:
    """One lane per transition that fired, in the order of the net."""
    timed, end = is_timed(schedule), end_of(schedule)
    bars: dict[str, list[LaneBar]] = {transition.name: [] for transition in schedule.net.transitions}
    slots = {name: _Slots(MOST_SLOTS) for name in bars}
    for n, (start, stop, transition, token) in enumerate(schedule):
        span = (start, min(stop, end)) if timed else (n, n + 1)
        label = transition.name if token is None else f"{transition.name}, token {token}"
        bars[transition.name].append(LaneBar(*span, token, FIRING, label, slots[transition.name].take(*span)))
    fired = [Lane(name, "transition", tuple(each)) for name, each in bars.items() if each]
    return fired if len(fired) <= MOST_LANES else _busiest(fired)


def _busiest(fired: Sequence[Lane]) -> list[Lane]:
    """The busiest lanes, and one for all others together."""
    ranked = sorted(fired, key=lambda lane: (lane.seconds(), len(lane.bars)), reverse=True)
    kept = {lane.name for lane in ranked[: MOST_LANES - 1]}
    rest = ranked[MOST_LANES - 1 :]
    name = f"{len(rest)} others"
    spans = _merged((bar.start, bar.end) for lane in rest for bar in lane.bars)
    others = Lane(name, "transition", tuple(LaneBar(*span, None, FIRING, name) for span in spans))
    return [*(lane for lane in fired if lane.name in kept), others]
