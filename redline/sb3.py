"""A Redline vector env as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv


class Sb3VecEnv(VecEnv):
    """Lets SB3's algorithms train on any vector env that resets an ended episode in the same step."""

    def __init__(self, env: VectorEnv, seed: int | None = None) -> None:
        self.env = env  # before the parent asks it for its render mode
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._first_seed = seed
        self._actions = np.zeros(env.num_envs, np.int64)
        self._returns, self._lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)

    def reset(self) -> np.ndarray:
        """Begin new episodes."""
        seed, self._first_seed = self._first_seed, None
        self._returns[:], self._lengths[:] = 0, 0
        return np.asarray(self.env.reset(seed=seed)[0])

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Take `seed` at the next reset; env `i` gets `seed + i`."""
        self._first_seed = seed
        return [None if seed is None else seed + i for i in range(self.num_envs)]

    def step_async(self, actions: np.ndarray) -> None:
        """Remember the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Play one step in every env."""
        obs, rewards, terminated, truncated, infos = self.env.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        done = terminated | truncated
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(done):
            each[i] = {
                "terminal_observation": infos["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                "episode": {"r": float(self._returns[i]), "l": int(self._lengths[i]), "t": 0.0},
            }
            self._returns[i], self._lengths[i] = 0.0, 0
        return np.asarray(obs), rewards.astype(np.float32), done, each

    def close(self) -> None:
        """Close the env."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The vector env's attribute, once per env asked for."""
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector env, which all its envs share."""
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the vector env once and give its result to every env asked for."""
        result = getattr(self.env, method_name)(*method_args, **method_kwargs)
        return [result] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """No env in the batch is wrapped, but each tells of its episodes as one in a `Monitor` does."""
        return [issubclass(Monitor, wrapper_class)] * len(list(self._get_indices(indices)))
