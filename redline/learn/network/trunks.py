"""Trunks in compiled loops: the hidden layers that actor and critic look through, read from the vector of all weights."""

from __future__ import annotations

import numpy as np

from redline.learn.loops import loop
from redline.learn.network.inputs import add_sparse_product
from redline.learn.network.products import add_product, spread, tanh_rows


@loop
def view(vector, place, rows, columns):
    """Part of a vector as a matrix."""
    return vector[place : place + rows * columns].reshape(rows, columns)


@loop
def num_weights(widths):
    """Weights of a trunk; `widths` are the numbers of its inputs and of what each of its layers makes of them."""
    count = 0
    for k in range(1, len(widths)):
        count += widths[k] * widths[k - 1] + widths[k]
    return count


@loop
def num_hidden(widths):
    """Numbers that all hidden layers of a trunk make of an observation."""
    count = 0
    for k in range(1, len(widths)):
        count += widths[k]
    return count


@loop
def turned(weights, widths, num_outputs, shared):
    """A copy of all weights in which every matrix [outputs, inputs] is stored as [inputs, outputs], but the critic's."""
    copy, place = np.empty(len(weights), np.float32), 0
    for i in range(len(weights)):
        copy[i] = weights[i]
    for _ in range(1 if shared else 2):
        for k in range(1, len(widths)):
            _turn(weights, copy, place, widths[k], widths[k - 1])
            place += widths[k] * widths[k - 1] + widths[k]
    _turn(weights, copy, place, num_outputs, widths[-1])
    return copy


@loop
def _turn(weights, copy, place, outputs, inputs):
    for i in range(outputs):
        for j in range(inputs):
            copy[place + j * outputs + i] = weights[place + i * inputs + j]


@loop
def look_through(weights, place, widths, inputs, hidden):
    """Write what every layer of a trunk makes of inputs to `hidden`, one layer after the other.

    The weights are `turned`, and those of the trunk begin at `place`.
    """
    count, at = max(len(inputs.dense), len(inputs.starts) - 1), 0
    for k in range(1, len(widths)):
        before, width = widths[k - 1], widths[k]
        right, out = view(weights, place, before, width), view(hidden, at, count, width)
        spread(weights[place + width * before : place + width * before + width], out)
        if k > 1:
            add_product(out, view(hidden, at - count * before, count, before), right)
        elif len(inputs.starts):
            add_sparse_product(out, inputs, right)
        else:
            add_product(out, inputs.dense, right)
        tanh_rows(out)
        place += width * before + width
        at += count * width
