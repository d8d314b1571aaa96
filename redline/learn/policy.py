"""The policy: a network, and a head that says what its outputs mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from redline.learn.heads.head import Distribution, DrawTable, Head
from redline.learn.network.compiled_pass import forward
from redline.learn.network.layers import Network
from redline.learn.network.torch_pass import TorchNetwork
from redline.learn.numpy_policy import PolicyParameters
from redline.worlds.encoding import Encoding, Image


class Policy:
    """Maps stored observations to distributions over actions and state values, with weights to train."""

    def __init__(
        self,
        encoding: Encoding,
        head: Head,
        hidden: Sequence[int] = (64, 64),
        shared: bool = False,
        activation: str = "tanh",
    ) -> None:
        """`shared` gives actor and critic one trunk instead of one each."""
        self.encoding, self.head = encoding, head
        picture = encoding.picture if isinstance(encoding, Image) else ()
        sizes = encoding.size, head.num_outputs
        self.network = TorchNetwork(Network(*sizes, tuple(hidden), shared, head.num_free, activation, picture))

    @property
    def weights(self) -> Tensor:
        """All weights as one vector; see `TorchNetwork.weights`."""
        return self.network.weights

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    def to(self, device: torch.device) -> Policy:
        """The same policy, moved to a device."""
        self.network.to(device)
        return self

    def inputs(self, observations: np.ndarray) -> Tensor:
        """Stored observations as the network takes them: float32 [n, inputs], on its device."""
        numbers = np.ascontiguousarray(self.encoding.decode(observations), np.float32)
        return torch.from_numpy(numbers).to(self.device)

    def __call__(self, inputs: Tensor, masks: Tensor | None = None) -> tuple[Distribution, Tensor]:
        """Distributions over the actions that `masks` allow, and state values [n], both known to autograd."""
        outputs, values = self.network(inputs)
        return self.head.distribution(outputs, masks), values

    def infer(self, observations: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> np.ndarray:
        """State values float32 [n] of observations; the distributions over their actions are written to `table`."""
        inputs = self.inputs(observations)
        if self.device.type == "cpu":
            passed = forward(self.network.sizes, self.network.layers(), inputs)
            outputs, values = passed.outputs, passed.values[:, 0]
        else:
            with torch.inference_mode():
                outputs, values = self.network(inputs)
        self.head.fill(outputs.cpu().numpy(), masks, table)
        return np.asarray(values.cpu().numpy())

    def state_values(self, observations: np.ndarray) -> np.ndarray:
        """State values float32 [n] of observations."""
        with torch.inference_mode():
            return np.asarray(self.network(self.inputs(observations))[1].cpu().numpy())

    def parameters(self) -> PolicyParameters:
        """The policy as it is now, for a process without torch."""
        return PolicyParameters(self.network.sizes, self.head, self.weights.detach().cpu().numpy().copy())

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by the names that checkpoints know them by."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.network.state_dict().items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the weights that `arrays` gave."""
        self.network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
