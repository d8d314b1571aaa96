"""The network in numpy, for workers without torch."""

from __future__ import annotations

import numpy as np

from redline.learn.network.layers import Layer, Layers


def forward(layers: Layers[np.ndarray], inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [n, outputs] and state values [n]."""
    features = _through(layers.trunk, inputs)
    outputs = _linear(layers.actor, features)
    if len(layers.free):
        outputs = np.hstack([outputs, np.tile(layers.free, (len(outputs), 1))])
    return outputs, _judge(layers, features, inputs)


def state_values(layers: Layers[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """State values [n] alone."""
    features = _through(layers.trunk, inputs) if layers.critic_trunk is None else inputs
    return _judge(layers, features, inputs)


def _judge(layers: Layers[np.ndarray], features: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    if layers.critic_trunk is not None:
        features = _through(layers.critic_trunk, inputs)
    return _linear(layers.critic, features)[:, 0]


def _through(trunk: list[Layer[np.ndarray]], inputs: np.ndarray) -> np.ndarray:
    for layer in trunk:
        inputs = np.tanh(_linear(layer, inputs))
    return inputs


def _linear(layer: Layer[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    return np.asarray(inputs @ layer.weight.T + layer.bias)
