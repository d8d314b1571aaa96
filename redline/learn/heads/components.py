"""Several choices at once (MultiDiscrete, MultiBinary): a softmax over the logits of each component, side by side."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redline.compiled.rng import GOLDEN, unit
from redline.compiled.speed import kernel
from redline.learn.heads.head import DrawTable, PolicySums
from redline.learn.heads.masking import MASKED, rule_out
from redline.learn.loops import added, chained, clipped_objective, exp, greatest, loop

if TYPE_CHECKING:
    from torch import Tensor

    from redline.learn.batch import Minibatch

MOST_CHOICES = 256
"""Different actions above which they are not counted: a table of them all would outgrow what it saves."""
_f = np.float32
_ONE = _f(1.0)


@dataclass(frozen=True)
class Components:
    """Draws one of `sizes[c]` for each component c, counted from 0. Masks stand behind each other, as the logits do."""

    sizes: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_dtype: np.dtype
    firsts: tuple[int, ...] = ()
    """The number that the env has for 0, in each component; nothing where it is 0 in all."""

    num_free = 0

    def __post_init__(self) -> None:
        """Nothing to add counts as nothing."""
        if not any(self.firsts):
            object.__setattr__(self, "firsts", ())

    @property
    def num_outputs(self) -> int:
        """A logit for each choice of each component."""
        return sum(self.sizes)

    @property
    def num_choices(self) -> int | None:
        """All combinations, if these are few."""
        count = 1
        for size in self.sizes:
            count *= size
        return count if count <= MOST_CHOICES else None

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """Where the logits of each component begin, and the last ends: int64 [components + 1]."""
        return np.cumsum([0, *self.sizes])

    def empty(self, capacity: int) -> DrawTable:
        """Log-probabilities, and running sums of probability in double precision, within each component."""
        shape = (capacity, self.num_outputs)
        return np.empty(shape, np.float32), np.empty(shape, np.float64)

    def fill(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """Write the distributions of logits."""
        rule_out(outputs, masks)
        _fill(outputs, self.edges, *table)

    def fill_in_numpy(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """The same: the loops need no torch."""
        self.fill(np.ascontiguousarray(outputs), masks, table)

    def draw(
        self, table: DrawTable, rows: np.ndarray, streams: np.ndarray, envs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One action per row and its log-probability."""
        actions, log_probs = np.empty((len(rows), len(self.sizes)), np.int64), np.empty(len(rows), np.float32)
        _draw(*table, self.edges, rows, streams, envs, actions, log_probs)
        return self._shaped(actions), log_probs

    def likeliest(self, table: DrawTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest choice of each component; the first of equals."""
        log_probs = table[0][rows]
        actions, total = np.empty((len(rows), len(self.sizes)), np.int64), np.zeros(len(rows), np.float32)
        for c, (first, last) in enumerate(zip(self.edges[:-1], self.edges[1:], strict=True)):
            part = log_probs[:, first:last]
            actions[:, c] = part.argmax(axis=1)
            total += part.max(axis=1)
        return self._shaped(actions), total

    def choices(self, actions: np.ndarray) -> np.ndarray:
        """The number of each combination."""
        flat = actions.reshape(len(actions), -1).astype(np.int64)
        return np.asarray(np.ravel_multi_index(tuple(flat.T), self.sizes), np.int64)

    def played(self, actions: np.ndarray) -> np.ndarray:
        """The env may count from other numbers than 0."""
        if not self.firsts:
            return actions
        return (actions + np.array(self.firsts).reshape(self.action_shape)).astype(self.action_dtype)

    def _shaped(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), *self.action_shape).astype(self.action_dtype)

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> ComponentsDistribution:
        """The softmax of each component's logits, for autograd."""
        return ComponentsDistribution(
            outputs if masks is None else outputs.masked_fill(~masks, MASKED), self.sizes, self.edges
        )

    def gradient(
        self, outputs: np.ndarray, masks: np.ndarray | None, batch: Minibatch[np.ndarray],
        clip: np.float32, entropy: np.float32, gradient: np.ndarray,
    ) -> PolicySums:  # fmt: skip
        """Write the gradient at the logits."""
        rule_out(outputs, masks)
        shape = (len(outputs), len(self.sizes))
        log_sums, entropies = np.empty(shape, np.float32), np.empty(shape, np.float32)
        _soften(outputs, self.edges, gradient, log_sums, entropies)
        actions = batch.pair_actions.reshape(len(batch.pair_rows), -1).astype(np.int64)
        pair_grads, sums = np.empty(len(batch.pair_rows), np.float32), np.zeros(4)
        batch = batch._replace(pair_actions=actions)
        _gradient(outputs, self.edges, gradient, log_sums, entropies, batch, clip, entropy, pair_grads, sums)
        return PolicySums(*sums.tolist())


class ComponentsDistribution:
    """Softmax of the logits [n, outputs] of each component."""

    def __init__(self, logits: Tensor, sizes: tuple[int, ...], edges: np.ndarray) -> None:
        import torch

        self._logits = logits.split(sizes, dim=-1)
        self._log_probs = torch.cat([part.log_softmax(dim=-1) for part in self._logits], dim=-1)
        self._firsts = torch.from_numpy(edges[:-1]).to(logits.device)

    def log_probs(self, rows: Tensor, actions: Tensor) -> Tensor:
        """Log-probability [p] of each action, in that row."""
        flat = actions.reshape(*rows.shape, -1).long() + self._firsts
        return self._log_probs[rows].gather(-1, flat).sum(dim=-1)

    def entropies(self) -> Tensor:
        """Entropy [n] of each row: that of components adds up."""
        return -(self._log_probs.exp() * self._log_probs).sum(dim=-1)

    def picks(self, actions: Tensor) -> Tensor:
        """Whether each component of an action has the largest logit of its own."""
        flat = actions.reshape(len(actions), -1)
        best = [part.argmax(dim=-1) == flat[:, c] for c, part in enumerate(self._logits)]
        import torch

        return torch.stack(best).all(dim=0)


@chained
def _fill(logits, edges, log_probs, cumulative):
    """Log-probabilities of every component, and the running sums of its probabilities in double precision."""
    for i in range(logits.shape[0]):
        for c in range(len(edges) - 1):
            first, last = edges[c], edges[c + 1]
            top = greatest(logits[i, first:last])
            for a in range(first, last):
                log_probs[i, a] = exp(logits[i, a] - top)
            total = added(log_probs[i, first:last])
            inverse = _ONE / total
            running = 0.0
            for a in range(first, last):
                running += np.float64(log_probs[i, a] * inverse)
                cumulative[i, a] = running
            log_sum = top + np.log(total)
            for a in range(first, last):
                log_probs[i, a] = logits[i, a] - log_sum


@kernel
def _draw(log_probs, cumulative, edges, rows, streams, envs, actions, chosen_log_probs):
    """For each component the first choice whose running sum exceeds a uniform draw from the env's stream."""
    for i in range(len(rows)):
        row = rows[i]
        chosen_log_probs[i] = _f(0.0)
        for c in range(len(edges) - 1):
            last = edges[c + 1] - 1
            streams[envs[i]] += GOLDEN
            aim = unit(streams[envs[i]]) * cumulative[row, last]
            a = edges[c]
            while a < last and cumulative[row, a] <= aim:
                a += 1
            actions[i, c] = a - edges[c]
            chosen_log_probs[i] += log_probs[row, a]


@loop
def _soften(logits, edges, probs, log_sums, entropies):
    """Softmax of every component, with its entropy and the logarithm of its denominator."""
    for i in range(logits.shape[0]):
        for c in range(len(edges) - 1):
            first, last = edges[c], edges[c + 1]
            top = greatest(logits[i, first:last])
            total, weighted = _f(0.0), _f(0.0)
            for a in range(first, last):
                below = logits[i, a] - top
                e = exp(below)
                probs[i, a] = e
                total += e
                weighted += e * below
            inverse = _ONE / total
            for a in range(first, last):
                probs[i, a] *= inverse
            log_total = np.log(total)
            log_sums[i, c] = top + log_total
            entropies[i, c] = log_total - weighted * inverse


@loop
def _gradient(logits, edges, probs, log_sums, entropies, batch, clip, entropy_weight, pair_grads, sums):
    """Turn `probs` into the gradient at the logits; add up objective, entropy, KL and clipped steps in `sums`."""
    inverse, components = _ONE / _f(batch.num_steps), len(edges) - 1
    row_grads = np.zeros(logits.shape[0], np.float32)
    for p in range(len(batch.pair_rows)):
        i = batch.pair_rows[p]
        log_ratio = -batch.pair_log_probs[p]
        for c in range(components):
            log_ratio += logits[i, edges[c] + batch.pair_actions[p, c]] - log_sums[i, c]
        objective, slope, ratio = clipped_objective(log_ratio, batch.gains[p], batch.losses[p], clip)
        pair_grads[p] = -slope * inverse
        row_grads[i] += pair_grads[p]
        sums[0] += objective
        sums[2] += batch.pair_visits[p] * (ratio - _ONE - log_ratio)
        sums[3] += batch.pair_visits[p] if abs(ratio - _ONE) > clip else _f(0.0)
    for i in range(logits.shape[0]):
        weight = entropy_weight * batch.visits[i] * inverse
        for c in range(components):
            offset = entropies[i, c] - log_sums[i, c]
            for a in range(edges[c], edges[c + 1]):
                probs[i, a] *= weight * (logits[i, a] + offset) - row_grads[i]
            sums[1] += batch.visits[i] * entropies[i, c]
    for p in range(len(batch.pair_rows)):
        for c in range(components):
            probs[batch.pair_rows[p], edges[c] + batch.pair_actions[p, c]] += pair_grads[p]
