"""The network on the CPU, with answers that do not depend on what else is asked: a row is the same in every batch."""

from __future__ import annotations

import numpy as np

from redline.learn.network.layers import Layer, Layers
from redline.learn.network.products import affine, judge, tanh_rows


def forward(layers: Layers[np.ndarray], inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [n, outputs] and state values [n] of inputs float32 [n, inputs]."""
    features = _through(layers.trunk, inputs)
    outputs = np.empty((len(inputs), len(layers.actor.bias) + len(layers.free)), np.float32)
    affine(features, *layers.actor, outputs[:, : len(layers.actor.bias)])
    outputs[:, len(layers.actor.bias) :] = layers.free
    return outputs, _judged(layers, features, inputs)


def state_values(layers: Layers[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """State values [n] alone."""
    features = _through(layers.trunk, inputs) if layers.critic_trunk is None else inputs
    return _judged(layers, features, inputs)


def _judged(layers: Layers[np.ndarray], features: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    if layers.critic_trunk is not None:
        features = _through(layers.critic_trunk, inputs)
    values = np.empty(len(inputs), np.float32)
    judge(features, *layers.critic, values)
    return values


def _through(trunk: list[Layer[np.ndarray]], inputs: np.ndarray) -> np.ndarray:
    for layer in trunk:
        hidden = np.empty((len(inputs), len(layer.bias)), np.float32)
        affine(inputs, *layer, hidden)
        tanh_rows(hidden)
        inputs = hidden
    return inputs
