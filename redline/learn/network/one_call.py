"""The gradient of a batch in one compiled call: forward, loss and backward of a network of fully connected layers.

Where batches are small, as those of distinct observations are, most of the time of a pass by torch goes into calling
it. Everything here adds up in an order of its own, so the result is that of `compiled_pass` within float rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from redline.learn.loops import loop
from redline.learn.network.products import add_product, add_transposed_product, clear, judge, spread
from redline.learn.network.trunks import look_through, num_hidden, num_weights, turned, view

_f = np.float32
_ZERO, _ONE = _f(0.0), _f(1.0)


@loop
def _sparse_weight_gradient(gradient, inputs, out):
    """Write `gradient` [n, N] transposed times inputs [n, K] to `out` [N, K]."""
    sums = np.empty((out.shape[1], out.shape[0]), np.float32)
    clear(sums, 0)
    for i in range(gradient.shape[0]):
        for at in range(inputs.starts[i], inputs.starts[i + 1]):
            number, k = inputs.numbers[at], inputs.columns[at]
            for j in range(gradient.shape[1]):
                sums[k, j] += number * gradient[i, j]
    for k in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            out[j, k] = sums[k, j]


@loop
def _backward(weights, grads, place, widths, inputs, hidden, gradient):
    """Write a trunk's gradients, given the one at its last activations; `place` is where its weights end."""
    count = gradient.shape[0]
    at = count * num_hidden(widths)
    for k in range(len(widths) - 1, 0, -1):
        before, width = widths[k - 1], widths[k]
        at -= count * width
        place -= width * before + width
        _through_tanh(view(hidden, at, count, width), gradient)
        _sum_rows(gradient, grads[place + width * before : place + width * before + width])
        out = view(grads, place, width, before)
        if k > 1:
            below = view(hidden, at - count * before, count, before)
            clear(out, 0)
            add_transposed_product(out, gradient, below)
            following = np.empty((count, before), np.float32)
            clear(following, 0)
            add_product(following, gradient, view(weights, place, width, before))
            gradient = following
        elif len(inputs.starts):
            _sparse_weight_gradient(gradient, inputs, out)
        else:
            clear(out, 0)
            add_transposed_product(out, gradient, inputs.dense)


@loop
def _through_tanh(activations, gradient):
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            gradient[i, j] *= _ONE - activations[i, j] * activations[i, j]


@loop
def _sum_rows(gradient, out):
    for j in range(len(out)):
        out[j] = _ZERO
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            out[j] += gradient[i, j]


@loop
def _value_gradient(values, batch, weight, errors):
    """Write the gradient at the state values to `errors`; returns the sum of the squared errors."""
    total, each = 0.0, weight / _f(batch.num_steps)
    for i in range(len(values)):
        error = values[i] - batch.mean_returns[i]
        total += batch.visits[i] * error * error
        errors[i] = error * batch.visits[i] * each
    return total


@functools.cache
def gradient_in_one_call(head_gradient: Callable[..., Any]) -> Callable[..., Any]:
    """The call that writes the gradient of the PPO loss.

    `head_gradient(outputs, masks, batch, clip, entropy, gradient, sums)` writes that at the network's outputs.
    """

    @loop
    def write(weights, grads, widths, num_outputs, shared, inputs, masks, batch, clip, entropy, value_weight, sums):
        """Write the gradients of all weights of a batch; `sums` gets those over its steps, and last the squared errors."""
        count, width = len(batch.rows), widths[-1]
        size = num_weights(widths)
        actor_at = size if shared else 2 * size
        critic_at = actor_at + num_outputs * width + num_outputs
        hidden = np.empty(count * num_hidden(widths), np.float32)
        critic_hidden = hidden if shared else np.empty(len(hidden), np.float32)
        right = turned(weights, widths, num_outputs, shared)
        look_through(right, 0, widths, inputs, hidden)
        if not shared:
            look_through(right, size, widths, inputs, critic_hidden)
        features = view(hidden, len(hidden) - count * width, count, width)
        critic_features = view(critic_hidden, len(hidden) - count * width, count, width)
        actor = view(weights, actor_at, num_outputs, width)
        critic = view(weights, critic_at, 1, width)
        outputs = np.empty((count, num_outputs), np.float32)
        spread(weights[critic_at - num_outputs : critic_at], outputs)
        add_product(outputs, features, view(right, actor_at, width, num_outputs))
        values, errors = np.empty(count, np.float32), np.empty((count, 1), np.float32)
        judge(critic_features, critic, weights[critic_at + width :], values)
        sums[4] = _value_gradient(values, batch, value_weight, errors[:, 0])
        at_outputs = np.empty((count, num_outputs), np.float32)
        head_gradient(outputs, masks, batch, clip, entropy, at_outputs, sums)
        # heads
        out = view(grads, actor_at, num_outputs, width)
        clear(out, 0)
        add_transposed_product(out, at_outputs, features)
        _sum_rows(at_outputs, grads[critic_at - num_outputs : critic_at])
        out = view(grads, critic_at, 1, width)
        clear(out, 0)
        add_transposed_product(out, errors, critic_features)
        _sum_rows(errors, grads[critic_at + width :])
        # trunks
        gradient, critic_gradient = np.empty((count, width), np.float32), np.empty((count, width), np.float32)
        clear(gradient, 0)
        add_product(gradient, at_outputs, actor)
        for i in range(count):
            for j in range(width):
                critic_gradient[i, j] = errors[i, 0] * critic[0, j]
                if shared:
                    gradient[i, j] += critic_gradient[i, j]
        if not shared:
            _backward(weights, grads, 2 * size, widths, inputs, critic_hidden, critic_gradient)
        _backward(weights, grads, size, widths, inputs, hidden, gradient)

    return write
