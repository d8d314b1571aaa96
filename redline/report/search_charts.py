"""The charts of a workflow search, for its page and as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from redline.report.charts.bar_chart import Bar, bar_chart
from redline.report.charts.dot_chart import Dot, dot_columns, dot_rows
from redline.report.charts.heat_map import ABOVE, BELOW, heat_map
from redline.report.charts.line_chart import Mark, Series, line_chart
from redline.report.draw import Drawing, short
from redline.report.page import DESK_WIDTH
from redline.report.search_results import (
    NUM_HIGHLIGHTED,
    Beliefs,
    Scored,
    SearchResults,
    pair_effects,
    position_values,
    workflow_name,
    worst_last,
)

MAX_RANKED = 40
"""Rows of the ranking chart; the table has them all."""
PLACES = ("1st", "2nd", "3rd", "4th", "5th")


def ranking_chart(results: SearchResults, width: int = DESK_WIDTH) -> Drawing:
    """Workflows and baselines with their scores."""
    return dot_rows(
        [Dot(each.name, each.mean, each.kind, each.reach) for each in ranked(results)],
        title="Environment reward an episode, best first" + (" (bars: 95 % interval)" if results.evaluated else ""),
        unit="environment reward an episode",
        floor=lowest_shown(results),
        width=width,
    )


def ranked(results: SearchResults) -> list[Scored]:
    """Who is in the ranking chart, best first: every baseline, and as many workflows as there is room for."""
    room = max(MAX_RANKED - len(results.baselines), NUM_HIGHLIGHTED)
    return sorted(results.workflows[:room] + results.baselines, key=worst_last)


def lowest_shown(results: SearchResults) -> float:
    """Below this, a score would only squeeze the others together."""
    return far_below(np.array([each.mean for each in results.workflows]))


def far_below(values: np.ndarray) -> float:
    """Eight times as far below the highest value as the median is, and no nearer to it than zero."""
    values = values[np.isfinite(values)]
    if not values.size:
        return -math.inf
    highest = float(values.max())
    reach = max(8 * (highest - float(np.median(values))), abs(highest))
    return highest - reach if reach else -math.inf


def beliefs_chart(beliefs: Beliefs, width: int = DESK_WIDTH) -> Drawing:
    """Means and standard deviations of all workflows."""
    mean, reach, kinds = beliefs.mean, beliefs.reach, beliefs.kinds
    return dot_columns(
        [
            Dot(workflow_name(beliefs.workflows, k), float(mean[k]), kinds[k], float(reach[k]))
            for k in beliefs.best_first
        ],
        title="What the search believes of all workflows (bars: 95 % interval)",
        x_label="place by mean",
        y_label="environment reward an episode",
        width=width,
    )


def places_chart(beliefs: Beliefs, width: int = DESK_WIDTH) -> Drawing:
    """The worth of each type at each place."""
    return heat_map(
        position_values(beliefs),
        beliefs.workflows.types,
        PLACES[: len(beliefs.workflows.types)],
        title="Mean score of the workflows with this type at this place",
        x_label="place in the workflow",
        centre=float(beliefs.mean.mean()),
        least=float(np.median(beliefs.reach)),
        width=width,
    )


def pairs_chart(beliefs: Beliefs, width: int = DESK_WIDTH) -> Drawing:
    """The worth of repairing one type before another."""
    return bar_chart(
        [
            Bar(f"{a} before {b}", effect, colour=ABOVE if effect > 0 else BELOW)
            for a, b, effect in pair_effects(beliefs)
        ],
        title="What repairing one type before another is worth, largest first",
        unit="mean score with this order, minus the reverse",
        width=width,
    )


def reward_charts(results: SearchResults, width: int = DESK_WIDTH) -> list[Drawing]:
    """How each workflow learned; and once more without what is far below the rest, where there is such."""
    rewards = _curves(results, "env_reward")
    charts = [_reward_chart(rewards, "Environment reward while training, best workflows in colour", width)]
    floor = far_below(results.updates["env_reward"])
    if (results.updates["env_reward"] < floor).any():
        near = [Series(curve.name, curve.x, _above(floor, curve.y), quiet=curve.quiet) for curve in rewards]
        charts.append(_reward_chart(near, f"Environment reward while training, above {short(floor, 2)}", width))
    return charts


def compliance_chart(results: SearchResults, width: int = DESK_WIDTH) -> Drawing:
    """How each workflow learned to obey."""
    return line_chart(
        _curves(results, "compliance"),
        title="Compliance while training",
        x_label="episodes of this workflow",
        y_label="complying share of the fixes",
        marks=[Mark(results.threshold, "threshold")],
        width=width,
    )


def _reward_chart(curves: Sequence[Series], title: str, width: int) -> Drawing:
    x_label, y_label = "episodes of this workflow", "environment reward an episode"
    return line_chart(curves, title=title, x_label=x_label, y_label=y_label, width=width)


def _above(floor: float, values: ArrayLike) -> np.ndarray:
    """Values, with gaps where they lie below `floor`."""
    return np.where(np.asarray(values) >= floor, values, np.nan)


def _curves(results: SearchResults, column: str) -> list[Series]:
    """One curve a workflow over its own episodes: the highlighted ones best first, then the others, quiet."""
    updates, ids = results.updates, [int(k) for k in np.unique(results.updates["workflow_id"])]
    highlighted = [k for k in results.highlighted if k in ids]
    others = [k for k in ids if k not in highlighted]
    curves = []
    for k in highlighted + others:
        rows = updates["workflow_id"] == k
        curves.append(
            Series(
                workflow_name(results.orders, k), updates["episodes"][rows], updates[column][rows], quiet=k in others
            )
        )
    return curves
