"""Spans one by one, as a file that opens in Perfetto (ui.perfetto.dev) or chrome://tracing: one track per worker."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redline.errors import RedlineError
from redline.files import reason
from redline.timing.breakdown import SpanPath

MOST_EVENTS = 500_000
MAIN = "collector and learner"


@dataclass
class Trace:
    """Events (track, name, start, duration), both in nanoseconds. Past `most` events the rest is only counted."""

    most: int = MOST_EVENTS
    events: list[tuple[str, str, int, int]] = field(default_factory=list)
    left_out: int = 0

    def span(self, path: SpanPath, start: int, duration: int) -> None:
        """A span of this process: what a `Stopwatch` tells its `events`."""
        self.add(MAIN, path[-1], start, duration)

    def add(self, track: str, name: str, start: int, duration: int) -> None:
        """An event on a track."""
        if len(self.events) < self.most:
            self.events.append((track, name, start, duration))
        else:
            self.left_out += 1

    def to_json(self) -> dict[str, Any]:
        """Chrome's trace-event format; times in microseconds since the first event."""
        tracks = {track: k + 1 for k, track in enumerate(self._tracks())}
        first = min((start for _, _, start, _ in self.events), default=0)
        names = [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": track}}
            for track, tid in tracks.items()
        ]
        order = [
            {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": tid, "args": {"sort_index": tid}}
            for tid in tracks.values()
        ]
        spans = [
            {
                "ph": "X",
                "name": name,
                "pid": 1,
                "tid": tracks[track],
                "ts": (start - first) / 1e3,
                "dur": duration / 1e3,
            }
            for track, name, start, duration in self.events
        ]
        process = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "redline"}}]
        return {"traceEvents": [*process, *names, *order, *spans], "otherData": {"left_out": self.left_out}}

    def _tracks(self) -> Iterable[str]:
        found = dict.fromkeys(track for track, _, _, _ in self.events)
        return [MAIN, *sorted((track for track in found if track != MAIN), key=lambda track: (len(track), track))]

    def write(self, file: Path) -> None:
        """As a file."""
        try:
            file.write_text(json.dumps(self.to_json()), encoding="utf-8")
        except OSError as error:
            raise RedlineError(
                f"The trace cannot be written to {file}: {reason(error)}. Try --trace trace.json."
            ) from error


def require_writable(file: Path, option: str) -> None:
    """Refuse a file that cannot be written before the work that is to fill it."""
    try:
        existed = file.exists()
        with open(file, "a", encoding="utf-8"):
            pass
        if not existed:
            file.unlink()
    except OSError as error:
        raise RedlineError(f"{option} {file} cannot be written: {reason(error)}. Try {option} {file.name}.") from error
