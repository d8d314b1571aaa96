"""Steps an env that breaks, below a wrapper."""

import gymnasium as gym


class Broken(gym.Env):
    def step(self, action):
        raise ValueError(f"no action {action}")


def train():
    gym.Wrapper(Broken()).step(7)


train()
