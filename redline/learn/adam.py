"""Adam (Kingma and Ba, 2015) on one vector of weights, and the bound on its gradient."""

from __future__ import annotations

import numpy as np
import torch
from torch.optim.adam import adam

from redline.learn.loops import chained, loop

BETA_1, BETA_2 = 0.9, 0.999
_WORN_1, _WORN_2, _KEPT_2 = np.float32(1 - BETA_1), np.float32(1 - BETA_2), np.float32(BETA_2)


class Adam:
    """Does what `torch.optim.Adam(fused=True)` does, bit for bit.

    Making one of torch's own optimisers imports its compiler, which takes longer than the first updates of a run, and
    a step of it takes several times longer than the arithmetic: on the CPU that is a loop of our own.
    """

    def __init__(self, weights: torch.Tensor, learning_rate: float, eps: float = 1e-8) -> None:
        self.learning_rate, self._weights, self._eps = learning_rate, weights, eps
        self._means, self._squares = torch.zeros_like(weights), torch.zeros_like(weights)
        self._steps = torch.zeros((), device=weights.device)

    def clip(self, max_norm: float) -> float:
        """Scale the gradient down to that norm, if it is longer. Returns the norm it had."""
        gradient = self._weights.grad
        assert gradient is not None
        if gradient.device.type == "cpu":
            return float(clip(gradient.numpy(), max_norm))
        return float(torch.nn.utils.clip_grad_norm_(self._weights, max_norm))

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights against their gradient."""
        gradient = self._weights.grad
        assert gradient is not None
        if gradient.device.type == "cpu":
            steps = self._steps.numpy()
            steps += 1
            descend(
                self._weights.numpy(), gradient.numpy(), self._means.numpy(), self._squares.numpy(),
                int(steps), self.learning_rate, self._eps,
            )  # fmt: skip
            return
        adam(
            [self._weights], [gradient], [self._means], [self._squares], [], [self._steps], fused=True, amsgrad=False,
            beta1=BETA_1, beta2=BETA_2, lr=self.learning_rate, weight_decay=0.0, eps=self._eps, maximize=False,
        )  # fmt: skip

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        return {name: tensor.cpu().numpy().copy() for name, tensor in self._state().items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        for name, tensor in self._state().items():
            if name in arrays:
                tensor.copy_(torch.from_numpy(arrays[name]))

    def _state(self) -> dict[str, torch.Tensor]:
        return {"0.step": self._steps, "0.exp_avg": self._means, "0.exp_avg_sq": self._squares}


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
    """Step number `step` of Adam. The order of the operations, and which are fused, is torch's."""
    pace = np.float32(learning_rate / (1.0 - BETA_1**step))
    correction, small = np.float32((1.0 - BETA_2**step) ** 0.5), np.float32(eps)
    for i in range(len(weights)):
        slope = gradient[i]
        means[i] += _WORN_1 * (slope - means[i])
        squares[i] = _KEPT_2 * squares[i] + _WORN_2 * slope * slope
        weights[i] -= pace * means[i] / (np.sqrt(squares[i]) / correction + small)
