"""`redline envs petri`: the nets that have a name, and how large any net is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from redline.compiled.announce import announce_compilation
from redline.errors import RedlineError
from redline.worlds.options import describe_options
from redline.worlds.petri.cluster_tool import route_names
from redline.worlds.petri.instances import FAMILIES, PREFIX, list_petri, parse_petri
from redline.worlds.petri.job_shop import shop_names
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.rules.reachability import expand, explore, require_no_time
from redline.worlds.petri.rules.tables import tabulate
from redline.worlds.petri.tool_file import write_template
from redline.worlds.world import Answer, Command, Say

SHOWN = len(route_names()) + len(shop_names())
"""Nets that are listed one by one."""


@dataclass(frozen=True)
class NetFacts:
    """What to find out about a net."""

    states: bool = False
    """Count all markings that a net without time can reach: redline envs petri:FILE.pnml --states"""
    template: Path | None = None
    """Write a cluster tool to start from into this .json file, with a word about every field."""
    most: int | None = None
    """Give up counting after so many markings; by default after as many as fit into 4 GB."""

    def __post_init__(self) -> None:
        """Refuse what cannot be counted."""
        if self.most is not None and self.most < 1:
            raise RedlineError(f"--most {self.most} markings are none to count. Try --most 10000000.")


def run(name: str, options: NetFacts, say: Say) -> Answer:
    """All nets that have a name, or the size of one."""
    if options.template is not None:
        write_template(options.template)
        path = escape(str(options.template))
        lines = [f"Written: {path}", f"Next:    redline train 'petri:cluster/{path}?wafers=4'"]
        return Answer({"template": str(options.template)}, lines)
    if name.startswith(PREFIX):
        return _one_net(name, options)
    if options.states:
        raise RedlineError("--states counts the markings of one net. Try: redline envs petri:FILE.pnml --states")
    return _all_nets()


SHOW = Command(NetFacts, run)


def _all_nets() -> Answer:
    nets = list_petri()
    options = {name: describe_options(family.options) for name, family in FAMILIES.items()}
    table = Table(title="Nets by name (lower bounds and proven optima of 12 wafers on the first device)")
    for column in ("name", "what it is", "bound", "optimum", "devices"):
        table.add_column(column, justify="right" if column in ("bound", "optimum") else "left", overflow="fold")
    for net in nets[:SHOWN]:
        optimum = "" if net["optimum"] is None else str(net["optimum"])
        table.add_row(net["name"], net["about"], str(net["lower_bound"]), optimum, ", ".join(net["devices"]))
    families = "la01 to la40, abz5 to abz9, orb01 to orb10, swv01 to swv20, ta01 to ta80"
    lines: list[RenderableType] = [
        table,
        f"And {len(nets) - SHOWN} more classic job shops: {families} (--json lists all).",
    ]
    for name, family in FAMILIES.items():
        lines.append(f"\n[bold]{name}[/bold]  {family.about}")
        lines += [escape(_option_line(option)) for option in options[name]]
    lines.append("\nOptions follow the name: redline train 'petri:cluster/J-0?wafers=12&arms=2'")
    return Answer({"nets": nets, "options": options}, lines)


def _option_line(option: dict[str, Any]) -> str:
    shown = f"  {option['name']}={_shown(option['default'])}"
    return f"{shown:<30} {option['about']}"


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(default) if isinstance(default, str | int) else "…"


def _one_net(name: str, options: NetFacts) -> Answer:
    instance = parse_petri(name)
    net, sizes = instance.net, tabulate(instance.net)[1]
    arcs = sum(len(transition.inputs) + len(transition.outputs) for transition in net.transitions)
    facts: dict[str, Any] = {
        "name": instance.name,
        "places": len(net.places),
        "transitions": len(net.transitions),
        "arcs": arcs,
        "tokens": sum(place.tokens for place in net.places),
        "actions": sizes.actions,
        "observed_numbers": sizes.observation,
        "lower_bound": instance.lower_bound,
        "optimum": instance.optimum,
    }
    if options.states:
        facts |= _count_states(net, options.most)
    return Answer(facts, [escape(_fact(what, known)) for what, known in facts.items() if known is not None])


def _fact(what: str, known: Any) -> str:
    return (
        f"{what.replace('_', ' '):<18}{known:,}" if isinstance(known, int) else f"{what.replace('_', ' '):<18}{known}"
    )


def _count_states(net: Net, most: int | None) -> dict[str, int]:
    require_no_time(net)
    announce_compilation(expand, "Petri net kernel", 10)
    found = explore(net, most)
    return {"states": found.states, "edges": found.edges, "dead_states": found.dead}
