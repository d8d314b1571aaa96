"""What a workflow search has found, in the words that its command prints and its page shows."""

from __future__ import annotations

import math
from typing import Any

from redline.runs import RANKING

WIDE = 1.96  # standard errors to each side that hold the true mean 95 times in 100
NAMED = 10
"""Orders that are named; the files of the run have them all."""


def with_interval(mean: float, stderr: float) -> str:
    """A score and how far its 95 % interval reaches to each side."""
    return f"{mean:.2f} ± {WIDE * stderr:.2f}" if math.isfinite(stderr) else f"{mean:.2f}"


def in_words(ranking: dict[str, Any], count: int) -> str:
    """The best of `count` orders, what cannot be told from it, and how its defender does."""
    best = ranking.get("best")
    if best is None:
        return "No workflow has passed the compliance gate yet."
    said = [f"Best: {best['order']}, {with_interval(best['mean'], best['stderr'])} {_over(best)}."]
    if "tied" in ranking:
        said += _ties(ranking, count)
    if "defender" in best:
        said.append(_defender(best["defender"]))
    return "\n".join(said)


def _over(best: dict[str, Any]) -> str:
    trainings = best.get("trainings")
    if trainings is None:
        return f"over {best['episodes']:,} episodes"
    return f"over {trainings} training{'s' if trainings > 1 else ''} (±: 95 % interval for comparing orders)"


def _ties(ranking: dict[str, Any], count: int) -> list[str]:
    """Which orders cannot be told from the best."""
    best, trained = ranking["best"], {entry["workflow_id"]: entry for entry in ranking["workflows"]}
    tied = [trained[id] for id in ranking["tied"] if id in trained and id != best["workflow_id"]]
    unseen = len(ranking["tied"]) - len(tied) - 1
    if not tied and not unseen and len(best["alike"]) == 1:
        return [f"Every other one of the {count} orders is worse, or was not obeyed."]
    sure = sum(len(entry["alike"]) for entry in [best, *tied])
    lines = [
        f"{sure} of the {count} orders that were trained or are alike cannot be told from the best, itself included:"
    ]
    lines += [_line(entry) for entry in [best, *tied][:NAMED]]
    if len(tied) >= NAMED:
        lines.append(f"  and {len(tied) + 1 - NAMED} more in {RANKING}")
    if unseen:
        lines.append(f"  Nor can {unseen} more that were not trained, and those alike.")
    return lines


def _line(entry: dict[str, Any]) -> str:
    more = len(entry["alike"]) - 1
    alike = f" and {more} alike" if more else ""
    return f"  {entry['order']}{alike}: {with_interval(entry['mean'], entry['stderr'])}"


def _defender(defender: dict[str, Any]) -> str:
    trained = (
        f", trained on for the {defender['trained_on']:,} episodes that were left" if defender["trained_on"] else ""
    )
    score = with_interval(defender["mean"], defender["stderr"])
    return f"Its defender{trained}: {score} over {defender['episodes']:,} fresh episodes."
