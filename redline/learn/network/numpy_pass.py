"""The network in numpy, for workers without torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from redline.learn.network.layers import Layer, Layers, Network


def forward(network: Network, layers: Layers[np.ndarray], inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [n, outputs] and state values [n]."""
    seen = _look(network, layers, inputs)
    features = _through(network, layers.trunk, seen)
    outputs = _linear(layers.actor, features)
    if len(layers.free):
        outputs = np.hstack([outputs, np.tile(layers.free, (len(outputs), 1))])
    return outputs, _judge(network, layers, features, seen)


def state_values(network: Network, layers: Layers[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """State values [n] alone."""
    seen = _look(network, layers, inputs)
    features = _through(network, layers.trunk, seen) if layers.critic_trunk is None else seen
    return _judge(network, layers, features, seen)


def _look(network: Network, layers: Layers[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """Inputs as the fully connected layers see them: pictures go through the convolutions."""
    if not network.picture:
        return inputs
    pictures = inputs.reshape(-1, *network.picture)
    for conv, layer in zip(network.convs, layers.convs, strict=True):
        windows = sliding_window_view(pictures, (conv.side, conv.side), (2, 3))[:, :, :: conv.stride, :: conv.stride]
        # [n, channels, rows, columns, side, side] by [channels out, channels, side, side]
        seen = np.tensordot(windows, layer.weight, ((1, 4, 5), (1, 2, 3))) + layer.bias
        pictures = np.maximum(seen, 0).transpose(0, 3, 1, 2)
    return pictures.reshape(len(inputs), -1)


def _judge(network: Network, layers: Layers[np.ndarray], features: np.ndarray, seen: np.ndarray) -> np.ndarray:
    if layers.critic_trunk is not None:
        features = _through(network, layers.critic_trunk, seen)
    return _linear(layers.critic, features)[:, 0]


def _through(network: Network, trunk: list[Layer[np.ndarray]], inputs: np.ndarray) -> np.ndarray:
    activate = FUNCTIONS[network.activation]
    for layer in trunk:
        inputs = activate(_linear(layer, inputs))
    return inputs


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * np.float32(0.5) * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x**3)))


def _silu(x: np.ndarray) -> np.ndarray:
    return x * np.float32(0.5) * (1 + np.tanh(x * np.float32(0.5)))


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "elu": _elu,
    "gelu": _gelu,
    "silu": _silu,
}


def _linear(layer: Layer[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    return np.asarray(inputs @ layer.weight.T + layer.bias)
