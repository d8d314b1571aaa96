"""Numbers within bounds (Box): a normal distribution for each, with deviations that are the same for every observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redline.compiled.rng import GOLDEN, unit
from redline.compiled.speed import kernel
from redline.learn.heads.head import DrawTable, PolicySums
from redline.learn.loops import clipped_objective, loop

if TYPE_CHECKING:
    from torch import Tensor

    from redline.learn.batch import Minibatch

_f = np.float32
_ONE, _HALF = _f(1.0), _f(0.5)
_HALF_LOG_2_PI = _f(0.9189385332046727)
_TWO_PI = 2 * np.pi


@dataclass(frozen=True)
class Gaussian:
    """Draws a number for each place of a box. What lies outside the bounds is learned from as drawn, and played clipped."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    action_shape: tuple[int, ...]
    played_dtype: np.dtype

    action_dtype = np.dtype(np.float32)
    num_choices = None

    @property
    def size(self) -> int:
        """Numbers in an action."""
        return len(self.low)

    @property
    def num_outputs(self) -> int:
        """A mean for each number, then the logarithm of a deviation for each."""
        return 2 * self.size

    @property
    def num_free(self) -> int:
        """The deviations do not depend on what is seen."""
        return self.size

    def empty(self, capacity: int) -> DrawTable:
        """Means, and logarithms of deviations."""
        return np.empty((capacity, self.size), np.float32), np.empty((capacity, self.size), np.float32)

    def fill(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """Write the distributions of outputs."""
        means, log_devs = table
        means[:], log_devs[:] = outputs[:, : self.size], outputs[:, self.size :]

    def fill_in_numpy(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """The same."""
        self.fill(outputs, masks, table)

    def draw(
        self, table: DrawTable, rows: np.ndarray, streams: np.ndarray, envs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One action per row and its log-probability."""
        actions, log_probs = np.empty((len(rows), self.size), np.float32), np.empty(len(rows), np.float32)
        _draw(*table, rows, streams, envs, actions, log_probs)
        return self._shaped(actions), log_probs

    def likeliest(self, table: DrawTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means."""
        means, log_devs = (array[rows] for array in table)
        return self._shaped(means), -log_devs.sum(axis=1) - _HALF_LOG_2_PI * _f(self.size)

    def choices(self, actions: np.ndarray) -> np.ndarray:
        """Numbers have no number."""
        raise NotImplementedError("There are too many actions in a box to count them.")

    def played(self, actions: np.ndarray) -> np.ndarray:
        """Clipped to the bounds."""
        low, high = (np.array(bound).reshape(self.action_shape) for bound in (self.low, self.high))
        return self.as_box(np.clip(actions, low, high))

    def as_box(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers as the env's space has them: whole ones, where it is of these."""
        whole = self.played_dtype.kind in "iu"
        return (np.rint(numbers) if whole else numbers).astype(self.played_dtype)

    def _shaped(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), *self.action_shape)

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> GaussianDistribution:
        """The normal distributions of outputs, for autograd."""
        return GaussianDistribution(*outputs.split(self.size, dim=-1))

    def gradient(
        self, outputs: np.ndarray, masks: np.ndarray | None, batch: Minibatch[np.ndarray],
        clip: np.float32, entropy: np.float32, gradient: np.ndarray,
    ) -> PolicySums:  # fmt: skip
        """Write the gradient at the means and the log-deviations."""
        actions = batch.pair_actions.reshape(len(batch.pair_rows), -1)
        sums = np.zeros(4)
        batch = batch._replace(pair_actions=actions)
        gradient_of_pairs(outputs, batch, clip, gradient, sums)
        add_entropy(outputs, batch, entropy, gradient, sums)
        return PolicySums(*sums.tolist())


class GaussianDistribution:
    """Normal distributions with means and log-deviations [n, size]."""

    def __init__(self, means: Tensor, log_devs: Tensor) -> None:
        self.means, self.log_devs = means, log_devs

    def log_probs(self, rows: Tensor, actions: Tensor) -> Tensor:
        """Log-probability [p] of each action, in that row."""
        log_devs = self.log_devs[rows]
        apart = (actions.reshape(*rows.shape, -1) - self.means[rows]) * (-log_devs).exp()
        return (-0.5 * apart * apart - log_devs - float(_HALF_LOG_2_PI)).sum(dim=-1)

    def entropies(self) -> Tensor:
        """Entropy [n] of each row."""
        return (self.log_devs + (0.5 + float(_HALF_LOG_2_PI))).sum(dim=-1)

    def picks(self, actions: Tensor) -> Tensor:
        """Whether each action is the mean of its row, within float rounding."""
        return ((actions.reshape(len(actions), -1) - self.means).abs() <= 1e-5 * self.log_devs.exp()).all(dim=-1)


@kernel
def _draw(means, log_devs, rows, streams, envs, actions, chosen_log_probs):
    """Mean plus deviation times a normal number; two numbers of the env's stream make two of them (Box and Muller)."""
    for i in range(len(rows)):
        row, other = rows[i], 0.0
        log_prob = 0.0
        for j in range(means.shape[1]):
            if j % 2 == 0:
                streams[envs[i]] += GOLDEN
                radius = np.sqrt(-2.0 * np.log(1.0 - unit(streams[envs[i]])))
                streams[envs[i]] += GOLDEN
                angle = _TWO_PI * unit(streams[envs[i]])
                normal, other = radius * np.cos(angle), radius * np.sin(angle)
            else:
                normal = other
            deviation = np.exp(np.float64(log_devs[row, j]))
            actions[i, j] = _f(means[row, j] + deviation * normal)
            apart = (np.float64(actions[i, j]) - np.float64(means[row, j])) / deviation
            log_prob += -0.5 * apart * apart - np.float64(log_devs[row, j]) - np.float64(_HALF_LOG_2_PI)
        chosen_log_probs[i] = _f(log_prob)


@loop
def gradient_of_pairs(outputs, batch, clip, gradient, sums):
    """Write what the clipped objective adds to the gradient at means and log-deviations, and its sums."""
    size, inverse = batch.pair_actions.shape[1], _ONE / _f(batch.num_steps)
    for i in range(gradient.shape[0]):
        for k in range(gradient.shape[1]):
            gradient[i, k] = _f(0.0)
    for p in range(len(batch.pair_rows)):
        i = batch.pair_rows[p]
        log_ratio = -batch.pair_log_probs[p]
        for j in range(size):
            apart = (batch.pair_actions[p, j] - outputs[i, j]) * np.exp(-outputs[i, size + j])
            log_ratio -= _HALF * apart * apart + outputs[i, size + j] + _HALF_LOG_2_PI
        objective, slope, ratio = clipped_objective(log_ratio, batch.gains[p], batch.losses[p], clip)
        at_log_prob = -slope * inverse
        for j in range(size):
            narrow = np.exp(-outputs[i, size + j])
            apart = (batch.pair_actions[p, j] - outputs[i, j]) * narrow
            gradient[i, j] += at_log_prob * apart * narrow
            gradient[i, size + j] += at_log_prob * (apart * apart - _ONE)
        sums[0] += objective
        sums[2] += batch.pair_visits[p] * (ratio - _ONE - log_ratio)
        sums[3] += batch.pair_visits[p] if abs(ratio - _ONE) > clip else _f(0.0)


@loop
def add_entropy(outputs, batch, weight, gradient, sums):
    """Add what the entropy of normal distributions adds to the gradient, and its sum."""
    size = outputs.shape[1] // 2
    for i in range(outputs.shape[0]):
        entropy = _f(0.0)
        for j in range(size):
            entropy += outputs[i, size + j] + _HALF + _HALF_LOG_2_PI
            gradient[i, size + j] -= weight * batch.visits[i] / _f(batch.num_steps)
        sums[1] += batch.visits[i] * entropy
