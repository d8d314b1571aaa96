"""Matrix products and what stands between them, in compiled loops: each element is added up in one order, whatever the size.

Torch's products choose their order of additions by the size of the batch, so that the same row may come out differently
in another batch. Here an element is a chain of fused multiplications and additions along the shared axis, alone or in
company. Terms that are zero can be left out of a chain without changing it.
"""

from __future__ import annotations

import numpy as np

from redline.learn.loops import chained, loop, tanh

_f = np.float32


@chained
def add_product(out, left, right):
    """Add `left` [M, K] times `right` [K, N] to `out` [M, N]."""
    num_rows, num_columns, depth = out.shape[0], out.shape[1], left.shape[1]
    even_rows, whole_depth = num_rows - num_rows % 2, depth - depth % 4
    for i in range(0, even_rows, 2):
        for k in range(0, whole_depth, 4):
            a0, a1, a2, a3 = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            b0, b1, b2, b3 = left[i + 1, k], left[i + 1, k + 1], left[i + 1, k + 2], left[i + 1, k + 3]
            for j in range(num_columns):
                x0, x1, x2, x3 = right[k, j], right[k + 1, j], right[k + 2, j], right[k + 3, j]
                out[i, j] = a3 * x3 + (a2 * x2 + (a1 * x1 + (a0 * x0 + out[i, j])))
                out[i + 1, j] = b3 * x3 + (b2 * x2 + (b1 * x1 + (b0 * x0 + out[i + 1, j])))
        for k in range(whole_depth, depth):
            for j in range(num_columns):
                out[i, j] = left[i, k] * right[k, j] + out[i, j]
                out[i + 1, j] = left[i + 1, k] * right[k, j] + out[i + 1, j]
    for i in range(even_rows, num_rows):
        for k in range(0, whole_depth, 4):
            a0, a1, a2, a3 = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            for j in range(num_columns):
                x0, x1, x2, x3 = right[k, j], right[k + 1, j], right[k + 2, j], right[k + 3, j]
                out[i, j] = a3 * x3 + (a2 * x2 + (a1 * x1 + (a0 * x0 + out[i, j])))
        for k in range(whole_depth, depth):
            for j in range(num_columns):
                out[i, j] = left[i, k] * right[k, j] + out[i, j]


@loop
def tanh_rows(rows):
    """In place. Row by row, so that no element depends on how many there are."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            rows[i, j] = tanh(rows[i, j])


@chained
def transposed(matrix):
    """A copy [N, M] of a matrix [M, N]."""
    copy = np.empty((matrix.shape[1], matrix.shape[0]), np.float32)
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            copy[j, i] = matrix[i, j]
    return copy


@chained
def spread(bias, out):
    """Write a bias to every row of `out`."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = bias[j]


@chained
def affine(inputs, weight, bias, out):
    """Write `inputs` [n, inputs] through a linear layer to `out` [n, outputs]."""
    spread(bias, out)
    add_product(out, inputs, transposed(weight))


@loop
def judge(features, weight, bias, values):
    """Write the single output of a linear layer for each row of `features` to `values` [n]."""
    for i in range(features.shape[0]):
        total = _f(0.0)
        for j in range(features.shape[1]):
            total += features[i, j] * weight[0, j]
        values[i] = total + bias[0]


@chained
def add_transposed_product(out, left, right):
    """Add `left` [K, M] transposed times `right` [K, N] to `out` [M, N]."""
    num_rows, num_columns, depth = out.shape[0], out.shape[1], left.shape[0]
    even_rows, whole_depth = num_rows - num_rows % 2, depth - depth % 4
    for k in range(0, whole_depth, 4):
        for i in range(0, even_rows, 2):
            a0, a1, a2, a3 = left[k, i], left[k + 1, i], left[k + 2, i], left[k + 3, i]
            b0, b1, b2, b3 = left[k, i + 1], left[k + 1, i + 1], left[k + 2, i + 1], left[k + 3, i + 1]
            for j in range(num_columns):
                x0, x1, x2, x3 = right[k, j], right[k + 1, j], right[k + 2, j], right[k + 3, j]
                out[i, j] = a3 * x3 + (a2 * x2 + (a1 * x1 + (a0 * x0 + out[i, j])))
                out[i + 1, j] = b3 * x3 + (b2 * x2 + (b1 * x1 + (b0 * x0 + out[i + 1, j])))
        for i in range(even_rows, num_rows):
            a0, a1, a2, a3 = left[k, i], left[k + 1, i], left[k + 2, i], left[k + 3, i]
            for j in range(num_columns):
                x0, x1, x2, x3 = right[k, j], right[k + 1, j], right[k + 2, j], right[k + 3, j]
                out[i, j] = a3 * x3 + (a2 * x2 + (a1 * x1 + (a0 * x0 + out[i, j])))
    for k in range(whole_depth, depth):
        for i in range(num_rows):
            for j in range(num_columns):
                out[i, j] = left[k, i] * right[k, j] + out[i, j]
