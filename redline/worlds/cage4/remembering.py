"""`TeamMemory`: what the defenders of many envs remember, kept beside the envs."""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import at_speed
from redline.worlds.cage4.rules import remembered
from redline.worlds.cage4.rules.remembered import MEMORY, NEVER, NUM_AREAS
from redline.worlds.cage4.rules.scenario import BLUE_DURATION, BLUE_KINDS, MOST_ACTIONS, NUM_BLUE, SLOTS
from redline.worlds.ranges import Range, Ranges, bits

_COUNT: Range = (0, 2**31 - 2)
_WHEN: Range = (NEVER, 2**31 - 2)
MEMORY_RANGES: Ranges = {
    "clock": _COUNT,
    "alert": _WHEN,
    "break_ins": _COUNT,
    "left": (0, int(BLUE_DURATION.max())),
    "kind": (0, len(BLUE_KINDS) - 1),
    "area": (0, NUM_AREAS - 1),
    "slot": (0, SLOTS - 1),
    "there": bits(SLOTS),
    "seen": _WHEN,
    "meant": (-1, MOST_ACTIONS - 1),
}
"""The range of each field of a memory."""


class TeamMemory:
    """The memories of the teams of many envs. They are fed with what agents see and do, nothing else."""

    def __init__(self, num_envs: int, turbo: bool = True) -> None:
        self.records = np.zeros(num_envs, MEMORY).view(np.recarray)
        self._begin, self._remember = at_speed(remembered.begin, turbo), at_speed(remembered.remember, turbo)
        self._translate = at_speed(remembered.translate, turbo)

    def begin(
        self, first: int, last: int, words: np.ndarray, all_masks: np.ndarray, rows: np.ndarray, masks: np.ndarray
    ) -> None:
        """Episodes begin in envs `first` up to `last`; writes what is seen of them, and which useful actions there are."""
        self._begin(self.records, first, last, words, all_masks, rows, masks)

    def remember(
        self, first: int, last: int, actions: np.ndarray, words: np.ndarray, rows: np.ndarray, masks: np.ndarray
    ) -> None:
        """After a step in envs `first` up to `last`: `actions`, of all there are, led to `words`."""
        self._remember(self.records, first, last, actions, words, rows, masks)

    def translated(self, first: int, last: int, useful: np.ndarray) -> np.ndarray:
        """Useful actions as actions of all there are, int64 [N, agents]."""
        actions = np.zeros((len(self.records), NUM_BLUE), np.int64)
        self._translate(self.records, first, last, useful, actions)
        return actions
