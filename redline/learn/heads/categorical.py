"""One of a number of actions: a softmax over logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redline.compiled.lookup import GUIDES, choose, write_guide
from redline.compiled.rng import GOLDEN, unit
from redline.compiled.speed import kernel
from redline.learn.heads.head import DrawTable, PolicySums
from redline.learn.heads.masking import MASKED, mask, rule_out
from redline.learn.loops import added, chained, clipped_objective, exp, greatest, loop

if TYPE_CHECKING:
    from torch import Tensor

    from redline.learn.batch import Minibatch

_f = np.float32
_ONE = _f(1.0)


@dataclass(frozen=True)
class Categorical:
    """Draws one of `num_actions`, counted from 0.

    Its table holds log-probabilities, running sums of probability, and guides to where a search in these begins.
    """

    num_actions: int
    first: int = 0
    """The number that the env has for action 0."""

    num_free = 0
    action_shape = ()
    action_dtype = np.dtype(np.int64)

    @property
    def num_outputs(self) -> int:
        """A logit for each action."""
        return self.num_actions

    @property
    def num_choices(self) -> int | None:
        """As many as there are actions."""
        return self.num_actions

    def empty(self, capacity: int) -> DrawTable:
        """Log-probabilities, running sums of probability in double precision, and guides."""
        shape = (capacity, self.num_actions)
        return np.empty(shape, np.float32), np.empty(shape, np.float64), np.empty((capacity, GUIDES), np.int32)

    def fill(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """Write the distributions of logits."""
        rule_out(outputs, masks)
        _fill(outputs, *table)

    def fill_in_numpy(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """Write the distributions of logits that came from numpy."""
        rule_out(outputs, masks)
        log_probs, cumulative, guide = table
        outputs -= outputs.max(axis=1, keepdims=True)
        outputs -= np.log(np.exp(outputs).sum(axis=1, keepdims=True))
        log_probs[:] = outputs
        np.cumsum(np.exp(outputs), axis=1, dtype=np.float64, out=cumulative)
        _write_guides(cumulative, guide)

    def draw(
        self, table: DrawTable, rows: np.ndarray, streams: np.ndarray, envs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One action per row and its log-probability."""
        actions, log_probs = np.empty(len(rows), np.int64), np.empty(len(rows), np.float32)
        _draw(*table, rows, streams, envs, actions, log_probs)
        return actions, log_probs

    def draw_once(
        self, outputs: np.ndarray, masks: np.ndarray | None, streams: np.ndarray, envs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `fill` and then `draw` give, of logits that are needed once: nothing is written to a table."""
        rule_out(outputs, masks)
        actions, log_probs = np.empty(len(outputs), np.int64), np.empty(len(outputs), np.float32)
        _draw_once(outputs, streams, envs, actions, log_probs)
        return actions, log_probs

    def likeliest(self, table: DrawTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest action per row and its log-probability; the first of equals."""
        log_probs = table[0][rows]
        actions = log_probs.argmax(axis=1)
        return actions, log_probs[np.arange(len(rows)), actions]

    def choices(self, actions: np.ndarray) -> np.ndarray:
        """Actions are numbers already."""
        return actions

    def played(self, actions: np.ndarray) -> np.ndarray:
        """The env may count from another number than 0."""
        return actions + self.first if self.first else actions

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> CategoricalDistribution:
        """The softmax of logits, for autograd."""
        return CategoricalDistribution(outputs if masks is None else outputs.masked_fill(~masks, MASKED))

    def gradient(
        self, outputs: np.ndarray, masks: np.ndarray | None, batch: Minibatch[np.ndarray],
        clip: np.float32, entropy: np.float32, gradient: np.ndarray,
    ) -> PolicySums:  # fmt: skip
        """Write the gradient at the logits."""
        sums = np.zeros(5)
        allowed = np.empty((0, 0), np.bool_) if masks is None else masks
        write_gradient(outputs, allowed, batch, clip, entropy, gradient, sums)
        return PolicySums(*sums[:4].tolist())


class CategoricalDistribution:
    """Softmax of logits [n, actions]."""

    def __init__(self, logits: Tensor) -> None:
        self._logits, self._log_probs = logits, logits.log_softmax(dim=-1)

    def log_probs(self, rows: Tensor, actions: Tensor) -> Tensor:
        """Log-probability [p] of each action, in that row."""
        return self._log_probs[rows, actions]

    def entropies(self) -> Tensor:
        """Entropy [n] of each row."""
        return -(self._log_probs.exp() * self._log_probs).sum(dim=-1)

    def picks(self, actions: Tensor) -> Tensor:
        """Whether each action has the largest logit of its row."""
        return self._logits.argmax(dim=-1) == actions


# What a policy answers must not depend on what else is asked, so the order of every sum is that in which it is written


@chained
def _exponentials(logits, i, out, k):
    """Write the exponentials of row `i`, all less its greatest, to row `k` of `out`; returns that and their sum."""
    top = greatest(logits[i])
    for a in range(logits.shape[1]):
        out[k, a] = exp(logits[i, a] - top)
    return top, added(out[k])


@chained
def _fill(logits, log_probs, cumulative, guide):
    """Log-probabilities of every row, the running sums of its probabilities in double precision, and its guide."""
    for i in range(logits.shape[0]):
        top, total = _exponentials(logits, i, log_probs, i)
        inverse = _ONE / total
        running = 0.0
        for a in range(logits.shape[1]):
            running += np.float64(log_probs[i, a] * inverse)
            cumulative[i, a] = running
        log_sum = top + np.log(total)
        for a in range(logits.shape[1]):
            log_probs[i, a] = logits[i, a] - log_sum
        write_guide(cumulative, guide, i)


@kernel
def _write_guides(cumulative, guide):
    for row in range(len(guide)):
        write_guide(cumulative, guide, row)


@kernel
def _draw(log_probs, cumulative, guide, rows, streams, envs, actions, chosen_log_probs):
    """The first action of a row whose running sum exceeds a uniform draw from the env's stream."""
    for i in range(len(rows)):
        streams[envs[i]] += GOLDEN
        actions[i] = choose(cumulative, guide, rows[i], unit(streams[envs[i]]))
        chosen_log_probs[i] = log_probs[rows[i], actions[i]]


@chained
def _draw_once(logits, streams, envs, actions, log_probs):
    """Draw from the softmax of every row. Four rows at a time: a running sum waits for itself at each step."""
    count, num_actions = logits.shape
    powers, sums, guide = np.zeros((4, num_actions), _f), np.empty((num_actions, 4)), np.zeros((4, GUIDES), np.int32)
    inverses, log_sums = np.zeros(4, _f), np.empty(4, _f)
    for first in range(0, count, 4):
        rows = min(4, count - first)
        for k in range(rows):
            top, total = _exponentials(logits, first + k, powers, k)
            inverses[k], log_sums[k] = _ONE / total, top + np.log(total)
        s0 = s1 = s2 = s3 = 0.0
        i0, i1, i2, i3 = inverses[0], inverses[1], inverses[2], inverses[3]
        for a in range(num_actions):
            s0 += np.float64(powers[0, a] * i0)
            s1 += np.float64(powers[1, a] * i1)
            s2 += np.float64(powers[2, a] * i2)
            s3 += np.float64(powers[3, a] * i3)
            sums[a, 0], sums[a, 1], sums[a, 2], sums[a, 3] = s0, s1, s2, s3
        for k in range(rows):
            i = first + k
            streams[envs[i]] += GOLDEN
            actions[i] = choose(sums.T, guide, k, unit(streams[envs[i]]))
            log_probs[i] = logits[i, actions[i]] - log_sums[k]


@loop
def _soften(logits, probs, log_sums, entropies):
    """Softmax of every row, with its entropy and the logarithm of its denominator."""
    for i in range(logits.shape[0]):
        top = greatest(logits[i])
        total, weighted = _f(0.0), _f(0.0)
        for a in range(logits.shape[1]):
            below = logits[i, a] - top
            e = exp(below)
            probs[i, a] = e
            total += e
            weighted += e * below
        inverse = _ONE / total
        for a in range(logits.shape[1]):
            probs[i, a] *= inverse
        log_total = np.log(total)
        log_sums[i] = top + log_total
        entropies[i] = log_total - weighted * inverse


@loop
def _gradient(logits, probs, log_sums, entropies, batch, clip, entropy_weight, pair_grads, sums):
    """Turn `probs` into the gradient at the logits; add up objective, entropy, KL and clipped steps in `sums`."""
    inverse = _ONE / _f(batch.num_steps)
    row_grads = np.empty(logits.shape[0], np.float32)
    for i in range(logits.shape[0]):
        row_grads[i] = _f(0.0)
    for p in range(len(batch.pair_rows)):
        i = batch.pair_rows[p]
        log_ratio = logits[i, batch.pair_actions[p]] - log_sums[i] - batch.pair_log_probs[p]
        objective, slope, ratio = clipped_objective(log_ratio, batch.gains[p], batch.losses[p], clip)
        pair_grads[p] = -slope * inverse
        row_grads[i] += pair_grads[p]
        sums[0] += objective
        sums[2] += batch.pair_visits[p] * (ratio - _ONE - log_ratio)
        sums[3] += batch.pair_visits[p] if abs(ratio - _ONE) > clip else _f(0.0)
    for i in range(logits.shape[0]):
        weight = entropy_weight * batch.visits[i] * inverse
        offset = entropies[i] - log_sums[i]
        for a in range(logits.shape[1]):
            probs[i, a] *= weight * (logits[i, a] + offset) - row_grads[i]
        sums[1] += batch.visits[i] * entropies[i]
    for p in range(len(batch.pair_rows)):
        probs[batch.pair_rows[p], batch.pair_actions[p]] += pair_grads[p]


@loop
def write_gradient(logits, masks, batch, clip, entropy_weight, gradient, sums):
    """Write the gradient at the logits, of actions that `masks` [n, actions] allow, or of all where it has no rows."""
    if len(masks):
        mask(logits, masks)
    count = logits.shape[0]
    log_sums, entropies = np.empty(count, np.float32), np.empty(count, np.float32)
    _soften(logits, gradient, log_sums, entropies)
    pair_grads = np.empty(len(batch.pair_rows), np.float32)
    _gradient(logits, gradient, log_sums, entropies, batch, clip, entropy_weight, pair_grads, sums)
