"""`redline envs`: what can be trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from redline.cli.console import out, print_json
from redline.cli.options import Output, combine, parse
from redline.cli.worlds import first_word, parse_with, say_to, show
from redline.errors import unknown
from redline.worlds.naming import with_query
from redline.worlds.options import describe_options
from redline.worlds.registry import all_worlds, find_world, known_names
from redline.worlds.world import World


@dataclass(frozen=True)
class Envs:
    """List the worlds there are, with their options, the names that work, and the engines."""

    env: Annotated[str, "positional"] = ""
    """Show this world or env only."""
    seed: int = 0
    """Accepted by every command; a list draws nothing at random."""


def run(arguments: list[str]) -> int:
    """Parse and list."""
    world = first_word(arguments, _named)
    showing = None if world is None else world.command("show")
    if world is not None and showing is not None:
        parts = {"what": Envs, "how": showing.options}
        command = parse_with("envs", Envs.__doc__ or "", parts, arguments, "show", world)
        return show(showing.run(command.what.env, command.how, say_to(command.output)), command.output)
    command = parse("envs", combine(Envs.__doc__ or "", what=Envs, output=Output), arguments)
    if command.what.env and world is None:
        raise unknown("env", command.what.env, known_names(command.what.env))
    return _list(all_worlds() if world is None else (world,), command.output, world is None)


def _named(word: str) -> World | None:
    """The world of that name, or to which an env of that name belongs."""
    by_name = next((world for world in all_worlds() if world.name == word), None)
    return by_name or find_world(with_query(word, {})[0])


def _list(worlds: tuple[World, ...], output: Output, everything: bool) -> int:
    from redline.engines import ENGINES

    names = {name: about for world in worlds for name, about in world.examples.items()}
    if output.json:
        engines = [{"name": name, "about": engine.about} for name, engine in ENGINES.items()]
        print_json({"envs": [_facts(world) for world in worlds], "other_names": names, "engines": engines})
        return 0
    for world in worlds:
        if not world.examples:
            _print_world(world)
    if everything:
        out.print(
            "\nOther names that work; options may stand behind a name, as in 'CartPole-v1?sutton_barto_reward=true':"
        )
    for name, about in names.items():
        out.print(f"  {name:<32} {about}", soft_wrap=True, markup=False)
    if everything:
        out.print("\nEngines (redline train ENV --engine E; auto tries them and takes the fastest):")
        for name, engine in ENGINES.items():
            out.print(f"  {name:<32} {engine.about}", soft_wrap=True, markup=False)
    return 0


def _facts(world: World) -> dict[str, Any]:
    options = [] if world.options is None else describe_options(world.options)
    presets = [{"name": name, "about": preset.about} for name, preset in world.presets.items()]
    return {
        "name": world.name, "about": world.about, "options": options, "presets": presets, "policies": _policies(world)
    }  # fmt: skip


def _policies(world: World) -> list[str]:
    """The trained policies that come with a world."""
    return [] if world.policies is None else list(world.policies())


def _print_world(world: World) -> None:
    out.print(f"[bold]{world.name}[/bold]  {world.about}", soft_wrap=True)
    for option in _facts(world)["options"]:
        flag = f"--{option['name'].replace('_', '-')} {option['default']}"
        out.print(f"  {flag:<32} {option['about']}", soft_wrap=True, markup=False)
    for name, preset in world.presets.items():
        out.print(f"  {f'--preset {name}':<32} {preset.about}", soft_wrap=True, markup=False)
    for name in _policies(world):
        out.print(
            f"  {name:<32} a policy that comes with the package: redline eval {name}", soft_wrap=True, markup=False
        )
