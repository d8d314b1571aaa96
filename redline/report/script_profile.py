"""The page of a profile of somebody's own training script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from redline.profiler.foreign import ScriptProfile
from redline.profiler.script_advice import ScriptAdvice
from redline.report.charts.bar_chart import share_bar
from redline.report.draw import NOTHING, duration, percent, short
from redline.report.page import Section, facts, figure_for, note, table, write_page

IMPORTS = "imports"


def write_script_profile(
    path: Path, script: str, found: ScriptProfile, advice: Sequence[ScriptAdvice], labels: Mapping[str, str]
) -> Path:
    """Write the page and return its path."""
    seconds = {name: found.breakdown.seconds.get((name,), 0.0) for name in labels}
    working = found.working_seconds or 1.0
    parts = [(labels[name], spent / working) for name, spent in seconds.items() if name != IMPORTS and spent > 0]
    rows = [
        [
            labels[name], f"{spent:.2f}", NOTHING if name == IMPORTS else percent(spent / working),
            found.breakdown.calls.get((name,), 0) or NOTHING,
        ]
        for name, spent in seconds.items()
    ]  # fmt: skip
    chart = figure_for(lambda width: share_bar(parts, title="Share of the time, imports aside", width=width))
    times = chart + table(["part", "seconds", "share", "calls"], rows)
    sections = [
        Section("In short", facts(_facts(found))),
        Section("What would make it faster", _advice(advice)),
        Section("Where the time goes", times),
    ]
    longest = max(parts, key=lambda part: part[1], default=("nothing", 0.0))
    subtitle = f"{short(found.working_rate)} env steps/s. {percent(longest[1])} of the run is {longest[0]}."
    return write_page(path, f"Redline profile: {Path(script).name}", subtitle, sections, "Try --html profile.html.")


def _facts(found: ScriptProfile) -> list[tuple[str, object]]:
    return [
        ("env steps/s", short(found.working_rate)),
        ("env steps", found.env_steps),
        ("episodes", NOTHING if found.episodes is None else found.episodes),
        ("seconds, imports aside", duration(found.working_seconds)),
        ("imports", duration(found.breakdown.seconds.get((IMPORTS,), 0.0))),
    ]


def _advice(advice: Sequence[ScriptAdvice]) -> str:
    if not advice:
        return note("Nothing stands out that another setting would make faster.")
    rows = [[each.do, f"{each.what} is {percent(each.share)} of the run", f"{each.estimate:.1f}×"] for each in advice]
    return table(["try", "because", "expected"], rows) + note("Estimates follow Amdahl's law from the measured shares.")
