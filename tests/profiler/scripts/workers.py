"""Sends a class defined here to worker processes and steps it there."""

import gymnasium as gym
import numpy as np


class Walk(gym.Env):
    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(1, np.float32)
        return self.place, {}

    def step(self, action):
        self.place = self.place + (1 if action else -1)
        return self.place, 0.0, bool(self.place >= 3), False, {}


if __name__ == "__main__":
    envs = gym.vector.AsyncVectorEnv([Walk, Walk], context="spawn")
    envs.reset()
    for _ in range(6):
        obs, *_ = envs.step(np.ones(2, int))
    envs.close()
    print(obs.ravel())
