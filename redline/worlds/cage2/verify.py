"""`redline verify cage2`: recorded episodes of the original simulator, compared step by step."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.compiled.announce import announce_compilation
from redline.errors import RedlineError, unknown
from redline.worlds.cage2.recordings import load_traces, replay
from redline.worlds.cage2.rules import kernel
from redline.worlds.cage2.rules.scenario import RULES
from redline.worlds.recordings import answer_of
from redline.worlds.world import Answer, Command, Say


@dataclass(frozen=True)
class Traces:
    """Recordings to replay, and how."""

    traces: tuple[str, ...] = ()
    """Recordings (.npz) to replay, separated by commas."""
    rules: str | None = None
    """Rule set to replay under; by default the one each recording names."""
    turbo: bool = True
    """Replay with the compiled kernel; off, with the interpreted one."""

    def __post_init__(self) -> None:
        """Refuse what cannot be replayed."""
        if self.rules is not None and self.rules not in RULES:
            raise unknown("rule set", self.rules, RULES)


def run(name: str, options: Traces, say: Say) -> Answer:
    """Replay recordings. Exit code 1 when anything differs."""
    if not options.traces:
        raise RedlineError("No recording was given. Try: redline verify cage2 --traces FILE.npz")
    results = [_verify(Path(path), options) for path in options.traces]
    return answer_of(results)


VERIFY = Command(Traces, run)


def _verify(path: Path, options: Traces) -> dict[str, Any]:
    traces = load_traces(path)
    if options.turbo:
        announce_compilation(kernel.step, "CAGE-2 kernel", 15)
    started = time.monotonic()
    verdict = replay(traces, options.rules, options.turbo)
    first = None if verdict.first is None else {**dataclasses.asdict(verdict.first), "text": str(verdict.first)}
    return {
        "file": str(path),
        "rules": verdict.rules,
        "episodes": verdict.episodes,
        "steps": verdict.steps,
        "mismatches": verdict.mismatches,
        "by_array": verdict.by_array,
        "first_mismatch": first,
        "seconds": time.monotonic() - started,
    }
