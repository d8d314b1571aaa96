"""Recorded schedules, played again by the very rules of the kernel; only the guards, which advise a policy, are off.

A recording gives the start of every pick and place of a cluster tool, or of every firing of any net. It is faithful if
each of them can be done at exactly that time and the goal is reached at exactly the recorded makespan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from redline.compiled.speed import at_speed
from redline.errors import RedlineError, unknown
from redline.files import plain_file
from redline.worlds.petri.cluster_tool import (
    ClusterTool,
    Device,
    Route,
    ToolPlan,
    build_net,
    find_device,
    find_route,
    plan_tool,
    read_stage,
)
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.rules import kernel
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.rules.script import Line, follow
from redline.worlds.petri.rules.state import OUTCOMES, NetState, logged, new_state
from redline.worlds.petri.rules.tables import FAR, NONE, tabulate
from redline.worlds.petri.schedule import Schedule

SPARE = 1000
"""Firings that may be logged besides those of the script: what fires by itself."""


@dataclass(frozen=True)
class Played:
    """An episode that was played to its end, or as far as its script could be."""

    lines: int
    """Lines that could be played."""
    makespan: int
    """The clock at the end."""
    outcome: str
    scrapped: int
    """The wafer that stayed too long, -1 if none did."""
    finished: int
    firings: np.ndarray
    """int32 [n, 4]  start, end, transition, token of each."""
    margins: tuple[int, float] | None
    """How close tokens came to their residency limits: at the least, and on average."""
    resource_seconds: dict[str, int]
    """How long each robot picked and placed."""
    place_seconds: dict[str, int]
    """How long each chamber and machine worked."""


def play_script(net: Net, script: np.ndarray, turbo: bool = True) -> Played:
    """The episode that a script leads to on a net."""
    tables, sizes = tabulate(net)
    state = new_state(1, sizes, 0, log_size=len(script) + SPARE)
    obs, mask = np.zeros((1, sizes.observation), np.float32), np.zeros((1, sizes.actions), np.bool_)
    kernel.reset(tables, state, 0, 1, obs, mask, False, turbo)
    lines = at_speed(follow, turbo)(tables, state, 0, np.ascontiguousarray(script, np.int32))
    return account(net, state, int(lines))


def account(net: Net, state: NetState, lines: int) -> Played:
    """The episode so far in the first env of a state."""
    env = state.envs[0]
    at_work = {"process", "machine"}
    return Played(
        lines, int(env.clock), OUTCOMES[env.outcome], int(env.scrapped), int(env.finished),
        logged(state, 0),
        (int(env.margin_min), float(env.margin_sum) / int(env.margins)) if env.margins else None,
        dict(zip(net.resources, state.resources[0].seconds.tolist(), strict=True)),
        {
            place.name: seconds
            for place, seconds in zip(net.places, state.places[0].seconds.tolist(), strict=True)
            if place.kind in at_work
        },
    )  # fmt: skip


# Recordings


@dataclass(frozen=True)
class RecordedSchedule:
    """A schedule to be played again."""

    net: Net
    makespan: int
    script: np.ndarray
    """Lines for `follow`."""
    ends: tuple[tuple[int, int, int], ...] = ()
    """Start, transition and end of each firing whose end was recorded."""
    outcome: str | None = None
    """How it ended, where that was recorded."""


@dataclass(frozen=True)
class Hops:
    """A schedule of a cluster tool: when each wafer's hops begin their pick and their place."""

    plan: ToolPlan
    makespan: int
    hops: tuple[tuple[tuple[int, int], ...], ...]
    """(pick, place) of each hop of each wafer."""
    targets: tuple[tuple[str | None, ...], ...] = ()
    """Where each hop ends, if the recording says so."""

    def recording(self) -> RecordedSchedule:
        """The same as lines of a script."""
        net = build_net(self.plan)
        return RecordedSchedule(net, self.makespan, script_of(self, net))


@dataclass(frozen=True)
class Verdict:
    """Whether a schedule could be played as recorded."""

    recorded: int
    makespan: int
    outcome: str
    problem: str | None
    """The first thing that went wrong, in words; None if nothing did."""
    played: Played

    @property
    def faithful(self) -> bool:
        """Whether everything happened exactly as recorded."""
        return self.problem is None


def load_recording(path: Path) -> RecordedSchedule:
    """A recorded schedule from its JSON file."""
    try:
        data = json.loads(plain_file(path).read_text())
    except FileNotFoundError:
        raise RedlineError(f"There is no schedule at {path}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RedlineError(f"{path} is not a schedule: {error}") from error
    try:
        return read_firings(data) if "firings" in data else read_hops(data).recording()
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise RedlineError(
            f"{path} is not a schedule: {type(error).__name__} {error}. It needs device, route, arms, makespan and, for "
            "each wafer, the pick and place of every hop; or net, makespan and firings with start, transition and token."
        ) from error


def read_firings(data: dict[str, Any]) -> RecordedSchedule:
    """A recording from plain data as `Schedule.to_json` makes it. What fires by itself is left to do so."""
    net = parse_petri(data["net"]).net
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    lines, ends = [], []
    for firing in data["firings"]:
        name, token = firing["transition"], firing.get("token")
        if name not in index:
            raise unknown(f"transition of {data['net']}:", name, index)
        if net.transitions[index[name]].controllable:
            line = Line(int(firing["start"]), NONE if token is None else int(token), transition=index[name], step=NONE)
            lines.append(line)
            if firing.get("end") is not None:
                ends.append((int(firing["start"]), index[name], int(firing["end"])))
    outcome = data.get("outcome")
    return RecordedSchedule(
        net, int(data["makespan"]), _in_time(lines), tuple(ends), None if outcome is None else str(outcome)
    )


def read_schedule(data: dict[str, Any]) -> Schedule:
    """A schedule as `Schedule.to_json` writes it."""
    net = parse_petri(data["net"]).net
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    log = [
        (each["start"], each["end"], index[each["transition"]], NONE if each["token"] is None else each["token"])
        for each in data["firings"]
    ]
    return Schedule(data["net"], net, data["makespan"], data["outcome"], np.array(log, np.int32).reshape(-1, 4))


def read_hops(data: dict[str, Any]) -> Hops:
    """A cluster tool's recording from plain data. Its own stages count, so the route need not be one of ours."""
    wafers = data["wafers"]
    options = ClusterTool(
        device=data["device"], wafers=len(wafers), arms=data.get("arms", 1), hold=data.get("hold", "hard"),
        lookahead="off", parallel="free", horizon=FAR - 1,
    )  # fmt: skip
    device = find_device(options.device)
    plan = plan_tool(options, *_own_route(data, device))
    hops = tuple(tuple((int(hop["pick"]), int(hop["place"])) for hop in wafer) for wafer in wafers)
    targets = tuple(tuple(hop.get("to") for hop in wafer) for wafer in wafers)
    return Hops(plan, int(data["makespan"]), hops, targets)


def _own_route(data: dict[str, Any], device: Device) -> tuple[Route, Device]:
    """The route a recording follows, and its device without the stations that its stages name already."""
    if "stages" not in data:
        return find_route(str(data["route"])), device
    stages = tuple(read_stage(stage) for stage in data["stages"])
    return Route(str(data.get("route", "recorded")), (stages[1:-1],), device.name), replace(device, before=(), after=())


def _in_time(lines: list[Line]) -> np.ndarray:
    return np.array(sorted(lines, key=lambda line: line.time), np.int32).reshape(-1, len(Line._fields))


def script_of(schedule: Hops, net: Net) -> np.ndarray:
    """Hops as lines for `follow`; tokens are numbered as they leave the source."""
    order = sorted(range(len(schedule.hops)), key=lambda w: (schedule.hops[w][0][0] if schedule.hops[w] else 0, w))
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    lines = []
    for token, wafer in enumerate(order):
        for hop, (pick, place) in enumerate(schedule.hops[wafer]):
            put = _named_put(schedule, index, wafer, hop)
            lines.append(Line(pick, token, transition=NONE, step=2 * hop))
            lines.append(Line(place, token, transition=put, step=2 * hop + 1))
    return _in_time(lines)


def _named_put(schedule: Hops, index: dict[str, int], wafer: int, hop: int) -> int:
    target = schedule.targets[wafer][hop] if schedule.targets else None
    if target is None:
        return NONE
    names = [f"t_{robot}_{target}" for robot in schedule.plan.device.robots]
    return next((index[name] for name in names if name in index), NONE)


def verify(recording: RecordedSchedule, turbo: bool = True) -> Verdict:
    """Play a recording and compare."""
    played = play_script(recording.net, recording.script, turbo)
    return Verdict(recording.makespan, played.makespan, played.outcome, _problem(recording, played), played)


def _problem(recording: RecordedSchedule, played: Played) -> str | None:
    who = "wafer" if recording.net.routes else "token"
    if played.outcome == "scrap":
        return f"{who} {played.scrapped} was scrapped at {played.makespan}"
    if played.lines < len(recording.script):
        line = Line(*recording.script[played.lines].tolist())
        what = (
            f"what {who} {line.token} does" if line.token != NONE else recording.net.transitions[line.transition].name
        )
        return f"{what} at {line.time} cannot be done then"
    if played.outcome != "done":
        return f"it ended in a {played.outcome} at {played.makespan} with {played.finished} {who}s done"
    if played.makespan != recording.makespan:
        return f"it ends at {played.makespan}, not at {recording.makespan}"
    if recording.outcome not in (None, played.outcome):
        return f"its outcome is {played.outcome!r}, not {recording.outcome!r:.40}"
    return _wrong_end(recording, played)


def _wrong_end(recording: RecordedSchedule, played: Played) -> str | None:
    """The first firing that does not end when the recording says."""
    happened = {(start, t, end) for start, end, t, _ in played.firings.tolist()}
    for start, t, end in recording.ends:
        if (start, t, end) not in happened:
            return f"{recording.net.transitions[t].name}, begun at {start}, does not end at {end}"
    return None
