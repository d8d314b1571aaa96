"""A command line that cannot be read, told in one line: what was given, why it cannot work, and what would.

tyro says no; why is worked out here, from the options of the command, so that none of tyro's own words are needed.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args

from redline.cli.arguments import HELP, Argument, arguments_of
from redline.cli.numbers import whole
from redline.errors import RedlineError

KINDS = {int: "a whole number", float: "a number", tuple[int, ...]: "whole numbers with commas between them"}
EXAMPLES: dict[Any, str] = {
    int: "1000",
    float: "0.5",
    str: "NAME",
    Path: "PATH",
    tuple[int, ...]: "30,50",
    tuple[str, ...]: "NAME,NAME",
}
SWITCHED_ON, SWITCHED_OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class UnknownArgument(RedlineError):
    """An option that a command does not have, or a word that it has no place for."""

    def __init__(self, argument: str, text: str) -> None:
        super().__init__(text)
        self.argument = argument


class Given(NamedTuple):
    """A piece of a command line: an option with its value, or a word."""

    text: str  # the option as it was written, or the word
    argument: Argument | None = None  # the option that it means
    value: str | None = None
    after: Argument | None = None  # the option before a word


def explain(command: str, kind: type, words: Sequence[str]) -> RedlineError | None:
    """The error for the first mistake in the arguments of a command; None where there is nothing wrong with them."""
    known = arguments_of(kind)
    places = [argument for argument in known if argument.positional]
    met: list[Argument | None] = []
    for given in _read(words, known):
        if _is_option(given.text):
            error = _wrong_option(command, given, known)
            met.append(given.argument)
        elif places:
            error = _wrong_value(places[0].name, places[0], given.text)
            met.append(places.pop(0))
        else:
            error = _surplus(command, given)
        if error is not None:
            return error
    missing = next((each for each in known if each.default is dataclasses.MISSING and each not in met), None)
    return None if missing is None else _missing(command, missing)


def chosen(kind: type, words: Sequence[str]) -> frozenset[str]:
    """The fields of a command's dataclasses that its arguments name."""
    return frozenset(given.argument.field for given in _read(words, arguments_of(kind)) if given.argument is not None)


def _read(words: Sequence[str], known: Sequence[Argument]) -> Iterator[Given]:
    """A command line, piece by piece."""
    options = {spelling: each for each in known if not each.positional for spelling in each.spellings}
    waiting, before = list(words), None
    while waiting:
        text, equals, value = waiting.pop(0).partition("=")
        if not _is_option(text):
            yield Given(text + equals + value, after=before)
            continue
        before = options.get(text.replace("_", "-"))
        if equals or before is None or before.is_switch:
            yield Given(text, before, value if equals else None)
        else:
            yield Given(text, before, waiting.pop(0) if waiting and not _is_option(waiting[0]) else None)


def _is_option(text: str) -> bool:
    return text.startswith("-") and not text[1:2].isdigit() and text[1:2] not in ("", ".")


def _wrong_option(command: str, given: Given, known: Sequence[Argument]) -> RedlineError | None:
    if given.text in HELP:
        return None
    if given.argument is None:
        return UnknownArgument(given.text, _no_such_option(command, given.text, known))
    if given.argument.is_switch:
        return None if given.value is None else RedlineError(_no_value(given.argument, given.value))
    if given.value is None:
        return RedlineError(f"{given.text} needs a value. Try {given.text} {_example(given.argument)}.")
    return _wrong_value(given.text, given.argument, given.value)


def _no_such_option(command: str, option: str, known: Sequence[Argument]) -> str:
    names = {spelling.lstrip("-"): spelling for each in known if not each.positional for spelling in each.spellings}
    nearest = difflib.get_close_matches(option.lstrip("-"), names, n=1)
    hint = f" Did you mean {names[nearest[0]]}?" if nearest else ""
    return f"{command} has no option {option}.{hint} See redline {command} --help."


def _wrong_value(name: str, argument: Argument, value: str) -> RedlineError | None:
    """The error for a value that is not of the argument's type, where that can be told."""
    if any(_fits(kind, value, argument) for kind in argument.kinds):
        return None
    if argument.choices:
        nearest = difflib.get_close_matches(value, argument.choices, n=1, cutoff=0.0)[0]
        return RedlineError(f"{name} {value} is none of {', '.join(argument.choices)}. Try {name} {nearest}.")
    what = next(KINDS[kind] for kind in argument.kinds if kind in KINDS)
    return RedlineError(f"{name} {value} cannot be read: it takes {what}. Try {name} {_example(argument)}.")


def _fits(kind: Any, value: str, argument: Argument) -> bool:
    if value.lower() == "none" and NoneType in get_args(argument.kind):
        return True
    if argument.choices:
        return value in argument.choices
    try:
        if kind is int:
            whole(value)
        elif kind is float:
            float(value)
        elif kind == tuple[int, ...]:
            [int(part) for part in value.split(",") if part.strip()]
    except ValueError:
        return False
    return True


def _example(argument: Argument) -> str:
    """A value that would work: the default, else any of the type."""
    if argument.choices:
        return argument.choices[0]
    default = argument.default
    if isinstance(default, tuple) and default:
        return ",".join(map(str, default))
    if isinstance(default, int | float | Path) or (isinstance(default, str) and default):
        return str(default)
    return next((EXAMPLES[kind] for kind in argument.kinds if kind in EXAMPLES), "VALUE")


def _surplus(command: str, given: Given) -> RedlineError:
    """The error for a word that has no place, or that was meant for a switch."""
    switch = given.after
    if switch is not None and switch.is_switch and given.text.lower() in (*SWITCHED_ON, *SWITCHED_OFF):
        return RedlineError(_no_value(switch, given.text))
    return UnknownArgument(
        given.text, f"{command} has no place for {given.text!r}. Leave it out, or see redline {command} --help."
    )


def _no_value(switch: Argument, value: str) -> str:
    right = switch.spellings[1] if value.lower() in SWITCHED_OFF else switch.name
    return f"{switch.name} takes no value, and {value!r} was given. Write {right}."


def _missing(command: str, argument: Argument) -> RedlineError:
    words = " ".join(argument.about.split())
    about = f"{words[:1].lower()}{words[1:]}" if words else f"{_example(argument)}."
    such_as = f" Try: redline {command} runs/NAME." if argument.kind is Path and argument.name != "FILE" else ""
    return RedlineError(f"{command} needs {argument.name}: {about}{such_as}")
