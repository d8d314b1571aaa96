"""The policy: a network, and a head that says what its outputs mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from redline.errors import RedlineError
from redline.learn.heads.head import Distribution, DrawTable, Head
from redline.learn.network import steady_pass
from redline.learn.network.layers import Layers, Network
from redline.learn.network.start import first_weights
from redline.learn.normaliser import Normaliser
from redline.learn.numpy_policy import PolicyParameters
from redline.rollout import Rollout
from redline.worlds.encoding import Encoding, Image

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from redline.learn.network.custom import CustomNetwork
    from redline.learn.network.recurrent import RecurrentNetwork
    from redline.learn.network.torch_pass import TorchNetwork

    Module = Callable[[int, int], torch.nn.Module] | torch.nn.Module

NORMALISER = "normaliser"
"""Under which name checkpoints hold what is known of the observations."""


class Policy:
    """Maps stored observations to distributions over actions and state values, with weights to train.

    The weights of a network of our own layers are a vector of numpy's, on a CPU. Loading torch takes longer than thousands
    of answers, so this is done when something is asked that needs it (`network`), which then works in the same memory.
    """

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
        seed: int = 0,
    ) -> None:
        """`shared` gives actor and critic one trunk instead of one each; a `module` of one's own stands for all layers."""
        self.encoding, self.head = encoding, head
        picture = encoding.picture if isinstance(encoding, Image) else ()
        if normalise and picture:
            raise RedlineError("Pictures are scaled already: --normalise-observations is for numbers. Leave it out.")
        self.normaliser = Normaliser(encoding.size) if normalise else None
        self.sizes = Network(
            encoding.size, head.num_outputs, tuple(hidden), shared, head.num_free, activation, picture, recurrent
        )
        self.layered = module is None and not recurrent
        """Whether it is a network of our own layers, with nothing that remembers."""
        self._network: TorchNetwork | RecurrentNetwork | CustomNetwork | None = None
        self._vector: np.ndarray | None = None
        if self.layered:
            self._vector = first_weights(self.sizes, seed)
            self._gradient = np.zeros_like(self._vector)
        else:
            self._network = _of_torch(self.sizes, module, seed)

    @property
    def network(self) -> TorchNetwork | RecurrentNetwork | CustomNetwork:
        """The network as a module of torch's. Its parameters are views of `vector`."""
        if self._network is None:
            from redline.learn.network.torch_pass import TorchNetwork

            assert self._vector is not None
            self._network = TorchNetwork(self.sizes, self._vector, self._gradient)
        return self._network

    @property
    def memory_size(self) -> int:
        """Numbers that it remembers from one step of an env to the next; 0 where it remembers nothing."""
        return 0 if self.layered else self.network.memory_size

    @property
    def on_cpu(self) -> bool:
        """Whether the weights are in this machine's own memory."""
        return self._vector is not None or self.network.device.type == "cpu"

    @property
    def steady(self) -> bool:
        """Whether its answer to an observation is the same, to the last bit, whatever else is asked with it."""
        return self.layered and self.sizes.steady and self.on_cpu

    @property
    def by_hand(self) -> bool:
        """Whether its gradient can be worked out without autograd."""
        return self.layered and self.sizes.by_hand and self.on_cpu

    def layers(self) -> Layers[np.ndarray]:
        """The weights layer by layer, of a network that has its layers in that order; see `vector`."""
        assert self.layered, "networks of one's own, and those that remember, have other layers"
        return self.sizes.layers(self.vector)

    @property
    def gradient_plan(self) -> str:
        """How its gradient is found on a CPU, in words."""
        if self.layered and self.sizes.by_hand:
            return "gradient by hand"
        why = f"activation {self.sizes.activation}"
        if self.sizes.recurrent:
            why = f"a recurrent network ({self.sizes.recurrent})"
        elif not self.layered:
            why = f"a network of your own ({type(self.network.module).__name__})"
        return f"gradient by autograd: {why}"

    @property
    def vector(self) -> np.ndarray:
        """All weights as one vector: on a CPU they themselves, else a copy."""
        return self.weights.detach().cpu().numpy() if self._vector is None else self._vector

    @property
    def gradient(self) -> np.ndarray:
        """Their gradient, likewise."""
        if self._vector is not None:
            return self._gradient
        found = self.weights.grad
        assert found is not None
        return np.asarray(found.numpy())

    @property
    def weights(self) -> Tensor:
        """All weights as one vector of torch's, with their gradient: on a CPU in the same memory as `vector`."""
        return self.network.weights

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    def to(self, device: str) -> Policy:
        """The same policy, moved to a device."""
        if device != "cpu":
            self.network.to(device)
            self._vector = None
        elif not self.on_cpu:
            self.network.to(device)
        return self

    def inputs(self, observations: np.ndarray) -> Tensor:
        """Stored observations as the network takes them, float32 [n, inputs], on its device."""
        import torch

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
        if self.sizes.recurrent:
            assert memories is not None
            found, found_values, memories[:] = self._remembering().step(self.numbers(observations), memories)
            self.head.fill_in_numpy(found, masks, table)
            return found_values
        outputs, values = self.steady_outputs(observations) if self.steady else self._outputs_by_torch(observations)
        self.head.fill(outputs, masks, table)
        return values

    def steady_outputs(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outputs [n, outputs] and state values [n] of observations, where they are steady."""
        return steady_pass.forward(self.sizes, self.vector, self.numbers(observations))

    def _outputs_by_torch(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same where they are not."""
        import torch

        if self.layered and self.on_cpu:
            from redline.learn.network.compiled_pass import forward

            passed = forward(self.sizes, self._layered().layers(), self.inputs(observations))
            return passed.outputs.numpy(), passed.values[:, 0].numpy()
        with torch.inference_mode():
            outputs, values = self.network(self.inputs(observations))
            return outputs.cpu().numpy(), values.cpu().numpy()

    def state_values(self, observations: np.ndarray, memories: np.ndarray | None = None) -> np.ndarray:
        """State values float32 [n] of observations: those that `infer` tells."""
        if self.sizes.recurrent:
            assert memories is not None
            return self._remembering().step(self.numbers(observations), memories)[1]
        if self.steady:
            return steady_pass.state_values(self.sizes, self.vector, self.numbers(observations))
        return self._outputs_by_torch(observations)[1]

    def scale_values(self, factor: float) -> None:
        """Let the state values be that many times as large."""
        if self._vector is None:
            self.network.scale_values(factor)
            return
        for weights in self.layers().critic:
            np.multiply(weights, np.float32(factor), out=weights)

    def scale_outputs(self, factor: float) -> None:
        """Let the outputs that depend on what is seen be that many times as large: below 1 it is less decided."""
        if self._vector is None:
            for tensor in self._layered().layers().actor:
                tensor.mul_(factor)
            return
        for weights in self.layers().actor:
            np.multiply(weights, np.float32(factor), out=weights)

    def parameters(self) -> PolicyParameters:
        """The policy as it is now, for a process without torch."""
        if not self.layered:
            raise RedlineError(
                "A recurrent network or one of your own acts in this process only, and engines pool and ray act in workers. "
                "Try --engine shared."
            )
        shift = None if self.normaliser is None else self.normaliser.shift
        weights = self.vector.copy() if self.on_cpu else self.weights.detach().cpu().numpy()
        return PolicyParameters(self.sizes, self.head, weights, shift)

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by the names that checkpoints know them by."""
        if self._vector is None:
            arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.network.state_dict().items()}
        else:
            arrays = {name: array.copy() for name, array in self.sizes.by_name(self._vector).items()}
        return arrays if self.normaliser is None else {**arrays, NORMALISER: self.normaliser.snapshot()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the weights that `arrays` gave."""
        weights = {name: array for name, array in arrays.items() if name != NORMALISER}
        if self._vector is None:
            import torch

            self.network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
        else:
            _copy(weights, self.sizes.by_name(self._vector))
        if self.normaliser is not None and NORMALISER in arrays:
            self.normaliser.restore(arrays[NORMALISER])

    def _layered(self) -> TorchNetwork:
        from redline.learn.network.torch_pass import TorchNetwork

        assert isinstance(self.network, TorchNetwork)
        return self.network

    def _remembering(self) -> RecurrentNetwork:
        from redline.learn.network.recurrent import RecurrentNetwork

        assert isinstance(self.network, RecurrentNetwork)
        return self.network


def _of_torch(sizes: Network, module: Module | None, seed: int) -> RecurrentNetwork | CustomNetwork:
    """A network that torch makes, with its own random numbers."""
    import torch

    from redline.learn.network.custom import CustomNetwork
    from redline.learn.network.recurrent import RecurrentNetwork

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return RecurrentNetwork(sizes) if module is None else CustomNetwork(module, sizes)


def _copy(arrays: Mapping[str, np.ndarray], places: Mapping[str, np.ndarray]) -> None:
    """Copy arrays to the places of the same names, all of them or none."""
    shapes, due = ({name: array.shape for name, array in each.items()} for each in (arrays, places))
    if shapes != due:
        raise ValueError(f"weights {shapes} do not fit a network with {due}")
    for name, place in places.items():
        place[:] = arrays[name]


def copy_of(policy: Policy) -> Policy:
    """Another policy that plays alike, of a network of our own layers."""
    sizes, normalise = policy.sizes, policy.normaliser is not None
    copy = Policy(policy.encoding, policy.head, sizes.hidden, sizes.shared, sizes.activation, normalise=normalise)
    copy.load(policy.arrays())
    return copy
