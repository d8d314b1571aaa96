"""Envs that are given as objects, from Python: factories, vector envs and worlds.

Each gets a name that this process knows it by, so that all else can go on speaking of names. A factory that others can
import is named by its place, `external:package.module:factory`. Any other is `given:NAME` and travels to worker processes
together with the spec of its envs.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
import weakref
from collections.abc import Callable, MutableMapping
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from redline.errors import RedlineError
from redline.worlds.world import Named, World

if TYPE_CHECKING:
    import gymnasium as gym
    from gymnasium.vector import VectorEnv

PREFIX = "given:"
_HERE = "redline.worlds.python"
_RECIPE: Named[Any] = Named(f"{_HERE}.recipe:recipe")
_FIT: Named[Any] = Named(f"{_HERE}.recipe:fit")

T = TypeVar("T")
_factories: dict[str, Callable[..., gym.Env]] = {}
_worlds: dict[str, World] = {}
_vectors: MutableMapping[str, VectorEnv] = weakref.WeakValueDictionary()


def name_of(env: object) -> str:
    """The name of an env that is given as a name, a factory, a `gymnasium.vector.VectorEnv` or a `World`."""
    import gymnasium as gym
    from gymnasium.vector import VectorEnv

    if isinstance(env, str):
        return env
    if isinstance(env, World):
        return _keep_world(env)
    if isinstance(env, VectorEnv):
        return _kept(_vectors, type(env).__name__, env)
    if isinstance(env, gym.Env):
        raise RedlineError(
            f"One {type(env).__name__} was given, and training needs several envs. Pass what makes one: "
            f"lambda: {type(env).__name__}(…)."
        )
    if callable(env):
        factory: Callable[..., gym.Env] = env
        return _importable(factory) or _kept(_factories, getattr(env, "__name__", type(env).__name__), factory)
    raise RedlineError(
        f"An object of type {type(env).__name__} is no env. Pass a name, a function that makes a gymnasium.Env, a "
        "gymnasium.vector.VectorEnv or a redline.World."
    )


def vector_named(name: str) -> VectorEnv | None:
    """The vector env that was given under that name, if it is one."""
    return _vectors.get(name)


def factory_named(name: str) -> Callable[..., gym.Env]:
    """The factory that was given under that name."""
    if name not in _factories:
        raise RedlineError(
            f"{name!r} was given as a Python object, which this process does not have. Pass it again: "
            "redline.load(path, env=…), or redline.train(…)."
        )
    return _factories[name]


def given_world(name: str) -> World | None:
    """The world of a name that stands for an object, if it is one of these."""
    if name.startswith(PREFIX):
        return _OF_VECTORS if name in _vectors else _OF_FACTORIES
    return next((world for world in _worlds.values() if world.owns(name)), None)


# To other processes


def parcel(name: str) -> bytes | None:
    """What another process needs to know an env by that name; None where the name says it all."""
    import cloudpickle

    if name in _vectors:
        raise RedlineError(f"{name!r} steps its envs itself and cannot be sent to workers. Try engine='vector'.")
    world = next((world for world in _worlds.values() if world.owns(name)), None)
    if name not in _factories and world is None:
        return None
    try:
        return bytes(cloudpickle.dumps((name, _factories.get(name), world)))
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise RedlineError(
            f"{name!r} cannot be sent to workers ({why}). Put it into a module of its own, or try engine='vector'."
        ) from error


def receive(sent: bytes | None) -> None:
    """Know the env of a parcel in this process, too."""
    if sent is None:
        return
    name, factory, world = pickle.loads(sent)
    if factory is not None:
        _factories[name] = factory
    if world is not None:
        _worlds[world.name] = world


# Names


def _kept(place: MutableMapping[str, T], label: str, thing: T) -> str:
    """The name under which a thing is kept: always the same for the same thing."""
    known = next((name for name, kept in place.items() if kept is thing), None)
    if known is not None:
        return known
    stem = PREFIX + label.strip("<>")
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    name = next(name for name in names if name not in _factories and name not in _vectors)
    place[name] = thing
    return name


def _keep_world(world: World) -> str:
    """The name of an env of a world: one of those it lists, or its own."""
    from redline.worlds.registry import all_worlds

    if all(known is not world for known in all_worlds()):
        _worlds[world.name] = world
    return world.name if world.owns(world.name) else next(iter(world.examples), world.name)


def _importable(factory: Callable[..., Any]) -> str | None:
    """`external:package.module:factory`, where that leads to this very object in any process."""
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if module in (None, "__main__") or not isinstance(name, str):
        return None
    found: Any = sys.modules.get(str(module))
    place = getattr(found, "__file__", None)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"external:{module}:{name}" if found is factory and _is_found(str(module), place) else None


def _is_found(module: str, place: str | None) -> bool:
    """Whether importing a module by name would lead to that file."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and place is not None and spec.origin == place


_OF_FACTORIES = World(
    name="given",
    about="An env that was given as a function that makes it",
    single=Named(f"{_HERE}.external:make_given"),
    recipe=_RECIPE,
    fit=_FIT,
    prefix=PREFIX,
)


def _refuse_single(name: str, **options: Any) -> gym.Env:
    raise RedlineError(f"{name!r} is a VectorEnv, which steps all its envs itself. Try engine='vector'.")


_OF_VECTORS = World(
    name="given",
    about="Envs that were given as a VectorEnv",
    single=_refuse_single,
    prefix=PREFIX,
    recipe=_RECIPE,
    fit=_FIT,
)
