"""Matrix products and what stands between them, in compiled loops: each element is added up in one order, whatever the size.

Torch's products choose their order of additions by the size of the batch, so that the same row may come out differently
in another batch. Here an element is a chain of fused multiplications and additions along the shared axis, alone or in
company. Terms that are zero can be left out of a chain without changing it.

Sums are made tile by tile, so that those of a tile stay in registers along the whole chain.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.lanes import LANES, fuse, load, store
from redline.learn.loops import chained, loop, tanh

_f = np.float32
TILE_ROWS, TILE_COLUMNS = 4, 2 * LANES
DEPTH = 64
"""Terms after which the next tile has its turn, where terms are far apart in memory: they stay in the nearest cache."""


@chained
def _add_tile(out, left, right, i, j, first, last):
    """Add the terms `first` up to `last` to four rows of two lanes each."""
    a0, a1 = load(out, i, j), load(out, i, j + LANES)
    b0, b1 = load(out, i + 1, j), load(out, i + 1, j + LANES)
    c0, c1 = load(out, i + 2, j), load(out, i + 2, j + LANES)
    d0, d1 = load(out, i + 3, j), load(out, i + 3, j + LANES)
    for k in range(first, last):
        x0, x1 = load(right, k, j), load(right, k, j + LANES)
        a0, a1 = fuse(left[i, k], x0, a0), fuse(left[i, k], x1, a1)
        b0, b1 = fuse(left[i + 1, k], x0, b0), fuse(left[i + 1, k], x1, b1)
        c0, c1 = fuse(left[i + 2, k], x0, c0), fuse(left[i + 2, k], x1, c1)
        d0, d1 = fuse(left[i + 3, k], x0, d0), fuse(left[i + 3, k], x1, d1)
    store(out, i, j, a0)
    store(out, i, j + LANES, a1)
    store(out, i + 1, j, b0)
    store(out, i + 1, j + LANES, b1)
    store(out, i + 2, j, c0)
    store(out, i + 2, j + LANES, c1)
    store(out, i + 3, j, d0)
    store(out, i + 3, j + LANES, d1)


@chained
def _add_row(out, left, right, i, j, first, last):
    """The same for a single row."""
    a0, a1 = load(out, i, j), load(out, i, j + LANES)
    for k in range(first, last):
        a0, a1 = fuse(left[i, k], load(right, k, j), a0), fuse(left[i, k], load(right, k, j + LANES), a1)
    store(out, i, j, a0)
    store(out, i, j + LANES, a1)


@chained
def _add_tiles(out, left, right, first, last):
    """The same for all rows, and as many columns as fill whole tiles."""
    whole_rows = out.shape[0] - out.shape[0] % TILE_ROWS
    for j in range(0, out.shape[1] - TILE_COLUMNS + 1, TILE_COLUMNS):
        for i in range(0, whole_rows, TILE_ROWS):
            _add_tile(out, left, right, i, j, first, last)
        for i in range(whole_rows, out.shape[0]):
            _add_row(out, left, right, i, j, first, last)


@chained
def _add(out, left, right, depth):
    """Add `left` [M, K] times `right` [K, N] to `out` [M, N], each tile `depth` terms at a time."""
    for first in range(0, right.shape[0], depth):
        _add_tiles(out, left, right, first, min(first + depth, right.shape[0]))
    rest = out.shape[1] % TILE_COLUMNS
    if rest:  # a tile of zeros around them
        begin = out.shape[1] - rest
        sums, beside = np.empty((out.shape[0], TILE_COLUMNS), _f), np.empty((right.shape[0], TILE_COLUMNS), _f)
        _copy(out, begin, sums, 0, rest)
        _copy(right, begin, beside, 0, rest)
        clear(sums, rest)
        clear(beside, rest)
        for first in range(0, right.shape[0], depth):
            _add_tiles(sums, left, beside, first, min(first + depth, right.shape[0]))
        _copy(sums, 0, out, begin, rest)


@chained
def _copy(source, first, target, place, width):
    """Copy `width` columns from `first` on to those from `place` on."""
    for i in range(source.shape[0]):
        for j in range(width):
            target[i, place + j] = source[i, first + j]


@chained
def clear(matrix, first):
    """Write zeros to the columns from `first` on. Numba takes longer to compile its own words for that."""
    for i in range(matrix.shape[0]):
        for j in range(first, matrix.shape[1]):
            matrix[i, j] = _f(0.0)


@chained
def add_product(out, left, right):
    """Add `left` [M, K] times `right` [K, N] to `out` [M, N]."""
    _add(out, left, right, max(right.shape[0], 1))


@chained
def add_transposed_product(out, left, right):
    """Add `left` [K, M] transposed times `right` [K, N] to `out` [M, N]."""
    _add(out, left.T, right, DEPTH)


@loop
def tanh_rows(rows):
    """In place. Row by row, so that no element depends on how many there are."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            rows[i, j] = tanh(rows[i, j])


@chained
def spread(bias, out):
    """Write a bias to every row of `out`."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = bias[j]


@loop
def judge(features, weight, bias, values):
    """Write the single output of a linear layer for each row of `features` to `values` [n]."""
    for i in range(features.shape[0]):
        total = _f(0.0)
        for j in range(features.shape[1]):
            total += features[i, j] * weight[0, j]
        values[i] = total + bias[0]
