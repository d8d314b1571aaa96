"""What `--help` prints: all options of a command, or, where there are many, those that people need."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from redline.cli.arguments import ALL_HELP, HELP, Argument, arguments_of

WIDEST, INDENT = 110, 30


def wants_short_help(arguments: Sequence[str]) -> bool:
    """Whether help is asked for, and not all of it."""
    return ALL_HELP not in arguments and any(each in HELP for each in arguments)


def whole_help(command: str, kind: type) -> str:
    """Usage, and every option, those of each nested dataclass under what its docstring calls them."""
    found = arguments_of(kind)
    groups: dict[str, list[Argument]] = {}
    for argument in found:
        if not argument.positional:
            groups.setdefault(argument.group, []).append(argument)
    lines = _opening(command, kind, found)
    for about, group in groups.items():
        title = "options" if about == kind.__doc__ or not about else _first_sentence(about)
        lines += ["", f"{title}:", *_all_described(group)]
    return "\n".join(lines)


def short_help(command: str, kind: type, common: Collection[str], part: str, env: str) -> str:
    """Usage, the options named in `common`, in that order, and those of an env, which are the field `part`."""
    found = {argument.field: argument for argument in reversed(arguments_of(kind))}
    own = _own(kind, part)
    lines = _opening(command, kind, found.values())
    lines += ["", "options:", *_all_described(found[name] for name in common if name in found)]
    if own:
        lines += ["", f"options of {env}:", *_all_described(own)]
    else:
        lines += ["", f"Options of an env: redline {command} ENV --help, or behind its name: ENV?option=value"]
    rest = len(found) - len(own) - len(common)
    return "\n".join([*lines, "", f"{rest} more, for the curious: redline {command} --help-all"])


def _opening(command: str, kind: type, arguments: Iterable[Argument]) -> list[str]:
    """How it is called, what it does, and the words that stand by themselves."""
    words = [each for each in arguments if each.positional]
    usage = ["usage: redline", command, *map(_place, words), "[options]"]
    lines = [" ".join(usage), "", *_paragraphs(kind.__doc__ or "")]
    return [*lines, "", *_all_described(words)] if words else lines


def _place(argument: Argument) -> str:
    return argument.name if argument.default is dataclasses.MISSING else f"[{argument.name}]"


def _paragraphs(text: str) -> list[str]:
    parts = [textwrap.wrap(" ".join(part.split()), _width()) for part in text.split("\n\n")]
    return [line for part in parts for line in ("", *part)][1:]


def _first_sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".:")


def _width() -> int:
    return max(60, min(WIDEST, shutil.get_terminal_size().columns))


def _own(kind: type, part: str | None) -> list[Argument]:
    field = next((field for field in dataclasses.fields(kind) if field.name == part), None)
    return [] if field is None or not isinstance(field.type, type) else arguments_of(field.type)


def _all_described(arguments: Iterable[Argument]) -> list[str]:
    return [line for argument in arguments for line in _described(argument)]


def _described(argument: Argument) -> list[str]:
    spelled = ", ".join((_spelled(argument), *argument.aliases)) + _value(argument)
    default = "" if argument.positional else _default(argument.default)
    text = textwrap.wrap(" ".join(argument.about.split()) + default, _width() - INDENT)
    first = f"  {spelled:<{INDENT - 3}} "
    if len(spelled) > INDENT - 4:
        return [first.rstrip(), *(" " * INDENT + line for line in text)]
    return [first + text[0] if text else first, *(" " * INDENT + line for line in text[1:])]


def _spelled(argument: Argument) -> str:
    """The option as it is written; one that is on, with the way to switch it off."""
    return argument.name.replace("--", "--[no-]", 1) if argument.default is True else argument.name


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
    if value is None or value is dataclasses.MISSING or value in ("", ()) or isinstance(value, bool):
        return ""
    return f" [{','.join(map(str, value)) if isinstance(value, tuple) else value}]"
