"""From a command line to dataclasses: tyro does the work, errors become one line, lists are written `30,50,100`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

import tyro

from redline.errors import RedlineError

T = TypeVar("T")


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


def parse(command: str, kind: type[T], arguments: list[str]) -> T:
    """The options of `command` as a dataclass of type `kind`; nested dataclasses share one flat list of options."""
    arguments = ["None" if each == "none" else each for each in arguments]  # as Python spells it
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):
            return tyro.cli(
                kind,
                prog=f"redline {command}",
                args=arguments,
                config=(tyro.conf.OmitArgPrefixes,),
                registry=_registry,
                compact_help=False,
            )
    except SystemExit as leaving:
        if leaving.code in (0, None):
            raise
        raise RedlineError(_one_line(complaints.getvalue())) from None


def combine(name: str, **parts: Any) -> type:
    """One dataclass that holds an instance of each of several, so that their options are parsed together.

    A part is a dataclass, or an instance of one that has the defaults.
    """
    fields = []
    for part, given in parts.items():
        kind, make = (given, given) if isinstance(given, type) else (type(given), lambda given=given: given)
        fields.append((part, kind, dataclasses.field(default_factory=make)))
    return dataclasses.make_dataclass(name, fields, frozen=True)


def _one_line(box: str) -> str:
    """What tyro says in a box of several lines, as one sentence."""
    lines = [re.sub(r"^[│╭╰─\s]+|[│╮╯\s]+$", "", line) for line in box.splitlines()]
    title_end = next((k for k, line in enumerate(box.splitlines()) if line.startswith("╭")), -1)
    body: list[str] = []
    for line, raw in zip(lines[title_end + 1 :], box.splitlines()[title_end + 1 :], strict=True):
        if "───" in raw:
            break
        body.append(line)
    text = " ".join(part for part in body if part) or box.strip()
    hint = re.search(r"(?:Perhaps you meant|Similar arguments).*?(--[\w-]+)", " ".join(lines))
    text = re.sub(r"\s+", " ", text).rstrip(".")
    return f"{text}.{f' Did you mean {hint.group(1)}?' if hint else ''} See --help."
