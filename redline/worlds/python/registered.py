"""Envs that are registered with Gymnasium, by their ids."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from redline.errors import RedlineError


def is_registered(name: str) -> bool:
    """Whether Gymnasium knows an env of that name, or would import a module that does, as in `module:Name-v0`."""
    return name in gym.registry or ":" in name


def make_registered(name: str, **options: Any) -> gym.Env:
    """The env of that id."""
    try:
        return gym.make(name, **options)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise RedlineError(f"The env {name!r} cannot be made: {error}") from error
