"""Envs of your own: `external:package.module:factory` names a function or class that makes one."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from redline.errors import RedlineError, unknown

PREFIX = "external:"


def make_external(spec: str, options: dict[str, Any]) -> gym.Env:
    """One env, made by the factory that `spec` names. What goes wrong inside the factory is raised as it is."""
    factory = load_factory(spec)
    _require_options(spec, factory, options)
    env = factory(**options)
    if isinstance(env, gym.Env):
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


def load_factory(spec: str) -> Callable[..., gym.Env]:
    """What `external:package.module:factory` names, ready to be called with the env's options.

    Modules are looked for in the working directory too. The factory may be an attribute of a class, with dots.
    """
    module_name, _, attribute = spec.removeprefix(PREFIX).partition(":")
    if not _is_dotted_name(module_name) or not _is_dotted_name(attribute) or module_name.endswith(".py"):
        raise RedlineError(f"The env {spec!r} does not name a factory. Write {PREFIX}package.module:factory.")
    found: Any = _import(module_name)
    where = module_name
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise _no_such_factory(where, name, found)
        found, where = getattr(found, name), f"{where}.{name}"
    if not callable(found):
        raise RedlineError(
            f"The env {spec!r} names {_describe(found)}, which cannot be called. Name a function or a class that makes "
            "an env."
        )
    return found


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _import(name: str) -> ModuleType:
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise RedlineError(
                f"There is no module {error.name!r}, neither in the working directory ({directory}) nor among the "
                "installed packages. Start Redline in the directory that holds it, or install it."
            ) from error
        raise RedlineError(f"The module {name!r} cannot be imported: {_in_one_line(error)}.") from error


def _in_one_line(error: BaseException) -> str:
    """Type, message and place of an error."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message} ({frames[-1].filename}:{frames[-1].lineno})"


def _no_such_factory(where: str, name: str, owner: Any) -> RedlineError:
    names = [known for known in dir(owner) if not known.startswith("_") and callable(getattr(owner, known, None))]
    if not names:
        return RedlineError(f"There is no {where} factory {name!r}, nor anything else that could be called.")
    return unknown(f"{where} factory", name, names)


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
