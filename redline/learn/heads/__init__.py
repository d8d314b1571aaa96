"""Heads, one file for each kind of action."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.components import Components
from redline.learn.heads.gaussian import Gaussian
from redline.learn.heads.head import Head


def head_for(space: gym.Space) -> Head:
    """The head for the actions of a space."""
    if isinstance(space, gym.spaces.Box):
        return _box_head(space)
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


def _box_head(space: gym.spaces.Box) -> Gaussian:
    low = space.low.reshape(-1).astype(float)
    high = space.high.reshape(-1).astype(float)
    if not len(low):
        raise RedlineError(f"Actions {space} hold no number. Try a Box with at least one.")
    return Gaussian(
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        action_shape=space.shape,
        played_dtype=np.dtype(space.dtype),
    )
