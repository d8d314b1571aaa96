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
from redline.learn.watching import LIKELIEST
from redline.report.film import Film
from redline.report.film_text import frame_lines

FORWARD, BACK, LEAVE = ("\x1b[C", "n", " "), ("\x1b[D", "p"), ("q", "\x03", "\x04")
DOWN, UP = "\x1b[B", "\x1b[A"
FIRST, LAST = ("\x1b[H", "\x1b[1~", "g"), ("\x1b[F", "\x1b[4~", "G")
KEYS = "space or → next, ← back, m next moment, Home, End, q quit"
NARROW_KEYS = "space → ← m Home End, q quit"
LOOK_SECONDS = 0.5
"""How often to see whether the window has another size."""
FEWEST_LIKELY = 1
"""Likely actions that are told even where there is little room."""


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
    at = min(start, len(film.frames) - 1)
    picture, top = picture_at(film, at, 0)
    with _keys() as pressed, Live(picture, console=out, screen=True, auto_refresh=False) as live:
        for key in pressed:
            if key in LEAVE:
                return
            at = _moved(film, at, key)
            picture, top = picture_at(film, at, top + (key == DOWN) - (key == UP))
            live.update(picture, refresh=True)


def picture_at(film: Film, at: int, top: int) -> tuple[Group, int]:
    """A frame from its line `top` on, between its title and the keys, and the line that it really begins with."""
    width, height = out.size
    room = height - 2
    lines = _fitting(film, at, room)
    top = max(0, min(top, len(lines) - room))
    shown = [Text.from_markup(line, overflow="ellipsis") for line in lines[top : top + room]]
    shown += [Text("")] * (room - len(shown))
    keys = (KEYS if width >= len(KEYS) else NARROW_KEYS) + ("" if len(lines) <= room else "  ↑↓ more")
    rows = [Text(film.title, style="bold", overflow="ellipsis"), *shown, Text(keys, style="dim", overflow="crop")]
    for row in rows:
        row.no_wrap = True
    return Group(*rows), top


def _fitting(film: Film, at: int, room: int) -> list[str]:
    """A frame in as many lines as there is room for, if leaving out unlikely actions is enough for that."""
    lines, totals = list[str](), film.returns()
    for likeliest in range(LIKELIEST, FEWEST_LIKELY - 1, -1):
        lines = frame_lines(film.frames[at], totals[at], len(totals) - 1, likeliest)
        if len(lines) <= room:
            break
    return lines


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
    """One key at a time; those that send several characters arrive as one. A window of another size is an empty key."""
    stdin, size = sys.stdin.fileno(), out.size
    while True:
        if not select.select([stdin], [], [], LOOK_SECONDS)[0]:
            if out.size != size:
                size = out.size
                yield ""
            continue
        data = os.read(stdin, 1)
        if not data:
            return
        if data == b"\x1b":
            while select.select([stdin], [], [], 0.02)[0]:
                data += os.read(stdin, 1)
                if data[-1:].isalpha() or data[-1:] == b"~":
                    break
        yield data.decode(errors="replace")
