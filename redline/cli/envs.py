"""`redline envs`: what can be trained on."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from inspect import getsource
from typing import Annotated, Any

import tyro

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError, unknown


@dataclass(frozen=True)
class Envs:
    """List the envs Redline ships, with their options, the other names that work, and the engines."""

    env: tyro.conf.Positional[str] = ""
    """Show this env only; `petri` lists the nets that have a name, `petri:…` shows one of them."""
    states: bool = False
    """Count all markings that a net without time can reach: redline envs petri:FILE.pnml --states"""
    most: int | None = None
    """Give up counting after so many markings; by default after as many as fit into 4 GB."""
    seed: int = 0
    """Accepted by every command; a list draws nothing at random."""
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse and list."""
    from redline.engines import ENGINES
    from redline.envs import ENVS, OTHERS

    command = parse("envs", Envs, arguments)
    if command.most is not None and command.most < 1:
        raise RedlineError(f"--most {command.most} markings are none to count. Try --most 10000000.")
    if command.env.startswith("petri:"):
        from redline.cli.petri import show_net

        return show_net(command.env, command.states, command.most, command.output)
    if command.states:
        raise RedlineError("--states counts the markings of one net. Try: redline envs petri:FILE.pnml --states")
    if command.env == "petri":
        from redline.cli.petri import list_nets

        return list_nets(command.output)
    if command.env and command.env not in ENVS:
        raise unknown("env", command.env, ENVS)
    chosen = {name: kind for name, kind in ENVS.items() if command.env in ("", name)}
    if command.output.json:
        envs = [{"name": n, "about": k.about, "options": _options(k.options)} for n, k in chosen.items()]
        engines = [{"name": n, "about": engine.about} for n, engine in ENGINES.items()]
        print_json({"envs": envs, "other_names": OTHERS, "engines": engines})
        return 0
    for name, kind in chosen.items():
        out.print(f"[bold]{name}[/bold]  {kind.about}", soft_wrap=True)
        for option in _options(kind.options):
            flag = f"--{option['name'].replace('_', '-')} {option['default']}"
            out.print(f"  {flag:<32} {option['about']}", soft_wrap=True, markup=False)
    if not command.env:
        out.print(
            "\nOther names that work; options may stand behind a name, as in 'CartPole-v1?sutton_barto_reward=true':"
        )
        for name, about in OTHERS.items():
            out.print(f"  {name:<32} {about}", soft_wrap=True, markup=False)
        out.print("\nEngines (redline train ENV --engine E; auto tries them and takes the fastest):")
        for name, engine in ENGINES.items():
            out.print(f"  {name:<32} {engine.about}", soft_wrap=True, markup=False)
    return 0


def _options(kind: Any) -> list[dict[str, Any]]:
    """The fields of an options class, each with the text written below it."""
    about = dict(re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', getsource(kind), re.MULTILINE | re.DOTALL))
    return [
        {"name": field.name, "default": field.default, "about": about.get(field.name, "")}
        for field in dataclasses.fields(kind)
    ]
