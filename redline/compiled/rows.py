"""Arrays as rules see them: where they begin and how long they are, and nothing else.

An array of Numba's is seven numbers or more, and a rule that takes ten of them has over a hundred arguments, which
takes far longer to compile than what the rule does. A kernel therefore hands its rules `light` tuples, made once:

    light(net)               a NamedTuple, whose arrays of one axis have become rows
    one_of(state, i, Kind)   what a NamedTuple of arrays over all envs has for env `i`: records and rows, as a `Kind`
    row(array, i)            the same of one array

Rows can be indexed and have a length. No index may be negative: it is not counted from the end. `NUMBA_BOUNDSCHECK=1` looks
at each, as it does for arrays. Interpreted, all give NumPy's own arrays.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.datamodel.models import TupleModel
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model


class Rows(types.Type):
    """Numbers or records side by side."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Rows_{_short(dtype)}")


class Light(types.NamedTuple):
    """A NamedTuple with a short name, which code mentions at each call. Its parts are in the name as a digest."""

    def __init__(self, parts: Any, kind: Any) -> None:
        super().__init__(parts, kind)
        self.name = f"{kind.__name__}_{_short(self)}"

    @property
    def key(self) -> str:
        """What it is told apart by."""
        return self.name


def _short(kind: Any) -> str:
    return hashlib.sha256(str(kind).encode()).hexdigest()[:12]


@register_model(Rows)
class _RowsModel(models.StructModel):
    """Two numbers."""

    def __init__(self, manager: Any, kind: Rows) -> None:
        super().__init__(manager, kind, [("first", types.CPointer(kind.dtype)), ("count", types.intp)])


register_model(Light)(TupleModel)


def _is_plain(kind: Any, axes: int) -> bool:
    return isinstance(kind, types.Array) and kind.ndim == axes and kind.layout == "C"


def _rows(context: Any, builder: Any, kind: Any, array: Any, i: Any) -> Any:
    """All of an array of one axis, or what one of two axes has at `i`."""
    struct = context.make_array(kind)(context, builder, array)
    made = cgutils.create_struct_proxy(Rows(kind.dtype))(context, builder)
    made.count = builder.extract_value(struct.shape, kind.ndim - 1)
    made.first = struct.data if i is None else builder.gep(struct.data, [builder.mul(i, made.count)])
    return made._getvalue()


def _part(context: Any, builder: Any, kind: Any, array: Any, i: Any) -> Any:
    """What an array has at `i`."""
    if kind.ndim > 1:
        return _rows(context, builder, kind, array, i)
    pointer = builder.gep(context.make_array(kind)(context, builder, array).data, [i])
    return context.unpack_value(builder, kind.dtype, pointer)


@intrinsic
def _light(_, named):
    parts = [Rows(part.dtype) if _is_plain(part, 1) else part for part in named]

    def code(context, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0])
        for n, kind in enumerate(named):
            if isinstance(parts[n], Rows):
                values[n] = _rows(context, builder, kind, values[n], None)
        return context.make_tuple(builder, signature.return_type, values)

    return Light(parts, named.instance_class)(named), code


@intrinsic
def _row(_, array, i):
    def code(context, builder, signature, arguments):
        at = context.cast(builder, arguments[1], signature.args[1], types.intp)
        return _rows(context, builder, signature.args[0], arguments[0], at)

    return Rows(array.dtype)(array, i) if _is_plain(array, 2) else None, code


@intrinsic
def _one_of(_, named, i, kind):
    parts = [Rows(part.dtype) if part.ndim > 1 else part.dtype for part in named]

    def code(context, builder, signature, arguments):
        at = context.cast(builder, arguments[1], signature.args[1], types.intp)
        values = cgutils.unpack_tuple(builder, arguments[0])
        made = [_part(context, builder, each, value, at) for each, value in zip(named, values, strict=True)]
        return context.make_tuple(builder, signature.return_type, made)

    fits = all(_is_plain(part, 1) or _is_plain(part, 2) for part in named)
    return Light(parts, kind.instance_class)(named, i, kind) if fits else None, code


def _light_interpreted(named: Any) -> Any:
    return named


def _row_interpreted(array: Any, i: int) -> Any:
    return array[i]


def _one_of_interpreted(named: Any, i: int, kind: Any) -> Any:
    return kind(*(part[i] for part in named))


_INTERPRETED = bool(getattr(numba.config, "DISABLE_JIT", False))
_CHECKED = bool(getattr(numba.config, "BOUNDSCHECK", False))
light: Any = _light_interpreted if _INTERPRETED else _light
row: Any = _row_interpreted if _INTERPRETED else _row
one_of: Any = _one_of_interpreted if _INTERPRETED else _one_of
light.interpreted, row.interpreted, one_of.interpreted = _light_interpreted, _row_interpreted, _one_of_interpreted


@infer_global(len)
class _Length(AbstractTemplate):
    """`len(rows)`."""

    def generic(self, args: Any, kws: Any) -> Any:
        """Of rows and nothing else."""
        return signature(types.intp, args[0]) if isinstance(args[0], Rows) else None


@lower_builtin(len, Rows)
def _length(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0]).count


@infer_global(operator.getitem)
class _Read(AbstractTemplate):
    """`rows[k]`."""

    def generic(self, args: Any, kws: Any) -> Any:
        """A record or a number."""
        rows, index = args
        fits = isinstance(rows, Rows) and isinstance(index, types.Integer)
        return signature(rows.dtype, rows, types.intp) if fits else None


@lower_builtin(operator.getitem, Rows, types.intp)
def _read(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return context.unpack_value(builder, signature.return_type, _place(context, builder, signature, arguments))


@infer_global(operator.setitem)
class _Write(AbstractTemplate):
    """`rows[k] = number`."""

    def generic(self, args: Any, kws: Any) -> Any:
        """Of numbers only: a record is written field by field."""
        rows, index, _ = args
        fits = isinstance(rows, Rows) and isinstance(index, types.Integer) and not isinstance(rows.dtype, types.Record)
        return signature(types.none, rows, types.intp, rows.dtype) if fits else None


@lower_builtin(operator.setitem, Rows, types.intp, types.Any)
def _write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    place = _place(context, builder, signature, arguments)
    context.pack_value(builder, signature.args[2], arguments[2], place)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of a row."""
    rows = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
    if _CHECKED:
        cgutils.do_boundscheck(context, builder, arguments[1], rows.count)
    return builder.gep(rows.first, [arguments[1]])
