"""`Cage4VectorEnv`: many episodes of CAGE-4, with all five defenders."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import gymnasium as gym
import numpy as np

from redline.compiled.announce import announce_compilation
from redline.compiled.speed import at_speed
from redline.errors import RedlineError
from redline.worlds.batch import Infos, any_seed
from redline.worlds.cage4.encoding import AgentWords, MemoryRows, TeamWords, agent_space, memory_space
from redline.worlds.cage4.naming import action_label
from redline.worlds.cage4.remembering import TeamMemory
from redline.worlds.cage4.rules import kernel
from redline.worlds.cage4.rules.observe import OBS_WORDS
from redline.worlds.cage4.rules.pcg import seed_generator
from redline.worlds.cage4.rules.remembered import NUM_USEFUL, USEFUL, WAIT
from redline.worlds.cage4.rules.scenario import (
    BLUE_AGENTS,
    BLUE_TABLE,
    MESSAGE_BITS,
    MOST_ACTIONS,
    NUM_ACTIONS,
    NUM_BLUE,
    SLEEP,
    EnterpriseOptions,
)
from redline.worlds.cage4.rules.state import new_state
from redline.worlds.cage4.truth import EnterpriseTruth, true_state
from redline.worlds.results import StepResults
from redline.worlds.team import AgentSpaces, TeamEnv, seeds_of

SPACES = tuple(AgentSpaces(agent_space(b), gym.spaces.Discrete(NUM_ACTIONS[b])) for b in range(NUM_BLUE))
MEMORY_SPACES = (AgentSpaces(memory_space(), gym.spaces.Discrete(NUM_USEFUL)),) * NUM_BLUE
SLEEPS = tuple(int(np.flatnonzero(BLUE_TABLE[b, : NUM_ACTIONS[b], 0] == SLEEP)[0]) for b in range(NUM_BLUE))
"""The action Sleep of each agent."""


class Cage4VectorEnv(TeamEnv):
    """Many episodes of CAGE-4 stepped together by one compiled kernel, each in a network of its own.

    `reset(seed=s)` begins in env `i` the episode that the original begins with `reset(seed=s + i)`; one more `reset()`
    goes on as an original made with `seed=s + i` does with its first. An action on a host that is not there is Sleep.
    `messages`, if set, are sent in the next step: eight bits of each agent, [N, agents, 8].
    """

    def __init__(
        self,
        num_envs: int,
        options: EnterpriseOptions | None = None,
        *,
        turbo: bool = True,
        encoded: bool = False,
        autoreset: bool = True,
        **more: Any,
    ) -> None:
        self.options = EnterpriseOptions(**{**(asdict(options) if options else {}), **more})
        self.memory = TeamMemory(num_envs, turbo) if self.options.face == "memory" else None
        flat = self.memory is None
        spaces, stored = (SPACES, TeamWords(turbo)) if flat else (MEMORY_SPACES, MemoryRows(NUM_BLUE, turbo))
        super().__init__(num_envs, BLUE_AGENTS, spaces, stored, encoded=encoded, autoreset=autoreset)
        self.action_names = tuple(action_label(NUM_BLUE - 1, a) for a in range(MOST_ACTIONS)) if flat else USEFUL
        self.words = self.obs if flat else np.zeros((num_envs, NUM_BLUE, OBS_WORDS), np.int64)
        self._final_words = self.final_obs if flat else np.zeros_like(self.words)
        self.all_masks = self.mask if flat else np.zeros((num_envs, NUM_BLUE, MOST_ACTIONS), np.bool_)
        self.messages: np.ndarray | None = None
        self._settings = self.options.settings()
        self._step, self._reset = at_speed(kernel.step, turbo), at_speed(kernel.reset, turbo)
        self.state = new_state(num_envs, self.options.room)
        self._shares = np.zeros((num_envs, NUM_BLUE + 1), np.int64)
        self._final_score, self._early_score = np.zeros(num_envs), np.zeros(num_envs)
        self.start_streams(any_seed(), np.ones(num_envs, np.bool_))
        announce_compilation(self._step, "CAGE-4 kernel", 20)

    def start_streams(self, seed: int | list[int | None], chosen: np.ndarray) -> None:
        """Start the generators of the envs of a mask as numpy starts its own."""
        for i, own in enumerate(seeds_of(seed, self.num_envs)):
            if chosen[i] and own is not None:
                seed_generator(self.state[i], own)

    def begin(self, first: int, last: int) -> None:
        """Begin an episode in envs `first` up to `last`."""
        self._reset(self.state, first, last, self._settings, self.words, self.all_masks, self.acting)
        if self.memory is not None:
            self.memory.begin(first, last, self.words, self.all_masks, self.obs, self.mask)

    def play(self, first: int, last: int, actions: np.ndarray, results: StepResults) -> None:
        """Play one step in envs `first` up to `last`."""
        if self.memory is not None:
            actions = self.memory.translated(first, last, actions)
        self._step(
            self.state, first, last, actions, self._packed_messages(), self._settings, self.autoreset,
            self.words, self.all_masks, self.acting, results.rewards, self._shares, results.truncated,
            self._final_words, self._final_score, self._early_score,
        )  # fmt: skip
        results.terminated[first:last] = False
        if self.memory is not None:
            self._remember(self.memory, first, last, actions, results.truncated)
        self._require_room(first, last)

    def _remember(self, memory: TeamMemory, first: int, last: int, actions: np.ndarray, ended: np.ndarray) -> None:
        """What the agents remember after a step; where an episode has begun again, nothing but that."""
        over = np.flatnonzero(ended[first:last]) + first if self.autoreset else np.zeros(0, np.int64)
        begun = self.words[over].copy()
        self.words[over] = self._final_words[over]
        memory.remember(first, last, actions, self.words, self.obs, self.mask)
        self.final_obs[over], self.words[over] = self.obs[over], begun
        for i in over.tolist():
            memory.begin(i, i + 1, self.words, self.all_masks, self.obs, self.mask)

    def _packed_messages(self) -> np.ndarray:
        """Messages int16 [N, agents]: a bit of the message is a bit of the number."""
        if self.messages is None:
            return np.zeros((self.num_envs, NUM_BLUE), np.int16)
        bits, shape = np.asarray(self.messages), (self.num_envs, NUM_BLUE, MESSAGE_BITS)
        if bits.shape != shape:
            raise RedlineError(f"Messages of shape {bits.shape} cannot be sent: pass {list(shape)} bits.")
        self.messages = None
        return ((bits != 0) << np.arange(MESSAGE_BITS)).sum(axis=2).astype(np.int16)

    def _require_room(self, first: int, last: int) -> None:
        outgrown = np.flatnonzero(self.state.outgrown[first:last])
        if len(outgrown):
            raise RedlineError(
                f"The episode of env {first + outgrown[0]} has outgrown the room for what has no bound in the original, "
                f"after {self.state.clock[first + outgrown[0]]} steps. Try room={min(16, 2 * self.options.room)}."
            )

    @property
    def shares(self) -> np.ndarray:
        """Each agent's share of the latest reward, float32 [N, agents]: what it cost in its zones, and its own Restores.

        The rest is what happened where nobody defends.
        """
        return self._shares[:, :NUM_BLUE].astype(np.float32)

    def ended_infos(self, ended: np.ndarray) -> Infos:
        """Return and length of the ended episodes, and their official score, which leaves the last reward out."""
        lengths = np.where(ended, self._settings.last_step, 0)
        return {
            "episode": {"r": np.where(ended, self._final_score, 0.0), "l": lengths},
            "episode_metrics": {"official": np.where(ended, self._early_score, 0.0)},
        }

    def state_arrays(self) -> dict[str, np.ndarray]:
        """One record per env, and where defenders remember, what they do and from what."""
        found: dict[str, np.ndarray] = {"records": self.state}
        if self.memory is not None:
            found |= {"memory": self.memory.records, "words": self.words, "all_masks": self.all_masks}
        return found

    @property
    def idle(self) -> np.ndarray:
        """Sleep, of each agent."""
        return np.array(SLEEPS if self.memory is None else (WAIT,) * NUM_BLUE, np.int64)

    def agent_encoding(self, agent: str) -> AgentWords | MemoryRows:
        """How the stored observations of one agent are seen."""
        return AgentWords(self.agents.index(agent)) if self.memory is None else MemoryRows()

    def true_state(self) -> EnterpriseTruth:
        """What the rules know and Blue does not: a copy."""
        return true_state(self.state)


def make_batch(num_envs: int, name: str, **options: Any) -> Cage4VectorEnv:
    """Many envs, as the world makes them."""
    return Cage4VectorEnv(num_envs, **options)
