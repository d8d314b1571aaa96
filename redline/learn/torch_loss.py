"""The PPO loss of a minibatch by torch: for autograd, and with its gradient worked out by hand.

The same within float rounding.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from redline.learn.batch import Minibatch
from redline.learn.config import PPOConfig
from redline.learn.heads.head import Distribution, Head
from redline.learn.loss import Loss, TimedLoss
from redline.learn.network.compiled_pass import backward, forward, scratch
from redline.learn.network.layers import Layers, Network


def ppo_loss(distribution: Distribution, values: Tensor, batch: Minibatch[Tensor], config: PPOConfig) -> Loss[Tensor]:
    """The clipped objective of a batch, given distributions and values of its distinct observations."""
    log_ratio = distribution.log_probs(batch.pair_rows, batch.pair_actions) - batch.pair_log_probs
    ratio = log_ratio.exp()
    # min(r A, clip(r) A) is min(r, 1 + c) A where A > 0 and max(r, 1 - c) A where A < 0
    objective = ratio.clamp(max=1 + config.clip) * batch.gains + ratio.clamp(min=1 - config.clip) * batch.losses
    policy = -objective.sum() / batch.num_steps
    errors = batch.visits * (values - batch.mean_returns) ** 2
    value = 0.5 * (errors.sum() + batch.spread) / batch.num_steps
    entropy = (batch.visits @ distribution.entropies()) / batch.num_steps
    with torch.no_grad():
        kl = (batch.pair_visits @ (ratio - 1 - log_ratio)) / batch.num_steps
        clipped = (batch.pair_visits @ ((ratio - 1).abs() > config.clip).float()) / batch.num_steps
    return Loss(policy, value, entropy, kl, clipped)


def write_gradient(
    head: Head,
    network: Network,
    layers: Layers[Tensor],
    grads: Layers[Tensor],
    inputs: Tensor,
    masks: Tensor | None,
    batch: Minibatch[np.ndarray],
    config: PPOConfig,
) -> TimedLoss:
    """Write a batch's gradient to `grads` and return its loss. `inputs` and `masks` are those of the batch's rows."""
    began, steps = time.perf_counter_ns(), batch.num_steps
    passed = forward(network, layers, inputs)
    outputs_grad = scratch.take("outputs grad", *passed.outputs.shape)
    sums = head.gradient(
        passed.outputs.numpy(), None if masks is None else masks.numpy(), batch,
        np.float32(config.clip), np.float32(config.entropy), outputs_grad.numpy(),
    )  # fmt: skip
    errors = passed.values.numpy()[:, 0] - batch.mean_returns
    value_sum = float(batch.visits @ (errors * errors)) + batch.spread
    values_grad = torch.from_numpy(errors * batch.visits * np.float32(config.value / steps)).unsqueeze(1)
    halfway = time.perf_counter_ns()
    backward(network, layers, grads, passed, outputs_grad, values_grad)
    loss = Loss(
        -sums.objective / steps, 0.5 * value_sum / steps, sums.entropy / steps, sums.kl / steps, sums.clipped / steps
    )
    return TimedLoss(loss, halfway - began, time.perf_counter_ns() - halfway)
