"""A Python env whose allowed actions change from step to step, to be named as an external one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Masked(gym.Env[np.ndarray, int]):
    """A walk that must not take the same direction twice in a row; its episodes end at random."""

    observation_space = gym.spaces.Box(-100, 100, (3,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place, self.last, self.clock = np.zeros(2, np.float32), -1, 0
        return self._obs(), self._info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert action != self.last
        self.place += [(1, 0), (0, 1), (-1, 0), (0, -1)][action]
        self.last, self.clock = action, self.clock + 1
        caught = bool(self.np_random.random() < 0.1)
        return self._obs(), float(self.place.sum()), caught, self.clock == 15, self._info()

    def _obs(self) -> np.ndarray:
        return np.array([*self.place, self.np_random.random()], np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(4) != self.last}


def make() -> Masked:
    """What the name of an external env points to."""
    return Masked()
