"""A policy without a network, the same in every process: what is done follows from what is seen."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from redline.rollout import Decision, Rollout


class Scripted:
    """Acts by a checksum of the observation, among the actions that are allowed."""

    def __init__(self, num_actions: int, version: int = 0) -> None:
        self.num_actions, self.version = num_actions, version
        self._seen: list[np.ndarray] = []
        self._masks: list[np.ndarray] = []
        self._count = 0

    def begin(self, num_steps: int) -> None:
        self._seen, self._masks, self._count = [], [], 0

    def act(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None = None) -> Decision:
        draws = np.array([zlib.crc32(each.tobytes()) for each in obs])
        if masks is None:
            actions = draws % self.num_actions
        else:
            actions = np.array([np.flatnonzero(m)[d % m.sum()] for d, m in zip(draws, masks, strict=True)])
            self._masks.append(masks.copy())
        self._seen.append(obs.copy())
        rows = np.arange(self._count, self._count + len(obs), dtype=np.int32)
        self._count += len(obs)
        return Decision(actions, np.zeros(len(obs), np.float32), self.value(obs), rows)

    def value(self, obs: np.ndarray) -> np.ndarray:
        return np.array([zlib.crc32(each.tobytes()) % 1000 for each in obs], np.float32)

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        return np.concatenate(self._seen), np.concatenate(self._masks) if self._masks else None

    def portable(self) -> Scripted:
        return Scripted(self.num_actions, self.version)

    def actor(self, num_envs: int, env: Any, spaces: Any, before: Any = None) -> Scripted:
        return self


Step = tuple[bytes, int, float, bool, bool]


def columns(rollout: Rollout) -> list[list[Step]]:
    """Everything that happened in each env, step by step, as plain values that compare with `==`."""
    cells = rollout.cells()
    return [
        [
            (
                rollout.observations[rollout.rows[t, i]].tobytes(),
                int(rollout.actions[t, i]),
                float(rollout.rewards[t, i]),
                bool(rollout.terminated[t, i]),
                bool(rollout.truncated[t, i]),
            )
            for t in np.flatnonzero(cells[:, i])
        ]
        for i in range(rollout.rows.shape[1])
    ]
