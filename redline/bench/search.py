"""Judging the search: how soon does it give a good answer, compared with picking at random?

The judge is an exhaustive run, in which all workflows were trained alike, several times each. A search then costs
nothing: every training is looked up. Which replicate is a search's first, second and so on is drawn by lot for every search:
otherwise all of them would share the luck of the table's first.
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
from redline.worlds.workflows import Workflows

TOP = 5
TIE = 0.01
"""Means that are no farther apart are tied: scores are told to the hundredth."""


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
        return self._of_group.mean(axis=1)[self.groups]

    @property
    def top(self) -> set[int]:
        """The five best workflows, and all that are alike or tied with the last of them."""
        truth = self.truth
        return {int(k) for k in np.flatnonzero(truth >= np.sort(truth)[-TOP] - TIE)}

    @property
    def near(self) -> set[int]:
        """The workflows that the table cannot tell from its best: by one standard error, replicate by replicate."""
        of_group = self._of_group
        lost = of_group[of_group.mean(axis=1).argmax()] - of_group  # [groups, replicates]
        count = lost.shape[1]
        error = lost.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(len(lost))
        return {int(k) for k in np.flatnonzero((lost.mean(axis=1) <= error + 1e-12)[self.groups])}

    @property
    def _of_group(self) -> np.ndarray:
        """Mean score of each group in each replicate, [groups, replicates]."""
        return np.array([self.scores[self.groups == k].mean(axis=0) for k in range(len(self.apart))])

    @property
    def noise(self) -> float:
        """Standard deviation of one training, with what is peculiar to a replicate taken off."""
        centred = self._of_group - self._of_group.mean(axis=0)
        left = centred - centred.mean(axis=1, keepdims=True)
        return float(np.sqrt((left**2).sum() / max((left.shape[0] - 1) * (left.shape[1] - 1), 1)))

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


class Looker(Protocol):
    """How a searcher has workflows trained: which training of the table it gets, and what that costs."""

    def training(self, id: int) -> tuple[float, int]:
        """The score of the workflow's next training, and the episodes it takes."""


class SharedStarts:
    """Replicate k of every workflow begins with start k, which is paid for once."""

    def __init__(self, table: TrainingTable, seed: int) -> None:
        self._table = table
        self._lots = np.random.default_rng(seed).permutation(table.scores.shape[1])
        self._counts: dict[int, int] = {}
        self._starts = 0

    def training(self, id: int) -> tuple[float, int]:
        """From the next start that the workflow has not begun with."""
        replicate = self._counts.get(id, 0)
        self._counts[id] = replicate + 1
        new = replicate >= self._starts
        self._starts = max(self._starts, replicate + 1)
        cost = self._table.episodes_each + (self._table.start_episodes if new else 0)
        return float(self._table.scores[id, self._lots[replicate]]), cost


class Apart:
    """Every training has a start and random numbers of its own, and pays for both."""

    def __init__(self, table: TrainingTable, seed: int) -> None:
        self._table = table
        self._random = np.random.default_rng([seed, 1])

    def training(self, id: int) -> tuple[float, int]:
        """Any of the workflow's trainings."""
        replicate = self._random.integers(self._table.scores.shape[1])
        return float(self._table.scores[id, replicate]), self._table.episodes_each + self._table.start_episodes


class Truthful:
    """A training that tells what a workflow is worth, with no noise at all: nobody has one."""

    def __init__(self, table: TrainingTable, seed: int) -> None:
        self._truth = table.truth
        self._shared = SharedStarts(table, seed)

    def training(self, id: int) -> tuple[float, int]:
        """The truth, for the price of a training."""
        return float(self._truth[id]), self._shared.training(id)[1]


@dataclass(frozen=True)
class Course:
    """One simulated search, training by training."""

    episodes: list[int]
    regrets: list[float]
    """What the answer loses against the best."""
    good: list[bool]
    """Whether the answer is one of the top five."""
    near: list[bool]
    """Whether the table cannot tell the answer from its best."""

    @property
    def episodes_until_good(self) -> float:
        """From when on the answer is one of the top five and stays so; infinite where it is not at the end."""
        return _for_good(self.episodes, self.good)

    @property
    def episodes_until_near(self) -> float:
        """From when on the table cannot tell the answer from its best."""
        return _for_good(self.episodes, self.near)


def _for_good(episodes: list[int], claims: list[bool]) -> float:
    last_bad = max((k for k, holds in enumerate(claims) if not holds), default=-1)
    return float(episodes[last_bad + 1]) if last_bad + 1 < len(episodes) else float("inf")


def simulate(searcher: Searcher, looker: Looker, table: TrainingTable, budget: int) -> Course:
    """Let a searcher loose on a known table, until it asks for no more or has used `budget` episodes."""
    used, truth, top, near = 0, table.truth, table.top, table.near
    course = Course([], [], [], [])
    while used < budget and (asked := searcher.ask(1)):
        score, cost = looker.training(asked[0])
        used += cost
        searcher.tell(asked[0], score)
        answer = searcher.answer()
        course.episodes.append(used)
        course.regrets.append(float(truth.max() - truth[answer]))
        course.good.append(answer in top)
        course.near.append(answer in near)
    return course


@dataclass(frozen=True)
class Contender:
    """A searcher, and how it has workflows trained."""

    searcher: Callable[[int], Searcher]
    looker: Callable[[TrainingTable, int], Looker]


def contenders(table: TrainingTable) -> dict[str, Contender]:
    """By name: the search as the command does it, chance, and what nobody can do."""

    def top_two(seed: int) -> TopTwo:
        searcher = TopTwo(table.distances, seed, table.scores.shape[1])
        searcher.group(table.groups, table.apart[np.ix_(table.groups, table.groups)])
        return searcher

    def chance(seed: int) -> Once:
        return Once(np.random.default_rng(seed).permutation(len(table.scores)))

    def one_of_each_group(seed: int) -> Once:
        order = np.random.default_rng(seed).permutation(len(table.scores))
        _, first = np.unique(table.groups[order], return_index=True)
        return Once(order[np.sort(first)])

    found = {
        "top-two": Contender(top_two, SharedStarts),
        "chance": Contender(chance, Apart),
    }
    if table.start_episodes:
        found["chance with our start"] = Contender(chance, SharedStarts)
    return found | {"no noise": Contender(one_of_each_group, Truthful)}


class Once:
    """A searcher that trains each workflow once, in the order given, and takes the highest score for the answer."""

    def __init__(self, order: np.ndarray) -> None:
        self._waiting = [int(id) for id in order]
        self._scores: dict[int, float] = {}

    def ask(self, count: int = 1) -> list[int]:
        """The next ones; none when all were trained."""
        asked = self._waiting[:count]
        del self._waiting[:count]
        return asked

    def tell(self, id: int, value: float) -> None:
        """Its only score."""
        self._scores[id] = value

    def answer(self) -> int:
        """The highest score by now."""
        return max(self._scores, key=lambda id: (self._scores[id], -id))


def bench_search(table: TrainingTable, seeds: int, budget: int) -> dict[str, list[Course]]:
    """Courses of all contenders, one per seed."""
    return {
        name: [simulate(each.searcher(seed), each.looker(table, seed), table, budget) for seed in range(seeds)]
        for name, each in contenders(table).items()
    }


def summarise(courses: list[Course]) -> dict[str, float]:
    """Medians and means over the searches."""
    good = [course.episodes_until_good for course in courses]
    near = [course.episodes_until_near for course in courses]
    return {
        "median_episodes_to_top_5": float(np.median(good)),
        "median_episodes_to_near": float(np.median(near)),
        "in_top_5_at_the_end": float(np.mean([course.good[-1] for course in courses])),
        "mean_regret_at_the_end": float(np.mean([course.regrets[-1] for course in courses])),
        "median_episodes_used": float(np.median([course.episodes[-1] for course in courses])),
    }


def regret_curve(courses: list[Course], episodes: np.ndarray) -> np.ndarray:
    """Mean regret over the searches at these numbers of episodes; NaN before all have an answer."""
    return np.mean([_at(course, episodes) for course in courses], axis=0)


def _at(course: Course, episodes: np.ndarray) -> np.ndarray:
    place = np.searchsorted(course.episodes, episodes, side="right") - 1
    return np.where(place >= 0, np.array(course.regrets)[np.maximum(place, 0)], np.nan)
