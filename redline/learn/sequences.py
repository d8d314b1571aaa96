"""Minibatches of whole sequences, for policies that remember: some of the envs, with all of their steps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.learn.batch import Minibatch, Steps
from redline.rollout import Rollout


class SequenceBatch(NamedTuple):
    """All steps [T, n] of some of the envs."""

    rows: np.ndarray  # int64 [T, n]  observations, as rows of the rollout's table
    memories: np.ndarray  # float32 [n, memory size]  before the first step
    begins: np.ndarray  # bool [T, n]  where an episode begins
    steps: Minibatch[np.ndarray]  # those that are learned from, each a row of its own: T n of them in order of time


class Sequences:
    """The sequences of a rollout, with what each step came to."""

    def __init__(self, rollout: Rollout, steps: Steps) -> None:
        assert rollout.memories is not None
        self._memories, self._held = rollout.memories, rollout.cells()
        self._rows, self._actions = rollout.rows.astype(np.int64), rollout.actions
        self._log_probs = rollout.log_probs
        self._advantages, self._returns = self._spread(steps.advantages), self._spread(steps.returns)
        self._begins = np.zeros(self._held.shape, np.bool_)
        self._begins[1:] = (rollout.terminated | rollout.truncated)[:-1]

    def _spread(self, values: np.ndarray) -> np.ndarray:
        """Values of the cells that hold a step, as [T, N]."""
        whole = np.zeros(self._held.shape, np.float32)
        whole[self._held] = values
        return whole

    def batch(self, envs: np.ndarray) -> SequenceBatch:
        """All steps of some of the envs."""
        held = self._held[:, envs].reshape(-1)
        advantages = self._advantages[:, envs].reshape(-1)[held]
        ones, places = np.ones(len(advantages), np.float32), np.flatnonzero(held)
        actions = self._actions[:, envs]
        steps = Minibatch(
            rows=np.arange(len(held)),
            visits=held.astype(np.float32),
            mean_returns=self._returns[:, envs].reshape(-1),
            spread=0.0,
            pair_rows=places,
            pair_actions=actions.reshape(-1, *actions.shape[2:])[held],
            pair_log_probs=self._log_probs[:, envs].reshape(-1)[held],
            pair_visits=ones,
            gains=np.maximum(advantages, 0),
            losses=np.minimum(advantages, 0),
            num_steps=max(1, len(advantages)),
        )
        return SequenceBatch(self._rows[:, envs], self._memories[envs], self._begins[:, envs], steps)
