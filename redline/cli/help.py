"""The short help of a command with many options: those that people need, and how to see the rest."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from redline.cli.arguments import ALL_HELP, HELP, Argument, arguments_of
from redline.cli.options import is_asked

WIDTH, INDENT = 110, 30


def wants_short_help(arguments: Sequence[str]) -> bool:
    """Whether help is asked for, and not all of it. One that was only asked for its options is not."""
    return ALL_HELP not in arguments and any(each in HELP for each in arguments) and not is_asked()


def short_help(command: str, kind: type, common: Collection[str], part: str, env: str) -> str:
    """Usage, the options named in `common`, in that order, and those of an env, which are the field `part`."""
    found = {argument.field: argument for argument in reversed(arguments_of(kind))}
    words = " ".join(f"[{each.name}]" for each in found.values() if each.positional)
    own = _own(kind, part)
    lines = [f"usage: redline {command} {words} [options]", "", *textwrap.wrap(kind.__doc__ or "", WIDTH), ""]
    lines += [line for each in found.values() if each.positional for line in _described(each)]
    lines += ["", "options:", *(line for name in common if name in found for line in _described(found[name]))]
    if own:
        lines += ["", f"options of {env}:", *(line for each in own for line in _described(each))]
    else:
        lines += ["", f"Options of an env: redline {command} ENV --help, or behind its name: ENV?option=value"]
    rest = len(found) - len(own) - len(common)
    return "\n".join([*lines, "", f"{rest} more, for the curious: redline {command} --help-all"])


def _own(kind: type, part: str | None) -> list[Argument]:
    field = next((field for field in dataclasses.fields(kind) if field.name == part), None)
    return [] if field is None or not isinstance(field.type, type) else arguments_of(field.type)


def _described(argument: Argument) -> list[str]:
    spelled = ", ".join((argument.name, *argument.aliases)) + _value(argument)
    default = "" if argument.positional else _default(argument.default)
    text = textwrap.wrap(" ".join(argument.about.split()) + default, WIDTH - INDENT)
    first = f"  {spelled:<{INDENT - 3}} "
    if len(spelled) > INDENT - 4:
        return [first.rstrip(), *(" " * INDENT + line for line in text)]
    return [first + text[0] if text else first, *(" " * INDENT + line for line in text[1:])]


def _value(argument: Argument) -> str:
    if argument.is_switch or argument.positional:
        return ""
    if argument.choices:
        return " " + "|".join(argument.choices)
    return " " + next((name for kind, name in _NAMES.items() if kind in argument.kinds), "VALUE")


_NAMES: dict[Any, str] = {
    int: "N",
    float: "X",
    Path: "PATH",
    str: "NAME",
    tuple[int, ...]: "N,N",
    tuple[str, ...]: "A,B",
}


def _default(value: Any) -> str:
    if value is None or value is dataclasses.MISSING or value == "":
        return ""
    if isinstance(value, bool):
        return " [on]" if value else ""
    return f" [{','.join(map(str, value)) if isinstance(value, tuple) else value}]"
