"""A batch's gradient worked out by hand, piece by piece: in one compiled call each, or by torch's products.

Pieces are few enough observations that what is computed of them stays in the cache. Each gets a gradient of its own, and
these are added in order, so that threads change nothing but the time.
"""

from __future__ import annotations

import time
from typing import Generic, NamedTuple, Protocol

import numpy as np

from redline.compiled.announce import announce_compilation
from redline.learn.batch import Minibatch, parts
from redline.learn.config import PPOConfig
from redline.learn.heads.categorical import Categorical, write_gradient
from redline.learn.loss import Loss, TimedLoss
from redline.learn.network.inputs import FEW, Inputs, seen
from redline.learn.network.layers import Array, Network
from redline.learn.network.one_call import gradient_in_one_call
from redline.learn.policy import Policy
from redline.threads import Crew


class Table(NamedTuple, Generic[Array]):
    """The observations of an update, as the network takes them."""

    inputs: Array
    masks: Array | None


class Piece(NamedTuple):
    """Part of a batch, with what the network sees of its observations."""

    batch: Minibatch[np.ndarray]
    inputs: Inputs
    masks: np.ndarray | None


class ByHand(Protocol):
    """A way to work out gradients by hand."""

    def pieces(self, batch: Minibatch[np.ndarray], table: Table[np.ndarray], crew: Crew) -> list[Piece]:
        """A batch, cut into pieces."""

    def write(self, piece: Piece, weights: np.ndarray, gradient: np.ndarray, config: PPOConfig) -> TimedLoss:
        """Write the gradient of a piece; returns its loss."""


def by_hand_way(policy: Policy) -> ByHand:
    """The way that suits a policy: in one call where the layers and the head are of the usual kind."""
    sizes = policy.sizes
    if sizes.steady and len(sizes.hidden) > 0 and isinstance(policy.head, Categorical):
        return InOneCall(sizes)
    from redline.learn.by_torch import ByTorch

    return ByTorch(policy)


def way_for(policy: Policy) -> ByHand | None:
    """The same where gradients can be worked out by hand; none where autograd has to."""
    return by_hand_way(policy) if policy.by_hand else None


def write_sum(way: ByHand, pieces: list[Piece], policy: Policy, config: PPOConfig) -> None:
    """Write the gradient of all pieces together to the policy's, one after the other."""
    policy.gradient.fill(0)
    gradient = np.empty_like(policy.gradient)
    for piece in pieces:
        way.write(piece, policy.vector, gradient, config)
        np.add(policy.gradient, gradient, out=policy.gradient)


class InOneCall:
    """Everything in one compiled call."""

    PIECE = 512
    """Observations in a piece."""

    def __init__(self, network: Network) -> None:
        self._widths, self._num_outputs, self._shared = network.widths, network.num_outputs, network.shared
        self._call = gradient_in_one_call(write_gradient)
        announce_compilation(self._call, "learner", 7)

    def pieces(self, batch: Minibatch[np.ndarray], table: Table[np.ndarray], crew: Crew) -> list[Piece]:
        """A batch, cut into pieces."""
        return cut(batch, table, self.PIECE, FEW, crew)

    def write(self, piece: Piece, weights: np.ndarray, gradient: np.ndarray, config: PPOConfig) -> TimedLoss:
        """Write the gradient of a piece; returns its loss."""
        began, sums, batch = time.perf_counter_ns(), np.zeros(5), piece.batch
        self._call(
            weights, gradient, self._widths, self._num_outputs, self._shared, piece.inputs,
            _NONE if piece.masks is None else piece.masks, batch,
            np.float32(config.clip), np.float32(config.entropy), np.float32(config.value), sums,
        )  # fmt: skip
        objective, entropy, kl, clipped, errors = (sums / batch.num_steps).tolist()
        loss = Loss(-objective, 0.5 * (errors + batch.spread / batch.num_steps), entropy, kl, clipped)
        return TimedLoss(loss, 0, 0, time.perf_counter_ns() - began)


def cut(batch: Minibatch[np.ndarray], table: Table[np.ndarray], size: int, few: float, crew: Crew) -> list[Piece]:
    """Pieces of `size` observations, without the zeros in them where these leave but a `few`."""

    def look(part: Minibatch[np.ndarray]) -> Piece:
        rows = _as_slice(part.rows)
        return Piece(part, seen(table.inputs[rows], few), None if table.masks is None else table.masks[rows])

    return crew.map(look, list(parts(batch, size)))


def _as_slice(rows: np.ndarray) -> np.ndarray | slice:
    """The rows as a slice, which copies nothing, where they follow each other."""
    first, beyond = int(rows[0]), int(rows[0]) + len(rows)
    return slice(first, beyond) if np.array_equal(rows, np.arange(first, beyond)) else rows


_NONE = np.empty((0, 0), np.bool_)
