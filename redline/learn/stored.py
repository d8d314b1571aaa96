"""Settings read back from JSON: whatever a file holds, it becomes the dataclass it should be, or one line says why not."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from redline.errors import RedlineError

T = TypeVar("T")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "an object"}
MOST = 2**63
"""No whole number of a setting is as large as this."""


def from_json(kind: type[T], data: object, name: str = "config") -> T:
    """An instance of a dataclass from plain data, each value checked against the type of its field.

    Entries that the class does not know are left out, those that the data does not have take their defaults.
    """
    if not isinstance(data, Mapping):
        raise RedlineError(f"The {name} is {_shown(data)}, not an object.")
    hints, known = _types_of(kind), dataclasses.fields(kind)  # type: ignore[arg-type]
    values = {
        each.name: _value(hints[each.name], data[each.name], f"{name}.{each.name}")
        for each in known
        if each.name in data
    }
    missing = [each.name for each in known if each.name not in data and not _has_default(each)]
    if missing:
        raise RedlineError(f"The {name} has no {missing[0]!r}. It was not written by this version of Redline.")
    return kind(**values)


@lru_cache
def _types_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _value(kind: Any, value: Any, name: str) -> Any:
    """A value as the type that it should have."""
    if kind is Any:
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        (kind,) = [each for each in inner if each is not type(None)][:1]
        return _value(kind, value, name)
    if dataclasses.is_dataclass(kind):
        return from_json(kind, value, name)  # type: ignore[arg-type]
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(inner[0], each, name) for each in value)
    if origin is dict and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return dict(value)
    if origin is Literal and value in inner:
        return value
    if _fits(kind, value):
        return value
    raise RedlineError(f"{name} is {_shown(value)}, not {_WORDS.get(origin or kind, 'what it should be')}.")


def _fits(kind: Any, value: Any) -> bool:
    """Whether a plain value is of a plain type; a whole number may stand for any number."""
    if kind is float:
        return type(value) is float or (type(value) is int and abs(value) < MOST)
    return type(value) is kind and (kind is not int or abs(value) < MOST)


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) >= MOST:
        return "a number beyond all bounds"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
