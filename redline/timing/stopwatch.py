"""Records how long named parts of a run take, one inside the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType

from redline.timing.breakdown import Breakdown

Path = tuple[str, ...]


class Stopwatch:
    """Spans opened inside a span are its children. Opening and closing one costs about a microsecond.

    Asking for the same span again adds to it, so a watch stays small however long the run. `events`, once it is set,
    is told of every span by itself: its path, when it began and how long it took.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self.events: Callable[[Path, int, int], None] | None = None
        self._nanoseconds: dict[Path, int] = {}
        self._calls: dict[Path, int] = {}
        self._path: Path = ()
        self._spans: dict[tuple[Path, str], _Span] = {}
        self._started = clock()

    def span(self, name: str) -> _Span:
        """A context manager that adds the time spent in it to `name`, below the span it is opened in."""
        key = (self._path, name)
        found = self._spans.get(key)
        if found is None:
            found = self._spans[key] = _Span(self, (*self._path, name))
        return found

    def credit(self, name: str, nanoseconds: float, calls: int = 1) -> None:
        """Add time that was measured elsewhere, as by a worker, to `name` below the span that is open."""
        path = (*self._path, name)
        self._nanoseconds[path] = self._nanoseconds.get(path, 0) + round(nanoseconds)
        self._calls[path] = self._calls.get(path, 0) + calls

    def seconds_in(self, name: str) -> float:
        """Seconds recorded so far for `name` below the span that is open."""
        return self._nanoseconds.get((*self._path, name), 0) * 1e-9

    def breakdown(self) -> Breakdown:
        """What was recorded so far; the total runs from the watch's start (or last lap) until now."""
        seconds = {path: spent * 1e-9 for path, spent in self._nanoseconds.items()}
        return Breakdown((self._clock() - self._started) * 1e-9, seconds, dict(self._calls))

    def lap(self) -> Breakdown:
        """The breakdown since the last lap, and a fresh start."""
        result = self.breakdown()
        self._nanoseconds.clear()
        self._calls.clear()
        self._started = self._clock()
        return result


class _Span:
    """One span of a watch: reused every time it is opened, so that opening allocates nothing."""

    __slots__ = ("_opened", "_parent", "_path", "_watch")

    def __init__(self, watch: Stopwatch, path: Path) -> None:
        self._watch, self._path, self._parent, self._opened = watch, path, path[:-1], 0

    def __enter__(self) -> None:
        self._watch._path = self._path
        self._opened = self._watch._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        watch, path = self._watch, self._path
        spent = watch._clock() - self._opened
        watch._nanoseconds[path] = watch._nanoseconds.get(path, 0) + spent
        watch._calls[path] = watch._calls.get(path, 0) + 1
        watch._path = self._parent
        if watch.events is not None:
            watch.events(path, self._opened, spent)


class Stopped(Stopwatch):
    """A watch that records nothing, to see what recording costs."""

    def span(self, name: str) -> _Span:
        """A context manager that does nothing."""
        return _NOTHING  # type: ignore[return-value]

    def credit(self, name: str, nanoseconds: float, calls: int = 1) -> None:
        """Nothing is added."""


_NOTHING = contextlib.nullcontext()
