"""`Cage4Env`: one of the five defenders as a Gymnasium env, while given players act for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError
from redline.worlds.batch import Infos
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.cage4.rules.scenario import BLUE_AGENTS
from redline.worlds.cage4.truth import EnterpriseTruth

Player = Callable[[np.ndarray, np.ndarray], int]
"""Chooses for one agent: an action, from its observation and its mask."""


class Cage4Env(gym.Env[np.ndarray, np.integer]):
    """One of the five defenders; `others` play for the rest of the team, and those that are not given sleep."""

    metadata = {"render_modes": []}

    def __init__(self, agent: str = BLUE_AGENTS[0], others: Mapping[str, Player] | None = None, **options: Any) -> None:
        self.team = Cage4VectorEnv(1, autoreset=False, **options)
        spaces = self.team.spaces(agent)
        self.agent, self.others = agent, dict(others or {})
        for other in self.others:
            self.team.spaces(other)
        self.observation_space, self.action_space = spaces.observation, spaces.action
        self._num_actions, self._size = int(spaces.action.n), spaces.observation.shape[0]
        self._at = self.team.agents.index(agent)
        self._obs, self._masks = np.zeros((0, 0)), np.zeros((0, 0))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Infos]:
        """Begin a new episode."""
        super().reset(seed=seed)
        obs, infos = self.team.reset(seed=seed, options=options)
        return self._told(obs, infos)

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, Infos]:
        """Play one step: the action is not heard while an earlier one of this agent is under way."""
        if not 0 <= action < self._num_actions:
            raise RedlineError(f"Actions of {self.agent} must be 0 to {self._num_actions - 1}; got {action}.")
        actions = np.array([[self._choice(b, name) for b, name in enumerate(self.team.agents)]])
        actions[0, self._at] = action
        obs, rewards, _, truncated, infos = self.team.step(actions)
        mine, info = self._told(obs, infos)
        return mine, float(rewards[0]), False, bool(truncated[0]), info

    def action_masks(self) -> np.ndarray:
        """The actions that are allowed now, bool [actions]."""
        return self.team.action_masks()[0, self._at, : self._num_actions]

    def true_state(self) -> EnterpriseTruth:
        """What the rules know and Blue does not; arrays have a leading axis of one env."""
        return self.team.true_state()

    def _choice(self, b: int, name: str) -> int:
        if name not in self.others:
            return int(self.team.idle[b])
        spaces = self.team.spaces(name)
        size, actions = spaces.observation.shape[0], int(spaces.action.n)
        return int(self.others[name](self._obs[b, :size], self._masks[b, :actions]))

    def _told(self, obs: np.ndarray, infos: Infos) -> tuple[np.ndarray, Infos]:
        self._obs, self._masks = obs[0], infos["action_mask"][0]
        return obs[0, self._at, : self._size], self._info(infos)

    def _info(self, infos: Infos) -> Infos:
        return {"action_mask": self.action_masks(), "acting": bool(infos["acting"][0, self._at])}


def make_single(name: str, **options: Any) -> Cage4Env:
    """One defender, as the world makes it; the others sleep."""
    return Cage4Env(**options)
