"""`redline verify cage4`: recorded episodes of the original, compared step by step."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.errors import RedlineError
from redline.worlds.cage4.recordings import TeamRecording, replay
from redline.worlds.naming import with_query
from redline.worlds.recordings import answer_of
from redline.worlds.world import Answer, Command, Say


@dataclass(frozen=True)
class TeamTraces:
    """Recordings to replay, and how."""

    traces: tuple[str, ...] = ()
    """Recordings (.npz) to replay, separated by commas."""
    episodes: int | None = None
    """How many episodes of each to replay; all of them if nothing is said."""
    turbo: bool = True
    """Replay with the compiled kernel; off, with the interpreted one."""

    def __post_init__(self) -> None:
        """Refuse what cannot be replayed."""
        if self.episodes is not None and self.episodes < 1:
            raise RedlineError(f"--episodes {self.episodes} cannot be replayed. Try --episodes 1.")


def run(name: str, options: TeamTraces, say: Say) -> Answer:
    """Replay recordings. Exit code 1 when anything differs."""
    if not options.traces:
        raise RedlineError("No recording was given. Try: redline verify cage4 --traces FILE.npz")
    return answer_of([_verify(Path(path), name, options) for path in options.traces])


VERIFY = Command(TeamTraces, run)


def _verify(path: Path, name: str, options: TeamTraces) -> dict[str, Any]:
    recording, started = TeamRecording.load(path), time.monotonic()
    found = replay(recording, with_query(name, {})[1], options.turbo, options.episodes)
    first = None if found.first is None else {**dataclasses.asdict(found.first), "text": str(found.first)}
    counts = {"episodes": found.episodes, "steps": found.steps, "mismatches": found.mismatches}
    seconds = time.monotonic() - started
    return {"file": str(path), **counts, "by_array": found.by_array, "first_mismatch": first, "seconds": seconds}
