"""Where the time went: inert data that can be saved, loaded and added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from redline.errors import RedlineError

SpanPath = tuple[str, ...]
UNACCOUNTED = "unaccounted"


@dataclass(frozen=True)
class Breakdown:
    """Seconds and calls per span. A span's path names the spans it was opened in."""

    total_seconds: float
    seconds: dict[SpanPath, float] = field(default_factory=dict)
    calls: dict[SpanPath, int] = field(default_factory=dict)

    def children(self, path: SpanPath = ()) -> list[SpanPath]:
        """Spans directly below `path`, in the order they were first closed."""
        return [other for other in self.seconds if other[:-1] == path and other != path]

    def own_seconds(self, *path: str) -> float:
        """Time in a span itself, without the spans opened in it; with no path, time no span accounts for."""
        whole = self.seconds[path] if path else self.total_seconds
        return whole - sum(self.seconds[child] for child in self.children(path))

    @property
    def unaccounted_seconds(self) -> float:
        """Time outside every span."""
        return self.own_seconds()

    def share(self, *path: str) -> float:
        """Part of the total spent in a span."""
        return self.seconds.get(path, 0.0) / self.total_seconds if self.total_seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain data; paths are joined by slashes."""
        spans = {"/".join(path): [spent, self.calls.get(path, 0)] for path, spent in self.seconds.items()}
        return {"total_seconds": self.total_seconds, "spans": spans}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Breakdown:
        """The breakdown that `to_json` was asked for."""
        try:
            spans = {
                tuple(name.split("/")): (float(spent), int(calls)) for name, (spent, calls) in data["spans"].items()
            }
            total = float(data["total_seconds"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RedlineError(
                f"The times of this run cannot be read: {error!r:.80}. Delete the file that holds them."
            ) from error
        return cls(
            total,
            {path: spent for path, (spent, _) in spans.items()},
            {path: calls for path, (_, calls) in spans.items()},
        )


def merge(breakdowns: Iterable[Breakdown]) -> Breakdown:
    """The sum of several breakdowns."""
    total, seconds, calls = 0.0, dict[SpanPath, float](), dict[SpanPath, int]()
    for breakdown in breakdowns:
        total += breakdown.total_seconds
        for path, spent in breakdown.seconds.items():
            seconds[path] = seconds.get(path, 0.0) + spent
            calls[path] = calls.get(path, 0) + breakdown.calls.get(path, 0)
    return Breakdown(total, seconds, calls)
