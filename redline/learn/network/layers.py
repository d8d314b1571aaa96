"""The network: an actor and a critic on top of small fully connected layers, and its weights as one vector.

Pictures go through a few convolutions first, which actor and critic share. It is worked out in three ways that stand
side by side: `torch_pass` (autograd, any device), `compiled_pass` (forward, and for most networks the gradient by hand, on
the CPU) and `numpy_pass` (forward, in workers without torch). All read their weights from the same vector, seen layer by
layer as `Network.layers` has it, and agree within float rounding.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")

ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "silu")
"""What may follow a hidden layer. Of gelu it is the form with tanh (Hendrycks and Gimpel, 2016)."""
BY_HAND = ("tanh", "relu", "elu")
"""Those whose slope follows from what they make of a number."""


class Layer(NamedTuple, Generic[Array]):
    """Weight [outputs, inputs] and bias [outputs] of a linear layer."""

    weight: Array
    bias: Array


class Layers(NamedTuple, Generic[Array]):
    """A vector of weights, or of their gradients, seen layer by layer."""

    trunk: list[Layer[Array]]
    critic_trunk: list[Layer[Array]] | None  # none where actor and critic share one
    actor: Layer[Array]
    critic: Layer[Array]
    free: Array  # [free]
    convs: list[
        Layer[Array]
    ] = []  # weights [channels out, channels in, rows, columns]; none where no pictures are seen


class Conv(NamedTuple):
    """A convolution, followed by a rectifier."""

    channels: int
    side: int
    """Rows and columns that it sees at once."""
    stride: int

    def out(self, picture: tuple[int, ...]) -> tuple[int, ...]:
        """Channels, rows and columns of what it makes of a picture."""
        return (self.channels, *((size - self.side) // self.stride + 1 for size in picture[1:]))


def convs_for(picture: tuple[int, ...]) -> tuple[Conv, ...]:
    """Convolutions that suit a picture of that many channels, rows and columns.

    For large ones those of Mnih et al. (2015), for small ones the single layer of Young and Tian (2019).
    """
    smallest = min(picture[1:])
    if smallest >= 36:
        return Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1)
    if smallest >= 12:
        return Conv(32, 3, 2), Conv(32, 3, 2)
    return (Conv(16, 3, 1),)


@dataclass(frozen=True)
class Network:
    """The sizes of a network, which say all about it but its weights.

    The last `num_free` of its outputs are weights themselves: learned numbers that are the same whatever it sees.
    """

    num_inputs: int
    num_outputs: int
    hidden: tuple[int, ...] = (64, 64)
    shared: bool = False
    """One trunk for actor and critic instead of one each."""
    num_free: int = 0
    activation: str = "tanh"
    """What follows every hidden layer: one of `ACTIVATIONS`."""
    picture: tuple[int, ...] = ()
    """Channels, rows and columns of the inputs, where these are pictures."""
    recurrent: str = ""
    """gru or lstm, where it is to remember; see `redline.learn.network.recurrent`."""

    @property
    def by_hand(self) -> bool:
        """Whether its gradient can be worked out without autograd."""
        return self.activation in BY_HAND

    @property
    def steady(self) -> bool:
        """Whether it can be worked out so that a row is the same in every batch; see `steady_pass`."""
        return self.activation == "tanh" and not self.picture and not self.recurrent

    @property
    def convs(self) -> tuple[Conv, ...]:
        """The convolutions that pictures go through."""
        return convs_for(self.picture) if self.picture else ()

    @property
    def num_features(self) -> int:
        """Numbers that the fully connected layers see."""
        picture = self.picture
        for conv in self.convs:
            picture = conv.out(picture)
        return int(np.prod(picture)) if self.picture else self.num_inputs

    @functools.cached_property
    def widths(self) -> np.ndarray:
        """Numbers of inputs and of what each hidden layer makes of them, int64 [layers + 1]."""
        return np.array([self.num_inputs, *self.hidden])

    @property
    def num_seeing(self) -> int:
        """Outputs that depend on the inputs."""
        return self.num_outputs - self.num_free

    @property
    def num_weights(self) -> int:
        """Length of the vector."""
        shapes = [*self._conv_shapes(), *((outputs, inputs) for inputs, outputs in self._sizes())]
        return sum(int(np.prod(shape)) + shape[0] for shape in shapes) + self.num_free

    def layers(self, vector: Array) -> Layers[Array]:
        """A vector of `num_weights` numbers as the layers' own, which are views of it."""
        place = 0
        found = []
        conv_shapes: list[tuple[int, ...]] = self._conv_shapes()
        for shape in [*conv_shapes, *((outputs, inputs) for inputs, outputs in self._sizes())]:
            middle = place + int(np.prod(shape))
            end = middle + shape[0]
            found.append(Layer(vector[place:middle].reshape(shape), vector[middle:end]))
            place = end
        linear, depth = found[len(conv_shapes) :], len(self.hidden)
        critic_trunk = None if self.shared else linear[depth : 2 * depth]
        return Layers(linear[:depth], critic_trunk, linear[-2], linear[-1], vector[place:], found[: len(conv_shapes)])

    def by_name(self, vector: Array) -> dict[str, Array]:
        """The same by the names that checkpoints know them by, in the order of the vector."""
        layers = self.layers(vector)
        named = [(f"convs.{2 * k}", layer) for k, layer in enumerate(layers.convs)]  # each followed by a function
        named += [(f"trunk.{2 * k}", layer) for k, layer in enumerate(layers.trunk)]
        named += [(f"critic_trunk.{2 * k}", layer) for k, layer in enumerate(layers.critic_trunk or ())]
        named += [("actor", layers.actor), ("critic", layers.critic)]
        found = {f"{name}.{part}": getattr(layer, part) for name, layer in named for part in Layer._fields}
        return {**found, "free.0": layers.free} if self.num_free else found

    def _conv_shapes(self) -> list[tuple[int, ...]]:
        """The weights of every convolution."""
        channels = [*self.picture[:1], *(conv.channels for conv in self.convs)]
        return [
            (conv.channels, before, conv.side, conv.side) for conv, before in zip(self.convs, channels, strict=False)
        ]

    def _sizes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of every layer, in the order of the vector: trunk, critic's trunk, actor, critic."""
        widths = (self.num_features, *self.hidden)
        trunk = list(itertools.pairwise(widths))
        return [*trunk, *([] if self.shared else trunk), (widths[-1], self.num_seeing), (widths[-1], 1)]
