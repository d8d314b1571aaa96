"""Our optimiser on one vector is torch's own."""

from __future__ import annotations

import subprocess
import sys

import torch

from redline.learn.adam import Adam


def descend(optimizer: object, weights: torch.Tensor, count: int) -> None:
    rng = torch.Generator().manual_seed(count)
    for k in range(count):
        weights.grad = torch.randn(weights.shape, generator=rng)
        if isinstance(optimizer, Adam):
            optimizer.learning_rate = 0.01 / (k + 1)
        else:
            optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)  # type: ignore[attr-defined]
        optimizer.step()  # type: ignore[attr-defined]


def test_it_moves_weights_exactly_as_that_of_torch_does():
    ours, theirs = torch.ones(1000, requires_grad=True), torch.ones(1000, requires_grad=True)
    descend(Adam(ours, 0.01, eps=1e-5), ours, 50)
    descend(torch.optim.Adam([theirs], lr=0.01, eps=1e-5, fused=True), theirs, 50)
    assert ours.equal(theirs)


def test_gradients_are_clipped_as_torch_clips_them():
    for scale in (0.01, 100.0):
        ours, theirs = torch.zeros(1000, requires_grad=True), torch.zeros(1000, requires_grad=True)
        ours.grad = scale * torch.randn(1000, generator=torch.Generator().manual_seed(0))
        theirs.grad = ours.grad.clone()
        Adam(ours, 0.01).clip(0.5)
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=3e-7, atol=0.0)


def test_a_snapshot_goes_on_as_if_nothing_had_happened():
    straight, resumed = torch.ones(10, requires_grad=True), torch.ones(10, requires_grad=True)
    first, broken_off = Adam(straight, 0.01), Adam(resumed, 0.01)
    descend(first, straight, 3)
    descend(broken_off, resumed, 3)
    second = Adam(resumed, 0.01)
    second.restore(broken_off.snapshot())
    descend(first, straight, 4)
    descend(second, resumed, 4)
    assert straight.equal(resumed)


def test_the_compiler_of_torch_stays_out_of_it():
    program = (
        "import sys, torch; from redline.learn.adam import Adam; w = torch.ones(3, requires_grad=True);"
        "w.grad = torch.ones(3); Adam(w, 0.1).step(); print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
