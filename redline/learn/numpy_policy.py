"""A policy without torch: plain arrays that can be pickled, and act in another process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redline.learn.heads.head import DrawTable, Head
from redline.learn.network import numpy_pass
from redline.learn.network.layers import Network
from redline.learn.normaliser import Shift
from redline.worlds.encoding import Encoding


@dataclass(frozen=True)
class PolicyParameters:
    """A policy at one moment, without the encoding of its observations, which every env has at hand."""

    network: Network
    head: Head
    weights: np.ndarray
    shift: Shift | None = None


class NumpyPolicy:
    """Does what the `Policy` would do that the parameters come from, within float rounding."""

    def __init__(self, parameters: PolicyParameters, encoding: Encoding) -> None:
        self.head, self._parameters, self._encoding = parameters.head, parameters, encoding
        self._network = parameters.network
        self._layers = parameters.network.layers(parameters.weights)

    memory_size, steady = 0, False

    def infer(
        self, observations: np.ndarray, masks: np.ndarray | None, table: DrawTable, memories: np.ndarray | None = None
    ) -> np.ndarray:
        """State values float32 [n] of observations; the distributions over their actions are written to `table`."""
        outputs, values = numpy_pass.forward(self._network, self._layers, self._inputs(observations))
        self.head.fill_in_numpy(outputs, masks, table)
        return values

    def state_values(self, observations: np.ndarray, memories: np.ndarray | None = None) -> np.ndarray:
        """State values float32 [n] of observations."""
        return numpy_pass.state_values(self._network, self._layers, self._inputs(observations))

    def parameters(self) -> PolicyParameters:
        """Those that this was made of."""
        return self._parameters

    def _inputs(self, observations: np.ndarray) -> np.ndarray:
        numbers = np.ascontiguousarray(self._encoding.decode(observations), np.float32)
        shift = self._parameters.shift
        return numbers if shift is None else shift.apply(numbers)
