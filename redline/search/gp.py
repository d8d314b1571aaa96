"""A Gaussian process over all workflows of a world."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from redline.errors import RedlineError, install

try:
    from scipy.linalg import cholesky, solve_triangular
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import (
        ConstantKernel,
        GenericKernelMixin,
        Hyperparameter,
        Kernel,
        NormalizedKernelMixin,
        WhiteKernel,
    )
    from threadpoolctl import threadpool_limits  # scikit-learn needs it too
except ImportError as error:
    raise RedlineError(f"The workflow search needs scikit-learn. Try: {install('search')}") from error

# Where the fit starts, and where it may go. Values are standardised first, so a variance of 1 is all of it.
SCALE, SCALE_BOUNDS = 1.0, (0.1, 10.0)
LENGTH, LENGTH_BOUNDS = 3.0, (0.3, 30.0)  # neighbours correlate 0.97 at 0.3, 0.74 at 3 and 0.05 at 30
NOISE, NOISE_BOUNDS = 0.01, (1e-5, 0.5)  # more would say that workflows hardly matter: a search looks because they do
JITTER = 1e-10
FEWEST_TO_FIT = 5
"""With fewer observations the likelihood often calls everything noise. Until then hyperparameters stay where they start."""


class Mallows(GenericKernelMixin, NormalizedKernelMixin, Kernel):
    """The Mallows kernel `exp(-length * kendall(a, b))`, on arrays of workflow ids."""

    def __init__(self, distances: np.ndarray, length: float = LENGTH, length_bounds: Any = LENGTH_BOUNDS) -> None:
        self.distances = distances
        self.length = length
        self.length_bounds = length_bounds

    @property
    def hyperparameter_length(self) -> Any:
        """What scikit-learn looks for to know that `length` can be fitted."""
        return Hyperparameter("length", "numeric", self.length_bounds)

    def __call__(self, X: np.ndarray, Y: np.ndarray | None = None, eval_gradient: bool = False) -> Any:
        """Correlations [X, Y] and, if wanted, their gradient [X, X, 1]."""
        distances = self.distances[np.ix_(X, X if Y is None else Y)]
        correlations = np.exp(-self.length * distances)
        if not eval_gradient:
            return correlations
        if self.hyperparameter_length.fixed:
            return correlations, np.empty((*correlations.shape, 0))
        gradient = -self.length * distances * correlations  # scikit-learn wants it by log(length)
        return correlations, gradient[:, :, None]

    def is_stationary(self) -> bool:
        """Not in scikit-learn's sense: there is no subtracting ids."""
        return False

    def __repr__(self) -> str:
        return f"Mallows(length={self.length:.3g})"


class Hyperparameters(NamedTuple):
    """The most likely parameters of the process, in the units of the values."""

    scale: float
    """Variance of the values from workflow to workflow."""
    length: float
    """How quickly correlation falls with Kendall distance: large is rough."""
    noise: float
    """Variance of one observation around the truth; the mean of them when they were known."""


class WorkflowGP:
    """A Gaussian process over workflows whose distances [n, n] are known.

    Scale, length and noise maximise the marginal likelihood. The order of the observations makes no difference at all.
    """

    def __init__(self, distances: np.ndarray, seed: int = 0, num_restarts: int = 3) -> None:
        self.distances = distances
        self.seed = seed
        self.num_restarts = num_restarts
        self.fit([], [])

    def fit(self, ids: Sequence[int], values: Sequence[float], noise: Sequence[float] | None = None) -> None:
        """Learn from these observations alone. None at all gives the prior: mean 0, std 1.

        With `noise`, the known noise variance of each observation, none is fitted.
        """
        observations = np.array([ids, values, np.zeros(len(ids)) if noise is None else noise], dtype=np.float64)
        observations = observations[:, np.lexsort(observations[::-1])]
        self._ids = observations[0].astype(np.intp)
        self._targets, self._offset, self._unit = _standardised(observations[1])
        known = observations[2] / self._unit**2

        kernel = ConstantKernel(SCALE, SCALE_BOUNDS) * Mallows(self.distances, LENGTH, LENGTH_BOUNDS)
        if noise is None:
            kernel += WhiteKernel(NOISE, NOISE_BOUNDS)
        if len(ids) >= FEWEST_TO_FIT:
            kernel = self._most_likely(kernel, known)
        self._signal = kernel.k1 if noise is None else kernel
        self._noise = known + (kernel.k2.noise_level if noise is None else 0.0)  # [observations]

    def _most_likely(self, kernel: Any, known_noise: np.ndarray) -> Any:
        regressor = GaussianProcessRegressor(
            kernel, alpha=known_noise + JITTER, n_restarts_optimizer=self.num_restarts, random_state=self.seed
        )
        with _one_blas_thread(), warnings.catch_warnings():
            # Few observations often push a hyperparameter to its bound. The bounds are there for that.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return regressor.fit(self._ids, self._targets).kernel_

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Scale, length and noise of the last fit."""
        scale, length = self._signal.k1.constant_value, self._signal.k2.length
        noise = self._noise.mean() if len(self._noise) else NOISE
        return Hyperparameters(float(scale * self._unit**2), float(length), float(noise * self._unit**2))

    def predict(self, pending: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of every workflow's true value, both [n]; the noise of observing is not in it.

        Workflows in `pending` count as observed at exactly their mean: nobody's mean moves, and std shrinks around them.
        """
        with _one_blas_thread():
            mean = self._mean()
            variance = self._signal.diag(self._everything) - (self._whitened(pending) ** 2).sum(axis=0)
        return mean, self._unit * np.sqrt(np.maximum(variance, 0.0))

    def joint(self, pending: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Mean [n] and covariance [n, n] of the workflows' true values; `pending` as for `predict`."""
        with _one_blas_thread():
            whitened = self._whitened(pending)
            return self._mean(), self._unit**2 * (self._signal(self._everything) - whitened.T @ whitened)

    @property
    def _everything(self) -> np.ndarray:
        return np.arange(len(self.distances))

    def _mean(self) -> np.ndarray:
        if not len(self._ids):
            return np.full(len(self.distances), self._offset)
        known = solve_triangular(self._root(self._ids, self._noise), self._targets, lower=True)
        return self._offset + self._unit * (self._whitened().T @ known)

    def _whitened(self, pending: Sequence[int] = ()) -> np.ndarray:
        """What observing tells of each workflow, [observations, n], in standardised units: squares add up to variance.

        scikit-learn's own `predict` would add the observation noise to the std.
        """
        ids = np.concatenate([self._ids, np.array(sorted(pending), dtype=np.intp)])
        if not len(ids):
            return np.zeros((0, len(self.distances)))
        usual_noise = self.hyperparameters.noise / self._unit**2
        noise = np.concatenate([self._noise, np.full(len(pending), usual_noise)])
        return solve_triangular(self._root(ids, noise), self._signal(ids, self._everything), lower=True)

    def _root(self, ids: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return cholesky(self._signal(ids) + np.diag(noise + JITTER), lower=True)


def _standardised(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Values with mean 0 and std 1, and the offset and unit that lead back. Values that are all alike keep unit 1."""
    if not len(values):
        return values, 0.0, 1.0
    offset, unit = float(values.mean()), float(values.std())
    if unit <= 1e-9 * abs(offset):
        unit = 1.0
    return (values - offset) / unit, offset, unit


def _one_blas_thread() -> Any:
    """Matrices this small gain nothing from more, and on a busy machine threads that wait for each other lose a lot."""
    return threadpool_limits(1, user_api="blas")
