"""A gradient worked out by hand with torch's matrix products."""

from __future__ import annotations

import numpy as np
import torch

from redline.learn.batch import Minibatch
from redline.learn.config import PPOConfig
from redline.learn.gradient import Piece, Table, cut
from redline.learn.loss import TimedLoss
from redline.learn.network.inputs import NEVER
from redline.learn.policy import Policy
from redline.learn.torch_loss import write_gradient
from redline.threads import Crew


class ByTorch:
    """Matrix products by torch, everything between them in compiled loops: for heads and layers of every kind."""

    PIECE = 2048
    """Observations in a piece."""

    def __init__(self, policy: Policy) -> None:
        self._head, self._sizes = policy.head, policy.sizes

    def pieces(self, batch: Minibatch[np.ndarray], table: Table[np.ndarray], crew: Crew) -> list[Piece]:
        """A batch, cut into pieces."""
        return cut(batch, table, self.PIECE, NEVER, crew)

    def write(self, piece: Piece, weights: np.ndarray, gradient: np.ndarray, config: PPOConfig) -> TimedLoss:
        """Write the gradient of a piece; returns its loss."""
        layers, grads = (self._sizes.layers(torch.from_numpy(each)) for each in (weights, gradient))
        masks = None if piece.masks is None else torch.from_numpy(piece.masks)
        inputs = torch.from_numpy(piece.inputs.dense)
        return write_gradient(self._head, self._sizes, layers, grads, inputs, masks, piece.batch, config)
