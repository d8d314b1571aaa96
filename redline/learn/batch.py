"""Experience boiled down to what the PPO loss needs.

Within one rollout the weights were fixed, so two steps that saw the same observation and took the same action have the
same probability, then and now. The clipped objective of such steps differs only in their advantages, and only through
the sum of the positive and the sum of the negative ones; the value loss needs the mean return of an observation, the
entropy how often it occurred. So a batch is a list of distinct observations and a list of distinct (observation, action)
pairs, each with its sums. Its loss is the loss of all its steps, added up in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from redline.sims.speed import kernel


class Batch(NamedTuple):
    """Distinct observations [U] and distinct pairs [P] of a number of steps."""

    rows: np.ndarray  # int64 [U]  observation, as row of the rollout's table
    visits: np.ndarray  # float32 [U]  steps that saw it
    mean_returns: np.ndarray  # float32 [U]  their mean return
    spread: float  # squared distances of all returns from the mean of their observation
    pair_rows: np.ndarray  # int64 [P]  place in `rows`
    pair_actions: np.ndarray  # int64 [P]
    pair_log_probs: np.ndarray  # float32 [P]  under the weights that acted
    pair_visits: np.ndarray  # float32 [P]
    gains: np.ndarray  # float32 [P]  sum of its positive advantages
    losses: np.ndarray  # float32 [P]  sum of its negative advantages
    num_steps: int

    def parts(self, size: int) -> Iterator[Batch]:
        """The batch in parts of at most `size` observations. Their losses and gradients add up to those of the whole."""
        if len(self.rows) <= size:
            yield self
            return
        order = np.argsort(self.pair_rows, kind="stable")
        pair_rows = self.pair_rows[order]
        for first in range(0, len(self.rows), size):
            part = slice(first, first + size)
            pairs = order[slice(*np.searchsorted(pair_rows, (first, first + size)))]
            yield self._replace(
                rows=self.rows[part],
                visits=self.visits[part],
                mean_returns=self.mean_returns[part],
                spread=self.spread if first == 0 else 0.0,
                pair_rows=self.pair_rows[pairs] - first,
                pair_actions=self.pair_actions[pairs],
                pair_log_probs=self.pair_log_probs[pairs],
                pair_visits=self.pair_visits[pairs],
                gains=self.gains[pairs],
                losses=self.losses[pairs],
            )


class Steps(NamedTuple):
    """The steps of a rollout as flat arrays [T * N]."""

    rows: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    advantages: np.ndarray
    returns: np.ndarray


def plain_batch(steps: Steps, chosen: np.ndarray) -> Batch:
    """Every chosen step as an observation and a pair of its own: the obvious batch, with nothing to add up."""
    ones, places = np.ones(len(chosen), np.float32), np.arange(len(chosen))
    advantages = steps.advantages[chosen]
    return Batch(
        rows=steps.rows[chosen].astype(np.int64),
        visits=ones,
        mean_returns=steps.returns[chosen],
        spread=0.0,
        pair_rows=places,
        pair_actions=steps.actions[chosen],
        pair_log_probs=steps.log_probs[chosen],
        pair_visits=ones,
        gains=np.maximum(advantages, 0),
        losses=np.minimum(advantages, 0),
        num_steps=len(chosen),
    )


class Gatherer:
    """Boils steps down to batches of distinct observations and pairs."""

    def __init__(self, num_rows: int, num_actions: int) -> None:
        self._num_actions = num_actions
        self._place_of_row = np.full(num_rows, -1, np.int32)
        self._place_of_pair = np.full(num_rows * num_actions, -1, np.int32)

    def batch(self, steps: Steps, chosen: np.ndarray) -> Batch:
        """The chosen steps as a batch."""
        size = len(chosen)
        rows, visits, sums = np.empty(size, np.int64), np.zeros(size), np.zeros(size)
        pair_rows, pair_actions = np.empty(size, np.int64), np.empty(size, np.int64)
        pair_log_probs, pair_visits = np.empty(size, np.float32), np.zeros(size)
        gains, losses = np.zeros(size), np.zeros(size)
        num_rows, num_pairs, squares = _gather(
            steps, chosen, self._num_actions, self._place_of_row, self._place_of_pair,
            rows, visits, sums, pair_rows, pair_actions, pair_log_probs, pair_visits, gains, losses,
        )  # fmt: skip
        u, p = slice(num_rows), slice(num_pairs)
        means = sums[u] / visits[u]
        return Batch(
            rows=rows[u],
            visits=visits[u].astype(np.float32),
            mean_returns=means.astype(np.float32),
            spread=float(squares - (sums[u] * means).sum()),
            pair_rows=pair_rows[p],
            pair_actions=pair_actions[p],
            pair_log_probs=pair_log_probs[p],
            pair_visits=pair_visits[p].astype(np.float32),
            gains=gains[p].astype(np.float32),
            losses=losses[p].astype(np.float32),
            num_steps=size,
        )


@kernel
def _gather(
    steps, chosen, num_actions, place_of_row, place_of_pair,
    rows, visits, sums, pair_rows, pair_actions, pair_log_probs, pair_visits, gains, losses,
):  # fmt: skip
    """Fill the batch's arrays; the two `place_of` tables come and go all -1. Returns how many rows, pairs, and Σ return²."""
    num_rows = num_pairs = 0
    squares = 0.0
    for j in chosen:
        row, action = steps.rows[j], steps.actions[j]
        place = place_of_row[row]
        if place < 0:
            place = place_of_row[row] = num_rows
            rows[place] = row
            num_rows += 1
        gained = float(steps.returns[j])
        visits[place] += 1.0
        sums[place] += gained
        squares += gained * gained
        key = np.int64(row) * num_actions + action
        pair = place_of_pair[key]
        if pair < 0:
            pair = place_of_pair[key] = num_pairs
            pair_rows[pair] = place
            pair_actions[pair] = action
            pair_log_probs[pair] = steps.log_probs[j]
            num_pairs += 1
        pair_visits[pair] += 1.0
        advantage = float(steps.advantages[j])
        if advantage > 0.0:
            gains[pair] += advantage
        else:
            losses[pair] += advantage
    for place in range(num_rows):
        place_of_row[rows[place]] = -1
    for pair in range(num_pairs):
        place_of_pair[rows[pair_rows[pair]] * num_actions + pair_actions[pair]] = -1
    return num_rows, num_pairs, squares
