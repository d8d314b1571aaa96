"""Output of commands: tables on standard output, progress on standard error, or one JSON object."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.errors import MarkupError
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from redline.cli.options import Output
from redline.cli.streams import answers

MARKUP = re.compile(r"\[(?!(/|/?(bold|dim)( red| green)?)\])")
"""What looks like the beginning of markup, and is none of ours."""


class _Out(Console):
    """A console whose reader may leave, as `| head` does: that is no failure. It knows two kinds of markup, bold and dim.

    Names of files may hold anything, brackets too.
    """

    def on_broken_pipe(self) -> None:
        """Let the command end quietly."""
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        """Text with markup; text whose markup makes no sense, or that is said to have none, stands for itself."""
        if options.get("markup") is False:
            return super().render_str(text, **options)
        try:
            return super().render_str(MARKUP.sub(r"\\[", text), **options)
        except MarkupError:
            return super().render_str(text, **{**options, "markup": False})


out = _Out(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)


def print_json(data: dict[str, Any]) -> None:
    """One JSON object on standard output; NaN becomes null."""
    print(json.dumps(_plain(data), indent=2, allow_nan=False), file=answers(), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def short(number: float) -> str:
    """`1.52 M`, `37.1 k`, `412`."""
    from redline.report.draw.numbers import short

    return short(number)


class Watcher:
    """Shows how a run is doing: a bar for a terminal, a line every ten seconds for a file, nothing when quiet."""

    LINE_SECONDS = 10.0

    def __init__(self, output: Output, total: float = 1.0, task: str = "training") -> None:
        self._silent = output.quiet or output.json
        self._bar: Progress | None = None
        if not self._silent and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[text]}"), TimeRemainingColumn(), console=err, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(task, total=total, text="")
        self._said = time.monotonic()

    def __enter__(self) -> Watcher:
        """Show the bar."""
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        if self._bar:
            self._bar.stop()

    def show(self, done: float, text: str) -> None:
        """How far the run is, and what there is to say about it."""
        if self._bar:
            self._bar.update(self._task, completed=done, text=text)
        elif not self._silent and time.monotonic() - self._said > self.LINE_SECONDS:
            self._said = time.monotonic()
            err.print(f"{done:4.0%}  {text}", soft_wrap=True)
