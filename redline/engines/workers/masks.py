"""Which actions are allowed, as Python envs tell it: by `info["action_mask"]`, or by a method `action_masks()`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from redline.worlds.batch import SingleEnv


def mask_sizes(space: gym.Space) -> tuple[int, ...] | None:
    """Truth values that a mask has for each component of an action; None where nothing can be ruled out."""
    if isinstance(space, gym.spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return tuple(space.nvec.reshape(-1).tolist())
    if isinstance(space, gym.spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    return None


def mask_of(env: gym.Env | None, info: dict[str, Any]) -> Any:
    """The mask that came with an answer, or that the env gives when asked; None where it knows none."""
    mask = info.get("action_mask")
    if mask is not None or env is None or isinstance(env, SingleEnv) or not env.has_wrapper_attr("action_masks"):
        return mask  # envs of compiled worlds always say what they rule out
    return env.get_wrapper_attr("action_masks")()
