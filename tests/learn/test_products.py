from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from redline.learn.network.products import add_product, add_transposed_product

SIZES = [(1, 1, 1), (3, 5, 7), (4, 64, 16), (5, 65, 17), (6, 52, 64), (9, 130, 145)]


def matrix(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize(("rows", "depth", "columns"), SIZES)
def test_products_are_added_to_what_is_there(rows, depth, columns):
    left, right, before = matrix(rows, depth, 0), matrix(depth, columns, 1), matrix(rows, columns, 2)
    expected = before + left.astype(np.float64) @ right
    for add, given in ((add_product, left), (add_transposed_product, np.ascontiguousarray(left.T))):
        out = before.copy()
        add(out, given, right)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "depth", "columns"), SIZES)
def test_an_element_is_the_same_to_the_last_bit_in_every_company(rows, depth, columns):
    left, right, whole = matrix(rows, depth, 0), matrix(depth, columns, 1), np.zeros((rows, columns), np.float32)
    add_product(whole, left, right)
    transposed = np.zeros_like(whole)
    add_transposed_product(transposed, np.ascontiguousarray(left.T), right)
    np.testing.assert_array_equal(transposed, whole)
    for i in range(rows):
        for j in range(0, columns, 5):
            alone = np.zeros((1, 1), np.float32)
            add_product(alone, left[i : i + 1], np.ascontiguousarray(right[:, j : j + 1]))
            assert alone[0, 0] == whole[i, j]


def test_terms_that_come_in_two_goes_are_the_same_chain():
    left, right = matrix(7, 90, 0), matrix(90, 20, 1)
    at_once, in_two = np.zeros((7, 20), np.float32), np.zeros((7, 20), np.float32)
    add_product(at_once, left, right)
    for part in (slice(41), slice(41, None)):
        add_product(in_two, np.ascontiguousarray(left[:, part]), right[part])
    np.testing.assert_array_equal(in_two, at_once)


def test_products_come_out_interpreted_as_well():
    program = (
        "import numpy as np; from redline.learn.network.products import add_product\n"
        "left, right, out = np.ones((5, 3), 'f4'), np.full((3, 17), 2, 'f4'), np.ones((5, 17), 'f4')\n"
        "add_product(out, left, right); assert (out == 7).all()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
