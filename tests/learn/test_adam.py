"""Our optimiser on one vector is torch's own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import torch

from redline.learn.adam import Adam
from redline.learn.torch_adam import TorchAdam


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


def test_it_moves_weights_exactly_as_that_of_torch_does():
    ours, theirs = Descent(), torch.ones(1000, requires_grad=True)
    ours.go(50)
    optimizer = torch.optim.Adam([theirs], lr=0.01, eps=1e-5, fused=True)
    for k, slope in enumerate(slopes(50)):
        theirs.grad = torch.from_numpy(slope)
        optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)
        optimizer.step()
    np.testing.assert_array_equal(ours.weights, theirs.detach().numpy())


def test_weights_that_torch_holds_move_alike():
    ours, theirs = Descent(), DescentByTorch()
    ours.go(50)
    theirs.go(50)
    np.testing.assert_array_equal(ours.weights, theirs.weights)
    for name, array in ours.optimizer.snapshot().items():
        np.testing.assert_array_equal(array, theirs.optimizer.snapshot()[name])


def test_gradients_are_clipped_as_torch_clips_them():
    for scale in (0.01, 100.0):
        ours, theirs = Descent(), torch.zeros(1000, requires_grad=True)
        ours.gradient[:] = np.float32(scale) * slopes(1)[0]
        theirs.grad = torch.from_numpy(ours.gradient.copy())
        ours.optimizer.clip(0.5)
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        np.testing.assert_allclose(ours.gradient, theirs.grad.numpy(), rtol=3e-7, atol=0.0)


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
