"""Judging the search: how soon does it give a good answer, compared with picking at random?

The judge is an exhaustive run, in which all workflows were trained alike, several times each. A search then costs
nothing: every training is looked up.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from redline.errors import RedlineError
from redline.metrics import load_metrics
from redline.runs import ALIKE, SEARCH_LOG, Run
from redline.search.top_two import TopTwo
from redline.search.ucb import GPUCB, OneByOne
from redline.worlds.workflows import Workflows

TOP = 5


@dataclass(frozen=True)
class TrainingTable:
    """The score of every training of every workflow, and which workflows are alike."""

    scores: np.ndarray  # float64 [n, replicates]
    groups: np.ndarray  # int [n]
    apart: np.ndarray  # float64 [groups, groups]: how far apart two groups are
    distances: np.ndarray  # float64 [n, n], of the world's own making
    episodes_each: int
    start_episodes: int

    @property
    def truth(self) -> np.ndarray:
        """What each workflow is worth, [n]: the mean of all trainings of all that are alike."""
        of_group = [self.scores[self.groups == k].mean() for k in range(len(self.apart))]
        return np.array(of_group)[self.groups]

    @property
    def top(self) -> set[int]:
        """The five best workflows, and all that are alike."""
        truth = self.truth
        return {int(k) for k in np.flatnonzero(truth >= np.sort(truth)[-TOP] - 1e-12)}

    @property
    def noise(self) -> float:
        """Standard deviation of one training, with what is peculiar to a replicate taken off."""
        centred = self.scores - self.scores.mean(axis=0)
        left = centred - centred.mean(axis=1, keepdims=True)
        return float(np.sqrt((left**2).sum() / ((len(left) - 1) * max(left.shape[1] - 1, 1))))

    def to_json(self) -> dict[str, Any]:
        """Plain lists, for a file."""
        return {
            "episodes_each": self.episodes_each,
            "start_episodes": self.start_episodes,
            "groups": self.groups.tolist(),
            "apart": np.round(self.apart, 6).tolist(),
            "scores": np.round(self.scores, 4).tolist(),
        }


def read_table(path: Path, workflows: Workflows) -> TrainingTable:
    """The table in a file that `to_json` filled."""
    try:
        found = json.loads(path.read_text())
        scores, groups, apart = (np.array(found[name]) for name in ("scores", "groups", "apart"))
        table = TrainingTable(
            scores, groups, apart, workflows.distances, found["episodes_each"], found["start_episodes"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RedlineError(f"{path} holds no table of trainings ({error!r}). Pass a run of: {EXHAUSTIVE}") from error
    if scores.shape[:1] != (len(workflows),) or groups.shape != (len(workflows),):
        raise RedlineError(
            f"{path} tells of {len(scores)} workflows, not of {len(workflows)}. Make it anew: {EXHAUSTIVE}"
        )
    return table


EXHAUSTIVE = "redline search --exhaustive"


def table_of(run: Run, workflows: Workflows) -> TrainingTable:
    """The table of an exhaustive run."""
    told: list[list[float]] = [[] for _ in range(len(workflows))]
    log = load_metrics(run.path / SEARCH_LOG) if (run.path / SEARCH_LOG).exists() else {}
    for id, score in zip(log.get("workflow_id", ()), log.get("env_reward", ()), strict=True):
        told[int(id)].append(float(score))
    fewest = min(map(len, told))
    if not fewest:
        raise RedlineError(f"{run.path} did not train all {len(workflows)} workflows. Pass a run of: {EXHAUSTIVE}")
    groups, apart = np.arange(len(workflows)), workflows.distances
    if (run.path / ALIKE).exists():
        found = run.read_json(ALIKE)
        groups = np.array(found["groups"])
        first = [int(np.argmax(groups == k)) for k in range(groups.max() + 1)]
        apart = np.array(found["distances"])[np.ix_(first, first)]
    config = run.config
    each = int(log["episodes"][0])
    starts = int(config.get("start_episodes") or 0)
    return TrainingTable(
        np.array([scores[:fewest] for scores in told]), groups, apart, workflows.distances, each, starts
    )


class Searcher(Protocol):
    """Whoever is asked for workflows, told of their scores, and asked for an answer."""

    def ask(self, count: int = 1) -> list[int]:
        """The workflow to train next."""

    def tell(self, id: int, value: float) -> None:
        """Its score."""

    def answer(self) -> int:
        """The best workflow, as far as is known."""


@dataclass(frozen=True)
class Course:
    """One simulated search, training by training."""

    episodes: list[int]
    regrets: list[float]
    """What the answer loses against the best."""
    good: list[bool]
    """Whether the answer is one of the top five."""

    @property
    def episodes_until_good(self) -> float:
        """From when on the answer is one of the top five and stays so; infinite where it is not at the end."""
        bad = [k for k, good in enumerate(self.good) if not good]
        last = bad[-1] + 1 if bad else 0
        return float(self.episodes[last]) if last < len(self.episodes) else float("inf")


def simulate(searcher: Searcher, table: TrainingTable, trainings: int) -> Course:
    """Let a searcher loose on a known table, until it asks for no more."""
    counts: dict[int, int] = {}
    used, starts, truth, top = 0, 0, table.truth, table.top
    course = Course([], [], [])
    for _ in range(trainings):
        asked = searcher.ask(1)
        if not asked:
            break
        replicate = counts.get(asked[0], 0)
        counts[asked[0]] = replicate + 1
        if replicate >= starts:
            starts, used = replicate + 1, used + table.start_episodes
        used += table.episodes_each
        searcher.tell(asked[0], float(table.scores[asked[0], replicate]))
        answer = searcher.answer()
        course.episodes.append(used)
        course.regrets.append(float(truth.max() - truth[answer]))
        course.good.append(answer in top)
    return course


def searchers(table: TrainingTable) -> dict[str, Callable[[int], Searcher]]:
    """By name: the search as the command does it, the one before it, and chance."""

    def top_two(seed: int) -> TopTwo:
        searcher = TopTwo(table.distances, seed, table.scores.shape[1])
        apart = table.apart[np.ix_(table.groups, table.groups)]
        searcher.group(table.groups, apart)
        return searcher

    return {
        "top-two": top_two,
        "GP-UCB": lambda seed: Once(GPUCB(table.distances, seed)),
        "chance": lambda seed: Once(OneByOne(len(table.scores), seed)),
    }


@dataclass
class Once:
    """A searcher that trains each workflow once and takes the highest score for the answer."""

    picker: GPUCB | OneByOne

    def ask(self, count: int = 1) -> list[int]:
        """As the picker does."""
        return self.picker.ask(count)

    def tell(self, id: int, value: float) -> None:
        """Its only score."""
        self.picker.tell(id, value)
        self.picker.retire(id)

    def answer(self) -> int:
        """The highest score by now."""
        values = self.picker.trials.values
        return max(values, key=lambda id: (values[id], -id))


def bench_search(table: TrainingTable, seeds: int, trainings: int) -> dict[str, list[Course]]:
    """Courses of all searchers, one per seed."""
    return {
        name: [simulate(make(seed), table, trainings) for seed in range(seeds)]
        for name, make in searchers(table).items()
    }


def summarise(courses: list[Course]) -> dict[str, float]:
    """Medians over the searches."""
    good = [course.episodes_until_good for course in courses]
    return {
        "median_episodes_to_top_5": float(np.median(good)),
        "in_top_5_at_the_end": float(np.mean([course.good[-1] for course in courses])),
        "mean_regret_at_the_end": float(np.mean([course.regrets[-1] for course in courses])),
        "median_trainings": float(np.median([len(course.episodes) for course in courses])),
    }


def regret_curve(courses: list[Course], episodes: np.ndarray) -> np.ndarray:
    """Mean regret over the searches at these numbers of episodes; NaN before all have an answer."""
    return np.mean([_at(course, episodes) for course in courses], axis=0)


def _at(course: Course, episodes: np.ndarray) -> np.ndarray:
    place = np.searchsorted(course.episodes, episodes, side="right") - 1
    return np.where(place >= 0, np.array(course.regrets)[np.maximum(place, 0)], np.nan)
