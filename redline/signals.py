"""Signals that ask a process to end: Ctrl-C, SIGTERM, and SIGHUP when its terminal goes.

A command is interrupted by an exception, `Interrupted`, wherever it is. A training listens instead (`Interrupt`), and
finishes what it is at. All of this is done by handlers: blocking a signal in one thread leaves it to the others.
"""

from __future__ import annotations

import atexit
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from redline.errors import Abandoned

Handlers = dict[int, Any]
ENDING = tuple(
    number
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN  # `nohup` has made us deaf on purpose
)
SAME_SECONDS = 1.0
"""Signals as close together as this are one: a shell, or `timeout`, may tell a process and its group."""
PATIENCE_SECONDS, ASK_SECONDS = 2.0, 0.2
"""How long the update under way may take after Ctrl-C before its collect is broken off, and how often that is tried."""


class Interrupted(KeyboardInterrupt):
    """A signal that asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_raised_for: list[int] = []
"""Signals for which `Interrupted` was raised here."""


def exit_code_of(error: KeyboardInterrupt) -> int:
    """The code that shells expect of a process that a signal ended.

    A plain one may stand for ours: Ray catches that and raises another.
    """
    heard = _raised_for[-1] if _raised_for else int(signal.SIGINT)
    return 128 + (error.number if isinstance(error, Interrupted) else heard)


def heed() -> None:
    """From now on, raise `Interrupted` where a signal asks this process to end; once, and a later one leaves at once."""
    atexit.register(_set, signal.SIG_IGN)  # Python takes its own handlers away before it is gone
    _set(_interrupt)


def leave_with(code: int) -> None:
    """The work is done: whoever asks this process to end from now on has it end at once, with this code."""

    def leave(number: int, frame: FrameType | None) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    signal.setitimer(signal.ITIMER_REAL, 0)
    _set(leave)


@contextmanager
def held_back() -> Iterator[None]:
    """Has Ctrl-C wait until somebody listens for it, or the block ends."""
    held = _Held()
    before = held.before = _set(held.hold)
    try:
        yield
    finally:
        if not held.is_over:
            _put_back(before)
            if held.signal is not None:
                signal.raise_signal(held.signal)


class _Held:
    """Remembers the first signal that asked to end."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.before: Handlers = {}
        self.is_over = False

    def hold(self, number: int, frame: FrameType | None) -> None:
        self.signal = number if self.signal is None else self.signal


class Interrupt:
    """Set by the first signal that asks this process to end; another one, a second later, leaves at once.

    An update that is nearly done may finish. One that is not is abandoned, if `may_abandon` says that nothing has been
    learned from it yet.
    """

    def __init__(self, may_abandon: Callable[[], bool] = lambda: False) -> None:
        self.signal: int | None = None
        self._noticed = 0.0
        self._may_abandon = may_abandon

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The code that shells expect of a process that a signal ended."""
        return 128 + (self.signal or 0)

    def take(self, error: KeyboardInterrupt) -> None:
        """Somebody else has heard a signal: an env that has its own way with Ctrl-C, or raises what looks like it."""
        self.signal = self.signal or exit_code_of(error) - 128

    @contextmanager
    def listening(self) -> Iterator[Interrupt]:
        """Listen until the block ends, beginning with what was held back before."""
        alarm = signal.signal(signal.SIGALRM, self._ring)
        before = _set(self._notice)
        holder = getattr(before[signal.SIGINT], "__self__", None)
        if isinstance(holder, _Held):
            holder.is_over, before = True, holder.before
            if holder.signal is not None:
                self._notice(holder.signal, None)
        try:
            yield self
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
            _put_back(before)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        if self:
            return  # another one came before we were deaf
        self.signal, self._noticed = number, time.monotonic()
        _be_deaf(number)
        signal.setitimer(signal.ITIMER_REAL, SAME_SECONDS, ASK_SECONDS)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            _set(signal.SIG_DFL)
        if time.monotonic() - self._noticed >= PATIENCE_SECONDS and self._may_abandon():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Abandoned


def _set(handler: Any) -> Handlers:
    """Have all signals that ask to end handled like this. Returns how they were."""
    return {number: signal.signal(number, handler) for number in ENDING}


def _put_back(before: Handlers) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _be_deaf(number)
    signal.signal(signal.SIGALRM, lambda *_: _set(signal.SIG_DFL))
    signal.setitimer(signal.ITIMER_REAL, SAME_SECONDS)
    _raised_for.append(number)
    raise Interrupted(number)


def _be_deaf(number: int) -> None:
    """Ignore what else asks us to end, as it is the same: not by the time, for what is between may take any time."""
    _set(signal.SIG_IGN)
    if number == signal.SIGHUP:
        for stream in (1, 2):
            _let_go_of_terminal(stream)


def _let_go_of_terminal(stream: int) -> None:
    """Write to nobody where there was a terminal and is none any more: every other write would fail."""
    with suppress(OSError):
        if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
