"""The worlds there are, and the envs they make.

Every folder beside this file that has `WORLDS` is one of ours. Installed packages announce theirs through the entry-point
group `redline.worlds`, and `world:package.module:NAME` names one that is announced nowhere.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redline.errors import RedlineError, unknown
from redline.worlds.given import given_world
from redline.worlds.loading import load_object
from redline.worlds.naming import with_query
from redline.worlds.options import require_types
from redline.worlds.world import World

if TYPE_CHECKING:
    import gymnasium as gym
    from gymnasium.vector import VectorEnv

GROUP = "redline.worlds"
LOCAL = "world:"


@functools.cache
def all_worlds() -> tuple[World, ...]:
    """Ours, then those of installed packages. A name that several worlds could mean belongs to the first.

    Those of ours that look at a name themselves come last: Gymnasium would take any with a colon for its own.
    """
    ours = _ours()
    announced = [world for point in entry_points(group=GROUP) for world in _announced(point)]
    by_name, by_looking = ([world for world in ours if (world.matches is None) == named] for named in (True, False))
    return (*by_name, *announced, *by_looking)


def _ours() -> list[World]:
    package = importlib.import_module("redline.worlds")
    folders = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    return [world for folder in folders for world in importlib.import_module(f"redline.worlds.{folder}").WORLDS]


def _announced(point: EntryPoint) -> tuple[World, ...]:
    """The worlds of an installed package. One that cannot be loaded must not stop the others."""
    try:
        found = point.load()
    except Exception as error:
        return (_broken(point, f"{type(error).__name__}: {error}"),)
    found = found if isinstance(found, tuple) else (found,)
    if not all(isinstance(world, World) for world in found):
        return (_broken(point, f"it is a {type(found[0]).__name__}, not a redline.World"),)
    return found


def _broken(point: EntryPoint, why: str) -> World:
    """Stands for a world that an installed package announces and cannot deliver: it says so when it is asked for."""

    def refuse(*args: Any, **options: Any) -> Any:
        raise RedlineError(f"The world {point.name!r} ({point.value}) cannot be loaded: {why}.")

    return World(
        name=point.name,
        about=f"cannot be loaded: {why}",
        single=refuse,
        require=refuse,
        matches=lambda name: name == point.name or name.startswith(f"{point.name}:"),
    )


def default_world() -> World:
    """The world that commands take where none is named."""
    return all_worlds()[0]


def world_of(name: str) -> World:
    """The world that an env's name belongs to; options behind it do not matter."""
    bare = name.partition("?")[0]
    world = find_world(bare)
    if world is None:
        raise unknown("env", bare, known_names(bare))
    return world


def find_world(bare: str) -> World | None:
    """The world that a bare name belongs to, if there is one. A local one must be there."""
    if bare.startswith(LOCAL):
        return local_world(bare)
    return given_world(bare) or next((world for world in all_worlds() if world.owns(bare)), None)


def local_world(bare: str) -> World:
    """The world that `world:package.module:NAME` names; its own names may follow, as in `world:package.module:NAME:env`."""
    module, _, rest = bare.removeprefix(LOCAL).partition(":")
    attribute = rest.partition(":")[0]
    found = load_object(f"{module}:{attribute}", f"{LOCAL}package.module:WORLD", World)
    if not isinstance(found, World):
        raise RedlineError(
            f"{bare!r} names an object of type {type(found).__name__}, not a redline.World. "
            f"Write {LOCAL}package.module:WORLD."
        )
    return found


def known_names(like: str = "") -> list[str]:
    """Names to suggest for one that nobody knows."""
    names = [name for world in all_worlds() for name in (world.examples or (world.name,))]
    if "-v" not in like:
        return names
    import gymnasium as gym

    return [*names, *sorted(gym.registry)]


def shipped_policies() -> dict[str, Path]:
    """The trained policies that come with worlds: folders of checkpoints, by name."""
    return {
        name: path for world in all_worlds() if world.policies is not None for name, path in world.policies().items()
    }


def require_known(name: str) -> None:
    """Refuse a name that nothing can come of."""
    world = world_of(name)
    if world.require is not None:
        world.require(name.partition("?")[0])


def is_compiled(name: str) -> bool:
    """Whether many envs of that name step by one compiled call."""
    return world_of(name).compiled


def reaches(bare: str, options: dict[str, Any]) -> str | None:
    """All that an env would run or open beyond the worlds that come with Redline, in words; nothing is imported to tell."""
    if bare.startswith(LOCAL):
        return f"import {bare.removeprefix(LOCAL)}"
    world = next((world for world in all_worlds() if world.owns(bare)), None)
    if world is None:
        return None  # nothing can come of it
    if world.reaches is None:
        return f"use the installed world {world.name} with {options}"
    return world.reaches(bare, options)


def make_env(name: str, num_envs: int = 1, **options: Any) -> VectorEnv:
    """`num_envs` copies of an env that step together in this process, as a `gymnasium.vector.VectorEnv`.

    `redline envs` lists the names. Options may stand behind a name, as in `slow?mean_ms=10`. Ended episodes begin again
    in the same step.
    """
    if num_envs < 1:
        raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
    name, options = with_query(name, options)
    world = world_of(name)
    if world.batch is not None:
        check_options(world, options)
        return world.batch(num_envs, name, **options)
    require_known(name)
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return SyncVectorEnv([lambda: make_single(name, **options)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def make_single(name: str, **options: Any) -> gym.Env:
    """One env, by the names that `make_env` takes."""
    name, options = with_query(name, options)
    require_known(name)
    world = world_of(name)
    check_options(world, options)
    return world.single(name, **options)


def check_options(world: World, options: dict[str, Any]) -> None:
    """Refuse options that a world does not have."""
    if world.options is None:
        return
    fields: Callable[..., Any] = world.options
    names = list(fields.__dataclass_fields__)  # type: ignore[attr-defined]
    also = ["turbo", "encoded", "scenario", "render_mode"] if world.compiled else []
    for option in options:
        if option not in names and option not in also:
            raise unknown(f"{world.name} option", option, [*names, *also[:1]])
    require_types(world.options, options)


def register_envs() -> None:
    """Tell Gymnasium about the envs that have an id of ours; importing `redline.envs` does this."""
    import gymnasium as gym

    for world in _ours():
        if world.gymnasium is not None and world.gymnasium.id not in gym.registry:
            # the env ends its own episodes, which gym.make need not know of
            gym.register(
                world.gymnasium.id, entry_point=world.gymnasium.env, vector_entry_point=world.gymnasium.vector_env
            )
