"""Progress within long work: whoever is at work tells how far it is, and whoever wants to know listens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 0.2
"""Between two tellings."""
Listener = Callable[[float], None]


class _Ear:
    listener: Listener | None = None
    told = 0.0


_ear = _Ear()


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Within the block, `listener` is told now and then which part of the work under way is done, 0 to 1."""
    before, _ear.listener = _ear.listener, listener
    try:
        yield
    finally:
        _ear.listener = before


def tell(done: int, of: int) -> None:
    """Say how far a piece of work is. Costs next to nothing where nobody listens."""
    if _ear.listener is None:
        return
    now = time.monotonic()
    if now - _ear.told >= SECONDS:
        _ear.told = now
        _ear.listener(done / max(1, of))
