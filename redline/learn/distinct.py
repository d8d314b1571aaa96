"""Finds equal observations: each distinct row of a batch gets a number, in order of first appearance.

Rows are compared byte for byte, as 64-bit words.
"""

from __future__ import annotations

import math

import numpy as np

from redline.compiled.lookup import Index, hashed, seek
from redline.compiled.speed import kernel

ROOM = 4
"""Slots for each row: with so many nearly every row is found in the first."""
FEWEST = 256
"""Rows that there is room for at least."""


def as_words(rows: np.ndarray) -> np.ndarray:
    """Rows of any type as int64 words [n, W], their bytes padded with zeros."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    if flat.dtype == np.int64:
        return flat
    if flat.dtype.kind == "f":
        flat = flat + flat.dtype.type(0)  # -0.0 and 0.0 are one value, so let them be one pattern of bits
    raw = flat.view(np.uint8)
    size = raw.shape[1]
    if size % 8:
        padded = np.zeros((len(raw), size + -size % 8), np.uint8)
        padded[:, :size] = raw
        raw = padded
    return np.ascontiguousarray(raw).view(np.int64)


def words_of(obs: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
    """Observations as rows of words that are equal where they are. What may be done is part of what is seen."""
    words = as_words(obs)
    return words if masks is None else np.concatenate([words, as_words(masks)], axis=1)


@kernel
def _find(index, count, room, words, first, rows):
    """Number the rows of `words` from `first` on, adding those not yet in the table while there is room.

    Returns the new count, and the row that it stopped at.
    """
    for i in range(first, len(words)):
        bits = hashed(words, i)
        slot = seek(index, bits, words, i)
        if index.entries[slot, 1] == 0:
            if count == room:
                return count, i
            for k in range(words.shape[1]):
                index.table[count, k] = words[i, k]
            count += 1
            index.entries[slot, 0] = bits
            index.entries[slot, 1] = count
        rows[i] = np.int64(index.entries[slot, 1]) - 1
    return count, len(words)


class Distinct:
    """A growing list of distinct rows."""

    def __init__(self, num_words: int, capacity: int = FEWEST) -> None:
        self._count = 0
        self.index = _new_index(np.empty((capacity, num_words), np.int64), capacity)
        """Where kernels look rows up. Another one after rows were added that there was no room for."""

    def __len__(self) -> int:
        return self._count

    def find(self, words: np.ndarray) -> np.ndarray:
        """The number of each row of int64 words [n, W]; rows never seen before get the next free ones."""
        rows, done = np.empty(len(words), np.int32), 0
        while True:
            self._count, done = _find(self.index, self._count, self._room, words, done, rows)
            if done == len(words):
                return rows
            self._grow()

    def clear(self) -> None:
        """Forget all rows. The slots are as many as the rows now forgotten need: few of them stay in the nearest cache."""
        if _num_slots(self._count) == len(self.index.entries):
            self.index.entries.fill(0)
        else:
            self.index = _new_index(self.index.table, self._count)
        self._count = 0

    @property
    def _room(self) -> int:
        """Rows that the index takes as it is."""
        return min(len(self.index.table), len(self.index.entries) * 2 // ROOM)

    def _grow(self) -> None:
        known = self.index.table[: self._count].copy()
        table = self.index.table
        if self._count == len(table):
            table = np.empty((2 * self._count, table.shape[1]), np.int64)
        self.index = _new_index(table, 2 * self._count)
        _find(self.index, 0, len(table), known, 0, np.empty(self._count, np.int32))


def _new_index(table: np.ndarray, num_rows: int) -> Index:
    slots = _num_slots(num_rows)
    return Index(np.zeros((slots, 2), np.uint64), np.uint64(64 - (slots.bit_length() - 1)), table)


def _num_slots(num_rows: int) -> int:
    return 1 << (ROOM * max(num_rows, FEWEST) - 1).bit_length()
