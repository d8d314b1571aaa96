"""What a network sees: all numbers, or only those that are not zero.

A term that is zero leaves a sum as it is, so leaving it out of the first layer's products changes no bit of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.speed import kernel
from redline.learn.loops import chained

FEW = 0.15
"""Part of the inputs that are not zero below which only these are multiplied."""
NEVER = -1.0
"""A part that is never so small: all inputs are multiplied."""


class Inputs(NamedTuple):
    """What a network sees of n observations: all numbers, or only those that are not zero."""

    dense: np.ndarray  # float32 [n, inputs]; [0, inputs] where sparse
    starts: np.ndarray  # int64 [n + 1]  where the numbers of each row begin; empty where dense
    columns: np.ndarray  # int32 [numbers]
    numbers: np.ndarray  # float32 [numbers]

    @property
    def is_sparse(self) -> bool:
        """Whether zeros are left out."""
        return len(self.starts) > 0

    @property
    def num_rows(self) -> int:
        """Observations there are."""
        return len(self.starts) - 1 if self.is_sparse else len(self.dense)


@kernel
def seen(numbers, most):
    """Inputs float32 [n, inputs], without the zeros among them if at most that part of them are not zero."""
    count = 0
    for i in range(numbers.shape[0]):
        for k in range(numbers.shape[1]):
            count += numbers[i, k] != 0
    if count > most * numbers.size:
        return Inputs(numbers, np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    inputs = Inputs(
        np.empty((0, numbers.shape[1]), np.float32), np.empty(len(numbers) + 1, np.int64),
        np.empty(count, np.int32), np.empty(count, np.float32),
    )  # fmt: skip
    inputs.starts[0] = place = 0
    for i in range(numbers.shape[0]):
        for k in range(numbers.shape[1]):
            if numbers[i, k] != 0:
                inputs.columns[place], inputs.numbers[place] = k, numbers[i, k]
                place += 1
        inputs.starts[i + 1] = place
    return inputs


@chained
def add_sparse_product(out, inputs, right):
    """Add inputs [n, K] times `right` [K, N] to `out`, without the zeros among them."""
    for i in range(out.shape[0]):
        for at in range(inputs.starts[i], inputs.starts[i + 1]):
            number, k = inputs.numbers[at], inputs.columns[at]
            for j in range(out.shape[1]):
                out[i, j] += number * right[k, j]
