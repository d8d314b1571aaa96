"""Options of envs and of worlds' commands: dataclasses whose fields are documented by the text below them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from typing import Any, TypeVar

from redline.errors import RedlineError, unknown

T = TypeVar("T")
MOST_LETTERS = 60
_TYPES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def describe_options(kind: type) -> list[dict[str, Any]]:
    """Name, default and text of every field of an options class."""
    about = field_texts(kind)
    return [
        {"name": field.name, "default": field.default, "about": about.get(field.name, "")}
        for field in dataclasses.fields(kind)
    ]


def made_options(kind: type[T], given: Mapping[str, object]) -> T:
    """An instance of an options class; names it does not have and values of another type are refused."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in fields:
            raise unknown("option", name, fields)
    require_types(kind, given)
    return kind(**given)


def require_types(kind: type, given: Mapping[str, object]) -> None:
    """Refuse values of another type than the default of their field."""
    for field in dataclasses.fields(kind):
        if field.name in given:
            _require_type(field.name, given[field.name], field.default)


def _require_type(name: str, value: object, default: object) -> None:
    """Refuse a value where one of another type is the default; a whole number may stand for any number."""
    wanted = type(default)
    if wanted not in _TYPES or type(value) is wanted or (wanted is float and type(value) is int):
        return
    shown = value if isinstance(value, str) and value.isprintable() and len(value) < MOST_LETTERS else f"{value!r:.40}"
    raise RedlineError(f"{name}={shown} is not {_TYPES[wanted]}. Try {name}={default}.")


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass, as it stands in its source."""
    texts: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if dataclasses.is_dataclass(base)]):
        texts |= _texts_in(base)
    return texts


def _texts_in(kind: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # made without a file
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = getattr(text.value, "value", None)
            if isinstance(value, str):
                found[field.target.id] = inspect.cleandoc(value)
    return found
