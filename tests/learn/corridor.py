"""An env of nobody's, in a file that workers import without loading torch."""

from __future__ import annotations

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Ten steps; the second of three actions, which are counted from 5, pays."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3, start=5)
    action_names = ("left", "on", "right")

    def __init__(self, pay: float = 1.0) -> None:
        self.pay = pay

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        assert 5 <= action <= 7
        self.clock += 1
        return self.np_random.random(2, np.float32), self.pay * (action == 6), False, self.clock == 10, {}
