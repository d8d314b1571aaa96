"""Nets by name: `cluster/J-0?wafers=12`, `jobshop/ft06`, `plant.pnml?goal=Unit:3`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redline.errors import RedlineError, unknown
from redline.worlds.naming import split_query
from redline.worlds.petri.bounds import shop_bound, tool_bound
from redline.worlds.petri.cluster_tool import (
    ClusterTool,
    ToolPlan,
    build_tool,
    device_names,
    find_device,
    find_route,
    plan_tool,
    references,
    route_names,
)
from redline.worlds.petri.job_shop import JobShop, all_shop_names, build_shop, find_shop
from redline.worlds.petri.numbers import whole_number
from redline.worlds.petri.pnml import PnmlNet, build_pnml
from redline.worlds.petri.rules.net import Net

PREFIX = "petri:"
EXAMPLES = ("petri:cluster/J-0?wafers=12", "petri:jobshop/ft06", "petri:file.pnml")
Options = ClusterTool | JobShop | PnmlNet


@dataclass(frozen=True)
class Family:
    """One way to make a net: its options, the option that names the instance, and what names there are."""

    options: type
    key: str
    names: Callable[[], list[str]]
    about: str


FAMILIES = {
    "cluster": Family(ClusterTool, "route", route_names, "cluster tools: robots, chambers, residency limits"),
    "jobshop": Family(JobShop, "instance", all_shop_names, "job shops: jobs, machines, operations"),
    "pnml": Family(PnmlNet, "path", list, "any place/transition net in PNML"),
}


@dataclass(frozen=True)
class Instance:
    """A net with the name and the options it was made from."""

    name: str
    family: str
    options: Options
    net: Net

    @property
    def lower_bound(self) -> int | None:
        """A makespan that cannot be beaten, as far as one is known."""
        return self.net.rules.lower_bound

    @property
    def optimum(self) -> int | None:
        """The proven optimal makespan, where it is known for exactly these options."""
        return known_optimum(self.options)

    def plan(self) -> ToolPlan:
        """Device and route, if this is a cluster tool."""
        if not isinstance(self.options, ClusterTool):
            raise RedlineError(f"{self.name} is no cluster tool.")
        return plan_tool(self.options)


def parse_petri(name: str, **more: Any) -> Instance:
    """The net that a name such as `petri:cluster/J-0?wafers=12` means; `more` options go before those in the name."""
    bare, given = split_query(name)
    family, instance = _family(bare.removeprefix(PREFIX), name)
    kind = FAMILIES[family]
    options: dict[str, Any] = {kind.key: instance, **given, **more}
    if options[kind.key] != instance:
        raise RedlineError(
            f"{bare} names its {kind.key} already, and {kind.key}={options[kind.key]} is another. "
            f"Try {bare.removesuffix(instance)}{options[kind.key]}."
        )
    fields = {field.name: field for field in dataclasses.fields(kind.options)}
    for option, value in options.items():
        if option not in fields:
            raise unknown(f"{family} option", option, fields)
        options[option] = _converted(option, _written(value), fields[option].type)
    return _instance(_spelled(name, more), family, kind.options(**options))


def reaches(name: str, options: dict[str, Any]) -> str | None:
    """The file that a net is made from, in words: all but the instances that come with us are files."""
    try:
        family, instance = _family(name.removeprefix(PREFIX), name)
    except RedlineError:
        return None  # nothing can come of it
    return None if instance in FAMILIES[family].names() else f"open {instance}"


def _spelled(name: str, more: dict[str, Any]) -> str:
    """The name with all options in it, so that it says everything."""
    given = [f"{option}={_written(value)}" for option, value in more.items()]
    whole = name if name.startswith(PREFIX) else PREFIX + name
    return f"{whole}{'&' if '?' in whole else '?'}{'&'.join(given)}" if given else whole


def _family(path: str, name: str) -> tuple[str, str]:
    """Which family a name belongs to, and the instance in it."""
    family, slash, instance = path.partition("/")
    if path.endswith((".pnml", ".xml")):
        return "pnml", path
    if family in FAMILIES and family != "pnml":
        if not instance:
            names = FAMILIES[family].names()
            raise RedlineError(f"{name!r} names no {family} instance. Try {PREFIX}{family}/{names[0]}.")
        return family, instance
    for known, kind in FAMILIES.items():
        if path in kind.names():
            raise RedlineError(f"There is no net {name!r}. Did you mean {PREFIX}{known}/{path}?")
    if slash or path:
        raise unknown("kind of net", family, [*(key for key in FAMILIES if key != "pnml"), "file.pnml"])
    raise RedlineError(f"{name!r} names no net. Try {', '.join(EXAMPLES)}.")


def _written(value: Any) -> str:
    """An option as it stands in a name."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _converted(option: str, value: str, kind: Any) -> Any:
    """An option written as text, as the type it has."""
    shown = value if value.isprintable() else repr(value)
    if kind == "int":
        number = whole_number(value)
        if number is None:
            raise RedlineError(f"{option}={shown} is no whole number. Try {option}=12.")
        return number
    if kind == "bool":
        if value.lower() not in _TRUTH:
            raise RedlineError(f"{option}={shown} is neither on nor off. Try {option}=on.")
        return _TRUTH[value.lower()]
    return value


_TRUTH = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


def _instance(name: str, family: str, options: Options) -> Instance:
    if isinstance(options, ClusterTool):
        return Instance(name, family, options, build_tool(options))
    if isinstance(options, JobShop):
        return Instance(name, family, options, build_shop(options))
    return Instance(name, family, options, build_pnml(options))


def known_optimum(options: Options) -> int | None:
    """The proven optimal makespan, where it is known for exactly these options."""
    row = reference(options)
    if row is not None:
        return row["best"] if row["optimal"] else None
    if isinstance(options, JobShop) and options.buffers == "free" and options.instance in all_shop_names():
        return find_shop(options.instance).optimum
    return None


def reference(options: Options) -> dict[str, Any] | None:
    """Reference figures of a cluster tool; they hold without any cleaning, gates and WIP limits, and with hard holding."""
    if not isinstance(options, ClusterTool) or options.route not in route_names():
        return None
    if options.cleaning or options.idle_rule or options.change_seconds:
        return None
    if options.gate != "off" or options.wip_limit != "off" or options.tm1 != "policy":
        return None
    if not options.holds_hard or options.clock != "event" or not options.stop_on_scrap:
        return None
    device = options.device or find_route(options.route).device
    key = (device, options.route, options.arms, options.wafers)
    rows = (row for row in references() if (row["device"], row["route"], row["arms"], row["n"]) == key)
    return next(rows, None)


def list_petri() -> list[dict[str, Any]]:
    """Every net that has a name, with what it is and its lower bound."""
    rows = []
    for name in route_names():
        plan = plan_tool(ClusterTool(route=name))
        stages = [_describe(stages) for stages in plan.route.types]
        rows.append({
            "name": f"{PREFIX}cluster/{name}", "about": " | ".join(stages), "lower_bound": tool_bound(plan),
            "optimum": known_optimum(plan.options), "devices": _devices_for(name),
        })  # fmt: skip
    for name in all_shop_names():
        shop = find_shop(name)
        rows.append({
            "name": f"{PREFIX}jobshop/{name}", "about": f"{len(shop.jobs)} jobs on {shop.machines} machines",
            "lower_bound": shop_bound(shop.quickest(), shop.releases), "optimum": shop.optimum, "devices": [],
            "best_known": shop.best,
        })  # fmt: skip
    return rows


def _describe(stages: Any) -> str:
    return " → ".join(f"{'/'.join(stage.at)} {stage.process_time}" for stage in stages)


def _devices_for(route: str) -> list[str]:
    """Devices that can run a route."""
    found = []
    for device in device_names():
        try:
            plan_tool(ClusterTool(route=route), device=find_device(device))
        except RedlineError:
            continue
        found.append(device)
    return found
