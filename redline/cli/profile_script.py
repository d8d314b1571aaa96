"""`redline profile --script`: watch a training script of the user's own."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError

if TYPE_CHECKING:
    from redline.profiler.foreign import ScriptProfile
    from redline.profiler.script_advice import ScriptAdvice

OURS = ("--html", "--trace", "--json")
"""Options that people put behind the script, where they reach the script instead of us."""
LABELS = {
    "env_step": "env step",
    "env_reset": "env reset",
    "policy_forward": "policy forward",
    "loss": "loss (forward with gradients)",
    "backward": "backward",
    "optimizer": "optimizer step",
    "imports": "imports",
    "script": "the script's own Python",
}


@dataclass(frozen=True)
class Script:
    """Run a training script unchanged and say where its time goes. Whatever follows its name goes to the script."""

    trace: Path | None = None
    """Write all spans to this file; open it in ui.perfetto.dev."""
    html: Path | None = None
    """Write the profile as a web page."""
    output: Output = dataclasses.field(default_factory=Output)


def run_script(options: list[str], arguments: list[str]) -> int:
    """Run `arguments[0]` with the rest as its arguments. Returns the script's own exit code."""
    command = parse("profile", Script, options)
    if not arguments:
        raise RedlineError("--script names no script. Try: redline profile --script train.py")
    from redline.profiler.foreign import profile_script
    from redline.timing.trace import Trace, require_writable

    for option, path in (("--trace", command.trace), ("--html", command.html)):
        if path is not None:
            require_writable(path, option)
    found = profile_script(Path(arguments[0]), arguments[1:])
    if found.traceback is not None:
        sys.stderr.write(found.traceback)
    if command.trace is not None:
        trace = Trace()
        for start, duration, name in found.events:
            trace.add("main", LABELS.get(name, name), start, duration)
        trace.write(command.trace)
    from redline.profiler.script_advice import advise_script  # now that the script has paid for its own imports
    from redline.report.script_profile import write_script_profile

    advice = advise_script(found)
    if command.html is not None:
        write_script_profile(command.html, arguments[0], found, advice, LABELS)
    if command.output.json:
        print_json(_as_json(found, arguments, advice))
    else:
        _print(found, arguments, advice)
        if command.html is not None:
            out.print(f"Written: {command.html}", soft_wrap=True)
    return int(found.exit_code)


def _rows(found: ScriptProfile) -> list[tuple[str, float, float, int]]:
    breakdown = found.breakdown
    known = [(name, breakdown.seconds.get((name,), 0.0), breakdown.calls.get((name,), 0)) for name in LABELS]
    return [(name, seconds, seconds / breakdown.total_seconds, calls) for name, seconds, calls in known]


def _as_json(found: ScriptProfile, arguments: list[str], advice: list[ScriptAdvice]) -> dict[str, Any]:
    rows = [
        {"name": name, "label": LABELS[name], "seconds": seconds, "share": share, "calls": calls}
        for name, seconds, share, calls in _rows(found)
    ]
    return {
        "script": arguments[0],
        "arguments": arguments[1:],
        "exit_code": found.exit_code,
        "total_seconds": found.breakdown.total_seconds,
        "env_steps": found.env_steps,
        "episodes": found.episodes,
        "steps_per_second": found.steps_per_second,
        "working_seconds": found.working_seconds,
        "steps_per_second_without_imports": found.working_rate,
        "rows": rows,
        "advice": [dataclasses.asdict(each) for each in advice],
    }


def _print(found: ScriptProfile, arguments: list[str], advice: list[ScriptAdvice]) -> None:
    from redline.timing.render import bar

    result = Table(title=f"Where the time of {arguments[0]} went", title_justify="left", box=None, pad_edge=False)
    for column in ("", "seconds", "share", "calls", ""):
        result.add_column(column, justify="right" if column else "left")
    for name, seconds, share, calls in _rows(found):
        result.add_row(LABELS[name], f"{seconds:.2f}", f"{share:6.1%}", f"{calls:,}" if calls else "", bar(share))
    result.add_row("total", f"{found.breakdown.total_seconds:.2f}", "100.0%", "", "", style="bold")
    out.print(result)
    if found.env_steps:
        ended = f", {found.episodes:,} episodes" if found.episodes is not None else ""
        out.print(
            f"{found.env_steps:,} env steps{ended}, {found.working_rate:,.0f} steps/s, imports aside "
            f"({found.steps_per_second:,.0f} over the whole run).",
            soft_wrap=True,
        )
    else:
        out.print("It stepped no env of Gymnasium's, so there is no rate to tell.")
    for each in advice:
        out.print(str(each), soft_wrap=True, markup=False)
    if misplaced := [word for word in arguments[1:] if word.partition("=")[0] in OURS]:
        where = f"redline profile {misplaced[0]} … --script {arguments[0]}"
        out.print(f"{misplaced[0]} went to the script. If it was meant for us: {where}", soft_wrap=True, markup=False)
    for name, every in found.sampled.items():
        out.print(f"The trace holds every {every}th {LABELS.get(name, name)} only: there were too many for all.")
    if any(found.background.seconds.values()):
        spent = ", ".join(
            f"{LABELS.get(path[0], path[0])} {s:.2f} s" for path, s in found.background.seconds.items() if s
        )
        out.print(f"Other threads, beside the table: {spent}.", soft_wrap=True)
