"""Records how long named parts of a run take, one inside the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType

from redline.timing.breakdown import Breakdown, SpanPath


class Stopwatch:
    """Spans opened inside a span are its children. Opening and closing one costs half a microsecond.

    Asking for the same span again adds to it, so a watch stays small however long the run. `events`, once it is set,
    is told of every span by itself: its path, when it began and how long it took.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self.events: Callable[[SpanPath, int, int], None] | None = None
        self._path: SpanPath = ()
        self._spans: dict[tuple[SpanPath, str], _Span] = {}
        self._used: list[_Span] = []  # those with time in them, in the order they were first closed
        self._started = clock()

    def span(self, name: str) -> _Span:
        """A context manager that adds the time spent in it to `name`, below the span it is opened in.

        It may be kept and opened again, as long as that happens in the same span.
        """
        key = (self._path, name)
        found = self._spans.get(key)
        if found is None:
            found = self._spans[key] = _Span(self, (*self._path, name))
        return found

    def credit(self, name: str, nanoseconds: float, calls: int = 1) -> None:
        """Add time that was measured elsewhere, as by a worker, to `name` below the span that is open."""
        self.span(name).add(round(nanoseconds), calls)

    def seconds_in(self, name: str) -> float:
        """Seconds recorded so far for `name` below the span that is open."""
        return self.span(name).spent * 1e-9

    def breakdown(self) -> Breakdown:
        """The record so far; the total runs from the watch's start (or last lap) until now."""
        seconds = {span.path: span.spent * 1e-9 for span in self._used}
        calls = {span.path: span.calls for span in self._used}
        return Breakdown((self._clock() - self._started) * 1e-9, seconds, calls)

    def lap(self) -> Breakdown:
        """The breakdown since the last lap, and a fresh start."""
        result = self.breakdown()
        for span in self._used:
            span.spent = span.calls = 0
        self._used.clear()
        self._started = self._clock()
        return result


class _Span:
    """One span of a watch: reused every time it is opened, so that opening allocates nothing."""

    __slots__ = ("_opened", "_parent", "_watch", "calls", "path", "spent")

    def __init__(self, watch: Stopwatch, path: SpanPath) -> None:
        self._watch, self.path, self._parent, self._opened = watch, path, path[:-1], 0
        self.spent = self.calls = 0  # nanoseconds, and how often

    def __enter__(self) -> None:
        watch = self._watch
        watch._path = self.path
        self._opened = watch._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        watch = self._watch
        spent = watch._clock() - self._opened
        watch._path = self._parent
        self.add(spent, 1)
        if watch.events is not None:
            watch.events(self.path, self._opened, spent)

    def add(self, nanoseconds: int, calls: int) -> None:
        """Add to it."""
        if not self.calls:
            self._watch._used.append(self)
        self.spent += nanoseconds
        self.calls += calls


class Stopped(Stopwatch):
    """A watch that records nothing, to see what recording costs."""

    def span(self, name: str) -> _Span:
        """A context manager that does nothing."""
        return _NOTHING  # type: ignore[return-value]

    def credit(self, name: str, nanoseconds: float, calls: int = 1) -> None:
        """Nothing is added."""


_NOTHING = contextlib.nullcontext()
