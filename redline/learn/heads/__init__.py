"""Heads, one file for each kind of action."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.components import Components
from redline.learn.heads.gaussian import Gaussian
from redline.learn.heads.head import Head
from redline.learn.heads.squashed import Squashed


def head_for(space: gym.Space, squash: bool = False) -> Head:
    """The head for the actions of a space. `squash` takes those of a box through tanh to its bounds."""
    if isinstance(space, gym.spaces.Box):
        return _box_head(space, squash)
    if squash:
        raise RedlineError(f"--squash is for actions in a Box, and these are {space}. Leave it out.")
    if isinstance(space, gym.spaces.Discrete):
        return Categorical(int(space.n), int(space.start))
    if isinstance(space, gym.spaces.MultiDiscrete):
        sizes, starts = space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()
        return Components(tuple(sizes), space.nvec.shape, np.dtype(space.dtype), tuple(starts))
    if isinstance(space, gym.spaces.MultiBinary):
        return Components((2,) * int(np.prod(space.shape)), space.shape, np.dtype(space.dtype))
    raise RedlineError(
        f"Actions {space} cannot be drawn; Redline's PPO draws Discrete, MultiDiscrete, MultiBinary and Box ones."
    )


def _box_head(space: gym.spaces.Box, squash: bool) -> Head:
    low, high = (tuple(bound.reshape(-1).astype(float).tolist()) for bound in (space.low, space.high))
    shape, dtype = space.shape, np.dtype(space.dtype)
    if not low:
        raise RedlineError(f"Actions {space} hold no number. Try a Box with at least one.")
    if not squash:
        return Gaussian(low, high, shape, dtype)
    if not np.isfinite([low, high]).all():
        raise RedlineError(f"--squash needs bounds, and the actions {space} have none. Leave it out.")
    return Squashed(low, high, shape, dtype)
