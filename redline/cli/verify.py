"""`redline verify`: is our simulator the original, step for step?"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.console import err, out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError, unknown


@dataclass(frozen=True)
class Verify:
    """Replay recordings and compare: episodes of the original CAGE-2 step by step, schedules of nets to the second."""

    env: tyro.conf.Positional[str]
    """cage2 or petri."""
    traces: tuple[str, ...] = ()
    """Recordings (.npz) to replay, separated by commas."""
    schedule: tuple[str, ...] = ()
    """petri: recorded schedules (.json, pick and place starts) to replay at both speeds, separated by commas."""
    rules: str | None = None
    """Rule set to replay under; by default the one each recording names."""
    turbo: bool = True
    """Replay with the compiled kernel; off, with the interpreted one."""
    seed: int = 0
    """Accepted by every command; a replay draws nothing at random."""
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse and verify. Exit code 1 when anything differs."""
    command = parse("verify", Verify, arguments)
    if command.env == "petri":
        from redline.cli.petri import verify_schedules

        if command.traces:
            raise RedlineError("--traces are of cage2. Try: redline verify petri --schedule FILE.json")
        return verify_schedules(command.schedule, command.output)
    if command.env != "cage2":
        raise unknown("simulator with recordings", command.env, ["cage2", "petri"])
    if not command.traces:
        raise RedlineError("No recording was given. Try: redline verify cage2 --traces FILE.npz")
    from redline.sims.cage2.scenario import RULES

    if command.rules is not None and command.rules not in RULES:
        raise unknown("rule set", command.rules, RULES)
    results = [_verify(Path(path), command) for path in command.traces]
    mismatches = sum(result["mismatches"] for result in results)
    if command.output.json:
        totals = {key: sum(result[key] for result in results) for key in ("episodes", "steps", "mismatches")}
        print_json({**totals, "files": results, "first_mismatch": next((r["first_mismatch"] for r in results), None)})
    return 1 if mismatches else 0


def _verify(path: Path, command: Verify) -> dict[str, Any]:
    from redline.envs.cage2 import announce_compilation
    from redline.sims.cage2 import kernel
    from redline.sims.cage2.replay import load_traces, replay

    traces = load_traces(path)
    if command.turbo:
        announce_compilation(kernel.step)
    started = time.monotonic()
    verdict = replay(traces, command.rules, command.turbo)
    seconds = time.monotonic() - started
    if not command.output.json:
        found = "no mismatches" if not verdict.mismatches else f"[bold red]{verdict.mismatches:,} mismatches[/]"
        out.print(
            f"{path.name}: {verdict.steps:,} steps of {verdict.episodes:,} episodes compared "
            f"(rules {verdict.rules}, {seconds:.1f} s): {found}",
            soft_wrap=True,
        )
        if verdict.first is not None:
            out.print(f"  first: {verdict.first}", soft_wrap=True)
            differing = ", ".join(f"{name} {count:,}" for name, count in verdict.by_array.items())
            out.print(f"  steps that differ, by what was compared: {differing}", soft_wrap=True)
    elif not command.output.quiet:
        err.print(f"{path.name}: {verdict.mismatches} mismatches in {verdict.steps} steps", soft_wrap=True)
    first = None if verdict.first is None else {**dataclasses.asdict(verdict.first), "text": str(verdict.first)}
    return {
        "file": str(path),
        "rules": verdict.rules,
        "episodes": verdict.episodes,
        "steps": verdict.steps,
        "mismatches": verdict.mismatches,
        "by_array": verdict.by_array,
        "first_mismatch": first,
        "seconds": seconds,
    }
