"""The smaller and the larger of two numbers, as rules ask for them.

Python's own `min` and `max` mean the same, but Numba turns them into machine code for each pair of types, which nobody
calls and which takes a twentieth of the time that a large kernel takes.
"""

from __future__ import annotations

from redline.compiled.speed import inlined


@inlined
def smaller(a, b):
    """The smaller one, `a` if they are equal."""
    return b if b < a else a


@inlined
def larger(a, b):
    """The larger one, `a` if they are equal."""
    return b if b > a else a
