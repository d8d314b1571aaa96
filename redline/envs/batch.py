"""What every vector env of ours checks: reset masks, seeds, actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.sims.rng import seed_streams


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """True bool [N] for the envs to reset: all, or those of `options["reset_mask"]`."""
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_:
        raise RedlineError(
            f"A reset mask of shape {mask.shape} and type {mask.dtype} does not fit {num_envs} envs: "
            "pass one truth value per env."
        )
    return mask


def streams(seed: int | list[int | None], current: np.ndarray) -> np.ndarray:
    """Where the random streams uint64 [N] start; an env whose seed is None goes on with its own."""
    num_envs = len(current)
    if isinstance(seed, int | np.integer):
        if seed < 0:
            raise RedlineError(f"A seed of {seed} cannot be used. Pass a whole number of at least 0.")
        return seed_streams(int(seed), num_envs)
    if len(seed) != num_envs:
        raise RedlineError(f"{len(seed)} seeds cannot be dealt to {num_envs} envs. Pass one number instead.")
    started = current.copy()
    for i, one in enumerate(seed):
        if one is not None:
            started[i] = seed_streams(int(one), 1)[0]
    return started


def checked_actions(actions: np.ndarray, num_envs: int, num_actions: int) -> np.ndarray:
    """Actions int64 [N], refused if they do not fit."""
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise RedlineError(
            f"Actions of shape {actions.shape} and type {actions.dtype} do not fit {num_envs} envs: "
            "pass one whole number per env."
        )
    if actions.min() < 0 or actions.max() >= num_actions:
        raise RedlineError(f"Actions must be 0 to {num_actions - 1}; got {actions.min()} to {actions.max()}.")
    return actions.astype(np.int64, copy=False)
