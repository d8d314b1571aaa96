"""A command line that cannot be read is explained in one line, in our own words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from redline.cli import main
from redline.cli.options import parse
from redline.errors import RedlineError


@dataclass(frozen=True)
class Paint:
    """How it is painted."""

    coats: int = 2
    """Layers of paint."""
    mix: tuple[int, ...] = (1, 2)
    """Parts of each colour."""


@dataclass(frozen=True)
class Order:
    """An order."""

    what: Annotated[str, "positional"]
    """A thing, such as a chair."""
    how_many: int | None = None
    """A number."""
    price: float = 9.5
    """A number with a point."""
    colour: Literal["red", "green"] = "red"
    """A choice."""
    wrapped: bool = False
    """A switch."""
    to: Path | None = None
    """A place."""
    paint: Paint = field(default_factory=Paint)
    """Nested, and yet in the same list."""
    quiet: Annotated[bool, "--quiet", "-q"] = False
    """A switch with a short name."""

    def __post_init__(self) -> None:
        if self.what == "horse":
            raise ValueError("there are no horses")


MISTAKES = {
    "": "order needs WHAT: a thing, such as a chair.",
    "chair --how-many three": "--how-many must be a whole number (got three).",
    "chair --how-many 2.5": "--how-many must be a whole number (got 2.5).",
    "chair --how-many": "--how-many needs a value.",
    "chair --how-many --wrapped": "--how-many needs a value.",
    "chair --how-mny 3": "order has no option --how-mny. Did you mean --how-many? See redline order --help.",
    "chair --x=3": "order has no option --x. See redline order --help.",
    "chair -x": "order has no option -x. See redline order --help.",
    "chair --price cheap": "--price must be a number (got cheap).",
    "chair --colour gren": "--colour must be one of red, green (got gren).",
    "chair --mix 1,b": "--mix must be a whole number (got b).",
    "chair --coats few": "--coats must be a whole number (got few).",
    "chair table": "order has no place for 'table': WHAT comes first. See redline order --help.",
    "chair --wrapped no": "--wrapped takes no value (got 'no'). Write --wrapped or --no-wrapped.",
    "chair --wrapped=true": "--wrapped takes no value (got 'true').",
    "none --coats none": "--coats must be a whole number (got none).",
}


@pytest.mark.parametrize("columns", ["60", "200"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained_in_one_line(mistake, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(RedlineError) as error:
        parse("order", Order, mistake.split())
    assert str(error.value) == MISTAKES[mistake]


def test_a_value_that_the_dataclass_itself_refuses_is_told_without_the_frame_around_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(RedlineError) as error:
        parse("order", Order, ["horse"])
    assert "there are no horses" in str(error.value)
    assert not set("│╭╰─╮╯\n") & set(str(error.value))


@pytest.mark.parametrize(
    "line", ["chair", "chair --how-many none -q", "chair --how-many -3 --no-wrapped", "--to a/b --mix 4,5 chair"]
)
def test_what_can_be_read_is_read(line):
    assert parse("order", Order, line.split()).what == "chair"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("eval", "eval needs TARGET: a run folder"),
        ("new", "new needs NAME: name of the world"),
        ("report", "report needs RUN: the run folder."),
        ("verify", "Try: redline verify cage2"),
        ("solve", "Try: redline solve petri:"),
        ("train cage2 --total-steps abc", "--total-steps must be a whole number (got abc)."),
        ("train cage2 --lerning-rate 1", "Did you mean --learning-rate?"),
        ("train cage2 --turbo false", "Write --turbo or --no-turbo."),
        ("train cage2 petri:cluster/J-0", "no place for 'petri:cluster/J-0'"),
        ("train --resume runs/a cage2", "leave out cage2."),
        ("train cage2 --resume runs/a", "leave out cage2."),
        ("train --resume runs/a --gamma 0.9", "leave out --gamma."),
        ("train --network my_nets:Net cage2", "no place for 'cage2': ENV comes first"),
        ("train --run-dir CartPole-v1 cage2", "no place for 'cage2': ENV comes first"),
        ("report none", "no run folder at none"),
        ("eval sleep --gantt x.svg", "--gantt is for petri, not for cage2"),
    ],
)
def test_commands_explain_mistakes_in_words_of_our_own(line, says, capsys):
    assert main(line.split()) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert says in said
    for word in ("STR", "INT", "FLOAT", "Traceback", "rror parsing", "nrecognized", "literal", "│"):
        assert word not in said


def test_a_missing_file_is_not_made_up_for_by_the_name_of_a_run(capsys):
    assert main(["export", "runs/a"]) == 2
    assert "export needs FILE" in (said := capsys.readouterr().err) and "Try: redline export runs/NAME." not in said


def test_a_word_that_is_left_out_has_its_default(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "No runs in runs yet" in capsys.readouterr().out
