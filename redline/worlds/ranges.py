"""The range of each field of a world's state: what a kernel may be handed that comes from a file.

Compiled code does not look before it indexes. So a world declares, for every field that its rules index, count or loop with,
the least and the greatest value it can have, and a state is looked through before any rule sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from redline.errors import RedlineError

Range = tuple[float, float]
"""The least and the greatest value, both included."""
Ranges = Mapping[str, Range]
"""By field of a record; an array that is no record has one field without a name."""


def bits(count: int) -> Range:
    """The range of a mask of so many bits."""
    return 0, (1 << count) - 1


def require_in_range(name: str, array: np.ndarray, ranges: Ranges) -> None:
    """Refuse an array with a value outside of the range of its field, naming the first. Truth values must be one or zero."""
    for field in array.dtype.names or ("",):
        values = array[field] if field else array
        if values.dtype.kind == "b":
            require_truth(f"{name}.{field}", values)
        elif field in ranges:
            _require(f"{name}.{field}".rstrip("."), values, *ranges[field])


def require_truth(name: str, values: np.ndarray) -> None:
    """Refuse truth values that are neither true nor false, which bytes from a file can be."""
    if values.size and np.ascontiguousarray(values).view(np.uint8).max() > 1:
        raise RedlineError(f"The saved {name} holds values that are neither true nor false. {WAY_OUT}")


def undeclared(name: str, dtype: np.dtype, ranges: Ranges) -> list[str]:
    """The fields that rules could index with and that have no range. A random stream may hold any number."""
    fields: Sequence[str] = dtype.names or ("",)
    kinds = {field: (dtype[field].base if field else dtype).kind for field in fields}
    found = [field for field in fields if kinds[field] in "iu" and field not in ranges and field != "rng"]
    return [f"{name}.{field}".rstrip(".") for field in found]


WAY_OUT = "It was not saved by this env, or is damaged: go on from another checkpoint, or begin a new run."


def _require(name: str, values: np.ndarray, low: float, high: float) -> None:
    inside = (values >= low) & (values <= high)  # NaN is not, either
    if not inside.all():
        first = values[~inside].reshape(-1)[0]
        raise RedlineError(f"The saved {name} holds {first}, but can only be {low:g} to {high:g}. {WAY_OUT}")
