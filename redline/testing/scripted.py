"""A policy without weights: what it does follows from what it sees, in whatever process and company."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import gymnasium as gym
import numpy as np

from redline.rollout import Acting, Decision, Rollout

Step = tuple[bytes, Any, float, bool, bool]
"""Observation, action, reward, terminated, truncated."""


class Scripted:
    """Acts by a hash of the observation, among the actions that are allowed: so many, or those of a space."""

    def __init__(self, actions: int | gym.Space, version: int = 0) -> None:
        self.space = gym.spaces.Discrete(int(actions)) if isinstance(actions, int | np.integer) else actions
        self.version = version
        self._seen: list[np.ndarray] = []
        self._masks: list[np.ndarray] = []

    def begin(self, num_steps: int) -> None:
        """A collect begins."""
        self._seen, self._masks = [], []

    def act(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None = None) -> Decision:
        """An action for every env."""
        hashes = [zlib.crc32(each.tobytes()) for each in obs]
        allowed = [None] * len(obs) if masks is None else list(masks)
        actions = [_chosen(self.space, number, mask) for number, mask in zip(hashes, allowed, strict=True)]
        first = sum(map(len, self._seen))
        self._seen.append(obs.copy())
        if masks is not None:
            self._masks.append(masks.copy())
        rows = np.arange(first, first + len(obs), dtype=np.int32)
        return Decision(np.stack(actions), np.zeros(len(obs), np.float32), self.value(obs), rows)

    def value(self, obs: np.ndarray) -> np.ndarray:
        """The last number of each observation."""
        return obs.reshape(len(obs), -1)[:, -1].astype(np.float32)

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        """All that was seen since `begin`."""
        return np.concatenate(self._seen), np.concatenate(self._masks) if self._masks else None

    def parameters(self) -> Scripted:
        """All that is needed to act likewise in another process: itself."""
        return self

    def actor(self, num_envs: int, env: object, observation_space: object, before: Acting | None = None) -> Scripted:
        """Acts there."""
        return self


def _chosen(space: gym.Space, number: int, mask: np.ndarray | None) -> np.ndarray:
    """The action of a space that a number stands for; each component of it follows from another part of the number."""
    if isinstance(space, gym.spaces.Box):
        part = np.random.default_rng(number).random(space.shape)
        low, high = np.maximum(space.low, -1.0), np.minimum(space.high, 1.0)
        return np.asarray(low + part * (high - low), np.float32)
    if isinstance(space, gym.spaces.Discrete):
        return _one_of(int(space.n), number, mask) + space.start
    sizes, first = _components(space)
    edges = np.cumsum([0, *sizes.reshape(-1)])
    masks = [None if mask is None else mask[first:last] for first, last in itertools.pairwise(edges)]
    found = [_one_of(size, number >> c, part) for c, (size, part) in enumerate(zip(sizes.flat, masks, strict=True))]
    return np.asarray(np.reshape(found, sizes.shape) + first, space.dtype)


def _components(space: gym.Space) -> tuple[np.ndarray, np.ndarray]:
    """How many choices each component has, and the first of them."""
    if isinstance(space, gym.spaces.MultiDiscrete):
        return space.nvec, space.start
    assert isinstance(space, gym.spaces.MultiBinary)
    return np.full(space.shape, 2), np.zeros(space.shape, np.int64)


def _one_of(size: int, number: int, mask: np.ndarray | None) -> np.int64:
    allowed = np.flatnonzero(np.ones(size) if mask is None else mask)
    return np.int64(allowed[number % len(allowed)])


def columns(rollout: Rollout) -> list[list[Step]]:
    """The steps of each column: what was seen and done, and what came of it."""
    held = rollout.cells()
    return [[_step(rollout, int(t), i) for t in np.flatnonzero(held[:, i])] for i in range(held.shape[1])]


def _step(rollout: Rollout, t: int, i: int) -> Step:
    return (
        rollout.observations[rollout.rows[t, i]].tobytes(),
        rollout.actions[t, i].tolist(),
        float(rollout.rewards[t, i]),
        bool(rollout.terminated[t, i]),
        bool(rollout.truncated[t, i]),
    )
