"""Cluster tools as nets: robots carry wafers through chambers that scrap what stays too long.

A device has robots and places; a route says which places a wafer visits and for how long. Each robot gets a pair of
transitions per place it reaches: `u_<place>_<robot>` picks a wafer up, `t_<robot>_<place>` puts it down.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from redline.errors import RedlineError, unknown
from redline.files import plain_file
from redline.worlds.petri.numbers import at_least
from redline.worlds.petri.rules.net import (
    CLOCKS,
    NEXT,
    Cleaning,
    IdleCleaning,
    Net,
    NetRules,
    Place,
    Step,
    Swap,
    Transition,
    check_known,
)

LOOKAHEADS = ("robots", "strict", "off")
PARALLELS = ("least_used", "free")
HOLDS = ("auto", "soft", "hard")
GATES = ("off", "route", "derived")
DRIVERS = ("policy", "rule")
TOOL_LAYOUTS = ("tool", "places", "graph")
WAITS = (5, 10, 20, 50, 100)
URGENT_WAIT = 5
SCRAP = "scrap"
IDLE_CLEANING = IdleCleaning(after=80, duration=30)
CHANGE_CLEANING = 200
MOST_SECONDS, MOST_STAGES, MOST_LETTERS = 1_000_000, 5_000, 2_000_000
HORIZON = 5
"""Default time limit, in lower bounds."""


@dataclass(frozen=True)
class Robot:
    """An arm or two on a turntable."""

    name: str
    reach: tuple[str, ...]
    priority: int = 0
    pick: int = 5
    travel: int = 5
    place: int = 5
    hold_limit: int = 20

    @property
    def hop(self) -> int:
        """Shortest time to move a wafer."""
        return self.pick + self.travel + self.place


@dataclass(frozen=True)
class Station:
    """A place of a device."""

    name: str
    kind: str
    capacity: int | None = None
    process_time: int = 0
    residency_limit: int | None = None
    release_gate: bool = False
    cleaning: Cleaning | None = None
    loaded_by: tuple[str, ...] = ()
    """The robots that may load it; all that reach it, if none are named."""
    unloaded_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Device:
    """Robots and places. Routes are wrapped in the stations of `before` and `after`."""

    name: str
    robots: Mapping[str, Robot]
    stations: Mapping[str, Station]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def station_of(self, kind: str) -> str:
        """The source or the sink."""
        return next(name for name, station in self.stations.items() if station.kind == kind)

    def can_load(self, robot: Robot, station: str) -> bool:
        """Whether the robot may put a wafer into a station."""
        place = self.stations[station]
        return station in robot.reach and place.kind != "source" and robot.name in (place.loaded_by or [robot.name])

    def can_unload(self, robot: Robot, station: str) -> bool:
        """Whether the robot may take a wafer out of a station."""
        place = self.stations[station]
        return station in robot.reach and place.kind != "sink" and robot.name in (place.unloaded_by or [robot.name])


@dataclass(frozen=True)
class Stage:
    """One visit of a wafer: to any of these stations, for this long."""

    at: tuple[str, ...]
    process_time: int
    cleaning: Cleaning | None = None


@dataclass(frozen=True)
class Route:
    """The stages of each wafer type between source and sink, and how wafers are let in."""

    name: str
    types: tuple[tuple[Stage, ...], ...]
    device: str = "cascade_core"
    wip_limit: int | None = None
    release_intervals: tuple[int, ...] = ()
    release_order: tuple[int, ...] = (1,)
    """Wafer types in the order they are released, over and over; types are numbered from 1."""
    type_intervals: tuple[tuple[int, ...], ...] = ()
    """Release intervals for each type by itself, instead of those for all."""
    own_device: Device | None = None
    """The device that the route's file describes, if it does."""


@dataclass(frozen=True)
class ClusterTool:
    """The options of a cluster tool."""

    route: str = "J-0"
    """The route that wafers take; `redline envs petri` lists them. Or a file: a whole tool, or a route on one of ours."""
    device: str = ""
    """single, cascade_core or cascade_full; the route's own by default."""
    wafers: int = 12
    """Wafers to process."""
    arms: int = 1
    """Arms of every robot, 1 or 2."""
    cleaning: bool = False
    """Chambers are cleaned after so many wafers, as the route and the device say."""
    idle_cleaning: str = "off"
    """A process chamber that nothing was in or being put into for 80 s begins a clean of 30 s: off, on, or AFTER,DURATION
    such as 60,20. Time counts from the start, from when a wafer has left, and from the end of any clean."""
    change_cleaning: str = "off"
    """A process chamber takes a wafer of another type than the latest only 200 s after that has left; one of the same type
    at once: off, on, or other seconds."""
    wip_limit: str = "off"
    """Most wafers between release and sink: off, route (the route's own) or a number."""
    gate: str = "off"
    """Least time between releases: off, route (the route's own) or derived from the process times."""
    gate_per_type: bool = False
    """The gate counts for each type of wafer by itself: its intervals lie between two releases of that type."""
    lookahead: str = "robots"
    """When a wafer may be picked: robots (its target is free or will be emptied), strict (it is free) or off."""
    parallel: str = "least_used"
    """Which of several equal chambers is offered: least_used, or free (all of them)."""
    hold: str = "auto"
    """A wafer held past the limit costs reward (soft, for ct_dense) or is scrapped (hard, for the other rewards)."""
    tm1: str = "policy"
    """Who drives the atmosphere robot of cascade_full: policy or rule."""
    waits: str = ""
    """Waits on offer besides NEXT, joined by commas; by default 5,10,20,50,100 and what the process times need."""
    urgent_wait_cap: bool = True
    """Only waits up to 5 s while a finished wafer waits or an arm holds one."""
    skip_forced_waits: bool = True
    """Go on by itself while nothing can be done."""
    swap_action: bool = False
    """Two arms: one more action per robot and chamber, which takes the wafer there out and puts in the one it holds."""
    stop_on_scrap: bool = True
    """A scrapped wafer ends the episode; if off, it is taken out and counted, and the others go on."""
    lenient: bool = False
    """To learn by: a wafer past its deadline costs reward by the second; only at its end does the episode count as scrap."""
    clock: str = "event"
    """event (robots work at once), serial (one move at a time) or lockstep (moves begin together, a wait ends them)."""
    reward: str = "makespan"
    """makespan (a completed episode returns 1 - makespan / lower bound) or ct_dense."""
    horizon: int = 0
    """Time limit in seconds; 0 is five times the lower bound."""
    layout: str = "tool"
    """Observation: tool (chambers, buffers, robots), places or graph (numbers for every place of any net)."""
    observe_clock: bool = False
    """Add the clock to the observation."""

    def __post_init__(self) -> None:
        """Refuse what cannot be built, saying what could."""
        for what, given, known in (
            ("look-ahead", self.lookahead, LOOKAHEADS),
            ("choice of parallel chambers", self.parallel, PARALLELS),
            ("hold rule", self.hold, HOLDS),
            ("release gate", self.gate, GATES),
            ("driver of TM1", self.tm1, DRIVERS),
            ("clock", self.clock, CLOCKS),
            ("observation layout", self.layout, TOOL_LAYOUTS),
        ):
            check_known(what, given, known)
        if not 1 <= self.wafers <= 1000:
            raise RedlineError(f"{self.wafers} wafers cannot be processed. Try wafers=12 (1 to 1000).")
        if self.swap_action and self.arms != 2:
            raise RedlineError("A robot with one arm cannot swap wafers. Try arms=2 with swap_action=on.")
        if self.arms not in (1, 2):
            raise RedlineError(f"Robots with {self.arms} arms are not known here. Try arms=1 or arms=2.")
        if self.gate_per_type and self.gate == "off":
            raise RedlineError("Without a gate no type has one of its own. Try gate=route with gate_per_type=on.")
        _ = self.idle_rule, self.change_seconds

    @property
    def holds_hard(self) -> bool:
        """Whether a wafer held too long is scrapped. It must be where holding is free, or it would pay."""
        return self.hold == "hard" or (self.hold == "auto" and self.reward != "ct_dense")

    @property
    def idle_rule(self) -> IdleCleaning | None:
        """When idle chambers are cleaned and for how long; None if they are not."""
        if self.idle_cleaning in ("off", "on"):
            return IDLE_CLEANING if self.idle_cleaning == "on" else None
        times = [_seconds(part) for part in self.idle_cleaning.split(",")]
        if len(times) != 2 or None in times:
            raise RedlineError(
                f"idle_cleaning={self.idle_cleaning} is not two times: seconds after which an idle chamber is cleaned, and "
                "for how many. Try idle_cleaning=80,30, on or off."
            )
        return IdleCleaning(times[0] or 0, times[1] or 0)

    @property
    def change_seconds(self) -> int | None:
        """How long a chamber is cleaned between types of wafers; None if it is not."""
        if self.change_cleaning in ("off", "on"):
            return CHANGE_CLEANING if self.change_cleaning == "on" else None
        seconds = _seconds(self.change_cleaning)
        if seconds is None:
            raise RedlineError(
                f"change_cleaning={self.change_cleaning} is no time that a chamber can be cleaned for. "
                "Try change_cleaning=200, on or off."
            )
        return seconds


def _seconds(text: str) -> int | None:
    """A whole number of seconds, 1 or more; None if the text is none."""
    seconds = at_least(1, text)
    return seconds if seconds is not None and seconds <= MOST_SECONDS else None


@dataclass(frozen=True)
class ToolPlan:
    """A device, the full routes on it and the options: all a net is built from."""

    device: Device
    route: Route
    options: ClusterTool
    types: tuple[tuple[Stage, ...], ...] = field(default=())
    """Stages of each type from source to sink."""

    @property
    def wafer_types(self) -> tuple[int, ...]:
        """Type of each wafer in the order of release, numbered from 0."""
        order = self.route.release_order
        return tuple(order[k % len(order)] - 1 for k in range(self.options.wafers))

    def visitors(self, station: str) -> set[int]:
        """The types of wafers that may come to a station."""
        stages = {kind: self.types[kind] for kind in self.wafer_types}
        return {kind for kind, visits in stages.items() if any(station in stage.at for stage in visits)}

    def change_seconds(self, station: str) -> int | None:
        """How long a station is cleaned between types of wafers; None if it is not, or only one type comes there."""
        seconds = self.options.change_seconds
        if seconds is None or self.device.stations[station].kind != "process":
            return None
        return seconds if len(self.visitors(station)) > 1 else None

    def robot_for(self, origin: str, stage: Stage) -> Robot | None:
        """Who carries a wafer from a station to the next stage: of all that can the one with the highest priority."""
        device = self.device
        fit = [
            robot
            for robot in device.robots.values()
            if device.can_unload(robot, origin) and any(device.can_load(robot, name) for name in stage.at)
        ]
        return max(fit, key=lambda robot: robot.priority, default=None)


@cache
def _data(name: str) -> Any:
    return json.loads(files("redline.worlds.petri").joinpath("data", name).read_text())


def route_names() -> list[str]:
    """All routes by name."""
    return list(_data("routes.json"))


def device_names() -> list[str]:
    """All devices by name."""
    return list(_data("devices.json"))


def references() -> list[dict[str, Any]]:
    """Lower bounds, proven optima and what the insertion rule reaches, by device, route, arms and wafers."""
    return _data("references.json")


def find_device(name: str) -> Device:
    """A device by name."""
    if name not in device_names():
        raise unknown("device", name, device_names())
    return read_device(name, _data("devices.json")[name])


def find_route(name: str) -> Route:
    """A route by name, or from a JSON file."""
    if name.endswith(".json"):
        return load_route(Path(name))
    if name not in route_names():
        raise unknown("route", name, route_names())
    return read_route(name, _data("routes.json")[name])


def load_route(path: Path) -> Route:
    """A whole tool, or a route alone such as `{"types": [[{"at": ["PM7", "PM8"], "p": 70}]]}`, named after its file."""
    from redline.worlds.petri.tool_file import read_alone, read_tool  # which make routes

    try:
        text = plain_file(path).read_text()
        if len(text) > MOST_LETTERS:
            raise ValueError(f"it has {len(text):,} letters, and tools of up to {MOST_LETTERS:,} are read")
        data = json.loads(text)
    except FileNotFoundError:
        raise RedlineError(
            f"There is no tool or route at {path}. Write one to start from: redline envs petri --template {path.name}"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RedlineError(f"{path} cannot be read as a tool in JSON: {error}.") from error
    if isinstance(data, dict) and ("robots" in data or "places" in data):
        route, device = read_tool(path.stem, data)
        return replace(route, own_device=device)
    return read_alone(path.stem, data)


def read_device(name: str, data: Mapping[str, Any]) -> Device:
    """A device from plain data, as in `data/devices.json`."""
    try:
        return _device(name, data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RedlineError(
            f"{name!r} is no device: {type(error).__name__} {error}. It needs robots and places."
        ) from error


def _device(name: str, data: Mapping[str, Any]) -> Device:
    robots = {key: Robot(key, **{**each, "reach": tuple(each["reach"])}) for key, each in data["robots"].items()}
    stations = {}
    for key, each in data["places"].items():
        lists = {side: tuple(each[side]) for side in ("loaded_by", "unloaded_by") if side in each}
        clean = {"cleaning": Cleaning(**each["cleaning"])} if each.get("cleaning") else {}
        stations[key] = Station(key, **{**each, **lists, **clean})
    return Device(name, robots, stations, tuple(data.get("before", ())), tuple(data.get("after", ())))


def read_route(name: str, data: Mapping[str, Any]) -> Route:
    """A route from plain data, as in `data/routes.json`."""
    device = str(data.get("device", "cascade_core"))
    intervals = data.get("release_intervals", ())
    apart = any(isinstance(each, list) for each in intervals)
    wip_limit = data.get("wip_limit")
    if (count := sum(map(len, data["types"]))) > MOST_STAGES:
        raise RedlineError(
            f"{name!r} has {count:,} stages. Routes of up to {MOST_STAGES:,} are simulated: take fewer types."
        )
    return Route(
        name,
        types=tuple(tuple(read_stage(stage) for stage in stages) for stages in data["types"]),
        device="cascade_core" if device == "cascade" else device,
        wip_limit=None if wip_limit is None else int(wip_limit),
        release_intervals=() if apart else tuple(int(each) for each in intervals),
        release_order=tuple(int(kind) for kind in data.get("release_order", (1,))),
        type_intervals=tuple(tuple(int(each) for each in own) for own in intervals) if apart else (),
    )


def read_stage(data: Mapping[str, Any]) -> Stage:
    """A stage from plain data: `{"at": [...], "p": seconds}`."""
    at, seconds = data["at"], data["p"]
    if not isinstance(at, list) or not all(isinstance(name, str) for name in at) or type(seconds) is not int:
        raise ValueError(f"a stage needs a list of places and whole seconds, not at={at!r} and p={seconds!r}")
    return Stage(tuple(at), seconds, Cleaning(**data["clean"]) if data.get("clean") else None)


def plan_tool(options: ClusterTool, route: Route | None = None, device: Device | None = None) -> ToolPlan:
    """Device and route of a cluster tool, checked against each other. Both can be one's own."""
    route = route or find_route(options.route)
    if route.own_device is not None and options.device:
        raise RedlineError(f"{options.route} describes its own device. Leave out device={options.device}.")
    device = device or route.own_device or find_device(options.device or route.device)
    plan = ToolPlan(device, route, options)
    types = tuple(_wrap(device, stages) for stages in route.types)
    for stages in types:
        _check_route(plan, stages)
    if not route.release_order or any(not 1 <= kind <= len(types) for kind in route.release_order):
        raise RedlineError(
            f"{route.name}: release_order is {list(route.release_order)}, but takes types from 1 to {len(types)}. "
            f'Try "release_order": {list(range(1, len(types) + 1))}.'
        )
    return replace(plan, types=types)


def _wrap(device: Device, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    def alone(name: str) -> Stage:
        return Stage((name,), device.stations[name].process_time)

    return (
        alone(device.station_of("source")), *map(alone, device.before),
        *stages,
        *map(alone, device.after), alone(device.station_of("sink")),
    )  # fmt: skip


def _check_route(plan: ToolPlan, stages: tuple[Stage, ...]) -> None:
    route, device = plan.route.name, plan.device
    for stage in stages:
        for name in stage.at:
            if name not in device.stations:
                raise unknown(f"place for route {route!r} on {device.name}:", name, device.stations)
        if not stage.at or stage.process_time < 0:
            raise RedlineError(f"A stage of route {route!r} needs places and a process time of 0 or more; got {stage}.")
    for stage, following in pairwise(stages):
        for name in stage.at:
            if plan.robot_for(name, following) is None:
                raise RedlineError(
                    f"Route {route!r} cannot be run on {device.name}: no robot carries a wafer from {name} to "
                    f"{' or '.join(following.at)}. Try another device ({', '.join(device_names())})."
                )


# The net


def build_tool(options: ClusterTool, route: Route | None = None, device: Device | None = None) -> Net:
    """The net of a cluster tool."""
    return build_net(plan_tool(options, route, device))


def build_net(plan: ToolPlan) -> Net:
    """The net of a planned cluster tool."""
    from redline.worlds.petri.bounds import tool_bound  # bounds read plans

    options = plan.options
    bound = tool_bound(plan)
    sink = plan.device.station_of("sink")
    return Net(
        name=f"{plan.device.name}/{plan.route.name}",
        places=(*_station_places(plan), *(_hand(plan, robot) for robot in plan.device.robots.values()), *_scrap(plan)),
        transitions=tuple(_transitions(plan)),
        goal={sink: options.wafers},
        horizon=options.horizon or HORIZON * bound,
        routes=tuple(_steps(plan, stages) for stages in plan.types),
        token_types=plan.wafer_types,
        swaps=tuple(_swaps(plan)) if options.swap_action else (),
        rules=_rules(plan, bound),
    )


def _scrap(plan: ToolPlan) -> list[Place]:
    """Where scrapped wafers go, if the others go on."""
    return [] if plan.options.stop_on_scrap else [Place(SCRAP)]


def _station_places(plan: ToolPlan) -> list[Place]:
    cleaning = _cleaning(plan)
    return [
        Place(
            name,
            tokens=plan.options.wafers if station.kind == "source" else 0,
            capacity=station.capacity,
            max_stay=station.residency_limit,
            kind=station.kind,
            cleaning=cleaning.get(name),
            idle_cleaning=plan.options.idle_rule if station.kind == "process" and plan.visitors(name) else None,
            change_cleaning=plan.change_seconds(name),
        )
        for name, station in plan.device.stations.items()
    ]


def _cleaning(plan: ToolPlan) -> dict[str, Cleaning]:
    """How each chamber is cleaned: as the route says, else as the device does."""
    if not plan.options.cleaning:
        return {}
    rules = {name: station.cleaning for name, station in plan.device.stations.items() if station.cleaning}
    for stages in plan.types:
        rules |= {name: stage.cleaning for stage in stages if stage.cleaning for name in stage.at}
    return rules


def _hand(plan: ToolPlan, robot: Robot) -> Place:
    slack = robot.hold_limit - robot.travel
    hard = plan.options.holds_hard
    if hard and slack < 0:
        raise RedlineError(
            f"Robot {robot.name} has an infeasible residency limit: a wafer may be held for {robot.hold_limit} s but "
            f"travels for {robot.travel} s. Raise hold_limit to {robot.travel} or more."
        )
    return Place(
        robot.name, capacity=plan.options.arms, min_stay=robot.travel, max_stay=max(0, slack),
        on_overstay="fail" if hard else "penalty", kind="robot",
    )  # fmt: skip


def _transitions(plan: ToolPlan) -> list[Transition]:
    """All picks, then all places. They depend on the device alone, so a policy fits every route."""
    device = plan.device
    pairs = [(robot, name) for robot in device.robots.values() for name in robot.reach]
    return [
        *(_pick(plan, robot, name) for robot, name in pairs if device.can_unload(robot, name)),
        *(_put(plan, robot, name) for robot, name in pairs if device.can_load(robot, name)),
    ]


def _pick(plan: ToolPlan, robot: Robot, station: str) -> Transition:
    options, by_rule = plan.options, _by_rule(plan, robot)
    guards = {"robots": ["lookahead"], "strict": ["free_slot"], "off": []}["strict" if by_rule else options.lookahead]
    if options.arms > 1:
        guards.append("arm_lock")
    if station == _gate_station(plan):
        guards.append("release")
    source = plan.device.station_of("source")
    return Transition(
        f"u_{station}_{robot.name}", ((station, 1),), ((robot.name, 1),), robot.pick, robot.name,
        controllable=not by_rule,
        priority=_TM1_ORDER.get(station, 0),
        guards=tuple(guards),
        room_at="LLA" if by_rule and station == source else None,
        action=f"u_{station}_{robot.name}",
    )  # fmt: skip


_TM1_ORDER = {"LLB": 4, "CL": 3, "AL": 2, "LP": 1}
_DELIVERY = 5


def _put(plan: ToolPlan, robot: Robot, station: str) -> Transition:
    return Transition(
        f"t_{robot.name}_{station}", ((robot.name, 1),), ((station, 1),), robot.place, robot.name,
        controllable=not _by_rule(plan, robot),
        priority=_DELIVERY,
        guards=("least_used",) if plan.options.parallel == "least_used" else (),
        action=f"t_{robot.name}_{station}",
    )  # fmt: skip


def _swaps(plan: ToolPlan) -> list[Swap]:
    """One for each chamber that a robot both empties and fills."""
    device = plan.device
    return [
        Swap(f"x_{robot.name}_{name}", f"u_{name}_{robot.name}", f"t_{robot.name}_{name}")
        for robot in device.robots.values()
        for name in robot.reach
        if device.stations[name].kind == "process" and not _by_rule(plan, robot)
        if device.can_unload(robot, name) and device.can_load(robot, name)
    ]


def _by_rule(plan: ToolPlan, robot: Robot) -> bool:
    return plan.options.tm1 == "rule" and robot.name == "TM1" and "LLA" in plan.device.stations


def _gate_station(plan: ToolPlan) -> str:
    """Where wafers are released from."""
    gates = [name for name, station in plan.device.stations.items() if station.release_gate]
    return gates[0] if gates else plan.device.station_of("source")


def _steps(plan: ToolPlan, stages: tuple[Stage, ...]) -> tuple[Step, ...]:
    """A route as firings: pick, place, pick, place, …"""
    steps = []
    for stage, following in pairwise(stages):
        carriers = {name: plan.robot_for(name, following) for name in stage.at}
        robots = {robot.name: robot for robot in carriers.values() if robot is not None}
        picks = tuple(f"u_{name}_{robot.name}" for name, robot in carriers.items() if robot is not None)
        puts = tuple(
            f"t_{robot.name}_{name}"
            for robot in robots.values()
            for name in following.at
            if plan.device.can_load(robot, name)
        )
        travel = max(robot.travel for robot in robots.values())
        steps += [Step(picks, travel), Step(puts, following.process_time)]
    return tuple(steps)


# The rules


def _rules(plan: ToolPlan, bound: int) -> NetRules:
    options = plan.options
    intervals, type_intervals = _intervals(plan), _type_intervals(plan)
    waits = _waits(plan, [*intervals, *chain(*type_intervals)])
    return NetRules(
        waits=(NEXT, *waits),
        urgent_wait=max(URGENT_WAIT, waits[0]) if options.urgent_wait_cap else None,
        skip_forced_waits=options.skip_forced_waits,
        clock=options.clock,
        scrap_place=None if options.stop_on_scrap else SCRAP,
        lenient=options.lenient,
        wip_limit=_wip_limit(plan),
        release_intervals=intervals,
        type_intervals=type_intervals,
        reward=options.reward,
        lower_bound=bound,
        layout=options.layout,
        observe_clock=options.observe_clock,
    )


def _wip_limit(plan: ToolPlan) -> int | None:
    given = plan.options.wip_limit
    if given == "off":
        return None
    if given == "route":
        return plan.route.wip_limit
    limit = at_least(1, given)
    if limit is None:
        raise RedlineError(f"A WIP limit of {given!r} makes no sense. Try wip_limit=route, off or a number such as 7.")
    return limit


def _intervals(plan: ToolPlan) -> tuple[int, ...]:
    """Release intervals for all types; none where each has its own."""
    if plan.options.gate == "off" or _type_intervals(plan):
        return ()
    return plan.route.release_intervals if plan.options.gate == "route" else derived_intervals(plan, plan.types)


def _type_intervals(plan: ToolPlan) -> tuple[tuple[int, ...], ...]:
    """Release intervals of each type by itself; none where all share a gate. A single type needs no gate of its own."""
    route, types = plan.route, plan.types
    if plan.options.gate == "route" and route.type_intervals:
        return route.type_intervals
    if not plan.options.gate_per_type or len(types) == 1:
        return ()
    if plan.options.gate == "derived":
        return tuple(derived_intervals(plan, (stages,)) for stages in types)
    return (route.release_intervals,) * len(types) if route.release_intervals else ()


def _waits(plan: ToolPlan, intervals: Sequence[int]) -> tuple[int, ...]:
    """The waits on offer, the finest first: with it every instant that matters can be reached."""
    if plan.options.waits:
        waits = [at_least(1, part) for part in plan.options.waits.split(",")]
        if None in waits:
            raise RedlineError(f"Waits of {plan.options.waits!r} cannot be waited. Try waits=5,10,20.")
        return tuple(sorted(wait for wait in waits if wait is not None))
    finest = math.gcd(*_times(plan), *intervals) or WAITS[0]
    return (finest, *(wait for wait in WAITS if wait > finest))


def _times(plan: ToolPlan) -> list[int]:
    """Every time that decides when something can happen."""
    robots, stations = plan.device.robots.values(), plan.device.stations.values()
    limits = [station.residency_limit or 0 for station in stations]
    cleaning = [rule.duration for rule in _cleaning(plan).values()]
    if (idle := plan.options.idle_rule) is not None:
        cleaning += [idle.after, idle.duration]
    cleaning += [plan.change_seconds(name) or 0 for name in plan.device.stations]
    moves = [time for robot in robots for time in (robot.pick, robot.travel, robot.place, robot.hold_limit)]
    return [stage.process_time for stages in plan.types for stage in stages] + limits + cleaning + moves


def derived_intervals(plan: ToolPlan, types: Sequence[tuple[Stage, ...]]) -> tuple[int, ...]:
    """Release intervals that make the residency of some types easy: as fast as the slowest stage, slower around its
    cleaning.

    A heuristic. With several stages each position takes the longest interval that any of them asks for.
    """
    cleaning = _cleaning(plan)
    stages = [(stage, cleaning.get(stage.at[0])) for stages in types for stage in stages[1:-1]]
    fast = max(math.ceil(stage.process_time / _slots(plan, stage)) for stage, _ in stages)
    patterns = [_slowed(plan, stage, clean, fast) for stage, clean in stages if clean is not None]
    if not patterns:
        return (fast,)
    return tuple(max(pattern[k % len(pattern)] for pattern in patterns) for k in range(plan.options.wafers))


def _slots(plan: ToolPlan, stage: Stage) -> int:
    return sum(plan.device.stations[name].capacity or 1 for name in stage.at)


def _slowed(plan: ToolPlan, stage: Stage, clean: Cleaning, fast: int) -> list[int]:
    """The first q·m - 1 releases are fast; then blocks of m slow ones alternate with (q - 1)·m fast ones."""
    per_chamber, chambers = clean.after_wafers, _slots(plan, stage)
    intervals = [fast] * (per_chamber * chambers - 1)
    while len(intervals) < plan.options.wafers:
        for _ in range(chambers):
            recent = sum(intervals[-(chambers - 1) :]) if chambers > 1 else 0
            intervals.append(max(fast, stage.process_time + clean.duration - recent))
        intervals += [fast] * ((per_chamber - 1) * chambers)
    return intervals
