"""Tables that kernels look things up in: rows by their words, and actions by a number from a random stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.rng import GOLDEN
from redline.compiled.speed import inlined

GUIDES = 64
"""Equal parts of [0, 1) of which a guide tells where to begin."""
_ONE, _HALF = np.uint64(1), np.uint64(32)


class Index(NamedTuple):
    """An open-addressing hash table over rows of 64-bit words; nothing is ever removed.

    A hash is found from its highest bits on, which all bits of a row have had a part in, and stands beside the number
    of its row: that of a single word tells the word.
    """

    entries: np.ndarray  # uint64 [slots, 2]  hash, and the number of the row counted from 1: 0 where there is none
    shift: np.uint64  # by which a hash is shifted down to a slot
    table: np.ndarray  # int64 [capacity, words]  the rows


@inlined
def hashed(words, i):
    """The hash of row `i`."""
    bits = np.uint64(words[i, 0]) * GOLDEN
    for k in range(1, words.shape[1]):
        bits = (bits ^ (bits >> _HALF) ^ np.uint64(words[i, k])) * GOLDEN
    return bits


@inlined
def seek(index, bits, words, i):
    """The slot of row `i` of `words`, or the empty one that it would take."""
    entries, last = index.entries, np.uint64(len(index.entries) - 1)
    slot = bits >> index.shift
    while entries[slot, 1] != 0:
        if entries[slot, 0] == bits:
            same, row = True, np.int64(entries[slot, 1]) - 1
            if words.shape[1] > 1:
                for k in range(words.shape[1]):
                    if index.table[row, k] != words[i, k]:
                        same = False
                        break
            if same:
                break
        slot = (slot + _ONE) & last
    return slot


@inlined
def choose(cumulative, guide, row, number):
    """The first action of a row whose running sum of probability exceeds `number` in [0, 1) times their sum.

    `guide` has an action for each of `GUIDES` parts of [0, 1), below which there is none to be found.
    """
    last = cumulative.shape[1] - 1
    aim = number * cumulative[row, last]
    action = np.int64(guide[row, int(number * GUIDES)])
    while action < last and not cumulative[row, action] > aim:
        action += 1
    return action


@inlined
def write_guide(cumulative, guide, row):
    """Write the guide of a row."""
    last = cumulative.shape[1] - 1
    action = 0
    for part in range(GUIDES):
        aim = (part / GUIDES) * cumulative[row, last]
        while action < last and not cumulative[row, action] > aim:
            action += 1
        guide[row, part] = action
