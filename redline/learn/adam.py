"""Adam (Kingma and Ba, 2015) on one vector of weights, and the bound on its gradient."""

from __future__ import annotations

import numpy as np

from redline.learn.loops import chained, loop
from redline.learn.policy import Policy

BETA_1, BETA_2 = 0.9, 0.999
_WORN_1, _WORN_2, _KEPT_2 = np.float32(1 - BETA_1), np.float32(1 - BETA_2), np.float32(BETA_2)


class Adam:
    """Does what `torch.optim.Adam(fused=True)` does, within float rounding, to weights in this machine's own memory.

    A step of torch's takes several times longer than the arithmetic: here it is a loop of our own.
    """

    def __init__(self, weights: np.ndarray, gradient: np.ndarray, learning_rate: float, eps: float = 1e-8) -> None:
        self.learning_rate, self._weights, self._gradient, self._eps = learning_rate, weights, gradient, eps
        self._means, self._squares = np.zeros_like(weights), np.zeros_like(weights)
        self._steps = np.zeros((), np.float32)

    def clip(self, max_norm: float) -> float:
        """Scale the gradient down to that norm, if it is longer. Returns the norm it had."""
        return float(clip(self._gradient, max_norm))

    def step(self) -> None:
        """Move the weights against their gradient."""
        self._steps += 1
        descend(
            self._weights, self._gradient, self._means, self._squares, int(self._steps), self.learning_rate, self._eps
        )

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        return {name: array.copy() for name, array in self._state().items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        for name, array in self._state().items():
            if name in arrays:
                array[...] = arrays[name]

    def _state(self) -> dict[str, np.ndarray]:
        return {"0.step": self._steps, "0.exp_avg": self._means, "0.exp_avg_sq": self._squares}


def adam_for(policy: Policy, learning_rate: float, eps: float = 1e-8) -> Adam:
    """An optimiser of a policy's weights, wherever they are."""
    if policy.on_cpu:
        return Adam(policy.vector, policy.gradient, learning_rate, eps)
    from redline.learn.torch_adam import TorchAdam

    return TorchAdam(policy.weights, learning_rate, eps)


@loop
def clip(gradient, max_norm):
    """Scale a vector down to `max_norm` as `torch.nn.utils.clip_grad_norm_` does, within float rounding; the norm it had."""
    squares = 0.0
    for i in range(len(gradient)):
        squares += np.float64(gradient[i]) * np.float64(gradient[i])
    norm = np.sqrt(squares)
    factor = np.float32(max_norm / (norm + 1e-6))
    if not factor >= np.float32(1.0):
        for i in range(len(gradient)):
            gradient[i] *= factor
    return norm


@chained
def descend(weights, gradient, means, squares, step, learning_rate, eps):
    """Step number `step` of Adam. The order of the operations is torch's."""
    pace = np.float32(learning_rate / (1.0 - BETA_1**step))
    correction, small = np.float32((1.0 - BETA_2**step) ** 0.5), np.float32(eps)
    for i in range(len(weights)):
        slope = gradient[i]
        means[i] += _WORN_1 * (slope - means[i])
        squares[i] = _KEPT_2 * squares[i] + _WORN_2 * slope * slope
        weights[i] -= pace * means[i] / (np.sqrt(squares[i]) / correction + small)
