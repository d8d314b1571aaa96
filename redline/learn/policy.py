"""The policy: an actor and a critic on top of small fully connected networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from redline.learn.fused import infer
from redline.learn.layers import MASKED, Layer, Layers
from redline.learn.portable import Portable


class Policy(nn.Module):
    """Maps observation values to action logits and a state value.

    `unpack`, where the env has one, turns stored observations into values first.
    """

    def __init__(
        self,
        obs_size: int,
        num_actions: int,
        hidden: Sequence[int] = (64, 64),
        shared: bool = False,
        unpack: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        super().__init__()
        self.obs_size, self.num_actions = obs_size, num_actions
        self.hidden, self.shared = tuple(hidden), shared
        self._unpack = unpack
        self._weights: Tensor | None = None
        width = self.hidden[-1] if self.hidden else obs_size
        self.trunk = _trunk(obs_size, self.hidden)
        self.critic_trunk = None if shared else _trunk(obs_size, self.hidden)
        self.actor = _linear(width, num_actions, gain=0.01)  # all actions equally likely at first
        self.critic = _linear(width, 1, gain=1.0)
        self._sizes = [parameter.numel() for parameter in self.parameters()]
        self._shapes = [parameter.shape for parameter in self.parameters()]

    @property
    def weights(self) -> Tensor:
        """All weights as one vector, of which the layers' own are views; its `grad` is shared in the same way."""
        first = next(self.parameters())
        if self._weights is None or self._weights.data_ptr() != first.data_ptr():  # new, or moved to another device
            self._weights = self._flatten()
        return self._weights

    def _flatten(self) -> Tensor:
        vector = torch.cat([each.detach().reshape(-1) for each in self.parameters()])
        vector.grad = torch.zeros_like(vector)
        views, grads = self._views(vector.data), self._views(vector.grad)
        for parameter, view, grad in zip(self.parameters(), views, grads, strict=True):
            parameter.data, parameter.grad = view, grad
        return vector

    def _views(self, vector: Tensor) -> list[Tensor]:
        parts = vector.split(self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def layers(self, vector: Tensor) -> Layers:
        """A vector the size of `weights`, seen layer by layer."""
        views = iter(self._views(vector))
        depth = len(self.hidden)

        def take(count: int) -> list[Layer]:
            return [Layer(next(views), next(views)) for _ in range(count)]

        return Layers(take(depth), None if self.shared else take(depth), *take(1), *take(1))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.actor.weight.device

    def values_of(self, observations: np.ndarray) -> Tensor:
        """Observations as the network takes them: float32 [n, obs_size], on its device."""
        if self._unpack is not None:
            observations = self._unpack(observations)
        flat = np.ascontiguousarray(observations, np.float32).reshape(len(observations), -1)
        return torch.from_numpy(flat).to(self.device)

    def say(
        self, observations: np.ndarray, masks: np.ndarray | None, log_probs: np.ndarray, cumulative: np.ndarray
    ) -> np.ndarray:
        """State values of observations; their log-probabilities and running sums of probability are written."""
        values = self.values_of(observations)
        allowed = None if masks is None else torch.from_numpy(masks).to(self.device)
        if self.device.type == "cpu":
            return infer(self.layers(self.weights.data), values, allowed, log_probs, cumulative)
        with torch.inference_mode():
            logits, estimates = self(values, allowed)
            found = torch.log_softmax(logits, dim=-1)
            log_probs[:] = found.cpu().numpy()
            cumulative[:] = found.exp().cumsum(dim=-1, dtype=torch.float64).cpu().numpy()
            return np.asarray(estimates.cpu().numpy())

    def state_values(self, observations: np.ndarray) -> np.ndarray:
        """State values float32 [n] of observations."""
        with torch.inference_mode():
            return np.asarray(self(self.values_of(observations))[1].cpu().numpy())

    def portable(self, version: int, seed: int, dedup: bool) -> Portable:
        """The policy for a process without torch."""
        weights = self.weights.detach().cpu().numpy().copy()
        return Portable(weights, self.obs_size, self.num_actions, self.hidden, self.shared, version, seed, dedup)

    def forward(self, values: Tensor, masks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits [n, actions], with masked actions pushed out of reach, and state values [n]."""
        features = self.trunk(values)
        logits = self.actor(features)
        if masks is not None:
            logits = logits.masked_fill(~masks, MASKED)
        critic_features = features if self.critic_trunk is None else self.critic_trunk(values)
        return logits, self.critic(critic_features).squeeze(-1)


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
