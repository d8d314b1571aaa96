"""Errors a user can fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NAMES = 12
MOST_WORDS = 2000
"""Letters of what somebody else's code has to say."""


class RedlineError(Exception):
    """Something the user can put right: the command line prints it as one line and exits with code 2."""

    exit_code = 2

    def __str__(self) -> str:
        """One line, whatever it quotes: what would break it, or be obeyed by a terminal, is written out."""
        return written_out(super().__str__())


class Abandoned(BaseException):
    """Raised out of a collect that takes too long to wait for after Ctrl-C. No failure of whatever it is raised in."""


def written_out(text: str, kept: str = "") -> str:
    """A text in which letters that do not print are spelled out, but for those to be `kept`."""
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


def told_by(error: BaseException) -> str:
    """An error of somebody else's code in one line, which may be long, or fail itself."""
    try:
        words = str(error)
    except Exception:
        words = "(its words raise an error themselves)"
    return f"{type(error).__name__}: {words}".split("\n")[0][:MOST_WORDS]


def unknown(what: str, given: str, known: Iterable[str]) -> RedlineError:
    """The error for a name that does not exist, with the nearest one that does."""
    names, given = list(known), given if isinstance(given, str) else repr(given)[:60]
    nearest = difflib.get_close_matches(given.lower(), [name.lower() for name in names], n=1, cutoff=0.4)
    hint = ""
    if nearest:
        name = next(name for name in names if name.lower() == nearest[0])
        hint = f" Did you mean {name!r}?"
    shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    return RedlineError(f"There is no {what} {given!r}.{hint} Known: {shown}.")


def install(extra: str) -> str:
    """How to get what is missing: a command for those who installed us, and one for those who work in a clone."""
    return f"pip install 'redline[{extra}]', or in a clone: pip install -e '.[{extra}]'"
