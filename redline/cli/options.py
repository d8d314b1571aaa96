"""Options of a command, made from dataclasses whose fields are documented by the text below them.

What a field's type does not say stands beside it: `Annotated[float, "--learning-rate", "--lr"]` names the options,
`"~--rate"` is an older name that help leaves out, `"positional"` makes it a word, `"set"` leaves it to
`--set NAME=VALUE` and `"hidden"` to Python.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import shutil
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from redline.errors import RedlineError
from redline.worlds.options import field_texts

T = TypeVar("T")
Reader = Callable[[str], Any]

HELP = ("-h", "--help", "--help-all")
ENV_PART = "env_part"
"""The field of a command that holds the options of an env."""
SUFFIXES = {"k": 3, "m": 6, "g": 9, "b": 9}
MAX_DIGITS = 1000
WIDTH = 110
METAVARS = {int: "N", float: "X", str: "NAME", Path: "PATH"}
SWITCH_VALUES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class Output:
    """How a command prints."""

    json: bool = False
    """Print one JSON object and nothing else."""
    quiet: Annotated[bool, "--quiet", "-q"] = False
    """Print results only, no progress."""


class UnknownArgument(RedlineError):
    """An option that a command does not have, or a word that it has no place for."""

    def __init__(self, argument: str, text: str) -> None:
        super().__init__(text)
        self.argument = argument


class Parser(argparse.ArgumentParser):
    """Reads the options that were given; its errors are one line.

    `common` names the fields that `--help` shows, where that is not all of them. With `many`, an option of
    these dataclasses takes several values.
    """

    def __init__(self, command: str, kind: type, common: Collection[str] = (), many: Collection[type] = ()) -> None:
        super().__init__(
            prog=f"redline {command}",
            description=kind.__doc__,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            add_help=False,
            exit_on_error=False,
            formatter_class=self._formatter,
        )
        self.kind = kind
        self.command = command
        self.common = common
        self.many = many
        self.readers: dict[str, Reader] = {}
        self.fields: dict[str, argparse.Action] = {}
        self.old_names: set[str] = set()
        self._add(kind, None)
        words = [str(action.metavar) for action in self.words()]
        self.usage = " ".join(["redline", command, *words, "[options]"])
        self.first = f": {words[0]} comes first" if words else ""
        if self.readers.keys() - self.fields.keys():
            about = "A setting that has no option of its own; may be given several times."
            self.add_argument("--set", action="append", metavar="NAME=VALUE", help=about)

    def _add(self, kind: type, base: Any) -> None:
        group = self.add_argument_group(_title(kind, self.kind))
        texts = field_texts(kind)
        for field, hint, notes in fields_of(kind):
            default = getattr(base, field.name, _default_of(field))
            if "hidden" in notes:
                continue
            if dataclasses.is_dataclass(hint):
                self._add(typing.cast(type, hint), default)
                continue
            several = kind in self.many
            how = _how(hint, several)
            self.readers[field.name] = reader_of(hint)
            if "set" in notes:
                continue
            about = _describe(texts.get(field.name, ""), default)
            names = [note for note in notes if note.startswith("-")]
            if "positional" in notes:
                self._add_word(field.name, hint, how, about, default)
                continue
            names = names or [f"--{field.name.replace('_', '-')}"]
            old = [note[1:] for note in notes if note.startswith("~")]
            action = group.add_argument(*names, *old, dest=field.name, help=about, **how)
            self.old_names.update(old)
            self.fields[field.name] = action

    def _add_word(self, name: str, hint: Any, how: dict[str, Any], about: str, default: Any) -> None:
        how["metavar"] = name.upper()
        if get_origin(hint) is tuple:
            how["type"] = get_args(hint)[0]
            how["nargs"] = "+"
        elif default is not dataclasses.MISSING:
            how["nargs"] = "?"
            how["default"] = None  # argparse would make a path of SUPPRESS
        about = about.partition(" [")[0]
        self.fields[name] = self.add_argument(name, help=about, **how)

    def switches(self) -> dict[str, argparse.Action]:
        """The options, by each of their spellings."""
        return {name: action for action in self._actions for name in action.option_strings}

    def words(self) -> list[argparse.Action]:
        """The arguments that are no options."""
        return [action for action in self._actions if not action.option_strings]

    def given(self, arguments: Sequence[str]) -> dict[str, Any]:
        """The options that were given, by field."""
        try:
            found, rest = self.parse_known_intermixed_args(_spelled(arguments))
        except argparse.ArgumentError as error:
            raise RedlineError(_one_line(error)) from None
        for word in rest:
            raise self._surplus(word, arguments)
        values = {name: value for name, value in vars(found).items() if value is not None}
        for text in values.pop("set", ()):
            name, _, value = text.partition("=")
            field = name.replace("-", "_")
            if field not in self.readers:
                raise RedlineError(f"--set {name}: there is no such setting.{_nearest(field, self.readers)}")
            try:
                values[field] = self.readers[field](value)
            except argparse.ArgumentTypeError as error:
                raise RedlineError(f"--set {name} {error}.") from None
        return values

    def _surplus(self, word: str, arguments: Sequence[str]) -> RedlineError:
        see = f"See {self.prog} --help."
        if word.startswith("-"):
            option = word.partition("=")[0]
            hint = _nearest(option, self.switches())
            return UnknownArgument(option, f"{self.command} has no option {option}.{hint} {see}")
        place = list(arguments).index(word) if word in arguments else 0
        before = arguments[place - 1] if place else ""
        switch = self.switches().get(before)
        if isinstance(switch, argparse.BooleanOptionalAction) and word.lower() in SWITCH_VALUES:
            on, off = switch.option_strings[0], switch.option_strings[-1]
            return RedlineError(f"{before} takes no value (got {word!r}). Write {on} or {off}.")
        return UnknownArgument(word, f"{self.command} has no place for {word!r}{self.first}. {see}")

    def error(self, message: str) -> Any:
        """Say which word is missing."""
        name = message.rpartition(": ")[2].partition(", ")[0]
        for action in self._actions:
            if action.metavar == name:
                about = f"{action.help or ''}"
                raise RedlineError(f"{self.command} needs {name}: {about[:1].lower()}{about[1:]}")
        raise RedlineError(f"{message[:1].upper()}{message[1:]}. See {self.prog} --help.")

    def _formatter(self, prog: str) -> argparse.HelpFormatter:
        return Formatter(prog, self.old_names)

    def show_help(self, everything: bool) -> None:
        """Print the options: all of them, or the common ones and those of the env."""
        hidden = 0
        own = next((hint for field, hint, _ in fields_of(self.kind) if field.name == ENV_PART), None)
        kept = {*self.common}
        if own is not None:
            kept |= {field.name for field in dataclasses.fields(own)}
        for action in self._actions:
            if self.common and not everything and action.option_strings and action.dest not in kept:
                action.help = argparse.SUPPRESS
                hidden += 1
        if hidden:
            for group in self._action_groups[2:]:
                group.title = None
            self.epilog = f"{hidden} more options: {self.prog} --help-all. Options of an env: {self.prog} ENV --help."
        self.print_help()


_asking: ContextVar[bool] = ContextVar("asking", default=False)


class Asked(Exception):
    """Ends a command that was only asked for its options."""

    def __init__(self, parser: Parser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Within the block, a command raises `Asked` with its parser: its options depend on its env."""
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)


def read(parser: Parser, arguments: Sequence[str]) -> dict[str, Any]:
    """The options that were given, by field; `--help` prints help and exits."""
    if _asking.get():
        raise Asked(parser)
    if any(each in HELP for each in arguments):
        parser.show_help("--help-all" in arguments)
        raise SystemExit(0)
    return parser.given(arguments)


def parse(command: str, kind: type[T], arguments: Sequence[str]) -> T:
    """The options of `command` as a dataclass of type `kind`; nested dataclasses share one flat list of options."""
    return made(kind, read(Parser(command, kind), arguments))


def made(kind: type[T], given: dict[str, Any], base: Any = None) -> T:
    """A dataclass with the values that were given, by field, in it and in those nested in it."""
    values: dict[str, Any] = {}
    for field, hint, _ in fields_of(kind):
        if dataclasses.is_dataclass(hint):
            inner = getattr(base, field.name, _default_of(field))
            nothing = inner is dataclasses.MISSING
            values[field.name] = made(typing.cast(type, hint), given, None if nothing else inner)
        elif field.name in given:
            values[field.name] = given[field.name]
    try:
        return kind(**values) if base is None else dataclasses.replace(base, **values)
    except ValueError as error:
        raise RedlineError(str(error)) from None


def combine(about: str, **parts: Any) -> type:
    """One dataclass that holds several, so that their options are parsed together.

    A part is a dataclass, or an instance of one that has the defaults. The help begins with `about`.
    """
    required: list[Any] = []
    optional: list[Any] = []
    for name, part in parts.items():
        if isinstance(part, type) and _has_required_field(part):
            required.append((name, part))
        elif isinstance(part, type):
            optional.append((name, part, dataclasses.field(default_factory=part)))
        else:
            factory = lambda part=part: part  # noqa: E731
            optional.append((name, type(part), dataclasses.field(default_factory=factory)))
    kind = dataclasses.make_dataclass("Command", [*required, *optional], frozen=True)
    kind.__doc__ = about
    return kind


def fields_of(kind: Any) -> Iterator[tuple[dataclasses.Field[Any], Any, tuple[str, ...]]]:
    """The fields of a dataclass with their types and what stands beside the types."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError:  # a class made where its types cannot be looked up
        hints = {}
    for field in dataclasses.fields(kind):
        hint = hints.get(field.name, field.type)
        if get_origin(hint) is Annotated:
            yield field, hint.__origin__, hint.__metadata__
        else:
            yield field, hint, ()


def _has_required_field(kind: type) -> bool:
    return any(_default_of(field) is dataclasses.MISSING for field in dataclasses.fields(kind))


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


# Values


def _how(hint: Any, several: bool) -> dict[str, Any]:
    """How argparse reads an option of a type."""
    if hint is bool:
        return {"action": Switches if several else argparse.BooleanOptionalAction}
    kind = _without_none(hint)
    metavar = METAVARS.get(kind)
    if get_origin(kind) is Literal:
        metavar = "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        item = METAVARS.get(get_args(kind)[0], "NAME")
        metavar = f"{item},{item}"
    how: dict[str, Any] = {"type": reader_of(hint), "metavar": metavar}
    if several:
        how["nargs"] = "+"
        how["type"] = _or_range(reader_of(hint))
    return how


class Switches(argparse.BooleanOptionalAction):
    """`--dedup`, `--no-dedup` or `--dedup true false`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.nargs = "*"
        self.type = yes_or_no

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store a list of values."""
        is_on = not str(option_string).startswith("--no-")
        setattr(namespace, self.dest, values or [is_on])


class Range(NamedTuple):
    """Any number from `low` to `high`."""

    low: float
    high: float
    text: str


def _or_range(read_value: Reader) -> Reader:
    def read_range(text: str) -> Any:
        low, dots, high = text.partition("..")
        if dots and low and high and not low.startswith("/"):
            return Range(number(low), number(high), text)
        return read_value(text)

    return read_range


def reader_of(hint: Any) -> Reader:
    """The function that reads a value of a type; `none` is None where the type allows that."""
    kind = _without_none(hint)
    read_value = _reader(kind)
    if kind is hint:
        return read_value

    def read_optional(text: str) -> Any:
        return None if text.lower() == "none" else read_value(text)

    return read_optional


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0]


def _reader(kind: Any) -> Reader:
    if get_origin(kind) is Literal:
        return _choice(get_args(kind))
    if get_origin(kind) is tuple:
        return _comma_list(_reader(get_args(kind)[0]))
    return READERS.get(kind, str)


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number (got {text})") from None


def whole(text: str) -> int:
    """A whole number: 1000000, 1_000_000, 1e6, 100k or 5M."""
    digits = text.strip().replace("_", "")
    power = SUFFIXES.get(digits[-1:].lower(), 0)
    if power:
        digits = digits[:-1]
    wrong = argparse.ArgumentTypeError(f"must be a whole number (got {text})")
    try:
        value = Decimal(digits)
    except InvalidOperation:
        raise wrong from None
    if not value.is_finite() or abs(value.adjusted()) > MAX_DIGITS:
        raise wrong
    value = value.scaleb(power, Context(prec=4 * MAX_DIGITS))
    if value != value.to_integral_value():
        raise wrong
    return int(value)


def yes_or_no(text: str) -> bool:
    """True or false."""
    if text.lower() not in SWITCH_VALUES:
        raise argparse.ArgumentTypeError(f"must be true or false (got {text})")
    return SWITCH_VALUES[text.lower()]


def _choice(known: Sequence[str]) -> Reader:
    def read_choice(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(known)} (got {text})")
        return text

    return read_choice


def _comma_list(item: Reader) -> Reader:
    def read_list(text: str) -> tuple[Any, ...]:
        parts = [part for part in text.split(",") if part.strip()]
        return tuple(item(part) for part in parts)

    return read_list


READERS: dict[Any, Reader] = {int: whole, float: number, bool: yes_or_no, Path: Path}


# Words


def _spelled(arguments: Sequence[str]) -> list[str]:
    """Options with dashes: `--num_envs` is `--num-envs`."""
    found = []
    for word in arguments:
        name, equals, value = word.partition("=")
        found.append(name.replace("_", "-") + equals + value if name.startswith("--") else word)
    return found


def _one_line(error: argparse.ArgumentError) -> str:
    name = str(error.argument_name).partition("/")[0]
    if error.message.startswith("expected"):
        return f"{name} needs a value."
    if error.message.startswith("ignored explicit"):
        value = error.message.rpartition("argument ")[2]
        return f"{name} takes no value (got {value})."
    return f"{name} {error.message}."


def _nearest(given: str, known: Collection[str]) -> str:
    bare = {each.lstrip("-"): each for each in known}
    found = difflib.get_close_matches(given.lstrip("-"), bare, n=1)
    return f" Did you mean {bare[found[0]]}?" if found else ""


def _title(kind: type, command: type) -> str:
    if kind is command or not kind.__doc__:
        return "options"
    return " ".join(kind.__doc__.split()).partition(". ")[0].rstrip(".:")


def _describe(text: str, default: Any) -> str:
    words = " ".join(text.split()).replace("%", "%%")
    if default is dataclasses.MISSING or default is False or default in (None, "", ()):
        return words
    if default is True:
        return f"{words} [on]"
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{words} [{shown}]"


class Formatter(argparse.HelpFormatter):
    """Names of an option with commas between them, and its value once."""

    def __init__(self, prog: str, old_names: Collection[str]) -> None:
        self.old_names = {*old_names, *(f"--no-{name[2:]}" for name in old_names)}
        width = max(60, min(WIDTH, shutil.get_terminal_size().columns))
        super().__init__(prog, max_help_position=30, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return str(action.metavar)
        shown = [name for name in action.option_strings if name not in self.old_names]
        if isinstance(action, argparse.BooleanOptionalAction):
            shown = [name for name in shown if not name.startswith("--no-")]
            if str(action.help).endswith("[on]"):
                shown[0] = shown[0].replace("--", "--[no-]", 1)
        names = ", ".join(shown)
        return names if action.metavar is None else f"{names} {action.metavar}"
