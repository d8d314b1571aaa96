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

from redline.errors import RedlineError, unknown
from redline.sims.petri import kernel
from redline.sims.petri.cluster_tool import (
    ClusterTool,
    Device,
    Plan,
    Route,
    build_net,
    find_device,
    plan_tool,
    read_stage,
)
from redline.sims.petri.enabling import able, candidate, preferred, way_out
from redline.sims.petri.firing import advance, fire, judge, next_event, run_by_itself
from redline.sims.petri.instances import parse_petri
from redline.sims.petri.net import Net
from redline.sims.petri.schedule import Schedule
from redline.sims.petri.state import OUTCOMES, RUNNING, State, new_state
from redline.sims.petri.tables import FAR, NONE, tabulate
from redline.sims.speed import at_speed, inlined, rule
from redline.sims.speed import kernel as compiled

SPARE = 1000
"""Firings that may be logged besides those of the script: what fires by itself."""


@rule
def wait_until(net, state, i, until):
    """Let time pass up to `until`, or to the end of the episode if that comes first."""
    env = state.envs[i]
    while env.outcome == RUNNING and env.clock < until:
        run_by_itself(net, state, i)
        if env.outcome == RUNNING:
            advance(net, state, i, min(until, next_event(net, state, i)))


@inlined
def wanted(net, state, i, token, t):
    """The transition a line of a script means: the one it names, or the token's next on its route."""
    if t != NONE:
        return t
    place = state.tokens[i, token].place
    row = state.tokens[i, token].row
    way = preferred(net, state, i, row, place)
    return way if way != NONE else way_out(net, row, place)


@inlined
def comes_too_soon(net, state, i, token, step):
    """Whether a line is for a later step of its token's route than the one it is at, because an earlier line is late."""
    return token != NONE and step != NONE and state.tokens[i, token].row != first_row(net, token) + step


@inlined
def first_row(net, token):
    """Where a token's route begins."""
    return net.lists[net.constants[0].token_rows + token]


@inlined
def finish_by_itself(net, state, i):
    """Let everything happen that still will with nobody choosing."""
    env = state.envs[i]
    while env.outcome == RUNNING:
        run_by_itself(net, state, i)
        until = next_event(net, state, i)
        if env.outcome != RUNNING or until == FAR:
            return
        advance(net, state, i, until)


@compiled
def follow(net, state, i, script):
    """Play a script int32 [lines, 4] of time, token, transition and step of the route. Returns the lines played.

    Without a transition (NONE) the token's next is meant. A line that cannot be played at its time, or would move
    another token, stops it; one whose token is not there yet is passed over, and the token is left to its fate.
    """
    for n in range(script.shape[0]):
        token = script[n, 1]
        wait_until(net, state, i, script[n, 0])
        run_by_itself(net, state, i)
        if state.envs[i].outcome != RUNNING or state.envs[i].clock > script[n, 0]:
            return n
        if comes_too_soon(net, state, i, token, script[n, 3]):
            continue
        t = wanted(net, state, i, token, script[n, 2])
        if t == NONE or not able(net, state, i, t) or (token != NONE and candidate(net, state, i, t) != token):
            return n
        fire(net, state, i, t)
        judge(net, state, i)
    finish_by_itself(net, state, i)
    return script.shape[0]


@dataclass(frozen=True)
class Played:
    """What came of a script."""

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
    """Play lines of time, token, transition and step on a net; what is `NONE` is left open."""
    tables, sizes = tabulate(net)
    state = new_state(1, sizes, 0, log_size=len(script) + SPARE)
    obs, mask = np.zeros((1, sizes.observation), np.float32), np.zeros((1, sizes.actions), np.bool_)
    at_speed(kernel.reset, turbo)(tables, state, 0, 1, obs, mask, False)
    lines = at_speed(follow, turbo)(tables, state, 0, np.ascontiguousarray(script, np.int32))
    return account(net, state, int(lines))


def account(net: Net, state: State, lines: int) -> Played:
    """What the first env of a state has come to."""
    env = state.envs[0]
    at_work = {"process", "machine"}
    return Played(
        lines, int(env.clock), OUTCOMES[env.outcome], int(env.scrapped), int(env.finished),
        state.log[0, : min(int(env.fired), state.log.shape[1])].copy(),
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
class Recording:
    """A schedule to be played again."""

    net: Net
    makespan: int
    script: np.ndarray
    """Lines for `follow`."""


@dataclass(frozen=True)
class Hops:
    """A schedule of a cluster tool: when each wafer's hops begin their pick and their place."""

    plan: Plan
    makespan: int
    hops: tuple[tuple[tuple[int, int], ...], ...]
    """(pick, place) of each hop of each wafer."""
    targets: tuple[tuple[str | None, ...], ...] = ()
    """Where each hop ends, if the recording says so."""

    def recording(self) -> Recording:
        """The same as lines of a script."""
        net = build_net(self.plan)
        return Recording(net, self.makespan, script_of(self, net))


@dataclass(frozen=True)
class Verdict:
    """Whether a schedule could be played as recorded."""

    recorded: int
    makespan: int
    outcome: str
    problem: str | None
    """What first went wrong, in words."""
    played: Played

    @property
    def faithful(self) -> bool:
        """Whether everything happened exactly as recorded."""
        return self.problem is None


def load_recording(path: Path) -> Recording:
    """A recorded schedule from its JSON file."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise RedlineError(f"There is no schedule at {path}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RedlineError(f"{path} is not a schedule: {error}") from error
    try:
        return read_firings(data) if "firings" in data else read_hops(data).recording()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RedlineError(
            f"{path} is not a schedule: {type(error).__name__} {error}. It needs device, route, arms, makespan and, for "
            "each wafer, the pick and place of every hop; or net, makespan and firings with start, transition and token."
        ) from error


def read_firings(data: dict[str, Any]) -> Recording:
    """A recording from plain data as `Schedule.to_json` makes it. What fires by itself is left to do so."""
    net = parse_petri(data["net"]).net
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    lines = []
    for firing in data["firings"]:
        name, token = firing["transition"], firing.get("token")
        if name not in index:
            raise unknown(f"transition of {data['net']}:", name, index)
        if net.transitions[index[name]].controllable:
            lines.append((int(firing["start"]), NONE if token is None else int(token), index[name], NONE))
    return Recording(net, int(data["makespan"]), _lines(lines))


def read_schedule(data: dict[str, Any]) -> Schedule:
    """What `Schedule.to_json` made."""
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


def _own_route(data: dict[str, Any], device: Device) -> tuple[Route | None, Device]:
    """The route a recording follows, and its device without the stations that its stages name already."""
    if "stages" not in data:
        return replace(plan_tool(ClusterTool(route=data["route"])).route), device
    stages = tuple(read_stage(stage) for stage in data["stages"])
    return Route(str(data.get("route", "recorded")), (stages[1:-1],), device.name), replace(device, before=(), after=())


def _lines(lines: list[tuple[int, int, int, int]]) -> np.ndarray:
    return np.array(sorted(lines, key=lambda line: line[0]), np.int32).reshape(-1, 4)


def script_of(schedule: Hops, net: Net) -> np.ndarray:
    """Hops as lines for `follow`; tokens are numbered as they leave the source."""
    order = sorted(range(len(schedule.hops)), key=lambda w: (schedule.hops[w][0][0] if schedule.hops[w] else 0, w))
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    lines = []
    for token, wafer in enumerate(order):
        for hop, (pick, place) in enumerate(schedule.hops[wafer]):
            lines.append((pick, token, NONE, 2 * hop))
            lines.append((place, token, _named_put(schedule, index, wafer, hop), 2 * hop + 1))
    return _lines(lines)


def _named_put(schedule: Hops, index: dict[str, int], wafer: int, hop: int) -> int:
    target = schedule.targets[wafer][hop] if schedule.targets else None
    if target is None:
        return NONE
    names = [f"t_{robot}_{target}" for robot in schedule.plan.device.robots]
    return next((index[name] for name in names if name in index), NONE)


def verify(recording: Recording, turbo: bool = True) -> Verdict:
    """Play a recording and compare."""
    played = play_script(recording.net, recording.script, turbo)
    return Verdict(recording.makespan, played.makespan, played.outcome, _problem(recording, played), played)


def _problem(recording: Recording, played: Played) -> str | None:
    who = "wafer" if recording.net.routes else "token"
    if played.outcome == "scrap":
        return f"{who} {played.scrapped} was scrapped at {played.makespan}"
    if played.lines < len(recording.script):
        time, token, t, _ = recording.script[played.lines].tolist()
        what = f"what {who} {token} does" if token != NONE else recording.net.transitions[t].name
        return f"{what} at {time} cannot be done then"
    if played.outcome != "done":
        return f"it ended in a {played.outcome} at {played.makespan} with {played.finished} {who}s done"
    if played.makespan != recording.makespan:
        return f"it ends at {played.makespan}, not at {recording.makespan}"
    return None
