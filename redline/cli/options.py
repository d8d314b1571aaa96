"""From a command line to dataclasses: tyro does the work, mistakes are told in one line, lists are written `30,50,100`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

import tyro

from redline.cli.arguments import HELP
from redline.cli.help import whole_help
from redline.cli.mistakes import explain
from redline.cli.numbers import whole
from redline.errors import RedlineError

T = TypeVar("T")

ENV_PART = "env_part"
"""The field of a command that holds the options of an env."""


@dataclass(frozen=True)
class Output:
    """How a command speaks."""

    json: bool = False
    """Print one JSON object and nothing else."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print results only, no progress."""


_registry = tyro.constructors.ConstructorRegistry()


@_registry.primitive_rule
def _comma_list(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """`30,50,100` for a tuple of whole numbers, `a,b` for one of words."""
    kind, *more = get_args(info.type) or (None,)
    if get_origin(info.type) is not tuple or more != [...] or kind not in (int, str):
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT,INT,…" if kind is int else "NAME,NAME,…",
        instance_from_str=lambda args: tuple(kind(part) for part in args[0].split(",") if part.strip()),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(map(str, value))],
    )


@_registry.primitive_rule
def _whole_number(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
    """`1e6`, `100k` or `5M` for a whole number."""
    if info.type is not int:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda args: whole(args[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


_asking: ContextVar[bool] = ContextVar("asking", default=False)


class Asked(Exception):
    """Ends a command that was only asked for its options."""

    def __init__(self, kind: type) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Within the block, `parse` reads nothing and raises `Asked` with the dataclass that it was given.

    A command knows its options only once it has seen which env it is called with, so it is asked by being called.
    """
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)


def is_asked() -> bool:
    """Whether a command is only asked for its options."""
    return _asking.get()


def parse(command: str, kind: type[T], arguments: list[str]) -> T:
    """The options of `command` as a dataclass of type `kind`; nested dataclasses share one flat list of options."""
    if _asking.get():
        raise Asked(kind)
    if any(each in HELP for each in arguments):
        print(whole_help(command, kind))
        raise SystemExit(0)
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):
            return tyro.cli(
                kind,
                prog=f"redline {command}",
                args=["None" if each == "none" else each for each in arguments],
                config=(tyro.conf.OmitArgPrefixes,),
                registry=_registry,
            )
    except SystemExit:
        raise explain(command, kind, arguments) or RedlineError(_unframed(complaints.getvalue())) from None


def combine(about: str, **parts: Any) -> type:
    """One dataclass that holds an instance of each of several, so that their options are parsed together.

    A part is a dataclass, or an instance of one that has the defaults. Parts with a field that must be given come first.
    The help of the command begins with `about`.
    """
    required: list[Any] = [(part, kind) for part, kind in parts.items() if _must_be_given(kind)]
    optional = []
    for part, given in parts.items():
        if not _must_be_given(given):
            kind, make = (given, given) if isinstance(given, type) else (type(given), lambda given=given: given)
            optional.append((part, kind, dataclasses.field(default_factory=make)))
    kind = dataclasses.make_dataclass("Command", [*required, *optional], frozen=True)
    kind.__doc__ = about
    return kind


def _must_be_given(part: Any) -> bool:
    return isinstance(part, type) and any(
        field.default is field.default_factory is dataclasses.MISSING for field in dataclasses.fields(part)
    )


def _unframed(box: str) -> str:
    """The words that tyro has drawn a frame around, for what is not a mistake in the arguments themselves."""
    words = re.sub(r"[│╭╰─╮╯]+", " ", box)
    return " ".join(words.split())
