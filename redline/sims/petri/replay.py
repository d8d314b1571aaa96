"""Recorded schedules, played again by the very rules of the kernel; only the guards, which advise a policy, are off.

A schedule of a cluster tool gives the start of every pick and place. It is faithful if each of them can be done at
exactly that time and the last wafer is done at exactly the recorded makespan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
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
from redline.sims.petri.net import Net
from redline.sims.petri.state import OUTCOMES, RUNNING, new_state
from redline.sims.petri.tables import FAR, NONE, tabulate
from redline.sims.speed import at_speed, inlined
from redline.sims.speed import kernel as compiled

SPARE = 1000
"""Firings that may be logged besides those of the script: what fires by itself."""


@inlined
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


@compiled
def follow(net, state, i, script):
    """Play a script int32 [lines, 4] of time, token, transition and step of the route. Returns the lines played.

    Without a transition (NONE) the token's next is meant. A line that cannot be played at its time, or would move
    another token, stops it; one whose token is not there yet is passed over, and the token is left to its fate.
    """
    for n in range(script.shape[0]):
        token = script[n, 1]
        wait_until(net, state, i, script[n, 0])
        if state.envs[i].outcome != RUNNING or state.envs[i].clock > script[n, 0]:
            return n
        if comes_too_soon(net, state, i, token, script[n, 3]):
            continue
        t = wanted(net, state, i, token, script[n, 2])
        if t == NONE or not able(net, state, i, t) or (token != NONE and candidate(net, state, i, t) != token):
            return n
        fire(net, state, i, t)
        judge(net, state, i)
    while state.envs[i].outcome == RUNNING and next_event(net, state, i) != FAR:
        wait_until(net, state, i, next_event(net, state, i))
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


def play_script(net: Net, script: np.ndarray, turbo: bool = True) -> Played:
    """Play lines of time, token, transition and step on a net; what is `NONE` is left open."""
    tables, sizes = tabulate(net)
    state = new_state(1, sizes, 0, log_size=len(script) + SPARE)
    obs, mask = np.zeros((1, sizes.observation), np.float32), np.zeros((1, sizes.actions), np.bool_)
    at_speed(kernel.reset, turbo)(tables, state, 0, 1, obs, mask, False)
    lines = at_speed(follow, turbo)(tables, state, 0, np.ascontiguousarray(script, np.int32))
    env = state.envs[0]
    log = state.log[0, : min(int(env.fired), state.log.shape[1])].copy()
    return Played(int(lines), int(env.clock), OUTCOMES[env.outcome], int(env.scrapped), int(env.finished), log)


# Schedules of cluster tools


@dataclass(frozen=True)
class Schedule:
    """A recorded schedule: when each wafer's hops begin their pick and their place."""

    plan: Plan
    makespan: int
    hops: tuple[tuple[tuple[int, int], ...], ...]
    """(pick, place) of each hop of each wafer."""
    targets: tuple[tuple[str | None, ...], ...]
    """Where each hop ends, if the recording says so."""


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


def load_schedule(path: Path) -> Schedule:
    """A schedule from its JSON file."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise RedlineError(f"There is no schedule at {path}.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RedlineError(f"{path} is not a schedule: {error}") from error
    try:
        return read_schedule(data)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RedlineError(
            f"{path} is not a schedule: {type(error).__name__} {error}. It needs device, route, arms, makespan and, for "
            "each wafer, the pick and place of every hop."
        ) from error


def read_schedule(data: dict[str, Any]) -> Schedule:
    """A schedule from plain data. Its own stages count, so the route need not be one of ours."""
    wafers = data["wafers"]
    options = ClusterTool(
        device=data["device"], wafers=len(wafers), arms=data.get("arms", 1), hold=data.get("hold", "hard"),
        lookahead="off", parallel="free", horizon=FAR - 1,
    )  # fmt: skip
    device = find_device(options.device)
    plan = plan_tool(options, *_own_route(data, device))
    hops = tuple(tuple((int(hop["pick"]), int(hop["place"])) for hop in wafer) for wafer in wafers)
    targets = tuple(tuple(hop.get("to") for hop in wafer) for wafer in wafers)
    return Schedule(plan, int(data["makespan"]), hops, targets)


def _own_route(data: dict[str, Any], device: Device) -> tuple[Route | None, Device]:
    """The route a recording follows, and its device without the stations that its stages name already."""
    if "stages" not in data:
        return replace(plan_tool(ClusterTool(route=data["route"])).route), device
    stages = tuple(read_stage(stage) for stage in data["stages"])
    return Route(str(data.get("route", "recorded")), (stages[1:-1],), device.name), replace(device, before=(), after=())


def script_of(schedule: Schedule, net: Net) -> np.ndarray:
    """The schedule as lines for `follow`; tokens are numbered as they leave the source."""
    order = sorted(range(len(schedule.hops)), key=lambda w: (schedule.hops[w][0][0] if schedule.hops[w] else 0, w))
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    lines = []
    for token, wafer in enumerate(order):
        for hop, (pick, place) in enumerate(schedule.hops[wafer]):
            lines.append((pick, token, NONE, 2 * hop))
            lines.append((place, token, _named_put(schedule, index, wafer, hop), 2 * hop + 1))
    return np.array(sorted(lines, key=lambda line: line[0]), np.int32).reshape(-1, 4)


def _named_put(schedule: Schedule, index: dict[str, int], wafer: int, hop: int) -> int:
    target = schedule.targets[wafer][hop]
    if target is None:
        return NONE
    names = [f"t_{robot}_{target}" for robot in schedule.plan.device.robots]
    return next((index[name] for name in names if name in index), NONE)


def verify(schedule: Schedule, turbo: bool = True) -> Verdict:
    """Play a schedule again and compare."""
    net = build_net(schedule.plan)
    script = script_of(schedule, net)
    played = play_script(net, script, turbo)
    return Verdict(schedule.makespan, played.makespan, played.outcome, _problem(schedule, script, played), played)


def _problem(schedule: Schedule, script: np.ndarray, played: Played) -> str | None:
    if played.outcome == "scrap":
        return f"wafer {played.scrapped} was scrapped at {played.makespan}"
    if played.lines < len(script):
        time, token = script[played.lines, :2]
        return f"what wafer {token} does at {time} cannot be done then"
    if played.outcome != "done":
        return f"it ended in a {played.outcome} at {played.makespan} with {played.finished} wafers done"
    if played.makespan != schedule.makespan:
        return f"it ends at {played.makespan}, not at {schedule.makespan}"
    return None
