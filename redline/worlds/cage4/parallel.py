"""CAGE-4 as a PettingZoo `ParallelEnv`, with the names, spaces and labels of the original's `BlueFlatWrapper`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from redline.errors import RedlineError
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.cage4.naming import full_labels, host_name
from redline.worlds.cage4.rules.observe import MOST_NUMBERS, SIZES
from redline.worlds.cage4.rules.scenario import (
    BLUE_AGENTS,
    BLUE_ZONES,
    MESSAGE_BITS,
    MOST_ACTIONS,
    NUM_ACTIONS,
    NUM_BLUE,
    ROUTER,
    SLOTS,
    ZONES,
)
from redline.worlds.cage4.truth import EnterpriseTruth

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise RedlineError("PettingZoo is not installed. Try: pip install redline[pettingzoo]") from error

PHASES, BIT = 3, 2
Dicts = dict[str, Any]


class Cage4ParallelEnv(ParallelEnv[str, np.ndarray, int]):
    """One episode of all five defenders. Code written for the original's `BlueFlatWrapper` runs on it unchanged.

    Like the original, it draws a network from `seed` when it is made, and another with each `reset`; `reset(seed=…)`
    starts its generator anew. An action on a host that is not there is Sleep. `options` are those of the env.
    """

    metadata = {"name": "cage4", "render_modes": [], "is_parallelizable": True}

    def __init__(self, seed: int | None = None, pad_spaces: bool = False, **options: Any) -> None:
        if options.get("face", "flat") != "flat":
            raise RedlineError(
                f"Here Blue sees what the original shows, and face={options['face']} is another. Leave it out."
            )
        self.team = Cage4VectorEnv(1, autoreset=False, **options)
        self.possible_agents = list(BLUE_AGENTS)
        self.agents: list[str] = list(BLUE_AGENTS)
        self.is_padded = pad_spaces
        self.team.reset(seed=seed)
        self._action_spaces = {agent: gym.spaces.Discrete(self._num_actions(b)) for b, agent in enumerate(BLUE_AGENTS)}
        self._observation_spaces = {agent: self._numbers(b) for b, agent in enumerate(BLUE_AGENTS)}
        self._label()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None, **more: Any) -> tuple[Dicts, Dicts]:
        """Begin an episode in a new network."""
        obs, _infos = self.team.reset(seed=seed)
        self.agents = list(BLUE_AGENTS)
        self._label()
        return self._observations(obs[0]), self._infos()

    def step(
        self, actions: dict[str, int] | None = None, messages: dict[str, Any] | None = None, **more: Any
    ) -> tuple[Dicts, Dicts, Dicts, Dicts, Dicts]:
        """Play one step. Who is given no action sleeps, who is given no message says nothing."""
        numbers = [self._action(b, agent, (actions or {}).get(agent)) for b, agent in enumerate(BLUE_AGENTS)]
        said = [np.asarray((messages or {}).get(agent, np.zeros(MESSAGE_BITS))) for agent in BLUE_AGENTS]
        self.team.messages = np.stack(said)[None]
        obs, rewards, _, truncated, _infos = self.team.step(np.array([numbers]))
        over = bool(truncated[0])
        self.agents = [] if over else list(BLUE_AGENTS)
        ended = dict.fromkeys(BLUE_AGENTS, over)
        return (
            self._observations(obs[0]), dict.fromkeys(BLUE_AGENTS, float(rewards[0])), ended, dict(ended), self._infos(),
        )  # fmt: skip

    def observation_space(self, agent: str) -> gym.spaces.MultiDiscrete:
        """The observations of an agent."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> gym.spaces.Discrete:
        """The actions of an agent."""
        return self._action_spaces[agent]

    def observation_spaces(self) -> dict[str, gym.spaces.MultiDiscrete]:
        """The observations of all agents."""
        return dict(self._observation_spaces)

    def action_spaces(self) -> dict[str, gym.spaces.Discrete]:
        """The actions of all agents."""
        return dict(self._action_spaces)

    def action_labels(self, agent: str) -> list[str]:
        """What each action of an agent means, in this episode's network."""
        return self._labels[agent]

    def action_mask(self, agent: str) -> list[bool]:
        """Which actions of an agent mean something in this episode's network."""
        return self._masks[agent]

    def subnets(self, agent: str) -> list[str]:
        """The zones of an agent, by name."""
        return sorted(ZONES[zone] for zone in BLUE_ZONES[BLUE_AGENTS.index(agent)])

    def hosts(self, agent: str) -> list[str]:
        """All hosts that an agent may ever act on, and routers, by name."""
        zones = BLUE_ZONES[BLUE_AGENTS.index(agent)]
        return sorted(host_name(zone, slot) for zone in zones for slot in (*range(SLOTS), ROUTER))

    def true_state(self) -> EnterpriseTruth:
        """What the rules know and Blue does not; arrays have a leading axis of one env."""
        return self.team.true_state()

    def _num_actions(self, b: int) -> int:
        return MOST_ACTIONS if self.is_padded else NUM_ACTIONS[b]

    def _numbers(self, b: int) -> gym.spaces.MultiDiscrete:
        size = MOST_NUMBERS if self.is_padded else SIZES[b]
        return gym.spaces.MultiDiscrete([PHASES] + [BIT] * (size - 1))

    def _action(self, b: int, agent: str, action: int | None) -> int:
        if action is None:
            return self._labels[agent].index("Sleep")
        if not 0 <= int(action) < self._num_actions(b):
            raise RedlineError(f"Actions of {agent} are 0 to {self._num_actions(b) - 1}; got {action}.")
        return int(action) if action < NUM_ACTIONS[b] else self._labels[agent].index("Sleep")

    def _label(self) -> None:
        masks = self.team.action_masks()[0]
        self._labels, self._masks = {}, {}
        for b, agent in enumerate(BLUE_AGENTS):
            more = self._num_actions(b) - NUM_ACTIONS[b]
            self._labels[agent] = full_labels(self.team.state[0], masks, b) + ["[Padding] Sleep"] * more
            self._masks[agent] = masks[b, : NUM_ACTIONS[b]].tolist() + [False] * more

    def _observations(self, obs: np.ndarray) -> Dicts:
        sizes = [MOST_NUMBERS if self.is_padded else SIZES[b] for b in range(NUM_BLUE)]
        return {agent: obs[b, : sizes[b]].astype(np.int64) for b, agent in enumerate(BLUE_AGENTS)}

    def _infos(self) -> Dicts:
        acting = self.team.acting[0]
        return {
            agent: {"action_mask": self._masks[agent], "acting": bool(acting[b])} for b, agent in enumerate(BLUE_AGENTS)
        }
