"""The network as a torch module: any device, gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from redline.learn.network.flat import FlatModule, append_free, free_parameters
from redline.learn.network.layers import Layers, Network

MODULES: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": lambda: nn.GELU(approximate="tanh"),
    "silu": nn.SiLU,
}


class TorchNetwork(FlatModule):
    """A network with weights to train. Its parameters' names are those of checkpoints."""

    memory_size = 0

    def __init__(self, network: Network, weights: np.ndarray, gradient: np.ndarray) -> None:
        """`weights` and their `gradient` are vectors as `network` has them: their memory is shared."""
        super().__init__()
        self.sizes = network
        self._layers: Layers[Tensor] | None = None
        inputs, hidden = network.num_features, network.hidden
        width = hidden[-1] if hidden else inputs
        with torch.random.fork_rng(devices=[]):  # what torch draws for a new layer is not used
            self.convs = convs(network) if network.picture else None
            self.trunk = trunk(inputs, hidden, network.activation)
            self.critic_trunk = None if network.shared else trunk(inputs, hidden, network.activation)
            self.actor, self.critic = nn.Linear(width, network.num_seeing), nn.Linear(width, 1)
        self.free = free_parameters(network.num_free)
        vector = torch.from_numpy(weights)
        vector.grad = torch.from_numpy(gradient)
        self._weights = self.share(vector)

    def layers(self) -> Layers[Tensor]:
        """The weights layer by layer, for passes that need no autograd."""
        weights = self.weights
        if self._layers is None:
            self._layers = self.sizes.layers(weights.data)
        return self._layers

    def scale_values(self, factor: float) -> None:
        """Let the state values be that many times as large."""
        for weights in self.layers().critic:
            weights.mul_(factor)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [n, outputs] and state values [n]."""
        if self.convs is not None:
            inputs = self.convs(inputs.reshape(-1, *self.sizes.picture)).flatten(1)
        features = self.trunk(inputs)
        outputs = self.actor(features)
        outputs = append_free(outputs, self.free)
        critic_features = features if self.critic_trunk is None else self.critic_trunk(inputs)
        return outputs, self.critic(critic_features).squeeze(-1)

    def _flatten(self) -> Tensor:
        self._layers = None
        return super()._flatten()


def convs(network: Network) -> nn.Sequential:
    """The convolutions that pictures go through."""
    layers: list[nn.Module] = []
    channels = network.picture[0]
    for conv in network.convs:
        layers += [nn.Conv2d(channels, conv.channels, conv.side, conv.stride), nn.ReLU()]
        channels = conv.channels
    return nn.Sequential(*layers)


def trunk(size: int, hidden: Sequence[int], activation: str) -> nn.Sequential:
    """Hidden layers, each followed by the activation."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(size, width), MODULES[activation]()]
        size = width
    return nn.Sequential(*layers)
