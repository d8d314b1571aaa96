"""The score of a run in its report."""

from __future__ import annotations

from typing import Any

from redline.report.draw import fixed
from redline.report.page import Section, note, table
from redline.runs import SCORES, Run

HEADERS = ("rules", "Red", "steps", "mean return", "standard error", "episodes")
COMPARE_WITH = (
    "Published leaderboard scores were measured under the rule set `leaderboard`; compare only with those rows."
)


def sections(run: Run) -> list[Section]:
    """How the trained defender does, where it has been scored."""
    if not (run.path / SCORES).exists():
        return []
    lines = [_line(score) for score in run.read_json(SCORES)["scores"]]
    return [Section("Score", table(HEADERS, lines) + note(COMPARE_WITH))]


def _line(score: dict[str, Any]) -> list[object]:
    mean, stderr = fixed(score["mean"]), f"± {score['stderr']:.2f}"
    return [score["rules"], score["red_agent"], score["length"], mean, stderr, score["episodes"]]
