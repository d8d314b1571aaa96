"""Finds equal observations: each distinct row of a batch gets a number, in order of first appearance.

Rows are compared byte for byte, as 64-bit words. Compiled open-addressing hash table; nothing is ever removed.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.rng import GOLDEN
from redline.compiled.speed import kernel

_EMPTY = -1
_SHIFT = np.uint64(32)


def as_words(rows: np.ndarray) -> np.ndarray:
    """Rows of any type as int64 words [n, W], their bytes padded with zeros."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    if flat.dtype == np.int64:
        return flat
    if flat.dtype.kind == "f":
        flat = flat + flat.dtype.type(0)  # -0.0 and 0.0 are one value, so let them be one pattern of bits
    raw = flat.view(np.uint8).reshape(len(flat), -1)
    spare = -raw.shape[1] % 8
    if spare:
        raw = np.pad(raw, ((0, 0), (0, spare)))
    return np.ascontiguousarray(raw).view(np.int64)


@kernel
def _hash(words, i):
    bits = np.uint64(0)
    for k in range(words.shape[1]):
        bits = (bits ^ np.uint64(words[i, k])) * GOLDEN
        bits ^= bits >> _SHIFT
    return bits


@kernel
def _same(table, row, words, i):
    for k in range(words.shape[1]):
        if table[row, k] != words[i, k]:
            return False
    return True


@kernel
def _find(slots, table, count, words, rows):
    """Number every row of `words`, adding those not yet in `table`. Returns the new count."""
    last = np.uint64(len(slots) - 1)
    for i in range(len(words)):
        slot = _hash(words, i) & last
        while True:
            row = slots[slot]
            if row == _EMPTY:
                row = slots[slot] = count
                table[count] = words[i]
                count += 1
                break
            if _same(table, row, words, i):
                break
            slot = (slot + np.uint64(1)) & last
        rows[i] = row
    return count


@kernel
def _reindex(slots, table, count):
    last = np.uint64(len(slots) - 1)
    for row in range(count):
        slot = _hash(table, row) & last
        while slots[slot] != _EMPTY:
            slot = (slot + np.uint64(1)) & last
        slots[slot] = row


class Distinct:
    """A growing list of distinct rows."""

    def __init__(self, num_words: int, capacity: int = 1024) -> None:
        capacity = 1 << (capacity - 1).bit_length()  # slots are counted in powers of two, or some would never be tried
        self._table = np.empty((capacity, num_words), np.int64)
        self._slots = np.full(2 * capacity, _EMPTY, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, words: np.ndarray) -> np.ndarray:
        """The number of each row of int64 words [n, W]; rows never seen before get the next free ones."""
        self._make_room(self._count + len(words))
        rows = np.empty(len(words), np.int32)
        self._count = _find(self._slots, self._table, self._count, words, rows)
        return rows

    def clear(self) -> None:
        """Forget all rows."""
        self._slots.fill(_EMPTY)
        self._count = 0

    def _make_room(self, needed: int) -> None:
        capacity = len(self._table)
        if needed <= capacity:
            return
        while capacity < needed:
            capacity *= 2
        table = np.empty((capacity, self._table.shape[1]), np.int64)
        table[: self._count] = self._table[: self._count]
        self._table, self._slots = table, np.full(2 * capacity, _EMPTY, np.int32)
        _reindex(self._slots, self._table, self._count)
