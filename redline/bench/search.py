"""Judging the search: how soon does GP-UCB find a good workflow, compared with picking at random?

The judge is an exhaustive run, in which all workflows were trained with the same budget. A search then costs nothing:
every pick looks its workflow's score up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.search.ucb import GPUCB, OneByOne


@dataclass(frozen=True)
class Landscape:
    """The score of every workflow, and whether it was obeyed."""

    scores: np.ndarray  # float64 [n]
    obeyed: np.ndarray  # bool [n]
    episodes_each: int

    @classmethod
    def from_ranking(cls, ranking: dict[str, Any], count: int) -> Landscape:
        """The landscape in the ranking that an exhaustive search of `count` workflows wrote."""
        scores, obeyed = np.full(count, np.nan), np.zeros(count, np.bool_)
        for entry in ranking["workflows"]:
            scores[entry["workflow_id"]], obeyed[entry["workflow_id"]] = entry["mean"], entry["passed"]
        return cls(scores, obeyed, ranking["workflows"][0]["trained_episodes"])

    @property
    def complete(self) -> bool:
        """Whether all workflows have a score."""
        return bool(np.isfinite(self.scores).all())

    def rank(self, workflow_id: int) -> int:
        """1 for the best obeyed workflow."""
        better = self.obeyed & (self.scores > self.scores[workflow_id])
        return int(better.sum()) + 1


@dataclass(frozen=True)
class Course:
    """One simulated search: the rank of the best workflow found, after every pick."""

    ranks: list[int]

    def picks_until(self, rank: int) -> float:
        """Picks until a workflow of this rank or better was found; infinite when it never was."""
        return next((k for k, found in enumerate(self.ranks, start=1) if found <= rank), float("inf"))


def simulate(picker: GPUCB | OneByOne, landscape: Landscape, picks: int) -> Course:
    """Let a searcher loose on a known landscape."""
    best, ranks = len(landscape.scores) + 1, []
    for _ in range(picks):
        asked = picker.ask(1)
        if not asked:
            break
        workflow_id = asked[0]
        if landscape.obeyed[workflow_id]:
            picker.tell(workflow_id, float(landscape.scores[workflow_id]))
            picker.retire(workflow_id)  # its budget is used up
            best = min(best, landscape.rank(workflow_id))
        else:
            picker.tell_infeasible(workflow_id)
        ranks.append(best)
    return Course(ranks)


def bench_search(landscape: Landscape, distances: np.ndarray, seeds: int, beta: float) -> dict[str, list[Course]]:
    """Courses of both searchers through all workflows, one per seed."""
    count = len(distances)
    return {
        "GP-UCB": [simulate(GPUCB(distances, seed, beta), landscape, count) for seed in range(seeds)],
        "random": [simulate(OneByOne(count, seed), landscape, count) for seed in range(seeds)],
    }


def summarise(courses: list[Course], episodes_each: int, budget_picks: int) -> dict[str, float]:
    """Medians over the seeds: rank reached within the budget, episodes until the best and until the top five."""
    final = [course.ranks[min(budget_picks, len(course.ranks)) - 1] for course in courses]
    to_best = [course.picks_until(1) * episodes_each for course in courses]
    to_five = [course.picks_until(5) * episodes_each for course in courses]
    return {
        "median_rank": float(np.median(final)),
        "mean_rank": float(np.mean(final)),
        "worst_rank": float(np.max(final)),
        "median_episodes_to_top_5": float(np.median(to_five)),
        "median_episodes_to_best": float(np.median(to_best)),
    }
