"""A comparison of runs: for a terminal, as a page, and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redline.report.charts.line_chart import Series, line_chart
from redline.report.draw import NOTHING, Drawing, short
from redline.report.groups import (
    GroupVerdict,
    Interval,
    RunFacts,
    RunGroup,
    curve,
    differences,
    group_runs,
    interval,
    verdict,
)
from redline.report.page import Section, figure_for, note, table, write_page
from redline.timing.rows import row_seconds

HOW = (
    "Means are interquartile means over seeds, with 95 % bootstrap intervals. If the same runs were dealt to the groups at "
    "random, some two groups would be at least this far apart in a share p of the deals."
)
MILLION = 1e6


@dataclass(frozen=True)
class RunComparison:
    """Groups of runs, best first, and what can be said about them."""

    groups: tuple[RunGroup, ...]
    by_score: bool
    """Whether scores are compared, or, where some run has none, returns at the end of training."""
    scores: tuple[Interval, ...]
    verdicts: tuple[GroupVerdict, ...]
    differing: dict[str, list[str]]
    times: dict[str, list[float | None]]
    """Seconds for a million steps, by row of the time table, one for each group."""

    @property
    def measure(self) -> str:
        """What is compared, in words."""
        return "score" if self.by_score else "return at the end of training"

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        groups = [
            {
                "name": group.name, "env": group.env, "runs": [str(run.path) for run in group.runs],
                "seeds": [run.seed for run in group.runs], "values": group.values(self.by_score).tolist(), **asdict(score),
            }
            for group, score in zip(self.groups, self.scores, strict=True)
        ]  # fmt: skip
        verdicts = [{**asdict(each), "told_apart": each.told_apart, "words": str(each)} for each in self.verdicts]
        return {
            "measure": self.measure, "groups": groups, "differences": self.differing, "verdicts": verdicts,
            "seconds_per_million_steps": self.times,
        }  # fmt: skip


def compare(runs: Sequence[RunFacts]) -> RunComparison:
    """Runs in groups, best first."""
    groups = group_runs(runs)
    by_score = all(run.score is not None for run in runs)
    scored = sorted(((interval(group.values(by_score)), group) for group in groups), key=lambda pair: _rank(pair[0]))
    ordered = tuple(group for _, group in scored)
    rivals = [group for group in ordered[1:] if group.env == ordered[0].env and _known(group, by_score)]
    verdicts = tuple(
        verdict(ordered[0], group, by_score, rivals[:k])
        for k, group in enumerate(rivals)
        if _known(ordered[0], by_score)
    )
    return RunComparison(
        ordered, by_score, tuple(score for score, _ in scored), verdicts, differences([group.runs for group in ordered]),
        _times(ordered),
    )  # fmt: skip


def _rank(score: Interval) -> tuple[bool, float]:
    return score.mean != score.mean, -score.mean


def _known(group: RunGroup, by_score: bool) -> bool:
    return bool(np.isfinite(group.values(by_score)).any())


def _times(groups: Sequence[RunGroup]) -> dict[str, list[float | None]]:
    columns: list[dict[str, float]] = []
    for group in groups:
        known = [(run, run.breakdown()) for run in group.runs]
        found = [(row_seconds(times), run.steps) for run, times in known if times is not None and run.steps]
        names = dict.fromkeys(name for seconds, _ in found for name in seconds)
        columns.append({name: float(np.mean([s.get(name, 0.0) * MILLION / n for s, n in found])) for name in names})
    names = dict.fromkeys(name for column in columns for name in column)
    return {name: [column.get(name) for column in columns] for name in names}


def curves_chart(found: RunComparison, width: int) -> Drawing:
    """How the groups learned, with intervals over seeds."""
    drawn = [(group.name, curve(group)) for group in found.groups]
    lines = [Series(name, each.steps, each.mean, each.low, each.high) for name, each in drawn if each is not None]
    title = "Return while learning (interquartile mean over seeds, 95 % bootstrap)"
    return line_chart(lines, title=title, x_label="env steps", y_label="episode return", width=width, height=380)


def score_rows(found: RunComparison) -> list[list[str]]:
    """A line for each group."""
    return [
        [group.name, str(len(group.runs)), short(score.mean, 4), f"{short(score.low, 4)} to {short(score.high, 4)}"]
        for group, score in zip(found.groups, found.scores, strict=True)
    ]


def said(found: RunComparison) -> list[str]:
    """The verdicts in words, or why there is none."""
    if found.verdicts:
        return [str(each) for each in found.verdicts]
    if len(found.groups) == 1:
        return ["All runs are of one kind: there is nothing to tell apart."]
    if len({group.env for group in found.groups}) == 1:
        return ["Fewer than two groups have finished an episode: there is nothing to compare yet."]
    return ["The groups were trained on different envs, whose scores cannot be compared."]


def time_rows(found: RunComparison) -> list[list[str]]:
    """Seconds for a million steps, a column for each group."""
    return [
        [name, *(NOTHING if value is None else f"{value:.2f}" for value in values)]
        for name, values in found.times.items()
    ]


def write_comparison(path: Path, found: RunComparison) -> Path:
    """Write the comparison as a page."""
    names = [group.name for group in found.groups]
    scores = table(["", "seeds", f"mean {found.measure}", "95 % interval"], score_rows(found))
    sections = [
        Section("Verdict", "".join(note(words) for words in said(found)) + scores + note(HOW)),
        Section("Learning", figure_for(lambda width: curves_chart(found, width))),
    ]
    if found.differing:
        rows = [[name, *values] for name, values in found.differing.items()]
        sections.append(Section("What differs", table(["setting", *names], rows)))
    if found.times:
        sections.append(Section("Seconds for a million steps", table(["part", *names], time_rows(found))))
    runs = [[str(run.path), group.name, run.seed, run.steps, run.state] for group in found.groups for run in group.runs]
    sections.append(Section("Runs", table(["run", "group", "seed", "steps", "state"], runs)))
    title = f"Redline: {len(runs)} runs in {len(names)} group{'' if len(names) == 1 else 's'}"
    return write_page(path, title, said(found)[0], sections, "Try --html compare.html.")
