"""The score of a run in its report."""

from __future__ import annotations

from typing import Any

from redline.report.draw import NOTHING, fixed
from redline.report.page import Section, note, table
from redline.runs import SCORES, Run
from redline.worlds.cage2.protocol import PUBLISHED

HEADERS = ("rules", "Red", "steps", "mean return", "standard error", "episodes")
COMPARE_WITH = "Published scores were measured under the rule set leaderboard; compare only with rows of those rules."


def sections(run: Run) -> list[Section]:
    """How the trained defender does, where it has been scored, beside the published board."""
    found = run.read_json(SCORES).get("scores", []) if (run.path / SCORES).exists() else []
    scores = [score for score in found if "rules" in score]
    if not scores:
        return []
    board = [name for name in PUBLISHED if any(_published(name, score) is not None for score in scores)]
    lines = [[*_line(score), *(_shown(_published(name, score)) for name in board)] for score in scores]
    return [Section("Score", table([*HEADERS, *board], lines) + note(COMPARE_WITH))]


def _line(score: dict[str, Any]) -> list[object]:
    mean, stderr = fixed(score["mean"]), f"± {score['stderr']:.2f}"
    return [score["rules"], score["red_agent"], score["length"], mean, stderr, score["episodes"]]


def _published(name: str, score: dict[str, Any]) -> float | None:
    return PUBLISHED[name].get((score["red_agent"], score["length"]))


def _shown(published: float | None) -> str:
    return NOTHING if published is None else fixed(published)
