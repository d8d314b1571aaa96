"""Envs that are registered with Gymnasium, by their ids."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym

from redline.errors import RedlineError, unknown

PACKAGES = {
    "ALE/": ("ale_py", "ale-py"),
    "MinAtar/": ("minatar.gym", "minatar"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
    "highway-": ("highway_env", "highway-env"),
}
"""How names of envs begin that packages of their own register: the module to import, and what to install."""

OURS = ("gymnasium.envs.", "redline.worlds.")
"""How the entry points begin whose code is Gymnasium's own, or ours."""


def is_registered(name: str) -> bool:
    """Whether Gymnasium knows an env of that name, or would import a module that does, as in `module:Name-v0`."""
    return name in gym.registry or ":" in name or _package(name) is not None


def require_package(name: str) -> None:
    """Have the package imported that registers an env of that name, or say what to install."""
    package = _package(name)
    if name in gym.registry or package is None:
        return
    module, install = package
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise RedlineError(
            f"The env {name!r} needs the package {install}. Install it: pip install {install}"
        ) from error
    register = getattr(found, "register_envs", None)
    if name not in gym.registry and callable(register):
        register()
    if name not in gym.registry:
        alike = [each for each in gym.registry if _package(each) == package]
        raise unknown(f"{install} env", name, alike)


def _package(name: str) -> tuple[str, str] | None:
    return next((package for prefix, package in PACKAGES.items() if name.startswith(prefix)), None)


def reaches(name: str, options: dict[str, Any]) -> str | None:
    """Gymnasium's own envs need nothing else, as long as their options are numbers; others are somebody's code."""
    spec = gym.registry.get(name)
    ours = spec is not None and str(spec.entry_point).startswith(OURS)
    if ours and all(isinstance(value, bool | int | float) for value in options.values()):
        return None
    return f"make {name} with {options}" if options else f"make {name}"


def make_registered(name: str, **options: Any) -> gym.Env:
    """The env of that id."""
    try:
        return gym.make(name, **options)
    except (gym.error.Error, ImportError, TypeError, ValueError) as error:
        raise RedlineError(f"The env {name!r:.80} cannot be made: {' '.join(str(error).split())}") from error
