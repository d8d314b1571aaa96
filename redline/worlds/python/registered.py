"""Envs that are registered with Gymnasium, by their ids."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from redline.errors import RedlineError

OURS = ("gymnasium.envs.", "redline.worlds.")
"""How the entry points begin whose code is Gymnasium's own, or ours."""


def is_registered(name: str) -> bool:
    """Whether Gymnasium knows an env of that name, or would import a module that does, as in `module:Name-v0`."""
    return name in gym.registry or ":" in name


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
    except (gym.error.Error, ImportError, TypeError) as error:
        raise RedlineError(f"The env {name!r} cannot be made: {error}") from error
