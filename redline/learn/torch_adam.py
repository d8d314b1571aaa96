"""Adam on weights that torch holds, on any device."""

from __future__ import annotations

import numpy as np
import torch
from torch.optim.adam import adam

from redline.learn.adam import BETA_1, BETA_2, Adam


class TorchAdam(Adam):
    """The same by torch. Its function is called: making one of its optimisers would import its compiler first."""

    def __init__(self, weights: torch.Tensor, learning_rate: float, eps: float = 1e-8) -> None:
        self.learning_rate, self._tensor, self._eps = learning_rate, weights, eps
        self._tensors = {
            "0.step": torch.zeros((), device=weights.device),
            "0.exp_avg": torch.zeros_like(weights),
            "0.exp_avg_sq": torch.zeros_like(weights),
        }

    def clip(self, max_norm: float) -> float:
        """Scale the gradient down to that norm, if it is longer. Returns the norm it had."""
        return float(torch.nn.utils.clip_grad_norm_(self._tensor, max_norm))

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights against their gradient."""
        gradient = self._tensor.grad
        assert gradient is not None
        steps, means, squares = self._tensors.values()
        adam(
            [self._tensor], [gradient], [means], [squares], [], [steps], fused=True, amsgrad=False,
            beta1=BETA_1, beta2=BETA_2, lr=self.learning_rate, weight_decay=0.0, eps=self._eps, maximize=False,
        )  # fmt: skip

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        return {name: tensor.cpu().numpy().copy() for name, tensor in self._tensors.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        for name, tensor in self._tensors.items():
            if name in arrays:
                tensor.copy_(torch.from_numpy(arrays[name]))
