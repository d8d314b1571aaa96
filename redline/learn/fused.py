"""The PPO loss and its gradient worked out by hand, for the CPU.

What `ppo_loss` and autograd do in a hundred small passes over memory is done here in a few: matrix products by torch,
everything between them by compiled loops that touch each number once. Same gradient within float rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from redline.learn.batch import Batch
from redline.learn.policy import MASKED, Policy

if TYPE_CHECKING:
    from redline.learn.ppo import PPOConfig

_loop = numba.njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp", "nnan", "ninf"}
)

_f = np.float32
_HALF, _ONE, _TWO = _f(0.5), _f(1.0), _f(2.0)
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_LOWEST, _HIGHEST = _f(-87.0), _f(88.0)  # beyond these exp leaves the range of a float32
_C2, _C3, _C4, _C5, _C6, _C7 = (_f(1 / k) for k in (2, 6, 24, 120, 720, 5040))
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


@_loop
def _exp(x):
    """exp in single precision by range reduction and a Taylor polynomial: plain arithmetic, so that loops vectorise."""
    bounded = max(min(x, _HIGHEST), _LOWEST)
    power = np.floor(bounded * _LOG2_E + _HALF)
    rest = bounded - power * _LN_2_HIGH - power * _LN_2_LOW
    series = ((((((_C7 * rest + _C6) * rest + _C5) * rest + _C4) * rest + _C3) * rest + _C2) * rest + _ONE) * rest + _ONE
    scale = np.int32((np.int32(power) + _BIAS) << _MANTISSA_BITS).view(np.float32)
    return series * scale if x >= _LOWEST else _f(0.0)


@_loop
def _tanh(x):
    """In place, all of a contiguous array."""
    flat = x.ravel()
    for i in range(flat.size):
        flat[i] = _ONE - _TWO / (_exp(_TWO * flat[i]) + _ONE)


@_loop
def _through_tanh(activations, gradient):
    """Gradient at the inputs of tanh, in place, from that at its outputs."""
    y, g = activations.ravel(), gradient.ravel()
    for i in range(y.size):
        g[i] *= _ONE - y[i] * y[i]


@_loop
def _soften(logits, probs, log_sums, entropies):
    """Softmax of every row, with its entropy and the logarithm of its denominator."""
    for i in range(logits.shape[0]):
        top = logits[i, 0]
        for a in range(logits.shape[1]):
            top = max(top, logits[i, a])
        total, weighted = _f(0.0), _f(0.0)
        for a in range(logits.shape[1]):
            below = logits[i, a] - top
            e = _exp(below)
            probs[i, a] = e
            total += e
            weighted += e * below
        inverse = _ONE / total
        for a in range(logits.shape[1]):
            probs[i, a] *= inverse
        log_total = np.log(total)
        log_sums[i] = top + log_total
        entropies[i] = log_total - weighted * inverse


@_loop
def _policy_gradient(logits, probs, log_sums, entropies, batch, clip, entropy_weight, pair_grads, sums):
    """Turn `probs` into the gradient at the logits; add up objective, entropy, KL and clipped share in `sums`."""
    inverse = _ONE / _f(batch.num_steps)
    row_grads = np.zeros(logits.shape[0], np.float32)
    for p in range(len(batch.pair_rows)):
        i = batch.pair_rows[p]
        log_ratio = logits[i, batch.pair_actions[p]] - log_sums[i] - batch.pair_log_probs[p]
        ratio = np.exp(log_ratio)
        objective = min(ratio, _ONE + clip) * batch.gains[p] + max(ratio, _ONE - clip) * batch.losses[p]
        slope = (batch.gains[p] if ratio <= _ONE + clip else _f(0.0)) + (
            batch.losses[p] if ratio >= _ONE - clip else _f(0.0)
        )
        pair_grads[p] = -ratio * slope * inverse
        row_grads[i] += pair_grads[p]
        sums[0] += objective
        sums[2] += batch.pair_visits[p] * (ratio - _ONE - log_ratio)
        sums[3] += batch.pair_visits[p] if abs(ratio - _ONE) > clip else _f(0.0)
    for i in range(logits.shape[0]):
        weight = entropy_weight * batch.visits[i] * inverse
        offset = entropies[i] - log_sums[i]
        for a in range(logits.shape[1]):
            probs[i, a] *= weight * (logits[i, a] + offset) - row_grads[i]
        sums[1] += batch.visits[i] * entropies[i]
    for p in range(len(batch.pair_rows)):
        probs[batch.pair_rows[p], batch.pair_actions[p]] += pair_grads[p]


class PartLoss(NamedTuple):
    """What a part of a batch adds to the parts of the loss."""

    policy: float
    value: float
    entropy: float
    kl: float
    clipped: float


def part_gradient(
    policy: Policy, values: Tensor, masks: Tensor | None, batch: Batch, config: PPOConfig, grads: list[Tensor]
) -> PartLoss:
    """Add a batch's gradient to `grads`, one tensor per parameter of the policy, and return its loss."""
    with torch.no_grad():
        grad_of = dict(zip((name for name, _ in policy.named_parameters()), grads, strict=True))
        trunk = _forward(policy.trunk, values)
        critic_trunk = trunk if policy.critic_trunk is None else _forward(policy.critic_trunk, values)
        logits = torch.addmm(policy.actor.bias, trunk[-1], policy.actor.weight.t())
        if masks is not None:
            logits.masked_fill_(~masks, MASKED)
        estimates = torch.addmm(policy.critic.bias, critic_trunk[-1], policy.critic.weight.t())
        logits_grad, sums = _head(logits.numpy(), batch, config)
        errors = estimates.squeeze(1).numpy() - batch.mean_returns
        value_sum = float(batch.visits @ (errors * errors)) + batch.spread
        value_grad = torch.from_numpy(errors * batch.visits * _f(config.value / batch.num_steps)).unsqueeze(1)

        at_actor = _back_linear(policy.actor, "actor", trunk[-1], logits_grad, grad_of)
        at_critic = _back_linear(policy.critic, "critic", critic_trunk[-1], value_grad, grad_of)
        if policy.critic_trunk is None:
            _back_trunk(policy.trunk, "trunk", trunk, at_actor.add_(at_critic), grad_of)
        else:
            _back_trunk(policy.trunk, "trunk", trunk, at_actor, grad_of)
            _back_trunk(policy.critic_trunk, "critic_trunk", critic_trunk, at_critic, grad_of)
    steps = batch.num_steps
    return PartLoss(-sums[0] / steps, 0.5 * value_sum / steps, *(float(s) / steps for s in sums[1:]))


def _head(logits: np.ndarray, batch: Batch, config: PPOConfig) -> tuple[Tensor, np.ndarray]:
    """Gradient at the logits, and the sums of objective, entropy, KL and clipped steps."""
    probs = np.empty_like(logits)
    log_sums, entropies = np.empty(len(logits), np.float32), np.empty(len(logits), np.float32)
    sums = np.zeros(4)
    _soften(logits, probs, log_sums, entropies)
    pair_grads = np.empty(len(batch.pair_rows), np.float32)
    clip, entropy_weight = _f(config.clip), _f(config.entropy)
    _policy_gradient(logits, probs, log_sums, entropies, batch, clip, entropy_weight, pair_grads, sums)
    return torch.from_numpy(probs), sums


def _forward(trunk: torch.nn.Sequential, values: Tensor) -> list[Tensor]:
    """The values and then the activations of every hidden layer."""
    activations = [values]
    for layer in trunk[::2]:
        hidden = torch.addmm(layer.bias, activations[-1], layer.weight.t())
        _tanh(hidden.numpy())
        activations.append(hidden)
    return activations


def _back_trunk(
    trunk: torch.nn.Sequential, name: str, activations: list[Tensor], gradient: Tensor, grad_of: dict[str, Tensor]
) -> None:
    """Add the trunk's gradients, given the one at its last activations."""
    for k in range(len(trunk) - 2, -1, -2):
        inputs, outputs = activations[k // 2], activations[k // 2 + 1]
        _through_tanh(outputs.numpy(), gradient.numpy())
        gradient = _back_linear(trunk[k], f"{name}.{k}", inputs, gradient, grad_of, inputs_too=k > 0)


def _back_linear(
    layer: torch.nn.Module,
    name: str,
    inputs: Tensor,
    gradient: Tensor,
    grad_of: dict[str, Tensor],
    inputs_too: bool = True,
) -> Tensor:
    """Add a layer's gradients and return the one at its inputs."""
    grad_of[f"{name}.weight"].addmm_(gradient.t(), inputs)
    grad_of[f"{name}.bias"].add_(gradient.sum(dim=0))
    return gradient @ layer.weight if inputs_too else gradient  # type: ignore[operator]
