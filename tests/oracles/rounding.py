"""How far float32 may be from the truth: bounds by running error analysis (Higham, 2002, §3).

A computation in float32 keeps its promise if it is as near to the same computation in float64 as its roundings allow, in
whatever order it adds up, with or without fused products. Such a bound holds on every CPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

UNIT = 2.0**-24
"""The largest relative error of one rounding to float32."""
STEEPEST = 1.13
"""No activation is steeper: gelu and silu reach about 1.13 and 1.10, the others 1."""
ACTIVATION_UNITS = 8
"""Roundings in an activation: functions of a library are right within 4 units, gelu multiplies twice."""


class Bounded(NamedTuple):
    """Numbers in float64, and how far a float32 computation of them may be from them."""

    exact: Tensor
    error: Tensor


def gamma(num_terms: int) -> float:
    """The relative error of a sum of that many products, in any order."""
    return num_terms * UNIT / (1 - num_terms * UNIT)


def through(module: nn.Module, given: Bounded) -> Bounded:
    """What a module makes of numbers, with the error that its roundings add."""
    if isinstance(module, nn.Sequential):
        for layer in module:
            given = through(layer, given)
        return given
    if isinstance(module, nn.Linear):
        return _linear(lambda x, weight, bias: functional.linear(x, weight, bias), module, given)
    if isinstance(module, nn.Conv2d):
        stride = module.stride
        return _linear(lambda x, weight, bias: functional.conv2d(x, weight, bias, stride), module, given)
    if isinstance(module, nn.Flatten):
        return Bounded(module(given.exact), module(given.error))
    rounding = ACTIVATION_UNITS * UNIT * given.exact.abs().clamp(min=1.0)
    return Bounded(module(given.exact), STEEPEST * given.error + rounding)


def _linear(apply, module, given: Bounded) -> Bounded:
    size = module.weight.abs()
    num_terms = module.weight[0].numel() + 1
    passed_on = apply(given.error, size, None)
    magnitude = apply(given.exact.abs() + given.error, size, module.bias.abs())
    exact = apply(given.exact, module.weight, module.bias)
    return Bounded(exact, passed_on + gamma(num_terms) * magnitude)


class AdamBounds:
    """Adam in float64, with the error that float32 may have made so far."""

    def __init__(self, weights: np.ndarray, eps: float) -> None:
        self.weights = weights.astype(np.float64)
        self.means = np.zeros_like(self.weights)
        self.squares = np.zeros_like(self.weights)
        self.weights_error = np.zeros_like(self.weights)
        self.means_error = np.zeros_like(self.weights)
        self.squares_error = np.zeros_like(self.weights)
        self._eps = eps
        self._steps = 0

    def step(self, gradient: np.ndarray, learning_rate: float) -> None:
        """One step. Each line of errors has what is passed on, and four to eight roundings of its own."""
        slope = gradient.astype(np.float64)
        self._steps += 1
        self.means_error = 0.9 * self.means_error + 4 * UNIT * (np.abs(self.means) + 0.1 * np.abs(slope))
        self.means = 0.9 * self.means + 0.1 * slope
        self.squares_error = 0.999 * self.squares_error + 4 * UNIT * (self.squares + 0.001 * slope**2)
        self.squares = 0.999 * self.squares + 0.001 * slope**2
        correction = np.sqrt(1 - 0.999**self._steps)
        root = np.sqrt(self.squares)
        lower_root = np.sqrt(np.maximum(self.squares - self.squares_error, 0.0))
        divisor = root / correction + self._eps
        divisor_error = (root - lower_root) / correction + 4 * UNIT * divisor
        pace = learning_rate / (1 - 0.9**self._steps)
        step = pace * self.means / divisor
        least = divisor - divisor_error
        self.weights -= step
        self.weights_error += pace * self.means_error / least
        self.weights_error += np.abs(step) * divisor_error / least
        self.weights_error += 8 * UNIT * np.abs(step) + UNIT * np.abs(self.weights)


def as_bounded(inputs: Tensor) -> Bounded:
    """Inputs, which are exact."""
    exact = inputs.double()
    return Bounded(exact, torch.zeros_like(exact))
