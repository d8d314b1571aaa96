"""The score of a run in its report."""

from __future__ import annotations

from typing import Any

from redline.report.draw import NOTHING, fixed
from redline.report.page import Section, note, table
from redline.runs import Run, scores_in
from redline.worlds.cage2.protocol import PUBLISHED

HEADERS = ("rules", "Red", "steps", "mean return", "standard error", "episodes")
COMPARE_WITH = "Published scores were measured under the rule set leaderboard; compare only with rows of those rules."


def sections(run: Run) -> list[Section]:
    """How the trained defender does, where it has been scored, beside the published board."""
    scores = [score for score in scores_in(run) if _is_ours(score)]
    if not scores:
        return []
    board = [name for name in PUBLISHED if any(_published(name, score) is not None for score in scores)]
    lines = [[*_line(score), *(_shown(_published(name, score)) for name in board)] for score in scores]
    for rules in dict.fromkeys(score["rules"] for score in scores):
        lines += _sum([score for score in scores if score["rules"] == rules], board)
    return [Section("Score", table([*HEADERS, *board], lines) + note(COMPARE_WITH))]


def _sum(scores: list[dict[str, Any]], board: list[str]) -> list[list[object]]:
    """What all settings of a rule set come to together, as the board counts it; nothing where there is only one."""
    if len(scores) == 1:
        return []
    published = (fixed(sum(_published(name, score) or 0.0 for score in scores)) for name in board)
    ours = fixed(sum(score["mean"] for score in scores))
    return [[scores[0]["rules"], "sum", "", ours, "", "", *published]]


def _is_ours(score: dict[str, Any]) -> bool:
    """Whether a score tells under which rules, against whom and over how many steps."""
    return isinstance(score.get("length"), int) and all(
        isinstance(score.get(name), str) for name in ("rules", "red_agent")
    )


def _line(score: dict[str, Any]) -> list[object]:
    mean, stderr = fixed(score["mean"]), f"± {score['stderr']:.2f}"
    return [score["rules"], score["red_agent"], score["length"], mean, stderr, score["episodes"]]


def _published(name: str, score: dict[str, Any]) -> float | None:
    return PUBLISHED[name].get((score["red_agent"], score["length"]))


def _shown(published: float | None) -> str:
    return NOTHING if published is None else fixed(published)
