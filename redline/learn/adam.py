"""Adam (Kingma and Ba, 2015) on one vector of weights."""

from __future__ import annotations

import numpy as np
import torch
from torch.optim.adam import adam


class Adam:
    """Does what `torch.optim.Adam(fused=True)` does, bit for bit.

    Making one of torch's own optimisers imports its compiler, which takes longer than the first updates of a run.
    """

    def __init__(self, weights: torch.Tensor, learning_rate: float, eps: float = 1e-8) -> None:
        self.learning_rate, self._weights, self._eps = learning_rate, weights, eps
        self._means, self._squares = torch.zeros_like(weights), torch.zeros_like(weights)
        self._steps = torch.zeros((), device=weights.device)

    @torch.no_grad()
    def step(self) -> None:
        """Move the weights against their gradient."""
        assert self._weights.grad is not None
        adam(
            [self._weights], [self._weights.grad], [self._means], [self._squares], [], [self._steps], fused=True,
            amsgrad=False, beta1=0.9, beta2=0.999, lr=self.learning_rate, weight_decay=0.0, eps=self._eps, maximize=False,
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
