"""The network on the CPU, with answers that do not depend on what else is asked: a row is the same in every batch."""

from __future__ import annotations

import numpy as np

from redline.learn.network.inputs import FEW, Inputs, dense_inputs, sparse_affine, sparse_inputs
from redline.learn.network.layers import Layer, Layers
from redline.learn.network.products import affine, judge, tanh_rows

WORTH_LOOKING = 32
"""Rows from which on it is worth looking for zeros among them."""


def forward(layers: Layers[np.ndarray], numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [n, outputs] and state values [n] of inputs float32 [n, inputs]."""
    inputs = _seen(layers, numbers)
    features = _through(layers.trunk, inputs)
    outputs = np.empty((len(numbers), len(layers.actor.bias) + len(layers.free)), np.float32)
    affine(features, *layers.actor, outputs[:, : len(layers.actor.bias)])
    outputs[:, len(layers.actor.bias) :] = layers.free
    return outputs, _judged(layers, features, inputs)


def state_values(layers: Layers[np.ndarray], numbers: np.ndarray) -> np.ndarray:
    """State values [n] alone."""
    inputs = _seen(layers, numbers)
    features = _through(layers.trunk, inputs) if layers.critic_trunk is None else numbers
    return _judged(layers, features, inputs)


def _seen(layers: Layers[np.ndarray], numbers: np.ndarray) -> Inputs:
    """Inputs without the zeros among them, where that is worth it."""
    sparse = sparse_inputs(numbers, FEW) if layers.trunk and len(numbers) >= WORTH_LOOKING else None
    return dense_inputs(numbers) if sparse is None else sparse


def _judged(layers: Layers[np.ndarray], features: np.ndarray, inputs: Inputs) -> np.ndarray:
    if layers.critic_trunk is not None:
        features = _through(layers.critic_trunk, inputs)
    values = np.empty(len(features), np.float32)
    judge(features, *layers.critic, values)
    return values


def _through(trunk: list[Layer[np.ndarray]], inputs: Inputs) -> np.ndarray:
    """What a trunk makes of inputs; one without layers leaves them as they are."""
    below = inputs.dense
    for k, layer in enumerate(trunk):
        hidden = np.empty((inputs.num_rows, len(layer.bias)), np.float32)
        if k == 0 and inputs.is_sparse:
            sparse_affine(inputs, *layer, hidden)
        else:
            affine(below, *layer, hidden)
        tanh_rows(hidden)
        below = hidden
    return below
