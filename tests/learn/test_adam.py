"""Our optimiser on one vector does what torch's does, within rounding."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from redline.learn.adam import Adam
from redline.learn.torch_adam import TorchAdam
from tests.oracles.rounding import UNIT, AdamBounds


def slopes(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    return [rng.standard_normal(1000, np.float32) for _ in range(count)]


class Descent:
    """Weights, their gradient and what moves them."""

    def __init__(self) -> None:
        self.weights, self.gradient = np.ones(1000, np.float32), np.zeros(1000, np.float32)
        self.optimizer = Adam(self.weights, self.gradient, 0.01, eps=1e-5)

    def go(self, count: int) -> None:
        for k, slope in enumerate(slopes(count)):
            self.gradient[:] = slope
            self.optimizer.learning_rate = 0.01 / (k + 1)
            self.optimizer.step()


class DescentByTorch(Descent):
    """The same, held by torch."""

    def __init__(self) -> None:
        super().__init__()
        tensor = torch.from_numpy(self.weights)
        tensor.grad = torch.from_numpy(self.gradient)
        self.optimizer = TorchAdam(tensor, 0.01, eps=1e-5)


class DescentByTorchItself(Descent):
    """The same, by the optimiser of torch."""

    def __init__(self) -> None:
        super().__init__()
        self._tensor = torch.from_numpy(self.weights)
        self._tensor.grad = torch.from_numpy(self.gradient)
        self.optimizer = torch.optim.Adam([self._tensor], lr=0.01, eps=1e-5, fused=True)

    def go(self, count: int) -> None:
        for k, slope in enumerate(slopes(count)):
            self.gradient[:] = slope
            self.optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)
            self.optimizer.step()


@pytest.mark.parametrize("kind", [Descent, DescentByTorch, DescentByTorchItself])
def test_weights_move_as_adam_moves_them_within_rounding(kind):
    found = kind()
    found.go(50)
    exact = AdamBounds(np.ones(1000, np.float32), eps=1e-5)
    for k, slope in enumerate(slopes(50)):
        exact.step(slope, 0.01 / (k + 1))
    assert exact.weights_error.max() < 1e-4  # or the bound would allow anything
    assert (np.abs(found.weights - exact.weights) <= exact.weights_error).all()
    if kind is not DescentByTorchItself:
        state = found.optimizer.snapshot()
        assert (np.abs(state["0.exp_avg"] - exact.means) <= exact.means_error).all()
        assert (np.abs(state["0.exp_avg_sq"] - exact.squares) <= exact.squares_error).all()


def test_gradients_are_clipped_as_torch_clips_them():
    for scale in (0.01, 100.0):
        ours, theirs = Descent(), torch.zeros(1000, requires_grad=True)
        ours.gradient[:] = np.float32(scale) * slopes(1)[0]
        theirs.grad = torch.from_numpy(ours.gradient.copy())
        ours.optimizer.clip(0.5)
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        bound = (len(theirs) / 2 + 4) * UNIT  # torch adds squares up in float32; a square root halves the error
        np.testing.assert_allclose(ours.gradient, theirs.grad.numpy(), rtol=2 * bound, atol=0.0)


def test_a_snapshot_goes_on_as_if_nothing_had_happened():
    for kind in (Descent, DescentByTorch):
        straight, resumed, later = kind(), kind(), kind()
        straight.go(3)
        resumed.go(3)
        later.weights[:] = resumed.weights
        later.optimizer.restore(resumed.optimizer.snapshot())
        straight.go(4)
        later.go(4)
        np.testing.assert_array_equal(straight.weights, later.weights)


def test_the_compiler_of_torch_stays_out_of_it():
    program = (
        "import sys, torch; from redline.learn.torch_adam import TorchAdam; w = torch.ones(3, requires_grad=True);"
        "w.grad = torch.ones(3); TorchAdam(w, 0.1).step(); print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
