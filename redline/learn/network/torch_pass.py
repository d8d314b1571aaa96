"""The network as a torch module: any device, gradients by autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from redline.learn.network.layers import Layers, Network


class TorchNetwork(nn.Module):
    """A network with weights to train, drawn from torch's random stream. Its parameters' names are those of checkpoints."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.sizes = network
        self._weights: Tensor | None = None
        inputs, hidden = network.num_inputs, network.hidden
        width = hidden[-1] if hidden else inputs
        self.trunk = _trunk(inputs, hidden)
        self.critic_trunk = None if network.shared else _trunk(inputs, hidden)
        self.actor = _linear(width, network.num_seeing, gain=0.01)  # all actions equally likely at first
        self.critic = _linear(width, 1, gain=1.0)
        self.free = nn.ParameterList([torch.zeros(network.num_free)] if network.num_free else [])

    @property
    def weights(self) -> Tensor:
        """All weights as one vector, of which the layers' own are views; its `grad` is shared in the same way."""
        first = next(self.parameters())
        if self._weights is None or self._weights.data_ptr() != first.data_ptr():  # new, or moved to another device
            self._weights = self._flatten()
        return self._weights

    def layers(self) -> Layers[Tensor]:
        """The weights layer by layer, for passes that need no autograd."""
        return self.sizes.layers(self.weights.data)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.actor.weight.device

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [n, outputs] and state values [n]."""
        features = self.trunk(inputs)
        outputs = self.actor(features)
        if len(self.free):
            outputs = torch.cat([outputs, self.free[0].expand(outputs.shape[0], -1)], dim=1)
        critic_features = features if self.critic_trunk is None else self.critic_trunk(inputs)
        return outputs, self.critic(critic_features).squeeze(-1)

    def _flatten(self) -> Tensor:
        vector = torch.cat([each.detach().reshape(-1) for each in self.parameters()])
        vector.grad = torch.zeros_like(vector)
        views, grads = self._views(vector.data), self._views(vector.grad)
        for parameter, view, grad in zip(self.parameters(), views, grads, strict=True):
            parameter.data, parameter.grad = view, grad
        return vector

    def _views(self, vector: Tensor) -> list[Tensor]:
        """A vector's parts, one for each parameter."""
        layers = self.sizes.layers(vector)
        linear = [*layers.trunk, *(layers.critic_trunk or []), layers.actor, layers.critic]
        free = [layers.free] if len(self.free) else []
        return [part for layer in linear for part in layer] + free


def _trunk(size: int, hidden: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [_linear(size, width, gain=2**0.5), nn.Tanh()]
        size = width
    return nn.Sequential(*layers)


def _linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
