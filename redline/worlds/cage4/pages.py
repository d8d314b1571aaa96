"""The score of a team in its report."""

from __future__ import annotations

from typing import Any

from redline.report.draw import NOTHING, fixed
from redline.report.page import Section, note, table
from redline.runs import Run, scores_in
from redline.worlds.cage4.protocol import ORIGINAL, PUBLISHED

HEADERS = ("team", "official score", "standard error", "episodes")
ABOUT = (
    "The official score adds up all rewards of an episode but the last. The published one is that of a graph network after "
    "50,000 episodes; those of simple teams were measured in the original, with all rewards."
)


def sections(run: Run) -> list[Section]:
    """How the trained team does, where it has been scored, beside simple ones and the best that was published."""
    scores = [score for score in scores_in(run) if score.get("protocol") == "official" or "all_rewards" in score]
    if not scores:
        return []
    lines: list[list[object]] = [_line(score) for score in scores]
    lines += [["published (PPO on a graph network)", fixed(PUBLISHED), NOTHING, NOTHING]]
    lines += [
        [f"{name}, in the original", fixed(mean), f"± {error}", "16 to 18"] for name, (mean, error) in ORIGINAL.items()
    ]
    return [Section("Score", table(list(HEADERS), lines) + note(ABOUT))]


def _line(score: dict[str, Any]) -> list[object]:
    return ["this run", fixed(score["mean"]), f"± {score['stderr']:.2f}", score["episodes"]]
