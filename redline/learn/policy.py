"""The policy: a network, and a head that says what its outputs mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from redline.errors import RedlineError
from redline.learn.heads.head import Distribution, DrawTable, Head
from redline.learn.network import steady_pass
from redline.learn.network.compiled_pass import forward
from redline.learn.network.custom import CustomNetwork
from redline.learn.network.layers import Layers, Network
from redline.learn.network.recurrent import RecurrentNetwork
from redline.learn.network.torch_pass import TorchNetwork
from redline.learn.normaliser import Normaliser
from redline.learn.numpy_policy import PolicyParameters
from redline.rollout import Rollout
from redline.worlds.encoding import Encoding, Image

NORMALISER = "normaliser"
"""Under which name checkpoints hold what is known of the observations."""
Module = Callable[[int, int], torch.nn.Module] | torch.nn.Module


class Policy:
    """Maps stored observations to distributions over actions and state values, with weights to train."""

    def __init__(
        self,
        encoding: Encoding,
        head: Head,
        hidden: Sequence[int] = (64, 64),
        shared: bool = False,
        activation: str = "tanh",
        recurrent: str = "",
        normalise: bool = False,
        module: Module | None = None,
    ) -> None:
        """`shared` gives actor and critic one trunk instead of one each; a `module` of one's own stands for all layers."""
        self.encoding, self.head = encoding, head
        picture = encoding.picture if isinstance(encoding, Image) else ()
        if normalise and picture:
            raise RedlineError("Pictures are scaled already: --normalise-observations is for numbers. Leave it out.")
        self.normaliser = Normaliser(encoding.size) if normalise else None
        sizes = Network(
            encoding.size, head.num_outputs, tuple(hidden), shared, head.num_free, activation, picture, recurrent
        )
        self.network: TorchNetwork | RecurrentNetwork | CustomNetwork
        if module is not None:
            self.network = CustomNetwork(module, sizes)
        else:
            self.network = RecurrentNetwork(sizes) if recurrent else TorchNetwork(sizes)

    @property
    def memory_size(self) -> int:
        """Numbers that it remembers from one step of an env to the next; 0 where it remembers nothing."""
        return self.network.memory_size

    @property
    def steady(self) -> bool:
        """Whether its answer to an observation is the same, to the last bit, whatever else is asked with it."""
        return isinstance(self.network, TorchNetwork) and self.network.sizes.steady and self.device.type == "cpu"

    def layers(self) -> Layers[Tensor]:
        """The weights layer by layer, of a network that has its layers in that order."""
        assert isinstance(self.network, TorchNetwork), (
            "networks of one's own, and those that remember, have other layers"
        )
        return self.network.layers()

    @property
    def gradient_plan(self) -> str:
        """How its gradient is found on a CPU, in words."""
        if self.network.by_hand:
            return "gradient by hand"
        sizes = self.network.sizes
        why = f"activation {sizes.activation}"
        if self.memory_size:
            why = f"a recurrent network ({sizes.recurrent})"
        if isinstance(self.network, CustomNetwork):
            why = f"a network of your own ({type(self.network.module).__name__})"
        return f"gradient by autograd: {why}"

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
        return torch.from_numpy(self.numbers(observations)).to(self.device)

    def numbers(self, observations: np.ndarray) -> np.ndarray:
        """Stored observations as the network takes them, in numpy."""
        numbers = np.ascontiguousarray(self.encoding.decode(observations), np.float32)
        return numbers if self.normaliser is None else self.normaliser.shift.apply(numbers)

    def see(self, rollout: Rollout) -> None:
        """Count the observations of a rollout in, where they are normalised."""
        if self.normaliser is not None:
            visits = np.bincount(rollout.flat(rollout.rows), minlength=len(rollout.observations))
            self.normaliser.see(self.encoding.decode(rollout.observations), visits)

    def __call__(self, inputs: Tensor, masks: Tensor | None = None) -> tuple[Distribution, Tensor]:
        """Distributions over the actions that `masks` allow, and state values [n], both known to autograd."""
        outputs, values = self.network(inputs)
        return self.head.distribution(outputs, masks), values

    def replay(
        self, inputs: Tensor, masks: Tensor | None, memories: Tensor, begins: np.ndarray
    ) -> tuple[Distribution, Tensor]:
        """The same for sequences of inputs [T, n, inputs], with rows in order of time; see `RecurrentNetwork.forward`."""
        outputs, values = self.network(inputs, memories, begins)
        return self.head.distribution(outputs, masks), values

    def infer(
        self, observations: np.ndarray, masks: np.ndarray | None, table: DrawTable, memories: np.ndarray | None = None
    ) -> np.ndarray:
        """State values float32 [n] of observations; the distributions over their actions are written to `table`.

        What is remembered of each env is written to `memories` [n, memory size], where there is any.
        """
        if isinstance(self.network, RecurrentNetwork):
            assert memories is not None
            found, found_values, memories[:] = self.network.step(self.numbers(observations), memories)
            self.head.fill_in_numpy(found, masks, table)
            return found_values
        if self.steady:
            outputs, values = self.steady_outputs(observations)
        elif self.device.type == "cpu" and isinstance(self.network, TorchNetwork):
            passed = forward(self.network.sizes, self.network.layers(), self.inputs(observations))
            outputs, values = passed.outputs.numpy(), passed.values[:, 0].numpy()
        else:
            with torch.inference_mode():
                outputs, values = (each.cpu().numpy() for each in self.network(self.inputs(observations)))
        self.head.fill(outputs, masks, table)
        return values

    def steady_outputs(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outputs [n, outputs] and state values [n] of observations, where they are steady."""
        return steady_pass.forward(self.network.sizes, self._vector(), self.numbers(observations))

    def state_values(self, observations: np.ndarray, memories: np.ndarray | None = None) -> np.ndarray:
        """State values float32 [n] of observations: those that `infer` tells."""
        if isinstance(self.network, RecurrentNetwork):
            assert memories is not None
            return self.network.step(self.numbers(observations), memories)[1]
        if self.steady:
            return steady_pass.state_values(self.network.sizes, self._vector(), self.numbers(observations))
        with torch.inference_mode():
            return np.asarray(self.network(self.inputs(observations))[1].cpu().numpy())

    def _vector(self) -> np.ndarray:
        """All weights as numpy sees them: the same memory."""
        return self.weights.detach().numpy()

    def parameters(self) -> PolicyParameters:
        """The policy as it is now, for a process without torch."""
        if not isinstance(self.network, TorchNetwork):
            raise RedlineError(
                "A recurrent network or one of your own acts in this process only, and engines pool and ray act in workers. "
                "Try --engine shared."
            )
        shift = None if self.normaliser is None else self.normaliser.shift
        return PolicyParameters(self.network.sizes, self.head, self.weights.detach().cpu().numpy().copy(), shift)

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by the names that checkpoints know them by."""
        arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.network.state_dict().items()}
        return arrays if self.normaliser is None else {**arrays, NORMALISER: self.normaliser.snapshot()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the weights that `arrays` gave."""
        weights = {name: torch.from_numpy(array) for name, array in arrays.items() if name != NORMALISER}
        self.network.load_state_dict(weights)
        if self.normaliser is not None and NORMALISER in arrays:
            self.normaliser.restore(arrays[NORMALISER])


def copy_of(policy: Policy) -> Policy:
    """Another policy that plays alike, of the usual kind of network."""
    sizes = policy.network.sizes
    copy = Policy(policy.encoding, policy.head, sizes.hidden, sizes.shared)
    copy.load(policy.arrays())
    return copy
