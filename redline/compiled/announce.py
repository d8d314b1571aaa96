"""Says that a kernel is being compiled, while it is: a world's first call takes seconds, later ones do not."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from numba.core import event
from numba.core.dispatcher import Dispatcher

PATIENCE = 3.0
"""Seconds of compiling after which a terminal shows them pass."""

_expected: dict[str, str] = {}  # what is said when a kernel of this module is compiled
_said: set[str] = set()


def announce_compilation(kernel: Callable[..., Any], what: str, about_seconds: int) -> None:
    """Have it said on stderr when `kernel` is compiled, or another of its module. To be called before they are.

    `what` is e.g. "CAGE-2 kernel", and `about_seconds` what all kernels of that module take together: the first to be
    compiled speaks for all. Nothing is said where they run interpreted, or an earlier process left them on disk.
    """
    if isinstance(kernel, Dispatcher) and not kernel.signatures:
        text = f"Compiling the {what} (once on this machine, about {about_seconds} seconds) …"
        _expected.setdefault(kernel.py_func.__module__, text)


@contextlib.contextmanager
def told(kernel: Dispatcher) -> Iterator[None]:
    """Says what is said when a kernel is compiled, while something else does it."""
    ticker = _ticker_for(kernel)
    try:
        yield
    finally:
        if ticker is not None:
            ticker.stop()


def _ticker_for(kernel: Dispatcher) -> Ticker | None:
    """A line for a kernel, if it is expected to be compiled."""
    text = _expected.get(kernel.py_func.__module__)
    if text is None:
        return None
    is_news = text not in _said
    _said.add(text)
    return Ticker(text, sys.stderr, is_news)


class _Listener(event.Listener):
    """Is told by Numba when it begins and ends to compile anything, also what a kernel calls while it is compiled."""

    def __init__(self) -> None:
        self._kernel: Dispatcher | None = None
        self._ticker: Ticker | None = None

    def on_start(self, event: Any) -> None:
        """Say so, if this kernel is expected."""
        kernel = event.data["dispatcher"]
        if self._ticker is None:
            self._kernel, self._ticker = kernel, _ticker_for(kernel)

    def on_end(self, event: Any) -> None:
        """Be quiet again, whether it went well or not."""
        if self._ticker is not None and event.data["dispatcher"] is self._kernel:
            self._ticker.stop()
            self._kernel = self._ticker = None


class Ticker:
    """A line that says what is going on. In a terminal it counts the seconds, once there are a few of them."""

    def __init__(self, text: str, stream: TextIO, is_news: bool = True) -> None:
        self._text, self._stream, self._open = text, stream, False
        self._began, self._over = time.monotonic(), threading.Event()
        # something may draw in the terminal itself and hand us a stand-in, which takes whole lines only
        self._thread = threading.Thread(target=self._tick, daemon=True) if _is_terminal(stream) else None
        if is_news:
            self._write(text if self._thread else f"{text}\n")
            self._open = self._thread is not None
        if self._thread:
            self._thread.start()

    def stop(self) -> None:
        """End the line."""
        self._over.set()
        if self._thread:
            self._thread.join()
        if self._open:
            self._write("\n")

    def _tick(self) -> None:
        wait = PATIENCE
        while not self._over.wait(wait):
            self._open, wait = True, 1.0
            self._write(f"\r{self._text} {time.monotonic() - self._began:.0f} s")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    return stream is sys.__stderr__ and stream.isatty()


event.register("numba:compile", _Listener())
