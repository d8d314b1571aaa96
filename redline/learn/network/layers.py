"""The network: an actor and a critic on top of small fully connected layers, and its weights as one vector.

It is worked out in three ways that stand side by side: `torch_pass` (autograd, any device), `compiled_pass` (forward and
gradient by hand, on the CPU) and `numpy_pass` (forward, in workers without torch). All read their weights from the same
vector, seen layer by layer as `Network.layers` has it, and agree within float rounding.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")


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

    @property
    def num_seeing(self) -> int:
        """Outputs that depend on the inputs."""
        return self.num_outputs - self.num_free

    @property
    def num_weights(self) -> int:
        """Length of the vector."""
        return sum(outputs * inputs + outputs for inputs, outputs in self._sizes()) + self.num_free

    def layers(self, vector: Array) -> Layers[Array]:
        """A vector of `num_weights` numbers as the layers' own, which are views of it."""
        place = 0
        found = []
        for inputs, outputs in self._sizes():
            middle, end = place + outputs * inputs, place + outputs * inputs + outputs
            found.append(Layer(vector[place:middle].reshape(outputs, inputs), vector[middle:end]))
            place = end
        depth = len(self.hidden)
        critic_trunk = None if self.shared else found[depth : 2 * depth]
        return Layers(found[:depth], critic_trunk, found[-2], found[-1], vector[place:])

    def _sizes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of every layer, in the order of the vector: trunk, critic's trunk, actor, critic."""
        widths = (self.num_inputs, *self.hidden)
        trunk = list(itertools.pairwise(widths))
        return [*trunk, *([] if self.shared else trunk), (widths[-1], self.num_seeing), (widths[-1], 1)]
