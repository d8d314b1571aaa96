"""Eight numbers at once, as processors have them: for the few loops in which it matters what stays in registers.

Numba sees arrays and single numbers only, and leaves it to LLVM to find out which loops can go eight at a time. A loop
over tiles of a matrix is beyond that: here it says itself what is loaded, added to and stored. Interpreted, lanes are
small arrays.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

LANES = 8
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_NOTHING = ir.Constant(_VECTOR, ir.Undefined)


class _Lanes(types.Type):
    """Eight float32."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


_lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    """They stand in one register, where the processor has any so wide."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of the lanes that begin at an element of a matrix."""
    kind, array = signature.args[0], arguments[0]
    at = [
        context.cast(builder, each, given, types.intp)
        for each, given in zip(arguments[1:3], signature.args[1:3], strict=True)
    ]
    struct = context.make_array(kind)(context, builder, array)
    pointer = cgutils.get_item_pointer(context, builder, kind, struct, at, wraparound=False)
    return builder.bitcast(pointer, _VECTOR.as_pointer())


@intrinsic
def _load(_, array, i, j):
    def code(context, builder, signature, arguments):
        return builder.load(_place(context, builder, signature, arguments), align=4)

    return _lanes(array, i, j), code


@intrinsic
def _store(_, array, i, j, lanes):
    def code(context, builder, signature, arguments):
        builder.store(arguments[3], _place(context, builder, signature, arguments), align=4)
        return context.get_dummy_value()

    return types.void(array, i, j, lanes), code


@intrinsic
def _fuse(_, number, lanes, sums):
    def code(context, builder, signature, arguments):
        first, all_of_it = (
            ir.Constant(ir.IntType(32), 0),
            ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES),
        )
        alone = builder.insert_element(_NOTHING, arguments[0], first)
        spread = builder.shuffle_vector(alone, _NOTHING, all_of_it)
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fuse = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
        return builder.call(fuse, [spread, arguments[1], arguments[2]])

    return _lanes(types.float32, lanes, sums), code


def _load_interpreted(array: np.ndarray, i: int, j: int) -> np.ndarray:
    return array[i, j : j + LANES].copy()


def _store_interpreted(array: np.ndarray, i: int, j: int, lanes: np.ndarray) -> None:
    array[i, j : j + LANES] = lanes


def _fuse_interpreted(number: np.float32, lanes: np.ndarray, sums: np.ndarray) -> np.ndarray:
    return np.asarray(number * lanes + sums)


_INTERPRETED = bool(getattr(numba.config, "DISABLE_JIT", False))
load: Any = _load_interpreted if _INTERPRETED else _load
"""`load(array, i, j)`: eight numbers of a row, of an array float32 [M, N] whose rows are contiguous."""
store: Any = _store_interpreted if _INTERPRETED else _store
"""`store(array, i, j, lanes)`: write them."""
fuse: Any = _fuse_interpreted if _INTERPRETED else _fuse
"""`fuse(number, lanes, sums)`: number times lanes plus sums, rounded once where the processor can."""
