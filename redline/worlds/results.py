"""The outcome of a step, as kernels write it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class StepResults(NamedTuple):
    """The outcome of a step, all arrays [N]."""

    rewards: np.ndarray  # float64
    terminated: np.ndarray  # bool
    truncated: np.ndarray  # bool

    @classmethod
    def zeros(cls, num_envs: int) -> StepResults:
        """Arrays to write into."""
        return cls(np.zeros(num_envs), np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_))
