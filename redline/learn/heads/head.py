"""Heads: what a network's outputs mean, and all else that depends on the kind of action.

A head turns outputs into distributions over actions. While acting it draws from them, in compiled code and from one
random stream per env. While learning it tells log-probabilities and entropies, to autograd by `distribution` and worked
out by hand by `gradient`. Everything around it (network, actor, PPO, imitation, rollouts) handles actions as rows of an
array and asks the head for the rest.

Another kind of action is a file beside `categorical.py` and a line in `head_for`. The diagonal Gaussian for d numbers of
`gaussian.py`, say:

- `num_outputs` is 2 d, the last d of which, the logarithms of the deviations, are `num_free`: learned, but the same
  for every observation. `action_shape` is (d,), `action_dtype` float32, `num_choices` None: no two actions are alike.
- `empty` makes two arrays [capacity, d], means and log-deviations; `fill` and `fill_in_numpy` copy the outputs into them.
- `draw` takes two numbers of the env's stream for every two it returns (Box and Muller); `likeliest` gives the means.
- `gradient` calls `clipped_objective` for the factor of each pair, which times (a - mean) / σ² is what the pair adds at
  the mean, and times ((a - mean) / σ)² - 1 at the log-deviation; the entropy's derivative there is 1.
- `distribution` says the same in torch. Masks do not occur: there is nothing to rule out.
- `played` clips to the bounds of the box: what is drawn and learned from may lie outside, what the env is given may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from redline.learn.batch import Minibatch

DrawTable = tuple[np.ndarray, ...]
"""Arrays [n, ...] with a row for each observation: the distribution that its action is drawn from."""


class Distribution(Protocol):
    """Distributions over actions, one for each row of a network's outputs, known to autograd."""

    def log_probs(self, rows: Tensor, actions: Tensor) -> Tensor:
        """Log-probability [p] of each action, under the distribution in that row."""

    def entropies(self) -> Tensor:
        """Entropy [n] of each distribution."""

    def picks(self, actions: Tensor) -> Tensor:
        """Whether each of the actions [n, ...] is the likeliest of its row, bool [n]."""


class PolicySums(NamedTuple):
    """Sums over the steps of a minibatch."""

    objective: float
    entropy: float
    kl: float
    clipped: float


class Head(Protocol):
    """A kind of action. Picklable, and made without torch."""

    @property
    def num_outputs(self) -> int:
        """Numbers that the network must give for an observation."""

    @property
    def num_free(self) -> int:
        """How many of them, the last ones, are the same for every observation."""

    @property
    def num_choices(self) -> int | None:
        """How many different actions there are; None where there are too many to count."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of one action."""

    @property
    def action_dtype(self) -> np.dtype:
        """Of actions as they are drawn and learned from."""

    def empty(self, capacity: int) -> DrawTable:
        """A table for distributions, with nothing in it yet."""

    def fill(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """Write the distributions that outputs [n, outputs] stand for into a table of n rows; may write over outputs.

        `masks` is true where an action is allowed.
        """

    def fill_in_numpy(self, outputs: np.ndarray, masks: np.ndarray | None, table: DrawTable) -> None:
        """The same within float rounding, for outputs of the numpy pass."""

    def draw(
        self, table: DrawTable, rows: np.ndarray, streams: np.ndarray, envs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """An action for each of `rows` of a table, drawn from its env's stream, and their log-probabilities float32."""

    def likeliest(self, table: DrawTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest action for each of `rows`, and their log-probabilities float32."""

    def choices(self, actions: np.ndarray) -> np.ndarray:
        """The number of each action, int64 [n], below `num_choices`: equal for equal actions."""

    def played(self, actions: np.ndarray) -> np.ndarray:
        """Actions [n, ...] as the env takes them: counted as its space counts, and within its bounds."""

    def distribution(self, outputs: Tensor, masks: Tensor | None) -> Distribution:
        """The distributions that outputs stand for, for autograd."""

    def gradient(
        self, outputs: np.ndarray, masks: np.ndarray | None, batch: Minibatch[np.ndarray],
        clip: np.float32, entropy: np.float32, gradient: np.ndarray,
    ) -> PolicySums:  # fmt: skip
        """Write the gradient at the outputs of -(objective + `entropy` x entropy) / steps; may write over outputs."""
