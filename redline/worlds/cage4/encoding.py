"""How the observations of the five defenders are stored: four words each, in place of up to 210 numbers."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from redline.compiled.speed import at_speed
from redline.worlds.cage4.rules.observe import MOST_NUMBERS, OBS_WORDS, SIZES, decode_words
from redline.worlds.cage4.rules.scenario import NUM_BLUE
from redline.worlds.encoding import Plain, require_form


class TeamWords:
    """Words int64 [5, 4] of a team, seen as 5 x 210 numbers; those of smaller observations are followed by zeros."""

    shape = (NUM_BLUE, OBS_WORDS)
    dtype = np.dtype(np.int64)
    size = NUM_BLUE * MOST_NUMBERS

    def __init__(self, turbo: bool = True) -> None:
        self._decode = at_speed(decode_words, turbo)

    @property
    def decoded(self) -> Plain:
        """Small whole numbers."""
        most = np.stack([np.pad(highest(b), (0, MOST_NUMBERS - SIZES[b])) for b in range(NUM_BLUE)])
        return Plain((NUM_BLUE, MOST_NUMBERS), np.dtype(np.int8), high=tuple(most.reshape(-1).tolist()))

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The numbers int8 [n, 1050] of words [n, 5, 4]."""
        require_form(self, stored)
        agents = np.tile(np.arange(NUM_BLUE), len(stored))
        return self.decode_agents(stored.reshape(-1, OBS_WORDS), agents).reshape(len(stored), self.size)

    def require_possible(self, stored: np.ndarray) -> None:
        """Any bits are numbers."""
        require_form(self, stored)

    def decode_agents(self, words: np.ndarray, agents: np.ndarray) -> np.ndarray:
        """The numbers int8 [n, 210] of words [n, 4], each of the agent of that number."""
        numbers = np.zeros((len(words), MOST_NUMBERS), np.int8)
        self._decode(words, agents, numbers)
        return numbers


def highest(b: int) -> np.ndarray:
    """The largest value of each number of an agent's observation."""
    most = np.ones(SIZES[b], np.int8)
    most[0] = 2  # the phase
    return most


def agent_space(b: int) -> gym.spaces.Box:
    """The observations of one agent."""
    most = highest(b)
    return gym.spaces.Box(np.zeros_like(most), most, dtype=np.int8)
