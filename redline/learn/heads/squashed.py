"""Numbers within bounds, squashed into them: normal numbers that go through tanh on their way to the env.

What is drawn and learned from is the number before tanh. Its log-probability is the density of what comes out of tanh, in
(-1, 1): that of the normal distribution, less the logarithm of tanh's slope there. The entropy has no closed form; the
mean logarithm of the slope is worked out by Gauss and Hermite's quadrature, so that it has an exact gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from redline.learn.heads.gaussian import Gaussian, GaussianDistribution, add_entropy, gradient_of_pairs
from redline.learn.heads.head import DrawTable, PolicySums

if TYPE_CHECKING:
    from torch import Tensor

    from redline.learn.batch import Minibatch

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
NODES = _NODES.astype(np.float32)
"""Where a normal number is looked at, to take the mean of a function of it."""
WEIGHTS = (_WEIGHTS / _WEIGHTS.sum()).astype(np.float32)
_LOG_4 = np.float32(np.log(4.0))


@dataclass(frozen=True)
class Squashed(Gaussian):
    """Draws a number for each place of a box with bounds; none is ever played outside of them."""

    def draw(
        self, table: DrawTable, rows: np.ndarray, streams: np.ndarray, envs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """One action per row, before tanh, and the log-probability of what tanh makes of it."""
        actions, log_probs = super().draw(table, rows, streams, envs)
        return actions, log_probs - self._log_slopes(actions)

    def likeliest(self, table: DrawTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means, which lie in the middle of what is drawn; nearer to a bound, tanh may make something likelier."""
        actions, log_probs = super().likeliest(table, rows)
        return actions, log_probs - self._log_slopes(actions)

    def played(self, actions: np.ndarray) -> np.ndarray:
        """Tanh of the numbers, stretched to the bounds."""
        low, high = (np.array(bound).reshape(self.action_shape) for bound in (self.low, self.high))
        return self.as_box(np.clip(low + (np.tanh(actions) + 1.0) * (high - low) / 2, low, high))

    def _log_slopes(self, actions: np.ndarray) -> np.ndarray:
        """The logarithm of tanh's slope at each number of an action, added up: float32 [n]."""
        size = np.abs(actions.reshape(len(actions), -1))
        return np.asarray((_LOG_4 - 2 * size - 2 * np.log1p(np.exp(-2 * size))).sum(axis=1), np.float32)

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> SquashedDistribution:
        """The squashed distributions of outputs, for autograd."""
        return SquashedDistribution(*outputs.split(self.size, dim=-1))

    def gradient(
        self, outputs: np.ndarray, masks: np.ndarray | None, batch: Minibatch[np.ndarray],
        clip: np.float32, entropy: np.float32, gradient: np.ndarray,
    ) -> PolicySums:  # fmt: skip
        """Write the gradient at the means and the log-deviations. The slopes of what was drawn do not depend on these."""
        actions = batch.pair_actions.reshape(len(batch.pair_rows), -1)
        sums, before = np.zeros(4), batch.pair_log_probs + self._log_slopes(actions)
        batch = batch._replace(pair_actions=actions, pair_log_probs=before)
        gradient_of_pairs(outputs, batch, clip, gradient, sums)
        add_entropy(outputs, batch, entropy, gradient, sums)
        sums[1] += self._add_mean_slopes(outputs, batch, entropy, gradient)
        return PolicySums(*sums.tolist())

    def _add_mean_slopes(
        self, outputs: np.ndarray, batch: Minibatch[np.ndarray], entropy: np.float32, gradient: np.ndarray
    ) -> float:
        """Add what the mean log-slopes add to the entropy's part of the gradient. Returns what they add to its sum."""
        means, log_devs = outputs[:, : self.size], outputs[:, self.size :]
        wide = np.exp(log_devs)[..., None] * NODES
        numbers = means[..., None] + wide  # [n, size, nodes]
        size = np.abs(numbers)
        slopes = (_LOG_4 - 2 * size - 2 * np.log1p(np.exp(-2 * size))) @ WEIGHTS
        falls = -2 * np.tanh(numbers) * WEIGHTS
        weight = (-entropy / np.float32(batch.num_steps) * batch.visits)[:, None]
        gradient[:, : self.size] += weight * falls.sum(axis=-1)
        gradient[:, self.size :] += weight * (falls * wide).sum(axis=-1)
        return float(batch.visits @ slopes.sum(axis=1))


class SquashedDistribution(GaussianDistribution):
    """What tanh makes of normal distributions."""

    def log_probs(self, rows: Tensor, actions: Tensor) -> Tensor:
        """Log-probability [p] of what tanh makes of each action, in that row."""
        slopes = _log_slopes(actions.reshape(*rows.shape, -1)).sum(dim=-1)
        return super().log_probs(rows, actions) - slopes

    def entropies(self) -> Tensor:
        """Entropy [n] of each row."""
        import torch

        nodes, weights = (torch.from_numpy(array).to(self.means.device) for array in (NODES, WEIGHTS))
        numbers = self.means.unsqueeze(-1) + self.log_devs.exp().unsqueeze(-1) * nodes
        return super().entropies() + (_log_slopes(numbers) @ weights).sum(dim=-1)


def _log_slopes(numbers: Tensor) -> Tensor:
    """The logarithm of tanh's slope."""
    size = numbers.abs()
    return float(_LOG_4) - 2 * size - 2 * (-2 * size).exp().log1p()
