"""Matrix products and what stands between them, in compiled loops: each element is added up in one order, whatever the size.

Torch's products choose their order of additions by the size of the batch, so that the same row may come out differently
in another batch. Here an element is a chain of fused multiplications and additions along the shared axis, alone or in
company. Terms that are zero can be left out of a chain without changing it.

Sums are made tile by tile, so that those of a tile stay in registers along the whole chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redline.compiled.tiles import TILE_COLUMNS, TILE_ROWS, TileWords, tile_words
from redline.learn.loops import chained, loop, tanh

_f = np.float32
DEPTH = 64
"""Terms after which the next tile has its turn, where terms are far apart in memory: they stay in the nearest cache."""


def _adding(words: TileWords) -> Any:
    load, store, fuse = words

    @chained
    def add(out, i, j, columns, left, right, first, last):
        """Add the terms `first` up to `last` to the tile at an element of `out`."""
        tile = load(out, i, j, columns)
        for k in range(first, last):
            tile = fuse(left, i, right, k, j, columns, tile)
        store(out, i, j, columns, tile)

    return add


_add_tile = _adding(tile_words(TILE_ROWS, is_whole=True))
_add_narrow_tile = _adding(tile_words(TILE_ROWS, is_whole=False))
_add_row = _adding(tile_words(1, is_whole=False))


@chained
def _add_terms(out, left, right, first, last):
    """Add the terms `first` up to `last` to all tiles."""
    whole_rows = out.shape[0] - out.shape[0] % TILE_ROWS
    for j in range(0, out.shape[1], TILE_COLUMNS):
        columns = min(TILE_COLUMNS, out.shape[1] - j)
        for i in range(0, whole_rows, TILE_ROWS):
            if columns == TILE_COLUMNS:
                _add_tile(out, i, j, columns, left, right, first, last)
            else:
                _add_narrow_tile(out, i, j, columns, left, right, first, last)
        for i in range(whole_rows, out.shape[0]):
            _add_row(out, i, j, columns, left, right, first, last)


@chained
def _add(out, left, right, depth):
    """Add `left` [M, K] times `right` [K, N] to `out` [M, N], to each tile `depth` terms at a time."""
    for first in range(0, right.shape[0], depth):
        _add_terms(out, left, right, first, min(first + depth, right.shape[0]))


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
