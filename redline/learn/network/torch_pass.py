"""The network as a torch module: any device, gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    """A network with weights to train, drawn from torch's random stream. Its parameters' names are those of checkpoints."""

    memory_size = 0

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.sizes, self.by_hand = network, network.by_hand
        self._layers: Layers[Tensor] | None = None
        inputs, hidden = network.num_features, network.hidden
        width = hidden[-1] if hidden else inputs
        self.convs = convs(network) if network.picture else None
        self.trunk = trunk(inputs, hidden, network.activation)
        self.critic_trunk = None if network.shared else trunk(inputs, hidden, network.activation)
        self.actor = linear(width, network.num_seeing, gain=0.01)  # all actions equally likely at first
        self.critic = linear(width, 1, gain=1.0)
        self.free = free_parameters(network.num_free)

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
        layer = nn.Conv2d(channels, conv.channels, conv.side, conv.stride)
        nn.init.orthogonal_(layer.weight, 2**0.5)
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        layers += [layer, nn.ReLU()]
        channels = conv.channels
    return nn.Sequential(*layers)


def trunk(size: int, hidden: Sequence[int], activation: str) -> nn.Sequential:
    """Hidden layers, each followed by the activation."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [linear(size, width, gain=2**0.5), MODULES[activation]()]
        size = width
    return nn.Sequential(*layers)


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A fully connected layer, orthogonal at first."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
