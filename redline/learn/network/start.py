"""The weights that a network begins with."""

from __future__ import annotations

import numpy as np

from redline.learn.network.layers import Layer, Network

HIDDEN, ACTOR, CRITIC = 2**0.5, 0.01, 1.0
"""How far layers stretch what they see at first. That of the actor makes all actions about equally likely."""


def first_weights(network: Network, seed: int) -> np.ndarray:
    """A vector of weights: every layer orthogonal (Saxe et al., 2014), without a bias."""
    vector, rng = np.zeros(network.num_weights, np.float32), np.random.default_rng(seed)
    layers = network.layers(vector)
    for layer in (*layers.convs, *layers.trunk, *(layers.critic_trunk or ())):
        _draw(layer, HIDDEN, rng)
    _draw(layers.actor, ACTOR, rng)
    _draw(layers.critic, CRITIC, rng)
    return vector


def _draw(layer: Layer[np.ndarray], gain: float, rng: np.random.Generator) -> None:
    if layer.weight.size == 0:
        return
    outputs = len(layer.weight)
    inputs = layer.weight[0].size
    long_side = max(outputs, inputs)
    short_side = min(outputs, inputs)
    q, r = np.linalg.qr(rng.standard_normal((long_side, short_side)))
    q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # QR alone is not uniform
    if outputs < inputs:
        q = q.T
    layer.weight[:] = (gain * q).reshape(layer.weight.shape)
