"""A policy without weights: what it does follows from what it sees, in whatever process and company."""

from __future__ import annotations

import zlib

import numpy as np

from redline.rollout import Acting, Decision, Rollout

Step = tuple[bytes, int, float, bool, bool]
"""Observation, action, reward, terminated, truncated."""


class Scripted:
    """Acts by a hash of the observation, among the actions that are allowed."""

    def __init__(self, num_actions: int, version: int = 0) -> None:
        self.num_actions, self.version = num_actions, version
        self._seen: list[np.ndarray] = []
        self._masks: list[np.ndarray] = []

    def begin(self, num_steps: int) -> None:
        """A collect begins."""
        self._seen, self._masks = [], []

    def act(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None = None) -> Decision:
        """An action for every env."""
        allowed = np.ones((len(obs), self.num_actions), np.bool_) if masks is None else masks
        hashes = [zlib.crc32(each.tobytes()) for each in obs]
        actions = [np.flatnonzero(mask)[number % mask.sum()] for number, mask in zip(hashes, allowed, strict=True)]
        first = sum(map(len, self._seen))
        self._seen.append(obs.copy())
        if masks is not None:
            self._masks.append(masks.copy())
        rows = np.arange(first, first + len(obs), dtype=np.int32)
        return Decision(np.array(actions), np.zeros(len(obs), np.float32), self.value(obs), rows)

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


def columns(rollout: Rollout) -> list[list[Step]]:
    """The steps of each column: what was seen and done, and what came of it."""
    held = rollout.cells()
    return [[_step(rollout, int(t), i) for t in np.flatnonzero(held[:, i])] for i in range(held.shape[1])]


def _step(rollout: Rollout, t: int, i: int) -> Step:
    return (
        rollout.observations[rollout.rows[t, i]].tobytes(),
        int(rollout.actions[t, i]),
        float(rollout.rewards[t, i]),
        bool(rollout.terminated[t, i]),
        bool(rollout.truncated[t, i]),
    )
