"""Envs of your own: `external:package.module:factory` names a function or class that makes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from redline.errors import RedlineError
from redline.worlds.given import factory_named
from redline.worlds.loading import load_object, names_object

PREFIX = "external:"


def make_external(spec: str, **options: Any) -> gym.Env:
    """One env, made by the factory that `spec` names. What goes wrong inside the factory is raised as it is."""
    return _made(spec, load_factory(spec), options)


def make_given(name: str, **options: Any) -> gym.Env:
    """One env, made by a factory that was given as an object."""
    return _made(name, factory_named(name), options)


def _made(spec: str, factory: Callable[..., gym.Env], options: dict[str, Any]) -> gym.Env:
    _require_options(spec, factory, options)
    try:
        env = factory(**options)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise RedlineError(f"The factory of {spec!r} does not know what to do with {options}: {error}.") from error
    if isinstance(env, gym.Env):
        _require_spaces(spec, env)
        return env
    made = f"The factory of {spec!r} returns {_describe(env)}"
    if isinstance(env, VectorEnv):
        raise RedlineError(f"{made}, which is many envs. Return a single one: Redline makes the copies itself.")
    if callable(getattr(env, "step", None)) and callable(getattr(env, "reset", None)):
        raise RedlineError(
            f"{made}, which is no gymnasium.Env though it has step and reset. Wrap it in a gymnasium.Env whose reset "
            "returns (obs, info) and whose step returns (obs, reward, terminated, truncated, info)."
        )
    raise RedlineError(f"{made}, which is no gymnasium.Env. Return one.")


def _require_spaces(spec: str, env: gym.Env) -> None:
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gym.Space):
            raise RedlineError(
                f"The factory of {spec!r} returns an env whose {name} is {_describe(space)}. Give it a space, such as "
                "gymnasium.spaces.Discrete(2)."
            )


def load_factory(spec: str) -> Callable[..., gym.Env]:
    """The factory that `external:package.module:factory` names, ready to be called with the env's options."""
    path = spec.removeprefix(PREFIX)
    if not names_object(path):
        raise RedlineError(
            f"The env {spec!r} does not name a factory. Write {PREFIX}package.module:factory, or "
            f"{PREFIX}./file.py:factory."
        )
    found = load_object(path, f"{PREFIX}package.module:factory")
    if not callable(found):
        raise RedlineError(
            f"The env {spec!r} names {_describe(found)}, which cannot be called. Name a function or a class that makes "
            "an env."
        )
    return found


def _require_options(spec: str, factory: Callable[..., gym.Env], options: dict[str, Any]) -> None:
    """Tell options the factory does not take from errors inside it."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some built-in callables have none
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        raise RedlineError(f"The factory of {spec!r} cannot be called as {signature}: {error}.") from error


def _describe(thing: Any) -> str:
    return "None" if thing is None else f"an object of type {type(thing).__name__}"
