"""No looking for garbage while a kernel is compiled."""

from __future__ import annotations

import gc
from typing import Any

from numba.core import event


class _Tidier(event.Listener):
    """Keeps Python from looking for garbage while Numba compiles: it makes millions of objects, all of which it needs.
    Looking through them again and again takes a sixth of the time.
    """

    def __init__(self) -> None:
        self._depth, self._was_on = 0, False

    def on_start(self, event: Any) -> None:
        """Stop looking."""
        if self._depth == 0:
            self._was_on = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Look again, if that was wanted."""
        self._depth -= 1
        if self._depth == 0 and self._was_on:
            gc.enable()


event.register("numba:compile", _Tidier())
