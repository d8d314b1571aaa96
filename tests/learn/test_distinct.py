from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from redline.compiled.lookup import hashed
from redline.compiled.speed import interpreted
from redline.learn.distinct import Distinct, as_words

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 11))
FEW_INTS = st.sampled_from([-2, -1, 0, 1, 100])
FEW_FLOATS = st.sampled_from([-1.5, -0.0, 0.0, 1e-30, 0.1, float("inf")])
ROWS = st.one_of(
    st.sampled_from(["int8", "int16", "int32", "int64"]).flatmap(
        lambda dtype: arrays.arrays(dtype, SHAPES, elements=FEW_INTS)
    ),
    arrays.arrays("bool", SHAPES),
    st.sampled_from(["float16", "float32", "float64"]).flatmap(
        lambda dtype: arrays.arrays(dtype, SHAPES, elements=FEW_FLOATS.map(np.dtype(dtype).type))
    ),
)
quickly = settings(max_examples=150, deadline=None, derandomize=True)


def numbers(rows: np.ndarray, capacity: int = 1024) -> list[int]:
    """The number that a fresh `Distinct` gives to each row."""
    words = as_words(rows)
    return Distinct(words.shape[1], capacity).find(words).tolist()


def numbers_by_sorting(rows: np.ndarray) -> list[int]:
    """The same by way of `np.unique`, whose numbers follow the order of the values instead."""
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first.argsort().argsort()[inverse.reshape(-1)].tolist()


def words(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, np.int64)


def test_rows_are_numbered_in_order_of_first_appearance():
    assert numbers(np.array([[7, 7], [3, 3], [7, 7], [3, 4], [3, 3]])) == [0, 1, 0, 2, 1]


@quickly
@given(ROWS)
def test_any_rows_get_the_numbers_that_sorting_them_would_give(rows):
    assert numbers(rows) == numbers_by_sorting(rows)


@quickly
@given(ROWS, st.integers(1, 40))
def test_rows_found_in_two_goes_get_the_numbers_of_one(rows, first):
    table = as_words(rows)
    distinct = Distinct(table.shape[1], capacity=1)
    in_two_goes = [*distinct.find(table[:first]), *distinct.find(table[first:])]
    assert in_two_goes == numbers(rows)
    assert len(distinct) == len(np.unique(rows, axis=0))


def test_rows_seen_before_keep_their_numbers():
    distinct = Distinct(1)
    assert distinct.find(words((5,), (6,))).tolist() == [0, 1]
    assert distinct.find(words((7,), (6,))).tolist() == [2, 1]


def test_minus_zero_is_zero():
    assert numbers(np.array([[0.0, 1.0], [-0.0, 1.0]], np.float32)) == [0, 0]


def test_asking_about_minus_zero_leaves_it_as_it_is():
    rows = np.array([[-0.0]])
    as_words(rows)
    assert np.signbit(rows).all()


def test_numbers_that_differ_in_the_last_bit_are_different():
    assert numbers(np.array([[1.0], [np.nextafter(1.0, 2.0)]])) == [0, 1]


@pytest.mark.parametrize("num_bytes", range(1, 18))
def test_every_byte_of_a_row_of_any_width_counts(num_bytes):
    rows = np.concatenate([np.zeros((1, num_bytes), np.uint8), np.eye(num_bytes, dtype=np.uint8)])
    assert numbers(rows) == list(range(num_bytes + 1))


def test_rows_of_several_axes_are_compared_as_a_whole():
    rows = np.zeros((3, 2, 2), np.float32)
    rows[1, 1, 1] = 1
    assert numbers(rows) == [0, 1, 0]


@pytest.mark.parametrize("rows", [np.arange(12).reshape(2, 6).T, np.arange(24)[::2].reshape(6, 2)[::-1]])
def test_a_view_is_numbered_like_its_copy(rows):
    assert numbers(rows) == numbers(rows.copy())


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 1000, 1024])
def test_a_list_grows_as_far_as_it_has_to(capacity):
    rows = np.random.default_rng(0).permutation(5000).reshape(-1, 1)
    assert numbers(rows, capacity) == list(range(5000))


def test_growing_changes_no_number():
    distinct = Distinct(1, capacity=4)
    rows = np.arange(3000).reshape(-1, 1)
    for first in range(0, 3000, 100):
        assert distinct.find(rows[first : first + 100]).tolist() == list(range(first, first + 100))
    assert distinct.find(rows).tolist() == list(range(3000))


def test_a_cleared_list_starts_over():
    distinct = Distinct(1)
    distinct.find(words((5,), (6,)))
    distinct.clear()
    assert len(distinct) == 0
    assert distinct.find(words((6,), (5,))).tolist() == [0, 1]


def test_rows_with_equal_hashes_are_told_apart():
    hash_of = interpreted(hashed)

    def mixed(word: int) -> int:
        bits = int(hash_of(words((word,)), 0))
        return bits ^ (bits >> 32)

    first = words((1, 2))
    # the second word is mixed into the hash of the first, so it can be chosen to make up for any other first word
    second = np.array([[99, mixed(1) ^ mixed(99) ^ 2]], np.uint64).view(np.int64)
    assert hash_of(first, 0) == hash_of(second, 0)
    assert numbers(np.concatenate([first, second, first])) == [0, 1, 0]
    assert numbers(np.concatenate([first, second, first]), capacity=1) == [0, 1, 0]


def test_few_rows_are_kept_in_few_slots_again_after_many_were_forgotten():
    distinct = Distinct(1)
    slots = len(distinct.index.entries)
    distinct.find(np.arange(5000).reshape(-1, 1))
    assert len(distinct.index.entries) > slots
    for _ in range(2):
        distinct.clear()
        distinct.find(words((5,), (6,)))
    assert len(distinct.index.entries) == slots
