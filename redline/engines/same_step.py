"""Somebody else's vector env, as engines want it: an ended episode begins again in the same step."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from redline.errors import RedlineError
from redline.worlds.observations import MASK, flattener


class SameStep(VectorEnv):
    """A vector env with any autoreset mode, stepped as if it were `AutoresetMode.SAME_STEP`.

    One that begins episodes a step later plays a step in between that is nobody's: it is marked as lost, which takes it
    out of the rollout. Observations of a Dict or Tuple are laid flat. The env belongs to whoever made it, and stays open.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(self, envs: VectorEnv, num_envs: int) -> None:
        if num_envs != envs.num_envs:
            raise RedlineError(f"The VectorEnv has {envs.num_envs} envs, not {num_envs}. Leave num_envs out.")
        self.mode = envs.metadata.get("autoreset_mode")
        if self.mode not in tuple(AutoresetMode):
            raise RedlineError(
                f"{type(envs).__name__} does not say in metadata['autoreset_mode'] how ended episodes begin again. "
                "Set it to a gymnasium.vector.AutoresetMode."
            )
        self.envs, self.num_envs = envs, envs.num_envs
        self._flattener = flattener(envs.single_observation_space)
        self.single_observation_space, self.observation_space = envs.single_observation_space, envs.observation_space
        if self._flattener is not None:
            self.single_observation_space = self._flattener.space
            self.observation_space = batch_space(self._flattener.space, self.num_envs)
        self.single_action_space, self.action_space = envs.single_action_space, envs.action_space
        self._ended = np.zeros(self.num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes in all envs."""
        self._ended[:] = False
        obs, told = self.envs.reset(seed=seed, options=options)
        infos = dict(told)
        return self._flat(obs, infos), infos

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one step in every env."""
        given, rewards, terminated, truncated, told = self.envs.step(actions)
        ended, infos = np.asarray(terminated | truncated, np.bool_), dict(told)
        obs = self._flat(given, infos)
        if self.mode is AutoresetMode.NEXT_STEP:
            between, self._ended = self._ended, ended  # steps that only began an episode
            truncated = truncated | between
            infos |= {"lost": between} if between.any() else {}
            infos |= {"final_obs": obs.copy(), "_final_obs": ended} if ended.any() else {}
        elif self.mode is AutoresetMode.DISABLED and ended.any():
            infos |= {"final_obs": obs.copy(), "_final_obs": ended.copy()}
            given, begun = self.envs.reset(options={"reset_mask": ended})
            infos |= {name: value for name, value in begun.items() if name == MASK}
            obs = self._flat(given, infos)
        elif self._flattener is not None and "final_obs" in infos:
            infos["final_obs"] = self._flat_final(infos["final_obs"], infos["_final_obs"], obs)
        return obs, rewards, terminated, truncated, infos

    def _flat(self, obs: Any, infos: dict[str, Any]) -> np.ndarray:
        """Observations as an array [N, ...]; a mask among their parts is told with the infos."""
        if self._flattener is None:
            return np.asarray(obs)
        if isinstance(obs, dict) and MASK in obs:
            infos[MASK] = obs[MASK]
        return self._flattener.flat_batch(obs)

    def _flat_final(self, final: Any, ended: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """Last observations as an array like `obs`: they are given all together, or env by env where one has ended."""
        assert self._flattener is not None
        if isinstance(final, dict | tuple):
            return self._flattener.flat_batch(final)
        found = obs.copy()
        for i in np.flatnonzero(ended):
            found[i] = self._flattener.flat(final[i])
        return found
