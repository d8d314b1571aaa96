"""Heads, one file for each kind of action."""

from __future__ import annotations

import gymnasium as gym

from redline.errors import RedlineError
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.head import Head


def head_for(space: gym.Space) -> Head:
    """The head for the actions of a space."""
    if isinstance(space, gym.spaces.Discrete):
        return Categorical(int(space.n))
    raise RedlineError(f"Actions {space} cannot be drawn; Redline's PPO needs a Discrete action space.")
