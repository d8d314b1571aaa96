"""The network and its gradient worked out by hand, for the CPU.

What autograd does in a hundred small passes over memory is done here in a few: matrix products by torch, everything
between them by compiled loops that touch each number once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from redline.learn.loops import loop, tanh
from redline.learn.network.layers import Layer, Layers, Network
from redline.learn.network.torch_pass import MODULES

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Forward(NamedTuple):
    """All that a pass through the network computes. It stands in memory that the thread's next pass writes over."""

    trunk: list[Tensor]  # activations, beginning with what the fully connected layers see
    critic_trunk: list[Tensor]
    outputs: Tensor  # [n, outputs]
    values: Tensor  # [n, 1]
    pictures: list[Tensor]  # what every convolution makes, beginning with the pictures; none where there are none


def forward(network: Network, layers: Layers[Tensor], inputs: Tensor) -> Forward:
    """Outputs and state values of inputs float32 [n, inputs], and what led to them."""
    with torch.no_grad():
        activate = FORWARD[network.activation]
        pictures = _look(network, layers, inputs)
        seen = pictures[-1].flatten(1) if pictures else inputs
        trunk = _forward_trunk(layers.trunk, "actor", seen, activate)
        critic_trunk = trunk
        if layers.critic_trunk is not None:
            critic_trunk = _forward_trunk(layers.critic_trunk, "critic", seen, activate)
        outputs = _linear(layers.actor, "outputs", trunk[-1])
        if len(layers.free):
            outputs = torch.cat([outputs, layers.free.expand(len(outputs), -1)], dim=1)
        return Forward(trunk, critic_trunk, outputs, _linear(layers.critic, "values", critic_trunk[-1]), pictures)


def _look(network: Network, layers: Layers[Tensor], inputs: Tensor) -> list[Tensor]:
    """The inputs as pictures and then what every convolution makes of them; nothing where they are none."""
    pictures = [inputs.reshape(-1, *network.picture)] if network.picture else []
    for conv, layer in zip(network.convs, layers.convs, strict=True):
        pictures.append(torch.conv2d(pictures[-1], layer.weight, layer.bias, conv.stride).relu_())
    return pictures


def backward(
    network: Network,
    layers: Layers[Tensor],
    grads: Layers[Tensor],
    passed: Forward,
    outputs_grad: Tensor,
    values_grad: Tensor,
) -> None:
    """Write the gradients of all weights, given those at the outputs and at the state values [n, 1].

    For networks that say that this can be done (`Network.by_hand`).
    """
    with torch.no_grad():
        if len(grads.free):
            torch.sum(outputs_grad[:, -len(grads.free) :], dim=0, out=grads.free)
            outputs_grad = outputs_grad[:, : -len(grads.free)]
        at_actor = _back_linear(layers.actor, grads.actor, "at actor", passed.trunk[-1], outputs_grad)
        at_critic = _back_linear(layers.critic, grads.critic, "at critic", passed.critic_trunk[-1], values_grad)
        back = functools.partial(_back_trunk, through=BACKWARD[network.activation], inputs_too=bool(network.picture))
        if layers.critic_trunk is None or grads.critic_trunk is None:
            at_seen = back(layers.trunk, grads.trunk, "at trunk", passed.trunk, at_actor.add_(at_critic))
        else:
            at_seen = back(layers.trunk, grads.trunk, "at actor trunk", passed.trunk, at_actor)
            beside = back(layers.critic_trunk, grads.critic_trunk, "at critic trunk", passed.critic_trunk, at_critic)
            at_seen = at_seen.add_(beside) if network.picture else at_seen
        _back_convs(network, layers, grads, passed.pictures, at_seen)


def _back_convs(
    network: Network, layers: Layers[Tensor], grads: Layers[Tensor], pictures: list[Tensor], gradient: Tensor
) -> None:
    """Write the gradients of the convolutions, if there are any, given the one at what the last of them makes."""
    for k in range(len(network.convs) - 1, -1, -1):
        layer, grad, stride = layers.convs[k], grads.convs[k], network.convs[k].stride
        gradient = gradient.reshape(pictures[k + 1].shape).masked_fill(pictures[k + 1] <= 0, 0.0)
        grad.weight.copy_(conv2d_weight(pictures[k], layer.weight.shape, gradient, stride))
        torch.sum(gradient, dim=(0, 2, 3), out=grad.bias)
        if k > 0:
            gradient = conv2d_input(pictures[k].shape, layer.weight, gradient, stride)


class Scratch(threading.local):
    """Memory for intermediate results, kept by each thread: fresh memory costs more than what is computed in it."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, int], Tensor] = {}

    def take(self, name: str, rows: int, columns: int) -> Tensor:
        """An uninitialised float32 [rows, columns]; the same memory for every caller that gives this name."""
        found = self._buffers.get((name, columns))
        if found is None or len(found) < rows:
            found = self._buffers[name, columns] = torch.empty(rows, columns)
        return found[:rows]


scratch = Scratch()


@loop
def _tanh(x):
    """In place, all of a contiguous array."""
    flat = x.ravel()
    for i in range(flat.size):
        flat[i] = tanh(flat[i])


@loop
def _through_tanh(activations, gradient):
    """Gradient at the inputs of tanh, in place, from that at its outputs."""
    y, g = activations.ravel(), gradient.ravel()
    for i in range(y.size):
        g[i] *= _ONE - y[i] * y[i]


@loop
def _relu(x):
    """In place, all of a contiguous array."""
    flat = x.ravel()
    for i in range(flat.size):
        flat[i] = max(flat[i], _ZERO)


@loop
def _through_relu(activations, gradient):
    """Gradient at the inputs of the rectifier, in place, from that at its outputs."""
    y, g = activations.ravel(), gradient.ravel()
    for i in range(y.size):
        g[i] = g[i] if y[i] > _ZERO else _ZERO


@loop
def _elu(x):
    """In place, all of a contiguous array."""
    flat = x.ravel()
    for i in range(flat.size):
        flat[i] = flat[i] if flat[i] > _ZERO else np.expm1(flat[i])


@loop
def _through_elu(activations, gradient):
    """Gradient at the inputs of elu, in place, from that at its outputs."""
    y, g = activations.ravel(), gradient.ravel()
    for i in range(y.size):
        g[i] *= _ONE if y[i] > _ZERO else y[i] + _ONE


def _by_torch(module: Callable[[Tensor], Tensor]) -> Callable[[np.ndarray], None]:
    """An activation of torch's own, in place."""

    def activate(x: np.ndarray) -> None:
        tensor = torch.from_numpy(x)
        tensor.copy_(module(tensor))

    return activate


FORWARD: dict[str, Callable[[np.ndarray], None]] = {
    "tanh": _tanh,
    "relu": _relu,
    "elu": _elu,
    "gelu": _by_torch(MODULES["gelu"]()),
    "silu": _by_torch(MODULES["silu"]()),
}
BACKWARD: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "tanh": _through_tanh,
    "relu": _through_relu,
    "elu": _through_elu,
}


def _forward_trunk(
    trunk: list[Layer[Tensor]], name: str, inputs: Tensor, activate: Callable[[np.ndarray], None]
) -> list[Tensor]:
    """The inputs and then the activations of every hidden layer."""
    activations = [inputs]
    for k, layer in enumerate(trunk):
        hidden = _linear(layer, f"{name} {k}", activations[-1])
        activate(hidden.numpy())
        activations.append(hidden)
    return activations


def _linear(layer: Layer[Tensor], name: str, inputs: Tensor) -> Tensor:
    out = scratch.take(name, inputs.shape[0], layer.bias.shape[0])
    return torch.addmm(layer.bias, inputs, layer.weight.t(), out=out)


def _back_trunk(
    trunk: list[Layer[Tensor]],
    grads: list[Layer[Tensor]],
    name: str,
    activations: list[Tensor],
    gradient: Tensor,
    through: Callable[[np.ndarray, np.ndarray], None],
    inputs_too: bool,
) -> Tensor:
    """Write the trunk's gradients, given the one at its last activations. Returns that at its inputs, if it is wanted."""
    for k in range(len(trunk) - 1, -1, -1):
        through(activations[k + 1].numpy(), gradient.numpy())
        wanted = inputs_too or k > 0
        gradient = _back_linear(trunk[k], grads[k], f"{name} {k}", activations[k], gradient, inputs_too=wanted)
    return gradient


def _back_linear(
    layer: Layer[Tensor], grad: Layer[Tensor], name: str, inputs: Tensor, gradient: Tensor, inputs_too: bool = True
) -> Tensor:
    """Write a layer's gradients and return the one at its inputs."""
    torch.mm(gradient.t(), inputs, out=grad.weight)
    torch.sum(gradient, dim=0, out=grad.bias)
    if not inputs_too:
        return gradient
    return torch.mm(gradient, layer.weight, out=scratch.take(name, *inputs.shape))
