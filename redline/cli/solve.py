"""`redline solve`: the shortest schedule, proven, where a world can be solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from redline.cli.worlds import first_word, having, parse_with, say_to, show
from redline.errors import RedlineError
from redline.worlds.registry import all_worlds, find_world

ABOUT = "Find the best possible solution of an env with an exact solver, and prove that none is better."


@dataclass(frozen=True)
class Solve:
    """Solve an env exactly."""

    env: Annotated[str, "positional"]
    """Which env; redline envs lists them. Options may stand behind its name."""


def run(arguments: list[str]) -> int:
    """Parse, solve, print. Exit code 130 when Ctrl-C ended the search."""
    solvable = [world for world in all_worlds() if world.solve is not None]
    example = next(iter(solvable[0].examples))
    if not arguments:
        raise RedlineError(f"solve needs an env. Try: redline solve {example}")
    world = first_word(arguments, lambda word: find_world(word.partition("?")[0])) or solvable[0]
    solving = world.command("solve")
    if solving is None:
        given = next(each for each in arguments if not each.startswith("-"))
        raise RedlineError(
            f"Only envs of {', '.join(having('solve'))} can be solved, and {given!r} is none. Try {example}."
        )
    parts = {"what": Solve, "how": solving.options}
    command = parse_with("solve", ABOUT, parts, arguments, "solve", world)
    return show(solving.run(command.what.env, command.how, say_to(command.output)), command.output)
