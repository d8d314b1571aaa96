"""A film in the terminal: frame by frame with keys, or all of them as plain text."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.text import Text

from redline.cli.console import out
from redline.report.film import Film
from redline.report.film_text import frame_lines

FORWARD, BACK, LEAVE = ("\x1b[C", "\x1b[B", "n", " "), ("\x1b[D", "\x1b[A", "p"), ("q", "\x03", "\x04")
FIRST, LAST = ("\x1b[H", "\x1b[1~", "g"), ("\x1b[F", "\x1b[4~", "G")
KEYS = "space or → on, ← back, Home, End, m next moment, q leave"


def print_all(film: Film) -> None:
    """All frames as plain text, one below the other."""
    out.print(film.title, soft_wrap=True, markup=False)
    last = len(film.frames) - 1
    for frame, total in zip(film.frames, film.returns(), strict=True):
        out.print()
        for line in frame_lines(frame, total, last):
            out.print(line, soft_wrap=True)


def show_on_screen(film: Film, start: int) -> None:
    """The film frame by frame, led by keys."""
    at, totals = min(start, len(film.frames) - 1), film.returns()

    def picture() -> Group:
        lines = [Text.from_markup(line) for line in frame_lines(film.frames[at], totals[at], len(totals) - 1)]
        return Group(Text(film.title, style="bold"), *lines, Text(KEYS, style="dim"))

    with _keys() as pressed, Live(picture(), console=out, screen=True, auto_refresh=False) as live:
        for key in pressed:
            if key in LEAVE:
                return
            at = _moved(film, at, key)
            live.update(picture(), refresh=True)


def _moved(film: Film, at: int, key: str) -> int:
    last = len(film.frames) - 1
    if key == "m":
        return next((moment.frame for moment in film.moments if moment.frame > at), at)
    wanted = at + (key in FORWARD) - (key in BACK)
    if key in FIRST or key in LAST:
        wanted = 0 if key in FIRST else last
    return max(0, min(last, wanted))


@contextmanager
def _keys() -> Iterator[Iterator[str]]:
    """Keys as they are pressed; the terminal is as it was afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _read_keys()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read_keys() -> Iterator[str]:
    """One key at a time; those that send several characters arrive as one."""
    stdin = sys.stdin.fileno()
    while data := os.read(stdin, 1):
        if data == b"\x1b":
            while select.select([stdin], [], [], 0.02)[0]:
                data += os.read(stdin, 1)
                if data[-1:].isalpha() or data[-1:] == b"~":
                    break
        yield data.decode(errors="replace")
