"""The arrays that envs write into and read their actions from, in one process's memory or in several processes'."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.engines.spec import Spaces
from redline.engines.workers.masks import mask_sizes
from redline.engines.workers.shared_memory import Shapes, SharedMemory, arrays_in, num_bytes
from redline.errors import RedlineError


class StepBuffers(NamedTuple):
    """Arrays [n, ...] that a group of envs writes into; `actions` is what it reads."""

    obs: np.ndarray
    final_obs: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    masks: np.ndarray
    actions: np.ndarray

    @classmethod
    def local(cls, spaces: Spaces, num_envs: int) -> StepBuffers:
        """In this process's own memory."""
        shapes = buffer_shapes(spaces, num_envs)
        try:
            return cls(**{name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()})
        except (MemoryError, ValueError) as error:  # a size beyond all memory is a ValueError to numpy
            raise RedlineError(f"{num_envs} envs do not fit into memory: {error}. Try fewer (--num-envs).") from error

    @classmethod
    def shared(cls, spaces: Spaces, num_envs: int, fd: int | None = None) -> tuple[StepBuffers, SharedMemory]:
        """In memory that processes share: new, or what another process has made and sent the descriptor of."""
        shapes = buffer_shapes(spaces, num_envs)
        memory = SharedMemory(num_bytes(shapes), fd)
        return cls(**arrays_in(memory, shapes)), memory

    def rows(self, rows: slice) -> StepBuffers:
        """The part of some of the envs."""
        return StepBuffers(*(array[rows] for array in self))

    @property
    def results(self) -> tuple[np.ndarray, ...]:
        """All that envs write: everything but the actions."""
        return tuple(self[:-1])


def buffer_shapes(spaces: Spaces, num_envs: int) -> Shapes:
    """The arrays that these spaces need; refuses spaces that do not fit into arrays."""
    obs, action = spaces.observation, spaces.action
    if obs.shape is None or obs.dtype is None or action.shape is None or action.dtype is None:
        raise RedlineError(
            f"Observations {obs} with actions {action} do not fit into arrays. Redline takes actions that are Discrete, "
            "MultiDiscrete, MultiBinary or a Box."
        )
    num_masked = sum(mask_sizes(action) or ()) if spaces.masked else 0
    return {
        "obs": ((num_envs, *obs.shape), obs.dtype),
        "final_obs": ((num_envs, *obs.shape), obs.dtype),
        "rewards": ((num_envs,), np.float64),
        "terminated": ((num_envs,), np.bool_),
        "truncated": ((num_envs,), np.bool_),
        "masks": ((num_envs, num_masked), np.bool_),
        "actions": ((num_envs, *action.shape), action.dtype),
    }
