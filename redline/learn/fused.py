"""The PPO loss and its gradient worked out by hand, for the CPU.

What `ppo_loss` and autograd do in a hundred small passes over memory is done here in a few: matrix products by torch,
everything between them by compiled loops that touch each number once. Same gradient within float rounding.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from redline.learn.batch import Batch
from redline.learn.config import PPOConfig
from redline.learn.layers import MASKED, Layer, Layers

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
    """Exp in single precision by range reduction and a Taylor polynomial: plain arithmetic, so that loops vectorise."""
    bounded = max(min(x, _HIGHEST), _LOWEST)
    power = np.floor(bounded * _LOG2_E + _HALF)
    rest = bounded - power * _LN_2_HIGH - power * _LN_2_LOW
    series = (
        (((((_C7 * rest + _C6) * rest + _C5) * rest + _C4) * rest + _C3) * rest + _C2) * rest + _ONE
    ) * rest + _ONE
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


@_loop
def _distribution(logits, log_probs, cumulative):
    """Log-probabilities of every row, and the running sums of its probabilities in double precision."""
    for i in range(logits.shape[0]):
        top = logits[i, 0]
        for a in range(logits.shape[1]):
            top = max(top, logits[i, a])
        total = _f(0.0)
        for a in range(logits.shape[1]):
            e = _exp(logits[i, a] - top)
            log_probs[i, a] = e
            total += e
        inverse = _ONE / total
        running = 0.0
        for a in range(logits.shape[1]):
            running += np.float64(log_probs[i, a] * inverse)
            cumulative[i, a] = running
        log_sum = top + np.log(total)
        for a in range(logits.shape[1]):
            log_probs[i, a] = logits[i, a] - log_sum


class PartLoss(NamedTuple):
    """What a part of a batch adds to the parts of the loss."""

    policy: float
    value: float
    entropy: float
    kl: float
    clipped: float


class Gradient(NamedTuple):
    """What working out the gradient of a part came to, and the nanoseconds of its two halves."""

    loss: PartLoss
    loss_ns: int
    backward_ns: int


class Scratch(threading.local):
    """Memory for intermediate results, kept by each thread: fresh memory costs more than what is computed in it."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, int], Tensor] = {}

    def take(self, name: str, rows: int, columns: int) -> Tensor:
        """An uninitialised float32 [rows, columns]; the same memory for every caller that gives this name."""
        found = self._buffers.get((name, columns))
        if found is None or len(found) < rows:
            found = self._buffers[name, columns] = torch.empty(rows, columns)
        return found[:rows]


_scratch = Scratch()


def infer(
    layers: Layers, values: Tensor, masks: Tensor | None, log_probs: np.ndarray, cumulative: np.ndarray
) -> np.ndarray:
    """State values [n]; fills in log-probabilities and running sums of probabilities [n, actions]."""
    with torch.no_grad():
        forward = _forward(layers, values, masks)
        _distribution(forward.logits.numpy(), log_probs, cumulative)
        return np.asarray(forward.estimates.numpy()[:, 0])


class Forward(NamedTuple):
    """What the network computes on the way; activations begin with its input."""

    trunk: list[Tensor]
    critic_trunk: list[Tensor]
    logits: Tensor
    estimates: Tensor


def part_gradient(
    layers: Layers, grads: Layers, values: Tensor, masks: Tensor | None, batch: Batch, config: PPOConfig
) -> Gradient:
    """Write a batch's gradient to `grads` and return its loss."""
    with torch.no_grad():
        began = time.perf_counter_ns()
        forward = _forward(layers, values, masks)
        logits_grad, sums = _head(forward.logits.numpy(), batch, config)
        errors = forward.estimates.numpy()[:, 0] - batch.mean_returns
        value_sum = float(batch.visits @ (errors * errors)) + batch.spread
        value_grad = torch.from_numpy(errors * batch.visits * _f(config.value / batch.num_steps)).unsqueeze(1)
        halfway = time.perf_counter_ns()
        _backward(layers, grads, forward, logits_grad, value_grad)
    ended, steps = time.perf_counter_ns(), batch.num_steps
    loss = PartLoss(-sums[0] / steps, 0.5 * value_sum / steps, *(float(s) / steps for s in sums[1:]))
    return Gradient(loss, halfway - began, ended - halfway)


def _forward(layers: Layers, values: Tensor, masks: Tensor | None) -> Forward:
    trunk = _forward_trunk(layers.trunk, "actor", values)
    critic_trunk = trunk if layers.critic_trunk is None else _forward_trunk(layers.critic_trunk, "critic", values)
    logits = _linear(layers.actor, "logits", trunk[-1])
    if masks is not None:
        logits.masked_fill_(~masks, MASKED)
    return Forward(trunk, critic_trunk, logits, _linear(layers.critic, "estimates", critic_trunk[-1]))


def _forward_trunk(trunk: list[Layer], name: str, values: Tensor) -> list[Tensor]:
    """The values and then the activations of every hidden layer."""
    activations = [values]
    for k, layer in enumerate(trunk):
        hidden = _linear(layer, f"{name} {k}", activations[-1])
        _tanh(hidden.numpy())
        activations.append(hidden)
    return activations


def _linear(layer: Layer, name: str, inputs: Tensor) -> Tensor:
    out = _scratch.take(name, inputs.shape[0], layer.bias.shape[0])
    return torch.addmm(layer.bias, inputs, layer.weight.t(), out=out)


def _head(logits: np.ndarray, batch: Batch, config: PPOConfig) -> tuple[Tensor, np.ndarray]:
    """Gradient at the logits, and the sums of objective, entropy, KL and clipped steps."""
    probs = _scratch.take("probs", *logits.shape)
    log_sums, entropies = np.empty(len(logits), np.float32), np.empty(len(logits), np.float32)
    sums = np.zeros(4)
    _soften(logits, probs.numpy(), log_sums, entropies)
    pair_grads = np.empty(len(batch.pair_rows), np.float32)
    clip, entropy_weight = _f(config.clip), _f(config.entropy)
    _policy_gradient(logits, probs.numpy(), log_sums, entropies, batch, clip, entropy_weight, pair_grads, sums)
    return probs, sums


def _backward(layers: Layers, grads: Layers, forward: Forward, logits_grad: Tensor, value_grad: Tensor) -> None:
    at_actor = _back_linear(layers.actor, grads.actor, "at actor", forward.trunk[-1], logits_grad)
    at_critic = _back_linear(layers.critic, grads.critic, "at critic", forward.critic_trunk[-1], value_grad)
    if layers.critic_trunk is None or grads.critic_trunk is None:
        _back_trunk(layers.trunk, grads.trunk, "at trunk", forward.trunk, at_actor.add_(at_critic))
    else:
        _back_trunk(layers.trunk, grads.trunk, "at actor trunk", forward.trunk, at_actor)
        _back_trunk(layers.critic_trunk, grads.critic_trunk, "at critic trunk", forward.critic_trunk, at_critic)


def _back_trunk(trunk: list[Layer], grads: list[Layer], name: str, activations: list[Tensor], gradient: Tensor) -> None:
    """Write the trunk's gradients, given the one at its last activations."""
    for k in range(len(trunk) - 1, -1, -1):
        _through_tanh(activations[k + 1].numpy(), gradient.numpy())
        gradient = _back_linear(trunk[k], grads[k], f"{name} {k}", activations[k], gradient, inputs_too=k > 0)


def _back_linear(
    layer: Layer, grad: Layer, name: str, inputs: Tensor, gradient: Tensor, inputs_too: bool = True
) -> Tensor:
    """Write a layer's gradients and return the one at its inputs."""
    torch.mm(gradient.t(), inputs, out=grad.weight)
    torch.sum(gradient, dim=0, out=grad.bias)
    if not inputs_too:
        return gradient
    return torch.mm(gradient, layer.weight, out=_scratch.take(name, *inputs.shape))
