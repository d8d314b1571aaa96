"""`TeamMemory`: what the defenders of many envs remember, kept beside the envs."""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import at_speed
from redline.worlds.cage4.encoding import words_of
from redline.worlds.cage4.rules import remembered
from redline.worlds.cage4.rules.remembered import MEMORY, NUM_USEFUL, ROW_BYTES
from redline.worlds.cage4.rules.scenario import NUM_BLUE


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


class EnterpriseMemory:
    """What a team remembers of one episode that is played elsewhere, in the original for one.

    It is fed with flat observations and the agents' own actions, nothing else. `rows` uint8 [1, 5, 37], `masks` and `acting`
    are then what a team sees that was trained on the face memory.
    """

    def __init__(self, turbo: bool = True) -> None:
        self._team = TeamMemory(1, turbo)
        self.rows = np.zeros((1, NUM_BLUE, ROW_BYTES), np.uint8)
        self.masks = np.zeros((1, NUM_BLUE, NUM_USEFUL), np.bool_)

    def reset(self, numbers: np.ndarray, masks: np.ndarray) -> None:
        """An episode begins with flat observations [5, 210] and masks of all actions [5, 242], both padded."""
        self._team.begin(0, 1, words_of(numbers)[None], masks[None], self.rows, self.masks)

    @property
    def acting(self) -> np.ndarray:
        """Who chooses now, bool [1, 5]."""
        return np.asarray(self._team.records.left == 0)

    def full_actions(self, useful: np.ndarray) -> np.ndarray:
        """Useful actions [1, 5] as actions of all there are, int64 [5]."""
        return self._team.translated(0, 1, useful)[0]

    def see(self, numbers: np.ndarray, actions: np.ndarray) -> None:
        """The agents asked for `actions` [5], of all there are, and see these flat observations [5, 210] now."""
        self._team.remember(0, 1, actions[None], words_of(numbers)[None], self.rows, self.masks)
