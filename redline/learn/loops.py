"""Compiled loops over single-precision arrays, and the arithmetic they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from redline.compiled.disk import keep_on_disk
from redline.compiled.speed import lend

# not a set, which would be spelled differently in every process, and the stamp on machine code with it
_REORDERED = dict.fromkeys(("reassoc", "contract", "nsz", "arcp", "nnan", "ninf"), True)
_FUSED = {"contract": True}


def loop(function: Callable[..., Any]) -> Any:
    """Marks a loop that may add up in any order: fast, and equal to the obvious within float rounding.

    Its machine code is kept on disk as that of a `kernel` is, which must give the same bits at both speeds.
    """
    return _compiled(function, _REORDERED)


def chained(function: Callable[..., Any]) -> Any:
    """Marks a loop that adds up in the order in which it is written, but may fuse a product with its sum."""
    return _compiled(function, _FUSED)


def _compiled(function: Callable[..., Any], fastmath: dict[str, bool]) -> Any:
    jit: Any = numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)  # type: ignore[call-overload]
    compiled = jit(function)
    if isinstance(compiled, Dispatcher):  # not under NUMBA_DISABLE_JIT
        keep_on_disk(compiled)
        lend(compiled)
    return compiled


_f = np.float32
_HALF, _ONE = _f(0.5), _f(1.0)
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_LOWEST, _HIGHEST = _f(-50.0), _f(88.0)
"""Below the one exp counts as 0: no draw tells such a probability from none, and its products would be too small for the
range in which processors are quick. Above the other it leaves the range of a float32."""
_C2, _C3, _C4, _C5, _C6, _C7 = (_f(1 / k) for k in (2, 6, 24, 120, 720, 5040))
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


@chained
def exp(x):
    """Exp in single precision by range reduction and a Taylor polynomial: plain arithmetic, so that loops vectorise."""
    bounded = max(min(x, _HIGHEST), _LOWEST)
    power = np.floor(bounded * _LOG2_E + _HALF)
    rest = bounded - power * _LN_2_HIGH - power * _LN_2_LOW
    series = (
        (((((_C7 * rest + _C6) * rest + _C5) * rest + _C4) * rest + _C3) * rest + _C2) * rest + _ONE
    ) * rest + _ONE
    scale = np.int32((np.int32(power) + _BIAS) << _MANTISSA_BITS).view(np.float32)
    return series * scale if x >= _LOWEST else _f(0.0)


_i = np.int32
_MAGNITUDE, _SIGN_BIT = _i(0x7FFFFFFF), _i(31)


@loop
def greatest(row):
    """The greatest number of a row.

    LLVM compares many integers at once, but floats one by one. With all bits but the sign turned over where that is set, the
    bits of floats are integers in the same order.
    """
    top = _i(-_MAGNITUDE)
    for j in range(len(row)):
        bits = _f(row[j]).view(np.int32)
        each = _i(bits ^ _i(_i(bits >> _SIGN_BIT) & _MAGNITUDE))
        top = each if each > top else top
    return _i(top ^ _i(_i(top >> _SIGN_BIT) & _MAGNITUDE)).view(np.float32)


@chained
def added(row):
    """The sum of a row, in an order that depends on its length alone: eight sums that take turns."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _f(0.0)
    whole = len(row) - len(row) % 8
    for j in range(0, whole, 8):
        s0 += row[j]
        s1 += row[j + 1]
        s2 += row[j + 2]
        s3 += row[j + 3]
        s4 += row[j + 4]
        s5 += row[j + 5]
        s6 += row[j + 6]
        s7 += row[j + 7]
    for j in range(whole, len(row)):
        s0 += row[j]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


_FLAT = _f(7.9)  # beyond this tanh is 1 within float rounding
_P0, _P1, _P2, _P3, _P4 = map(_f, (1.0, 1.345067710e-01, 3.579059501e-03, 2.202437498e-05, 1.542959093e-08))
_Q1, _Q2, _Q3, _Q4 = map(_f, (4.678400512e-01, 2.619249371e-02, 3.423761655e-04, 8.599430276e-07))


@chained
def tanh(x):
    """Tanh in single precision as a quotient of polynomials fitted to it, within four parts in ten million."""
    bounded = max(min(x, _FLAT), -_FLAT)
    square = bounded * bounded
    above = (((_P4 * square + _P3) * square + _P2) * square + _P1) * square + _P0
    below = (((_Q4 * square + _Q3) * square + _Q2) * square + _Q1) * square + _ONE
    return bounded * above / below


@loop
def clipped_objective(log_ratio, gain, loss, clip):
    """PPO's clipped objective of steps that share a ratio, given the sums of their positive and negative advantages.

    Also its derivative by the log-probability, and the ratio.
    """
    ratio = np.exp(log_ratio)
    # min(r A, clip(r) A) is min(r, 1 + c) A where A > 0 and max(r, 1 - c) A where A < 0
    objective = min(ratio, _ONE + clip) * gain + max(ratio, _ONE - clip) * loss
    slope = (gain if ratio <= _ONE + clip else _f(0.0)) + (loss if ratio >= _ONE - clip else _f(0.0))
    return objective, ratio * slope, ratio
