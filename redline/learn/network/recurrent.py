"""A network that remembers: fully connected layers, then a GRU or an LSTM, then actor and critic.

While acting it goes one step at a time, in numpy, since a call of torch costs more than what it computes for a few envs.
While learning it goes through whole sequences, in compiled loops on a CPU and in torch elsewhere.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from redline.learn.network.flat import FlatModule, append_free, free_parameters
from redline.learn.network.layers import Network
from redline.learn.network.memory_loops import Remember
from redline.learn.network.numpy_pass import FUNCTIONS
from redline.learn.network.start import ACTOR, CRITIC, HIDDEN
from redline.learn.network.torch_pass import convs, trunk

_HALF = np.float32(0.5)
KINDS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class MemoryStack(nn.Module):
    """Hidden layers and the memory behind them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        inputs, hidden = network.num_features, network.hidden
        self.width = hidden[-1] if hidden else inputs
        self.trunk = trunk(inputs, hidden, network.activation)
        self.memory: nn.GRU | nn.LSTM = KINDS[network.recurrent](self.width, self.width)
        for name, weights in self.memory.named_parameters():
            nn.init.orthogonal_(weights) if "weight" in name else nn.init.zeros_(weights)

    @property
    def memory_size(self) -> int:
        """Numbers that are remembered from one step to the next."""
        return self.width * (2 if isinstance(self.memory, nn.LSTM) else 1)

    def forward(self, seen: Tensor, memories: Tensor, begins: np.ndarray) -> Tensor:
        """What is made [T n, width] of sequences [T n, features], in order of time."""
        hidden = self.trunk(seen)
        return (self.by_loops if seen.device.type == "cpu" else self.by_torch)(hidden, memories, begins)

    def by_loops(self, hidden: Tensor, memories: Tensor, begins: np.ndarray) -> Tensor:
        """The memory's part of that, for the CPU."""
        in_weight, weight, in_bias, bias = (getattr(self.memory, f"{name}_l0") for name in PARTS)
        coming = torch.nn.functional.linear(hidden, in_weight, in_bias).reshape(*begins.shape, -1)
        found: Tensor = Remember.apply(coming, weight, bias, memories, begins)
        return found.flatten(0, 1)

    def by_torch(self, hidden: Tensor, memories: Tensor, begins: np.ndarray) -> Tensor:
        """The same on any device: sequences are cut where episodes begin, and go side by side."""
        cut = Cut(begins)
        begun = cut.firsts == 0
        before = torch.zeros(len(cut.envs), self.memory_size, device=hidden.device)
        before[torch.from_numpy(begun)] = memories[torch.from_numpy(cut.envs[begun])]
        split = tuple(part.unsqueeze(0).contiguous() for part in before.split(self.width, dim=1))
        pieces = hidden[torch.from_numpy(cut.padded)]
        remembered, _ = self.memory(pieces, split if isinstance(self.memory, nn.LSTM) else split[0])
        return remembered.flatten(0, 1)[torch.from_numpy(cut.places)]


class RecurrentNetwork(FlatModule):
    """A network with a memory per env: a row of `memory_size` numbers, zeros where an episode begins.

    Actor and critic have hidden layers and a memory each, or share them. Its weights are drawn from torch's random stream.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.sizes = network
        self.convs = convs(network) if network.picture else None
        self.stack = MemoryStack(network)
        self.critic_stack = None if network.shared else MemoryStack(network)
        self.actor, self.critic = nn.Linear(self.stack.width, network.num_seeing), nn.Linear(self.stack.width, 1)
        self.free = free_parameters(network.num_free)
        self._views: tuple[int, dict[str, np.ndarray]] | None = None
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                gain = ACTOR if layer is self.actor else CRITIC if layer is self.critic else HIDDEN
                nn.init.orthogonal_(layer.weight, gain)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    @property
    def memory_size(self) -> int:
        """Numbers that are remembered from one step to the next."""
        return self.stack.memory_size * (1 if self.critic_stack is None else 2)

    def scale_values(self, factor: float) -> None:
        """Let the state values be that many times as large."""
        with torch.no_grad():
            self.critic.weight.mul_(factor)
            self.critic.bias.mul_(factor)

    def step(self, inputs: np.ndarray, memories: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Outputs [n, outputs], state values [n] and the memories [n, memory size] after one step."""
        arrays, seen, size = self._arrays(), self._look(inputs), self.stack.memory_size
        after = critic_after = self._advance("stack", arrays, seen, memories[:, :size])
        whole = after
        if self.critic_stack is not None:
            critic_after = self._advance("critic_stack", arrays, seen, memories[:, size:])
            whole = np.hstack([after, critic_after])
        width = self.stack.width
        outputs = after[:, :width] @ arrays["actor.weight"].T + arrays["actor.bias"]
        if self.sizes.num_free:
            outputs = np.hstack([outputs, np.tile(arrays["free.0"], (len(outputs), 1))])
        values = critic_after[:, :width] @ arrays["critic.weight"].T + arrays["critic.bias"]
        return outputs, values[:, 0], whole

    def _advance(self, stack: str, arrays: dict[str, np.ndarray], seen: np.ndarray, memories: np.ndarray) -> np.ndarray:
        """The memories of a stack after one step."""
        activate = FUNCTIONS[self.sizes.activation]
        for k in range(len(self.sizes.hidden)):
            seen = activate(seen @ arrays[f"{stack}.trunk.{2 * k}.weight"].T + arrays[f"{stack}.trunk.{2 * k}.bias"])
        remember = _lstm if self.sizes.recurrent == "lstm" else _gru
        return remember(seen, memories, *(arrays[f"{stack}.memory.{name}_l0"] for name in PARTS))

    def forward(self, inputs: Tensor, memories: Tensor, begins: np.ndarray) -> tuple[Tensor, Tensor]:
        """Outputs [T n, outputs] and state values [T n] of sequences of inputs [T, n, inputs], in order of time.

        `memories` [n, memory size] are those before the first step; where `begins` [T, n] is true, an episode begins.
        """
        seen, size = inputs.flatten(0, 1), self.stack.memory_size
        if self.convs is not None:
            seen = self.convs(seen.reshape(-1, *self.sizes.picture)).flatten(1)
        features = critic_features = self.stack(seen, memories[:, :size], begins)
        if self.critic_stack is not None:
            critic_features = self.critic_stack(seen, memories[:, size:], begins)
        return append_free(self.actor(features), self.free), self.critic(critic_features).squeeze(-1)

    def _look(self, inputs: np.ndarray) -> np.ndarray:
        if self.convs is None:
            return inputs
        with torch.no_grad():
            pictures = torch.from_numpy(inputs).to(self.device).reshape(-1, *self.sizes.picture)
            return np.asarray(self.convs(pictures).flatten(1).cpu().numpy())

    def _arrays(self) -> dict[str, np.ndarray]:
        """The parameters as numpy sees them: the same memory, on a CPU."""
        weights = self.weights
        if weights.device.type != "cpu":
            return {name: each.detach().cpu().numpy() for name, each in self.named_parameters()}
        if self._views is None or self._views[0] != weights.data_ptr():
            self._views = weights.data_ptr(), {name: each.detach().numpy() for name, each in self.named_parameters()}
        return self._views[1]


PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Cut:
    """Sequences [T, n] cut into pieces where episodes begin, side by side and padded to the longest."""

    def __init__(self, begins: np.ndarray) -> None:
        length, count = begins.shape
        starts = begins.copy()
        starts[0] = True
        self.envs, self.firsts = np.nonzero(starts.T)  # of each piece: its env, and the step it begins in
        lasts = np.append(self.firsts[1:], 0)
        lasts[np.append(self.envs[1:] != self.envs[:-1], True)] = length
        lengths = lasts - self.firsts
        t = np.arange(lengths.max())[:, None] + self.firsts
        self.padded = np.minimum(t, length - 1) * count + self.envs
        """Which step, counted in order of time, stands at each place of each piece: [longest, pieces]."""
        piece = np.cumsum(starts.T.reshape(-1)).reshape(count, length).T - 1
        self.places = ((np.arange(length)[:, None] - self.firsts[piece]) * len(self.envs) + piece).reshape(-1)
        """Where each step, in order of time, stands in the pieces: [T n]."""


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return _HALF + _HALF * np.tanh(_HALF * x)


def _gru(
    seen: np.ndarray,
    memories: np.ndarray,
    in_weight: np.ndarray,
    weight: np.ndarray,
    in_bias: np.ndarray,
    bias: np.ndarray,
) -> np.ndarray:
    """A step of a gated recurrent unit (Cho et al., 2014), as torch has it."""
    width = memories.shape[1]
    coming, kept = seen @ in_weight.T + in_bias, memories @ weight.T + bias
    gates = _sigmoid(coming[:, : 2 * width] + kept[:, : 2 * width])
    reset, update = gates[:, :width], gates[:, width:]
    new = np.tanh(coming[:, 2 * width :] + reset * kept[:, 2 * width :])
    return np.asarray(new + update * (memories - new))


def _lstm(
    seen: np.ndarray,
    memories: np.ndarray,
    in_weight: np.ndarray,
    weight: np.ndarray,
    in_bias: np.ndarray,
    bias: np.ndarray,
) -> np.ndarray:
    """A step of a long short-term memory (Hochreiter and Schmidhuber, 1997), as torch has it."""
    width = memories.shape[1] // 2
    hidden, cell = memories[:, :width], memories[:, width:]
    gates = seen @ in_weight.T + in_bias + hidden @ weight.T + bias
    let_in, forget = _sigmoid(gates[:, :width]), _sigmoid(gates[:, width : 2 * width])
    new, let_out = np.tanh(gates[:, 2 * width : 3 * width]), _sigmoid(gates[:, 3 * width :])
    cell = forget * cell + let_in * new
    return np.hstack([let_out * np.tanh(cell), cell])
