"""Envs that the learning benchmark plays and Gymnasium does not have under a name."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError


def cartpole_without_velocities() -> gym.Env:
    """CartPole-v1 that shows places only: how fast things move has to be remembered."""
    env = gym.make("CartPole-v1")
    return gym.wrappers.TransformObservation(env, lambda obs: obs[[0, 2]], _places(env))


def _places(env: gym.Env) -> gym.spaces.Box:
    space = env.observation_space
    assert isinstance(space, gym.spaces.Box)
    return gym.spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)


class MinAtar(gym.Env[np.ndarray, np.int64]):
    """A MinAtar game as pictures: bytes [10, 10, channels], cut off after 5,000 steps."""

    MOST_STEPS = 5000

    def __init__(self, game: str = "breakout") -> None:
        try:
            from minatar import Environment
        except ImportError as error:
            raise RedlineError(
                "MinAtar is not installed. Try: pip install 'redline[learning-bench]', or in a clone: "
                "pip install -e '.[learning-bench]'"
            ) from error
        self._env = Environment(game)
        shape = tuple(self._env.state_shape())
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(self._env.num_actions())
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._env.seed(seed)
        self._env.reset()
        self._steps = 0
        return self._seen(), {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Play one step."""
        reward, over = self._env.act(int(action))
        self._steps += 1
        return self._seen(), float(reward), bool(over), self._steps >= self.MOST_STEPS, {}

    def _seen(self) -> np.ndarray:
        return np.asarray(self._env.state(), np.uint8) * np.uint8(255)


def breakout() -> gym.Env:
    """MinAtar's Breakout."""
    return MinAtar("breakout")
