"""Whose turn it is to compile a kernel: processes that start together would all compile the same ones."""

from __future__ import annotations

import contextlib
import fcntl
import time
from typing import IO, Any

from numba.core import event

from redline.compiled.announce import told

PATIENCE = 60.0
"""Seconds to wait for another process, which may have been stopped; then we compile beside it."""
PAUSE = 0.02


class CompileTurn:
    """A process's turn to compile one kernel: a lock on a file beside its machine code. It ends with the process."""

    def __init__(self, path: str, kernel: Any) -> None:
        self._path, self._kernel = path, kernel
        self._file: IO[bytes] | None = None

    def take(self) -> bool:
        """Wait until nobody else is compiling the kernel. Returns whether that can be known."""
        self.end()
        try:
            self._file = open(self._path, "ab")  # noqa: SIM115  # kept open for as long as it is our turn
        except OSError:  # where nothing can be written nothing is kept, so there is nothing to wait for
            return False
        _underway[id(self._kernel)] = self
        if not self._is_ours():
            with told(self._kernel):
                self._wait()
        return True

    def _wait(self) -> None:
        """Looks are counted, not the time, for both processes may have been stopped and go on together."""
        for _ in range(round(PATIENCE / PAUSE)):
            if self._is_ours():
                break
            time.sleep(PAUSE)

    def _is_ours(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Let others have theirs."""
        _underway.pop(id(self._kernel), None)
        if self._file is not None:
            with contextlib.suppress(OSError), self._file:
                fcntl.flock(self._file, fcntl.LOCK_UN)  # closing is not enough: a child may have inherited it
            self._file = None


_underway: dict[int, CompileTurn] = {}


class _Listener(event.Listener):
    """Ends the turn of a kernel that could not be compiled."""

    def on_start(self, event: Any) -> None:
        """Nothing yet."""

    def on_end(self, event: Any) -> None:
        """Of one that could be, the turn ends when it is kept."""
        kernel = event.data["dispatcher"]
        turn = _underway.get(id(kernel))
        if turn is not None and tuple(event.data["args"]) not in kernel.overloads:
            turn.end()


event.register("numba:compile", _Listener())
