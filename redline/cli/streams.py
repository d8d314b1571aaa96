"""Standard output and error as they may be: closed, of another encoding, full, or written to by an env."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_answers: TextIO | None = None
"""Where an answer in JSON goes, while standard output is kept for nobody."""


def make_writable() -> None:
    """Give this process streams that can be written to, whatever letters are written."""
    _open_all()
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if isinstance(sys.stderr, io.TextIOWrapper) and _descriptor(sys.stderr) == 2:
        sys.stderr.flush()
        sys.stderr = _forgiving(sys.stderr)


def _open_all() -> None:
    """Have nobody in the place of closed streams: the next file that is opened would get whatever is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class _Forgiving(io.FileIO):
    """A file that may not take what is written, because its disk is full for one, and is written to all the same."""

    given: TextIO

    def write(self, data: Any) -> int:
        """Write what can be written."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _forgiving(given: TextIO) -> TextIO:
    """Standard error that no training, and no answer, is ever lost to."""
    raw = _Forgiving(2, "w", closefd=False)
    raw.given = given  # which closes the descriptor when nobody holds it any more
    return io.TextIOWrapper(io.BufferedWriter(raw), given.encoding, errors="replace", line_buffering=True)


def let_go_of(stream: TextIO) -> None:
    """Drop what could not be written to a stream, and what will be: Python tries once more in the end, and complains."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def kept_clean(wanted: bool) -> Iterator[None]:
    """Sends whatever is printed to standard error, where an answer in JSON is `wanted`: only the answer goes out.

    An env may print, by Python, from C or in a process of its own.
    """
    global _answers
    if not wanted:
        yield
        return
    given = sys.stdout
    with contextlib.ExitStack() as undo:
        _answers = (
            undo.enter_context(_apart(given)) if (_descriptor(given), _descriptor(sys.stderr)) == (1, 2) else given
        )
        undo.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            yield
        finally:
            _answers = None


def _descriptor(stream: TextIO) -> int | None:
    """The number of the file behind a stream, if there is one: a program that calls us may have put anything there."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _apart(stdout: TextIO) -> Iterator[TextIO]:
    """What was descriptor 1, which is standard error for as long as this lasts."""
    stdout.flush()
    with open(os.dup(1), "w", encoding=stdout.encoding, errors="replace") as file:
        os.dup2(2, 1)
        try:
            yield file
        finally:
            os.dup2(file.fileno(), 1)


def answers() -> TextIO:
    """The stream that an answer goes to."""
    return _answers or sys.stdout
