"""A batch's gradient by autograd: for networks of every kind, on any device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from redline.learn.batch import Minibatch, parts, to_tensors
from redline.learn.config import PPOConfig
from redline.learn.gradient import Table
from redline.learn.loss import Loss, added_up, total
from redline.learn.policy import Policy
from redline.learn.sequences import SequenceBatch
from redline.learn.torch_loss import ppo_loss
from redline.timing.stopwatch import Stopwatch

PART_SIZE = 2048
"""Observations that go through autograd at once: few enough that what it computes stays in the cache."""


class Autograd:
    """The gradients of an update, whose observations are those of a table."""

    def __init__(self, policy: Policy, table: Table[np.ndarray], config: PPOConfig) -> None:
        self._policy, self._config, self._device = policy, config, policy.device
        self._inputs = torch.from_numpy(table.inputs).to(self._device)
        self._masks = None if table.masks is None else torch.from_numpy(table.masks).to(self._device)

    def write(self, batch: Minibatch[np.ndarray] | SequenceBatch, watch: Stopwatch) -> Loss[float]:
        """Leaves the batch's gradient in the weights' own, and returns its loss."""
        self._policy.weights.grad.zero_()  # type: ignore[union-attr]
        if isinstance(batch, SequenceBatch):
            return self._add_sequences(batch, watch)
        return added_up([self._add(piece, watch) for piece in parts(batch, PART_SIZE)])

    def _add(self, piece: Minibatch[np.ndarray], watch: Stopwatch) -> Loss[float]:
        with watch.span("loss"):
            tensors = to_tensors(piece, self._device)
            distribution, values = self._policy(self._inputs[tensors.rows], self._allowed(tensors.rows))
            loss = ppo_loss(distribution, values, tensors, self._config)
        return self._backward(loss, watch)

    def _add_sequences(self, batch: SequenceBatch, watch: Stopwatch) -> Loss[float]:
        with watch.span("loss"):
            tensors, rows = to_tensors(batch.steps, self._device), torch.from_numpy(batch.rows).to(self._device)
            memories = torch.from_numpy(batch.memories).to(self._device)
            masks = self._allowed(rows.reshape(-1))
            distribution, values = self._policy.replay(self._inputs[rows], masks, memories, batch.begins)
            loss = ppo_loss(distribution, values, tensors, self._config)
        return self._backward(loss, watch)

    def _allowed(self, rows: Tensor) -> Tensor | None:
        return None if self._masks is None else self._masks[rows]

    def _backward(self, loss: Loss[Tensor], watch: Stopwatch) -> Loss[float]:
        with watch.span("backward"):
            total(loss, self._config).backward()
        return Loss(*(float(each.detach()) for each in loss))
