"""The network on the CPU, with answers that do not depend on what else is asked: a row is the same in every batch."""

from __future__ import annotations

import numpy as np

from redline.learn.loops import loop
from redline.learn.network.inputs import FEW, NEVER, seen
from redline.learn.network.layers import Network
from redline.learn.network.products import add_product, judge, spread
from redline.learn.network.trunks import look_through, num_hidden, num_weights, turned, view

BLOCK = 64
"""Rows that are worked out together: few enough that all of it stays in the nearest caches."""


def forward(network: Network, weights: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [n, outputs] and state values [n] of inputs float32 [n, inputs]."""
    outputs = np.empty((len(numbers), network.num_seeing), np.float32)
    values = _answered(network, weights, numbers, outputs)
    if network.num_free:
        free = weights[-network.num_free :]
        outputs = np.concatenate([outputs, np.broadcast_to(free, (len(outputs), len(free)))], axis=1)
    return outputs, values


def state_values(network: Network, weights: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """State values [n] alone: the same machine code, so the same to the last bit."""
    return _answered(network, weights, numbers, np.empty((0, network.num_seeing), np.float32))


def _answered(network: Network, weights: np.ndarray, numbers: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    values = np.empty(len(numbers), np.float32)
    answer(weights, network.widths, network.shared, numbers, FEW if network.hidden else NEVER, outputs, values)
    return values


@loop
def answer(weights, widths, shared, numbers, few, outputs, values):
    """Write outputs and state values of inputs [n, inputs]; the values alone where `outputs` has no rows."""
    right = turned(weights, widths, outputs.shape[1], shared)
    for first in range(0, len(numbers), BLOCK):
        last = min(first + BLOCK, len(numbers))
        _answer_block(right, widths, shared, numbers[first:last], few, outputs[first:last], values[first:last])


@loop
def _answer_block(weights, widths, shared, numbers, few, outputs, values):
    count, width, num_outputs = numbers.shape[0], widths[-1], outputs.shape[1]
    inputs = seen(numbers, few)
    size = num_weights(widths)
    actor_at = size if shared else 2 * size
    critic_at = actor_at + num_outputs * width + num_outputs
    hidden = np.empty(count * num_hidden(widths), np.float32)
    features = view(hidden, len(hidden) - count * width, count, width) if len(widths) > 1 else numbers
    if shared or len(outputs):
        look_through(weights, 0, widths, inputs, hidden)
    if len(outputs):
        spread(weights[critic_at - num_outputs : critic_at], outputs)
        add_product(outputs, features, view(weights, actor_at, width, num_outputs))
    if not shared:
        look_through(weights, size, widths, inputs, hidden)
    judge(features, view(weights, critic_at, 1, width), weights[critic_at + width :], values)
