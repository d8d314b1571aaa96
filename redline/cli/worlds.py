"""Questions that commands ask worlds: which one an argument means, the options it adds, and its part of the command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from redline.cli.console import err, out, print_json
from redline.cli.options import Output, UnknownArgument, combine, parse
from redline.errors import RedlineError
from redline.runs import BEST, SEARCH_STATE
from redline.worlds.naming import with_query
from redline.worlds.registry import all_worlds, find_world, shipped_policies, world_of
from redline.worlds.world import Answer, Command, Say, World


def say_to(output: Output) -> Say:
    """How a command tells of its progress: on standard error, or not at all."""
    if output.quiet or output.json:
        return lambda text: None
    return lambda text: err.print(text, soft_wrap=True, markup=False)


def show(answer: Answer, output: Output) -> int:
    """Print what a world's part of a command found. Returns the exit code."""
    if output.json:
        print_json(answer.data)
    else:
        for line in answer.lines:
            out.print(line, soft_wrap=isinstance(line, str))
    return answer.exit_code


def first_word(arguments: Sequence[str], means: Callable[[str], World | None]) -> World | None:
    """The world that the first argument means; an option there means none."""
    if not arguments or arguments[0].startswith("-"):
        return None
    return means(arguments[0])


def parse_with(command: str, about: str, parts: dict[str, Any], arguments: list[str], part: str, world: World) -> Any:
    """Parse a command that holds a world's options; an option of another world is refused by name."""
    kind = combine(about, **parts, output=Output)
    try:
        return parse(command, kind, arguments)
    except UnknownArgument as error:
        raise _foreign(error.argument, part, world) or error from None


def _foreign(option: str, part: str, world: World) -> RedlineError | None:
    """The error for an option that only another world has."""
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    other = next((other for other in all_worlds() if name in _field_names(other.command(part))), None)
    if other is None:
        return None
    mine = sorted(_field_names(world.command(part)))
    instead = ", ".join(f"--{each.replace('_', '-')}" for each in mine) or "none of its own"
    return RedlineError(f"{option} is for {other.name}, not for {world.name}, which takes {instead}.")


def _field_names(command: Command | None) -> list[str]:
    return [] if command is None else [field.name for field in dataclasses.fields(command.options)]


def having(part: str) -> list[str]:
    """The names of the worlds that have a part of their own."""
    return [world.name for world in all_worlds() if getattr(world, part) is not None]


def compiled_names() -> list[str]:
    """A name of an env of each compiled world."""
    return [next(iter(world.examples), world.name) for world in all_worlds() if world.compiled]


def world_named(word: str, trust: bool = False) -> World | None:
    """The world that a target means: by the name of one of its players or envs, or by a run on one of them."""
    player = next((world for world in all_worlds() if world.is_baseline is not None and world.is_baseline(word)), None)
    if player is not None:
        return player
    path = shipped_policies().get(word, Path(word))
    if path.exists():
        return world_of(_trained_env(path, trust))
    return find_world(with_query(word, {})[0])


def _trained_env(path: Path, trust: bool) -> str:
    """The env that the policy at `path` was trained on."""
    from redline.learn.checkpoint import load, resolve
    from redline.learn.trust import stored_config

    found = load(resolve(_policy_path(path)))
    return stored_config(found.values.get("config"), found.path, trust).env


def _policy_path(path: Path) -> Path:
    if (path / SEARCH_STATE).exists():
        raise RedlineError(f"{path} is a workflow search. Its best policy is {path / BEST}, once the search is done.")
    return path
