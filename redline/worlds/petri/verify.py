"""`redline verify petri`: recorded schedules, played again at both speeds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from redline.compiled.announce import announce_compilation
from redline.errors import RedlineError
from redline.worlds.petri.replay import load_recording, verify
from redline.worlds.petri.rules import kernel
from redline.worlds.world import Answer, Command, Say


@dataclass(frozen=True)
class Schedules:
    """Recorded schedules to play again."""

    schedule: tuple[str, ...] = ()
    """Recorded schedules (.json, pick and place starts) to replay at both speeds, separated by commas."""


def run(name: str, options: Schedules, say: Say) -> Answer:
    """Play recorded schedules again at both speeds. Exit code 1 unless each ends as recorded."""
    if not options.schedule:
        raise RedlineError("No schedule was given. Try: redline verify petri --schedule FILE.json")
    rows = [_verify(Path(path)) for path in options.schedule]
    wrong = sum(not row["faithful"] for row in rows)
    lines = [_line(row) for row in rows]
    if len(rows) > 1:
        lines.append(f"{len(rows) - wrong} of {len(rows)} schedules end exactly as recorded, at both speeds.")
    return Answer({"schedules": len(rows), "mismatches": wrong, "files": rows}, lines, exit_code=1 if wrong else 0)


VERIFY = Command(Schedules, run)


def _verify(path: Path) -> dict[str, Any]:
    recording = load_recording(path)
    announce_compilation(kernel.step, "Petri net kernel", 20)
    started = time.monotonic()
    compiled, interpreted = verify(recording), verify(recording, turbo=False)
    same = compiled.played.firings.tolist() == interpreted.played.firings.tolist()
    problem = compiled.problem or interpreted.problem or (None if same else "the two speeds do not agree")
    row = {
        "file": str(path),
        "recorded": recording.makespan,
        "compiled": compiled.makespan,
        "interpreted": interpreted.makespan,
        "firings": len(compiled.played.firings),
        "faithful": problem is None,
        "problem": problem,
        "seconds": time.monotonic() - started,
    }
    return row


def _line(row: dict[str, Any]) -> str:
    name = escape(Path(row["file"]).name)
    if row["problem"] is None:
        return f"{name}: {row['firings']} firings, makespan {row['recorded']} as recorded, compiled and interpreted"
    return f"{name}: [bold red]{escape(row['problem'])}[/] (recorded makespan {row['recorded']})"
