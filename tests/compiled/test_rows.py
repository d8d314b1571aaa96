"""Rules see arrays as rows: the same numbers, compiled and interpreted, through two arguments instead of seven."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np

from redline.compiled.rows import light, one_of, row
from redline.compiled.speed import inlined, interpreted, kernel, rule

DOG = np.dtype([("age", np.int32), ("weight", np.float64)], align=True)
OWNER = np.dtype([("walks", np.int32)], align=True)


class Town(NamedTuple):
    scale: np.record  # OWNER
    factors: np.ndarray  # int32 [K]
    is_large: tuple[int, ...]


class Kennels(NamedTuple):
    owners: np.recarray  # OWNER [N]
    dogs: np.recarray  # DOG [N, D]
    bowls: np.ndarray  # int32 [N, B]


class Kennel(NamedTuple):
    owner: np.record
    dogs: np.recarray
    bowls: np.ndarray


@inlined
def feed(town, kennel, portions):
    for k in range(len(kennel.bowls)):
        kennel.bowls[k] += town.factors[k]
        portions[k] = kennel.bowls[k] / 3 if kennel.bowls[k] > 4 else kennel.bowls[k] == 4


@rule
def grow(town, kennel):
    for k in range(len(kennel.dogs)):
        dog = kennel.dogs[k]
        dog.age += 1 + len(town.is_large)
        dog.weight += dog.age / 7
    kennel.owner.walks += len(kennel.dogs) * town.scale.walks


@kernel
def day(town, kennels, portions):
    here = light(town)
    for i in range(len(kennels.owners)):
        feed(here, one_of(kennels, i, Kennel), row(portions, i))
        grow(here, one_of(kennels, i, Kennel))


def kennels() -> tuple[Town, Kennels, np.ndarray]:
    bowls = np.arange(6, dtype=np.int32).reshape(2, 3)
    dogs = np.zeros((2, 4), DOG).view(np.recarray)
    dogs.age[:] = np.arange(8).reshape(2, 4)
    scale = np.array([(5,)], OWNER).view(np.recarray)[0]
    town = Town(scale, np.array([1, 2, 3], np.int32), (0, 0))
    return town, Kennels(np.zeros(2, OWNER).view(np.recarray), dogs, bowls), np.zeros((2, 3), np.float32)


def test_rows_hold_the_numbers_of_the_arrays_they_were_made_of():
    town, state, portions = kennels()
    day(town, state, portions)
    assert state.owners.walks.tolist() == [20, 20]
    assert state.dogs.age.tolist() == [[3, 4, 5, 6], [7, 8, 9, 10]]
    assert state.bowls.tolist() == [[1, 3, 5], [4, 6, 8]]
    assert portions.tolist() == [[0, 0, np.float32(5 / 3)], [1, 2, np.float32(8 / 3)]]


def test_both_speeds_write_the_same_bytes():
    fast, slow = kennels(), kennels()
    for _ in range(3):
        day(*fast)
        interpreted(day)(*slow)
    for one, other in zip((*fast[1], fast[2]), (*slow[1], slow[2]), strict=True):
        assert one.tobytes() == other.tobytes()


BEYOND = """
import numpy as np
from tests.compiled.test_rows import Town, day, kennels

town, state, portions = kennels()
try:
    day(town._replace(factors=np.zeros(2, np.int32)), state, portions)
except IndexError as error:
    print(error)
"""


def test_an_index_beyond_a_row_is_found_where_numba_is_asked_to_look():
    here = {**os.environ, "NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run([sys.executable, "-c", BEYOND], env=here, capture_output=True, text=True)
    assert done.stdout == "index is out of bounds\n", done.stderr
