"""How the observations of the five defenders are stored: four words each, in place of up to 210 numbers."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from redline.compiled.speed import at_speed
from redline.errors import RedlineError
from redline.worlds.cage4.rules.observe import (
    AGENT_SHIFT,
    BLOCKS_SHIFT,
    CONNECTION_SHIFT,
    CREATION_SHIFT,
    MOST_NUMBERS,
    OBS_WORDS,
    PHASE_MASK,
    SIZES,
    ZONE_NUMBERS,
    decode_words,
)
from redline.worlds.cage4.rules.remembered import NUM_NUMBERS, ROW_BYTES, decode_rows
from redline.worlds.cage4.rules.scenario import BLUE_ZONES, NUM_BLUE, NUM_ZONES, SLOTS
from redline.worlds.encoding import Plain, require_form

LAST_PHASE = 2
MOST_REMEMBERED = 64.0  # counts are not bounded by what they are usually divided by


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
        numbers = np.zeros((len(stored) * NUM_BLUE, MOST_NUMBERS), np.int8)
        self._decode(stored.reshape(-1, OBS_WORDS), numbers)
        return numbers.reshape(len(stored), self.size)


class AgentWords:
    """Words int64 [4] of one agent, seen as 92 or 210 numbers."""

    shape = (OBS_WORDS,)
    dtype = np.dtype(np.int64)

    def __init__(self, b: int, turbo: bool = True) -> None:
        self.size = SIZES[b]
        self._high = tuple(highest(b).tolist())
        self._decode = at_speed(decode_words, turbo)

    @property
    def decoded(self) -> Plain:
        """Small whole numbers."""
        return Plain((self.size,), np.dtype(np.int8), high=self._high)

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The numbers int8 [n, size] of words [n, 4]."""
        require_form(self, stored)
        numbers = np.zeros((len(stored), MOST_NUMBERS), np.int8)
        self._decode(np.ascontiguousarray(stored), numbers)
        return numbers[:, : self.size]


class MemoryRows:
    """Rows of bytes of what agents remember, seen as 89 numbers each, from 0 to about 1."""

    dtype = np.dtype(np.uint8)

    def __init__(self, agents: int | None = None, turbo: bool = True) -> None:
        """Of a team of so many agents, or of one."""
        self._agents = () if agents is None else (agents,)
        self.shape, self.size = (*self._agents, ROW_BYTES), (agents or 1) * NUM_NUMBERS
        self._decode = at_speed(decode_rows, turbo)

    @property
    def decoded(self) -> Plain:
        """The numbers."""
        return Plain((*self._agents, NUM_NUMBERS), np.dtype(np.float32))

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The numbers float32 [n, size] of rows."""
        require_form(self, stored)
        rows = np.ascontiguousarray(stored).reshape(-1, ROW_BYTES)
        numbers = np.zeros((len(rows), NUM_NUMBERS), np.float32)
        self._decode(rows, numbers)
        return numbers.reshape(len(stored), self.size)


def words_of(numbers: np.ndarray) -> np.ndarray:
    """The words int64 [5, 4] of a team's flat observations [5, 210], as the original shows them."""
    words = np.zeros((NUM_BLUE, OBS_WORDS), np.int64)
    for b, zones in enumerate(BLUE_ZONES):
        for k in range(len(zones)):
            first = 1 + k * ZONE_NUMBERS
            _, blocks, _, created, touched = np.split(
                numbers[b, first : first + ZONE_NUMBERS], np.cumsum([NUM_ZONES] * 3 + [SLOTS])
            )
            words[b, k] = int(numbers[b, 0]) | _bits(blocks) << BLOCKS_SHIFT
            words[b, k] |= _bits(created) << CREATION_SHIFT | _bits(touched) << CONNECTION_SHIFT
        first = 1 + len(zones) * ZONE_NUMBERS
        words[b, -1] = _bits(numbers[b, first : first + AGENT_SHIFT]) | b << AGENT_SHIFT
    return words


def _bits(numbers: np.ndarray) -> int:
    return sum(1 << k for k, number in enumerate(numbers) if number)


def require_words(words: np.ndarray) -> None:
    """Refuse words [n, 4] of a phase or an agent that is not there."""
    phases, agents = words[:, 0] & PHASE_MASK, words[:, -1] >> AGENT_SHIFT
    if (phases > LAST_PHASE).any() or (agents < 0).any() or (agents >= NUM_BLUE).any():
        raise RedlineError("These observations are of a phase or of an agent that there is not in CAGE-4.")


def highest(b: int) -> np.ndarray:
    """The largest value of each number of an agent's observation."""
    most = np.ones(SIZES[b], np.int8)
    most[0] = 2  # the phase
    return most


def agent_space(b: int) -> gym.spaces.Box:
    """The observations of one agent."""
    most = highest(b)
    return gym.spaces.Box(np.zeros_like(most), most, dtype=np.int8)


def memory_space() -> gym.spaces.Box:
    """What an agent remembers, as numbers."""
    return gym.spaces.Box(0.0, MOST_REMEMBERED, (NUM_NUMBERS,), np.float32)
