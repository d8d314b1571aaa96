"""Minibatches: experience boiled down to what the PPO loss needs.

Within one rollout the weights were fixed, so two steps that saw the same observation and took the same action have the
same probability, then and now. The clipped objective of such steps differs only in their advantages, and only through
the sum of the positive and the sum of the negative ones; the value loss needs the mean return of an observation, the
entropy how often it occurred. So a batch is a list of distinct observations and a list of distinct (observation, action)
pairs, each with its sums. Its loss is the loss of all its steps, added up in another order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple

import numpy as np

from redline.compiled.speed import kernel
from redline.learn.heads.head import Head
from redline.learn.network.layers import Array

if TYPE_CHECKING:
    import torch


class Minibatch(NamedTuple, Generic[Array]):
    """Distinct observations [U] and distinct pairs [P] of a number of steps."""

    rows: Array  # int64 [U]  observation, as row of the rollout's table
    visits: Array  # float32 [U]  steps that saw it
    mean_returns: Array  # float32 [U]  their mean return
    spread: float  # squared distances of all returns from the mean of their observation
    pair_rows: Array  # int64 [P]  place in `rows`
    pair_actions: Array  # [P, ...]
    pair_log_probs: Array  # float32 [P]  under the weights that acted
    pair_visits: Array  # float32 [P]
    gains: Array  # float32 [P]  sum of its positive advantages
    losses: Array  # float32 [P]  sum of its negative advantages
    num_steps: int


def parts(batch: Minibatch[np.ndarray], size: int) -> Iterator[Minibatch[np.ndarray]]:
    """The batch in parts of at most `size` observations. Their losses and gradients add up to those of the whole.

    They are about as large as each other and even in number, so that two threads are done at the same time.
    """
    count = len(batch.rows)
    if 2 * count <= size:
        yield batch
        return
    even = 2 * -(-count // (2 * size))
    bounds = np.linspace(0, count, min(even, count) + 1).astype(int).tolist()
    in_order = bool((batch.pair_rows[1:] >= batch.pair_rows[:-1]).all())  # their parts need no copies then
    order = None if in_order else np.argsort(batch.pair_rows, kind="stable")
    pair_rows = batch.pair_rows if order is None else batch.pair_rows[order]
    for first, beyond in itertools.pairwise(bounds):
        part = slice(first, beyond)
        within = slice(*np.searchsorted(pair_rows, (first, beyond)))
        pairs: slice | np.ndarray = within if order is None else order[within]
        yield batch._replace(
            rows=batch.rows[part],
            visits=batch.visits[part],
            mean_returns=batch.mean_returns[part],
            spread=batch.spread if first == 0 else 0.0,
            pair_rows=batch.pair_rows[pairs] - first,
            pair_actions=batch.pair_actions[pairs],
            pair_log_probs=batch.pair_log_probs[pairs],
            pair_visits=batch.pair_visits[pairs],
            gains=batch.gains[pairs],
            losses=batch.losses[pairs],
        )


def cut_between_observations(
    batch: Minibatch[np.ndarray], order: np.ndarray, count: int
) -> Iterator[Minibatch[np.ndarray]]:
    """The batch in `count` parts of about as many observations, taken in that `order`, each with all of its steps.

    Its pairs must be in the order of their observations. A part's loss is that of an equal share of all steps, so the
    mean over the parts is the loss of the whole.
    """
    starts = np.searchsorted(batch.pair_rows, np.arange(len(batch.rows) + 1))
    for chosen in np.array_split(order, count):
        counts = starts[chosen + 1] - starts[chosen]
        ends = np.cumsum(counts)
        pairs = np.repeat(starts[chosen] - (ends - counts), counts) + np.arange(int(counts.sum()))
        yield Minibatch(
            rows=batch.rows[chosen],
            visits=batch.visits[chosen],
            mean_returns=batch.mean_returns[chosen],
            spread=batch.spread / count,
            pair_rows=np.repeat(np.arange(len(chosen)), counts),
            pair_actions=batch.pair_actions[pairs],
            pair_log_probs=batch.pair_log_probs[pairs],
            pair_visits=batch.pair_visits[pairs],
            gains=batch.gains[pairs],
            losses=batch.losses[pairs],
            num_steps=batch.num_steps // count,
        )


def to_tensors(batch: Minibatch[np.ndarray], device: torch.device) -> Minibatch[torch.Tensor]:
    """The batch on a device."""
    import torch

    tensors = [torch.from_numpy(each).to(device) if isinstance(each, np.ndarray) else each for each in batch]
    return Minibatch(*tensors)  # type: ignore[arg-type]


class Steps(NamedTuple):
    """The steps of a rollout as flat arrays [T * N, ...]."""

    rows: np.ndarray
    actions: np.ndarray
    log_probs: np.ndarray
    advantages: np.ndarray
    returns: np.ndarray


def plain_batch(steps: Steps, chosen: np.ndarray) -> Minibatch[np.ndarray]:
    """Every chosen step as an observation and a pair of its own: the obvious batch, with nothing to add up."""
    ones, places = np.ones(len(chosen), np.float32), np.arange(len(chosen))
    advantages = steps.advantages[chosen]
    return Minibatch(
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

    def __init__(self, num_rows: int, head: Head) -> None:
        assert head.num_choices is not None, "where every action is another, pairs cannot be told apart by number"
        self._head, self._num_choices = head, head.num_choices
        self._place_of_row = np.full(num_rows, -1, np.int32)
        self._place_of_pair = np.full(num_rows * head.num_choices, -1, np.int32)

    def batch(self, steps: Steps, chosen: np.ndarray) -> Minibatch[np.ndarray]:
        """The chosen steps as a batch."""
        size = len(chosen)
        rows, visits, sums = np.empty(size, np.int64), np.zeros(size), np.zeros(size)
        pair_rows, pair_steps, pair_visits = np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(size)
        gains, losses = np.zeros(size), np.zeros(size)
        num_rows, num_pairs, squares = _gather(
            steps.rows, self._head.choices(steps.actions), steps.advantages, steps.returns, chosen, self._num_choices,
            self._place_of_row, self._place_of_pair,
            rows, visits, sums, pair_rows, pair_steps, pair_visits, gains, losses,
        )  # fmt: skip
        u, p = slice(num_rows), slice(num_pairs)
        means, firsts = sums[u] / visits[u], pair_steps[p]
        return Minibatch(
            rows=rows[u],
            visits=visits[u].astype(np.float32),
            mean_returns=means.astype(np.float32),
            spread=float(squares - (sums[u] * means).sum()),
            pair_rows=pair_rows[p],
            pair_actions=steps.actions[firsts],
            pair_log_probs=steps.log_probs[firsts],
            pair_visits=pair_visits[p].astype(np.float32),
            gains=gains[p].astype(np.float32),
            losses=losses[p].astype(np.float32),
            num_steps=size,
        )


@kernel
def _gather(
    step_rows, step_choices, step_advantages, step_returns, chosen, num_choices, place_of_row, place_of_pair,
    rows, visits, sums, pair_rows, pair_steps, pair_visits, gains, losses,
):  # fmt: skip
    """Fill the batch's arrays; the two `place_of` tables come and go all -1. Returns how many rows, pairs, and Σ return²."""
    num_rows = num_pairs = 0
    squares = 0.0
    for j in chosen:
        row = step_rows[j]
        place = place_of_row[row]
        if place < 0:
            place = place_of_row[row] = num_rows
            rows[place] = row
            num_rows += 1
        gained = float(step_returns[j])
        visits[place] += 1.0
        sums[place] += gained
        squares += gained * gained
        key = np.int64(row) * num_choices + step_choices[j]
        pair = place_of_pair[key]
        if pair < 0:
            pair = place_of_pair[key] = num_pairs
            pair_rows[pair] = place
            pair_steps[pair] = j
            num_pairs += 1
        pair_visits[pair] += 1.0
        advantage = float(step_advantages[j])
        if advantage > 0.0:
            gains[pair] += advantage
        else:
            losses[pair] += advantage
    for place in range(num_rows):
        place_of_row[rows[place]] = -1
    for pair in range(num_pairs):
        place_of_pair[rows[pair_rows[pair]] * num_choices + step_choices[pair_steps[pair]]] = -1
    return num_rows, num_pairs, squares
