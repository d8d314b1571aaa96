"""Tiles of a matrix that stay in registers: for the few loops in which it matters.

Numba sees arrays and single numbers only, and leaves it to LLVM to find out which loops can go many numbers at a time. A
loop over tiles of a matrix is beyond that: here it says itself what is loaded, added to and stored. Interpreted, a tile is
a small array.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

_IS_WIDE = bool(llvm.get_host_cpu_features().get("avx512f"))
LANES = 16 if _IS_WIDE else 8
"""Numbers in a register."""
TILE_ROWS, TILE_COLUMNS = 8 if _IS_WIDE else 4, 2 * LANES
"""The tile that fills half of the registers. No sum depends on its shape."""
_FLOAT, _INDEX = ir.FloatType(), ir.IntType(32)
_VECTOR, _MASK = ir.VectorType(_FLOAT, LANES), ir.VectorType(ir.IntType(1), LANES)
_NOTHING = ir.Constant(_VECTOR, ir.Undefined)


class _Tile(types.Type):
    """So many rows of two registers each."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        super().__init__(name=f"Tile({rows}, {LANES})")


@register_model(_Tile)
class _TileModel(models.PrimitiveModel):
    """Its registers, row by row."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.ArrayType(_VECTOR, 2 * kind.rows))


class TileWords(NamedTuple):
    """What can be said about tiles of one height, of which the first `columns` exist."""

    load: Any
    """`load(array, i, j, columns)`: the tile that begins at an element of an array float32 [M, N] of contiguous rows."""
    store: Any
    """`store(array, i, j, columns, tile)`: write it."""
    fuse: Any
    """`fuse(left, i, right, k, j, columns, tile)`: the tile, plus column `k` of `left` from row `i` on times row `k` of
    `right` from column `j` on; each product and sum is rounded once where the processor can."""


@functools.cache
def tile_words(rows: int, is_whole: bool) -> TileWords:
    """The words for tiles of so many rows. Of those that are whole all columns exist, whatever is said."""
    if getattr(numba.config, "DISABLE_JIT", False):
        return _interpreted_words(rows)
    tile = _Tile(rows)

    @intrinsic
    def load(_, array, i, j, columns):
        def code(context, builder, signature, arguments):
            at = _Matrix(context, builder, signature.args[0], arguments[0])
            i, j, columns = at.indices(signature.args[1:], arguments[1:])
            loaded = ir.Constant(ir.ArrayType(_VECTOR, 2 * rows), ir.Undefined)
            masks = _masks(builder, None if is_whole else columns)
            for number in range(2 * rows):
                register = at.load(i, j, number // 2, number % 2, masks)
                loaded = builder.insert_value(loaded, register, number)
            return loaded

        return tile(array, i, j, columns), code

    @intrinsic
    def store(_, array, i, j, columns, written):
        def code(context, builder, signature, arguments):
            at = _Matrix(context, builder, signature.args[0], arguments[0])
            i, j, columns = at.indices(signature.args[1:4], arguments[1:4])
            masks = _masks(builder, None if is_whole else columns)
            for number in range(2 * rows):
                at.store(builder.extract_value(arguments[4], number), i, j, number // 2, number % 2, masks)
            return context.get_dummy_value()

        return types.void(array, i, j, columns, written), code

    @intrinsic
    def fuse(_, left, i, right, k, j, columns, sums):
        def code(context, builder, signature, arguments):
            factors = _Matrix(context, builder, signature.args[0], arguments[0])
            terms = _Matrix(context, builder, signature.args[2], arguments[2])
            (i,) = factors.indices(signature.args[1:2], arguments[1:2])
            k, j, columns = terms.indices(signature.args[3:6], arguments[3:6])
            masks, sums = _masks(builder, None if is_whole else columns), arguments[6]
            row = [terms.load(k, j, 0, half, masks) for half in range(2)]
            for number in range(rows):
                factor = builder.load(factors.pointer(i, k, number, 0, _FLOAT))
                for half in range(2):
                    at = 2 * number + half
                    sums = builder.insert_value(
                        sums, _fused(builder, factor, row[half], builder.extract_value(sums, at)), at
                    )
            return sums

        return tile(left, i, right, k, j, columns, sums), code

    return TileWords(load, store, fuse)


class _Matrix:
    """Writes the code that reads and writes registers of a matrix."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any) -> None:
        self._context, self._builder, self._kind = context, builder, kind
        self._struct = context.make_array(kind)(context, builder, array)

    def indices(self, kinds: Any, numbers: Any) -> list[Any]:
        """Integers of any kind, as places."""
        cast = self._context.cast
        return [cast(self._builder, number, kind, types.intp) for number, kind in zip(numbers, kinds, strict=True)]

    def pointer(self, i: Any, j: Any, below: int, behind: int, content: ir.Type) -> Any:
        """The address of an element, so many rows below and columns behind a place."""
        place = [self._builder.add(at, ir.Constant(at.type, more)) for at, more in ((i, below), (j, behind))]
        found = cgutils.get_item_pointer(
            self._context, self._builder, self._kind, self._struct, place, wraparound=False
        )
        return self._builder.bitcast(found, content.as_pointer())

    def load(self, i: Any, j: Any, below: int, half: int, masks: Any) -> Any:
        """A register. What does not exist is 0."""
        place = self.pointer(i, j, below, half * LANES, _VECTOR)
        if masks is None:
            return self._builder.load(place, align=4)
        kind = ir.FunctionType(_VECTOR, [place.type, _INDEX, _MASK, _VECTOR])
        load = self._intrinsic(kind, "load")
        return self._builder.call(load, [place, _INDEX(4), masks[half], ir.Constant(_VECTOR, [0.0] * LANES)])

    def store(self, register: Any, i: Any, j: Any, below: int, half: int, masks: Any) -> None:
        """Write a register, as far as it exists."""
        place = self.pointer(i, j, below, half * LANES, _VECTOR)
        if masks is None:
            self._builder.store(register, place, align=4)
            return
        kind = ir.FunctionType(ir.VoidType(), [_VECTOR, place.type, _INDEX, _MASK])
        self._builder.call(self._intrinsic(kind, "store"), [register, place, _INDEX(4), masks[half]])

    def _intrinsic(self, kind: ir.FunctionType, deed: str) -> Any:
        return cgutils.get_or_insert_function(self._builder.module, kind, f"llvm.masked.{deed}.v{LANES}f32.p0")


def _masks(builder: Any, columns: Any) -> list[Any] | None:
    """For each half of a row, which of its lanes exist; None if all do."""
    if columns is None:
        return None
    kind = ir.VectorType(columns.type, LANES)
    last = _spread(builder, columns, kind)
    return [
        builder.icmp_signed("<", ir.Constant(kind, [half * LANES + lane for lane in range(LANES)]), last)
        for half in range(2)
    ]


def _spread(builder: Any, number: Any, kind: ir.VectorType) -> Any:
    """The same number in all lanes."""
    nothing, zeros = ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, number, _INDEX(0)), nothing, zeros)


def _fused(builder: Any, number: Any, lanes: Any, sums: Any) -> Any:
    """A number times lanes plus sums."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fuse = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    return builder.call(fuse, [_spread(builder, number, _VECTOR), lanes, sums])


def _interpreted_words(rows: int) -> TileWords:
    def load(array: np.ndarray, i: int, j: int, columns: int) -> np.ndarray:
        return array[i : i + rows, j : j + columns].copy()

    def store(array: np.ndarray, i: int, j: int, columns: int, tile: np.ndarray) -> None:
        array[i : i + rows, j : j + columns] = tile

    def fuse(left: np.ndarray, i: int, right: np.ndarray, k: int, j: int, columns: int, tile: np.ndarray) -> np.ndarray:
        return np.asarray(left[i : i + rows, k, None] * right[k, None, j : j + columns] + tile)

    return TileWords(load, store, fuse)
