"""GRU and LSTM over sequences, with their gradients, in compiled loops for the CPU.

Torch's own go through a sequence by a dozen small operations a step, each known to autograd, and must be given sequences
that no episode ends in. Here a sequence is one loop, in which memories are emptied where an episode begins. The products
with the inputs are left to whoever calls: they need no order of time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from redline.learn.loops import exp, loop

_ONE, _TWO = np.float32(1.0), np.float32(2.0)


class Remember(torch.autograd.Function):
    """What is remembered [T, n, width] after every step of sequences, known to autograd.

    `coming` [T, n, gates] are the inputs times their weights, `weight` [gates, width] and `bias` [gates] those of what is
    remembered, `before` [n, memory size] is that before the first step, and `begins` bool [T, n] says where it is emptied.
    """

    @staticmethod
    def forward(ctx: Any, coming: Tensor, weight: Tensor, bias: Tensor, before: Tensor, begins: np.ndarray) -> Tensor:
        """Steps forward in time."""
        length, count, gates = coming.shape
        width = weight.shape[1]
        cells = gates == 4 * width  # an LSTM
        hidden = np.empty((length, count, width), np.float32)
        notes = np.empty((length, count, 5 * width if cells else 4 * width), np.float32)
        first = np.ascontiguousarray(before.numpy())
        run = _lstm_forward if cells else _gru_forward
        run(coming.contiguous().numpy(), weight.numpy(), bias.numpy(), first, begins, hidden, notes)
        ctx.kept = weight, first, begins, hidden, notes, cells
        return torch.from_numpy(hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Steps back in time."""
        weight, first, begins, hidden, notes, cells = ctx.kept
        length, count, width = hidden.shape
        earlier = np.concatenate([first[None, :, :width], hidden[:-1]])
        earlier[begins] = 0.0
        at_coming = np.empty((length, count, weight.shape[0]), np.float32)
        at_kept = at_coming if cells else np.empty_like(at_coming)
        given = gradient.contiguous().numpy()
        if cells:
            _lstm_backward(given, weight.numpy(), first, begins, notes, at_coming)
        else:
            _gru_backward(given, weight.numpy(), earlier, begins, notes, at_coming, at_kept)
        flat = torch.from_numpy(at_kept).flatten(0, 1)
        at_weight = flat.t() @ torch.from_numpy(earlier).flatten(0, 1)
        return torch.from_numpy(at_coming), at_weight, flat.sum(dim=0), None, None


@loop
def _sigmoid(x):
    return _ONE / (_ONE + exp(-x))


@loop
def _tanh(x):
    return _ONE - _TWO / (exp(_TWO * x) + _ONE)


@loop
def _product(weight, bias, numbers, result):
    """Weight times numbers, plus bias."""
    for k in range(weight.shape[0]):
        total = bias[k]
        for j in range(weight.shape[1]):
            total += weight[k, j] * numbers[j]
        result[k] = total


@loop
def _product_back(weight, gradient, result):
    """Add the gradient at the numbers, from that at the product."""
    for k in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            result[j] += gradient[k] * weight[k, j]


@loop
def _gru_forward(coming, weight, bias, first, begins, hidden, notes):
    """Writes what is remembered; notes are reset and update gates, the new part, and its product before the reset."""
    width = weight.shape[1]
    kept, now = np.empty(weight.shape[0], np.float32), np.empty(width, np.float32)
    for i in range(coming.shape[1]):
        now[:] = first[i]
        for t in range(coming.shape[0]):
            if begins[t, i]:
                now[:] = np.float32(0.0)
            _product(weight, bias, now, kept)
            x, note, out = coming[t, i], notes[t, i], hidden[t, i]
            for j in range(width):
                reset = _sigmoid(x[j] + kept[j])
                update = _sigmoid(x[width + j] + kept[width + j])
                new = _tanh(x[2 * width + j] + reset * kept[2 * width + j])
                note[j], note[width + j], note[2 * width + j] = reset, update, new
                note[3 * width + j] = kept[2 * width + j]
                out[j] = new + update * (now[j] - new)
            now[:] = out


@loop
def _gru_backward(gradient, weight, earlier, begins, notes, at_coming, at_kept):
    """Writes the gradients at the products with the inputs and with what was remembered."""
    width = weight.shape[1]
    carry = np.empty(width, np.float32)
    for i in range(gradient.shape[1]):
        carry[:] = np.float32(0.0)
        for t in range(gradient.shape[0] - 1, -1, -1):
            note, x, kept, before = notes[t, i], at_coming[t, i], at_kept[t, i], earlier[t, i]
            for j in range(width):
                at = gradient[t, i, j] + carry[j]
                reset, update, new = note[j], note[width + j], note[2 * width + j]
                at_new = at * (_ONE - update) * (_ONE - new * new)
                at_update = at * (before[j] - new) * update * (_ONE - update)
                at_reset = at_new * note[3 * width + j] * reset * (_ONE - reset)
                x[j] = kept[j] = at_reset
                x[width + j] = kept[width + j] = at_update
                x[2 * width + j] = at_new
                kept[2 * width + j] = at_new * reset
                carry[j] = at * update
            if begins[t, i]:
                carry[:] = np.float32(0.0)
            else:
                _product_back(weight, kept, carry)


@loop
def _lstm_forward(coming, weight, bias, first, begins, hidden, notes):
    """Writes what is remembered; notes are the gates in, forget, new and out, and the cells."""
    width = weight.shape[1]
    kept, now, cell = np.empty(weight.shape[0], np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    for i in range(coming.shape[1]):
        now[:], cell[:] = first[i, :width], first[i, width:]
        for t in range(coming.shape[0]):
            if begins[t, i]:
                now[:], cell[:] = np.float32(0.0), np.float32(0.0)
            _product(weight, bias, now, kept)
            x, note, out = coming[t, i], notes[t, i], hidden[t, i]
            for j in range(width):
                let_in = _sigmoid(x[j] + kept[j])
                forget = _sigmoid(x[width + j] + kept[width + j])
                new = _tanh(x[2 * width + j] + kept[2 * width + j])
                let_out = _sigmoid(x[3 * width + j] + kept[3 * width + j])
                cell[j] = forget * cell[j] + let_in * new
                note[j], note[width + j], note[2 * width + j], note[3 * width + j] = let_in, forget, new, let_out
                note[4 * width + j] = cell[j]
                out[j] = let_out * _tanh(cell[j])
            now[:] = out


@loop
def _lstm_backward(gradient, weight, first, begins, notes, at_coming):
    """Writes the gradient at the gates, before they were bent."""
    width = weight.shape[1]
    carry, at_cell = np.empty(width, np.float32), np.empty(width, np.float32)
    for i in range(gradient.shape[1]):
        carry[:], at_cell[:] = np.float32(0.0), np.float32(0.0)
        for t in range(gradient.shape[0] - 1, -1, -1):
            note, x = notes[t, i], at_coming[t, i]
            for j in range(width):
                let_in, forget, new, let_out = note[j], note[width + j], note[2 * width + j], note[3 * width + j]
                bent = _tanh(note[4 * width + j])
                at = gradient[t, i, j] + carry[j]
                inside = at_cell[j] + at * let_out * (_ONE - bent * bent)
                before = np.float32(0.0)
                if not begins[t, i]:
                    before = notes[t - 1, i, 4 * width + j] if t > 0 else first[i, width + j]
                x[j] = inside * new * let_in * (_ONE - let_in)
                x[width + j] = inside * before * forget * (_ONE - forget)
                x[2 * width + j] = inside * let_in * (_ONE - new * new)
                x[3 * width + j] = at * bent * let_out * (_ONE - let_out)
                at_cell[j] = inside * forget
                carry[j] = np.float32(0.0)
            if begins[t, i]:
                at_cell[:] = np.float32(0.0)
            else:
                _product_back(weight, x, carry)
