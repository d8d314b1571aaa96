"""`redline verify`: is our simulator the original, step for step?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from redline.cli.worlds import first_word, having, parse_with, say_to, show
from redline.errors import RedlineError, unknown
from redline.worlds.registry import LOCAL, all_worlds, default_world, local_world
from redline.worlds.world import World

ABOUT = """Replay recordings of an original and compare everything they hold, step by step.

What a recording is depends on the world: `redline verify WORLD --help` lists what WORLD's takes."""


@dataclass(frozen=True)
class Verify:
    """Replay recordings of an original and compare them."""

    world: Annotated[str, "positional"]
    """The world whose recordings are replayed; redline envs lists them. Options may stand behind its name."""
    seed: int = 0
    """Accepted by every command; a replay draws nothing at random."""


def run(arguments: list[str]) -> int:
    """Parse and verify. Exit code 1 when anything differs."""
    if not arguments:
        raise RedlineError(f"verify needs a world. Try: redline verify {having('verify')[0]} --help")
    world = first_word(arguments, _named) or default_world()
    verifying = world.command("verify")
    if verifying is None:
        _require_usable(arguments, world)
        raise RedlineError(f"{world.name} has no recordings to replay. Those that have: {', '.join(having('verify'))}.")
    parts = {"what": Verify, "how": verifying.options}
    command = parse_with("verify", ABOUT, parts, arguments, "verify", world)
    if _named(command.what.world) is None:
        raise unknown("world with recordings", command.what.world, having("verify"))
    return show(verifying.run(command.what.world, command.how, say_to(command.output)), command.output)


def _require_usable(arguments: list[str], world: World) -> None:
    """Have a world say why it cannot be used at all, if that is so."""
    for word in arguments:
        if world.require is not None and world.owns(word):
            world.require(word)


def _named(word: str) -> World | None:
    """The world of that name, or to which an env of that name belongs."""
    bare = word.partition("?")[0]
    if bare.startswith(LOCAL):
        return local_world(bare)
    return next((world for world in all_worlds() if world.name == bare or (world.compiled and world.owns(bare))), None)
