"""A policy that travels: plain arrays that act in another process, without torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from redline.learn.acting import Actor
from redline.learn.layers import MASKED, Layer

Unpack = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Portable:
    """All weights as one vector, in the order of `Policy.weights`, and what is needed to make sense of them."""

    weights: np.ndarray
    obs_size: int
    num_actions: int
    hidden: tuple[int, ...]
    shared: bool
    version: int
    seed: int
    dedup: bool

    def actor(self, num_envs: int, env: Any, spaces: Any, before: Any = None) -> Actor:
        """Acts in `env` and its like. `before` is the actor of older weights, whose random streams go on."""
        network = _Network(self, unpacker(env, spaces.observation))
        actor = Actor(network, num_envs, self.seed, self.dedup) if before is None else before
        actor.policy, actor.version = network, self.version
        return actor


class _Network:
    """The policy's network in numpy."""

    def __init__(self, portable: Portable, unpack: Unpack | None) -> None:
        self.num_actions, self._unpack, self._portable = portable.num_actions, unpack, portable
        self._trunk, self._critic_trunk, self._actor, self._critic = _layers(portable)

    def say(
        self, observations: np.ndarray, masks: np.ndarray | None, log_probs: np.ndarray, cumulative: np.ndarray
    ) -> np.ndarray:
        """State values of observations; their log-probabilities and running sums of probability are written."""
        inputs = self._values_of(observations)
        features = _through(self._trunk, inputs)
        logits = features @ self._actor.weight.T + self._actor.bias
        if masks is not None:
            logits[~masks] = MASKED
        logits -= logits.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        log_probs[:] = logits
        np.cumsum(np.exp(logits), axis=1, dtype=np.float64, out=cumulative)
        return self._judge(features, inputs)

    def state_values(self, observations: np.ndarray) -> np.ndarray:
        """State values float32 [n] of observations."""
        inputs = self._values_of(observations)
        features = _through(self._trunk, inputs) if self._critic_trunk is None else inputs
        return self._judge(features, inputs)

    def portable(self, version: int, seed: int, dedup: bool) -> Portable:
        """What this was made of."""
        return self._portable

    def _judge(self, features: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        if self._critic_trunk is not None:
            features = _through(self._critic_trunk, inputs)
        return (features @ self._critic.weight.T + self._critic.bias)[:, 0]

    def _values_of(self, observations: np.ndarray) -> np.ndarray:
        if self._unpack is not None:
            observations = self._unpack(observations)
        return np.ascontiguousarray(observations, np.float32).reshape(len(observations), -1)


def _layers(portable: Portable) -> tuple[list[Layer], list[Layer] | None, Layer, Layer]:
    place = 0

    def take(inputs: int, outputs: int) -> Layer:
        nonlocal place
        weight = portable.weights[place : place + inputs * outputs].reshape(outputs, inputs)
        bias = portable.weights[place + inputs * outputs : place + (inputs + 1) * outputs]
        place += (inputs + 1) * outputs
        return Layer(weight, bias)

    widths = (portable.obs_size, *portable.hidden)

    def trunk() -> list[Layer]:
        return [take(inputs, outputs) for inputs, outputs in itertools.pairwise(widths)]

    first, second = trunk(), None if portable.shared else trunk()
    return first, second, take(widths[-1], portable.num_actions), take(widths[-1], 1)


def _through(layers: Sequence[Layer], values: np.ndarray) -> np.ndarray:
    for layer in layers:
        values = np.tanh(values @ layer.weight.T + layer.bias)
    return values


def one_hot(space: gym.spaces.Discrete) -> Unpack:
    """Turns states that are numbers into rows with a single 1."""
    rows = np.eye(int(space.n), dtype=np.float32)
    return lambda states: rows[states.reshape(-1) - int(space.start)]


def unpacker(env: Any, space: gym.Space) -> Unpack | None:
    """How the network gets to see the observations of an env, if not as they are."""
    if getattr(env, "packed", False):
        return env.unpack
    return one_hot(space) if isinstance(space, gym.spaces.Discrete) else None
