"""The arguments of a command as data, read from its dataclass: for error messages and for the shell's completion."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro

from redline.worlds.options import field_texts

ALL_HELP = "--help-all"
HELP = ("-h", "--help", ALL_HELP)


@dataclass(frozen=True)
class Argument:
    """One option of a command, or a word that stands by itself."""

    field: str
    kind: Any  # a type, without what tyro is told beside it
    default: Any  # dataclasses.MISSING where it must be given
    about: str
    group: str  # what the dataclass that it belongs to says it is
    positional: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How it is written, or how it is called where it stands by itself."""
        return self.field.upper() if self.positional else f"--{self.field.replace('_', '-')}"

    @property
    def spellings(self) -> tuple[str, ...]:
        """All ways to write the option."""
        switched_off = (f"--no-{self.name.removeprefix('--')}",) if self.is_switch else ()
        return (self.name, *switched_off, *self.aliases)

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off, and takes no value."""
        return self.kind is bool

    @property
    def choices(self) -> tuple[str, ...]:
        """The values there are to choose from, where its type lists them."""
        each = [get_args(kind) for kind in self.kinds if get_origin(kind) is Literal]
        return tuple(str(choice) for choices in each for choice in choices)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """Its type, or each of those that it may have; None has no place here."""
        several = get_origin(self.kind) in (Union, UnionType)
        return tuple(kind for kind in get_args(self.kind) if kind is not NoneType) if several else (self.kind,)


def arguments_of(kind: type, defaults: Any = None) -> list[Argument]:
    """Every argument of a command, from its dataclass and those nested in it. `defaults` is an instance that has them."""
    hints, texts = _hints(kind), field_texts(kind)
    found: list[Argument] = []
    for field in dataclasses.fields(kind):
        bare, notes = _bare(hints.get(field.name, Any))
        default = _default(field) if defaults is None else getattr(defaults, field.name)
        if tyro.conf.Suppress in notes:
            continue
        if dataclasses.is_dataclass(bare) and isinstance(bare, type):
            found += arguments_of(bare, None if default is dataclasses.MISSING else default)
            continue
        found.append(
            Argument(
                field.name,
                bare,
                default,
                texts.get(field.name, ""),
                kind.__doc__ or "",
                positional=tyro.conf.Positional in notes,
                aliases=_aliases(notes),
            )
        )
    return found


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError:  # of a class that was made where its types cannot be looked up
        return {}


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and what tyro is told about it."""
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


def _aliases(notes: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(alias for note in notes for alias in getattr(note, "aliases", None) or ())


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
