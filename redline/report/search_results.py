"""All that a workflow search has left behind in its folder, read for its report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.metrics import load_metrics
from redline.report.charts.dot_chart import Kind
from redline.report.draw import NOTHING
from redline.report.verdict import WIDE
from redline.runs import ALIKE, GP, RANKING, SEARCH_LOG, SEARCH_STATE, TRAINING_LOG, Run, as_written
from redline.search import workflows_of, worlds_with_workflows
from redline.worlds.workflows import Workflows

PICK_COLUMNS = ("step", "workflow_id", "env_reward", "compliance", "episodes", "passed")
UPDATE_COLUMNS = ("step", "workflow_id", "episodes", "env_reward", "compliance", "collect_seconds", "update_seconds")
NUM_HIGHLIGHTED = 4

PASSED = Kind("passed the compliance gate", "blue")
INFEASIBLE = Kind("infeasible: did not pass", "red", "cross")
BASELINE = Kind("baseline", "muted", "ring")
OBSERVED = Kind("observed", "blue")
ALIKE_ONE = Kind("alike to one that was observed", "blue", "ring")
UNSEEN = Kind("predicted only", "axis", "ring")
STATUS = {PASSED: "passed", INFEASIBLE: "infeasible", BASELINE: "baseline"}
STATUS |= {OBSERVED: "observed", ALIKE_ONE: "alike to an observed one", UNSEEN: "not trained"}


@dataclass(frozen=True)
class Scored:
    """A workflow or a baseline with its score: environment reward an episode. What is not known is NaN."""

    name: str
    kind: Kind
    mean: float
    stderr: float = math.nan
    compliance: float = math.nan
    trained_episodes: float = math.nan
    workflow_id: int = -1

    @property
    def reach(self) -> float:
        """How far its 95 % interval reaches to each side."""
        return WIDE * self.stderr


@dataclass(frozen=True)
class Beliefs:
    """What the search believes of all workflows."""

    workflows: Workflows
    mean: np.ndarray  # float64 [n]
    std: np.ndarray  # float64 [n]
    kinds: list[Kind]
    groups: np.ndarray  # int [n]: workflows of the same group are alike

    @property
    def distinct_best_first(self) -> list[tuple[int, int]]:
        """One workflow for all that are alike, by falling mean, and how many it stands for; a trained one where there is."""
        trained_first = sorted(self.best_first, key=lambda k: (-self.mean[k], self.kinds[k] is ALIKE_ONE))
        first: dict[int, int] = {}
        for k in trained_first:
            first.setdefault(int(self.groups[k]), k)
        return [(k, int((self.groups == group).sum())) for group, k in first.items()]

    @property
    def reach(self) -> np.ndarray:
        """How far each 95 % interval reaches to each side, [n]."""
        return WIDE * self.std

    @property
    def best_first(self) -> list[int]:
        """Ids by falling mean; unknown means come last."""
        return [int(k) for k in np.argsort(-self.mean, kind="stable")]


@dataclass(frozen=True)
class SearchResults:
    """All that a search has left behind so far."""

    orders: Workflows
    """All that there were to choose from."""
    picks: dict[str, np.ndarray]
    updates: dict[str, np.ndarray]
    beliefs: Beliefs | None
    workflows: list[Scored]  # best first
    baselines: list[Scored]
    best: Scored | None
    evaluated: bool
    """Whether the scores come from a final evaluation, and not from training."""
    threshold: float
    """Of compliance; NaN where the config does not tell."""
    budget: float
    """Episodes that the search may use; NaN where the config does not tell."""
    seconds: float
    """How long it searched, over all its sittings; NaN where it does not tell."""
    ranking: dict[str, Any]
    """The final evaluation as it was written; empty before it."""

    @property
    def highlighted(self) -> list[int]:
        """Ids of the few workflows to point out, best first."""
        passed = [each for each in self.workflows if each.kind is PASSED]
        winner = [self.best] if self.best else []
        return list(dict.fromkeys(each.workflow_id for each in winner + passed))[:NUM_HIGHLIGHTED]


def read_search(run: Run) -> SearchResults:
    """The results in a folder. A file that is not there yet leaves its part empty."""
    with as_written(run.path):
        return _read_search(run)


def _read_search(run: Run) -> SearchResults:
    orders = workflows_of(str(run.config.get("env") or worlds_with_workflows()[0]))
    picks, updates = _log(run.path / SEARCH_LOG, PICK_COLUMNS), _log(run.path / TRAINING_LOG, UPDATE_COLUMNS)
    gp, ranking = _object(run, GP), _object(run, RANKING)
    infeasible = {int(k) for k in gp.get("infeasible") or ()}
    if ranking:
        workflows = [_scored(orders, entry, infeasible) for entry in ranking.get("workflows") or ()]
        best = _scored(orders, ranking["best"], infeasible) if ranking.get("best") else None
    else:
        workflows = _scored_in_training(orders, picks, infeasible)
        best = next((each for each in workflows if each.kind is PASSED), None)
    baselines = [
        Scored(str(entry.get("name", NOTHING)), BASELINE, _number(entry, "mean"), _number(entry, "stderr"))
        for entry in ranking.get("baselines") or ()
    ]
    return SearchResults(
        orders=orders,
        picks=picks,
        updates=updates,
        beliefs=_read_beliefs(run, orders, gp, infeasible) if gp else None,
        workflows=sorted(workflows, key=worst_last),
        baselines=baselines,
        best=best,
        evaluated=bool(ranking),
        threshold=_number(run.config, "compliance_threshold"),
        budget=_number(run.config, "total_episodes"),
        seconds=_number(_object(run, SEARCH_STATE), "seconds"),
        ranking=ranking,
    )


def position_values(beliefs: Beliefs) -> np.ndarray:
    """Mean value of the workflows that have a type at a place, [type, place]."""
    places, mean = _places(beliefs.workflows), beliefs.mean
    spots = range(places.shape[1])
    return np.array([[mean[places[:, kind] == place].mean() for place in spots] for kind in spots])


def pair_effects(beliefs: Beliefs) -> list[tuple[str, str, float]]:
    """For each pair of types: what repairing the first before the second is worth on average. Largest size first."""
    types, places, mean = beliefs.workflows.types, _places(beliefs.workflows), beliefs.mean
    effects = []
    for a, b in combinations(range(len(types)), 2):
        first = places[:, a] < places[:, b]
        effect = float(mean[first].mean() - mean[~first].mean())
        effects.append((types[a], types[b], effect if abs(effect) > 1e-9 * np.abs(mean).max() else 0.0))
    return sorted(effects, key=lambda effect: -abs(effect[2]))


def _places(workflows: Workflows) -> np.ndarray:
    """Where each type stands in each workflow, [n, type]."""
    return np.argsort(workflows.orders, axis=1)


def _object(run: Run, name: str) -> dict[str, Any]:
    """A JSON object, empty where the file is not there yet."""
    if not (run.path / name).exists():
        return {}
    value = run.read_json(name)
    if not isinstance(value, dict):
        raise RedlineError(
            f"{run.path / name} holds a {type(value).__name__}, but a search writes a JSON object there."
        )
    return value


def _log(path: Path, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """These columns of a log, as numbers. A missing file has no rows; a missing or damaged cell is NaN."""
    found = load_metrics(path) if path.is_file() else {}
    num_rows = len(next(iter(found.values()), ()))
    log = {name: _numbers(found.get(name, np.full(num_rows, np.nan))) for name in columns}
    known = log["workflow_id"] >= 0  # a start, which obeys none, has -1
    return {name: values[known] for name, values in log.items()}


def _numbers(cells: np.ndarray) -> np.ndarray:
    return cells if cells.dtype == np.float64 else np.array([_to_number(cell) for cell in cells], dtype=np.float64)


def _to_number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _number(entry: Mapping[str, Any], name: str) -> float:
    return _to_number(entry.get(name))


def workflow_name(orders: Workflows, workflow_id: int) -> str:
    """The order of a workflow in words."""
    return orders.name(workflow_id) if 0 <= workflow_id < len(orders) else f"workflow {workflow_id}"


def _scored(orders: Workflows, entry: dict[str, Any], infeasible: set[int]) -> Scored:
    number = _number(entry, "workflow_id")
    workflow_id = int(number) if math.isfinite(number) else -1
    return Scored(
        name=str(entry.get("order") or workflow_name(orders, workflow_id)),
        kind=PASSED if entry.get("passed", True) and workflow_id not in infeasible else INFEASIBLE,
        mean=_number(entry, "mean"),
        stderr=_number(entry, "stderr"),
        compliance=_number(entry, "compliance"),
        trained_episodes=_number(entry, "trained_episodes"),
        workflow_id=workflow_id,
    )


def _scored_in_training(orders: Workflows, picks: dict[str, np.ndarray], infeasible: set[int]) -> list[Scored]:
    """The last word of the search log on each workflow, for as long as there is no final evaluation."""
    workflows = []
    for number in np.unique(picks["workflow_id"]):
        rows = np.flatnonzero(picks["workflow_id"] == number)
        last, workflow_id = rows[-1], int(number)
        workflows.append(
            Scored(
                name=workflow_name(orders, workflow_id),
                kind=PASSED if picks["passed"][last] == 1 and workflow_id not in infeasible else INFEASIBLE,
                mean=float(picks["env_reward"][last]),
                compliance=float(picks["compliance"][last]),
                trained_episodes=float(np.nansum(picks["episodes"][rows])),
                workflow_id=workflow_id,
            )
        )
    return sorted(workflows, key=worst_last)


def worst_last(scored: Scored) -> float:
    """A key to sort by: best first, those without a score at the end."""
    return -scored.mean if math.isfinite(scored.mean) else math.inf


def _read_beliefs(run: Run, orders: Workflows, gp: dict[str, Any], infeasible: set[int]) -> Beliefs:
    mean, std = (np.array(gp.get(name) or [], dtype=np.float64) for name in ("mean", "std"))
    if mean.shape != (len(orders),) or std.shape != mean.shape:
        raise RedlineError(
            f"{run.path / GP} holds {mean.size} means and {std.size} stds, but there are {len(orders)} "
            f"workflows. Delete it to do without."
        )
    observed = {int(k) for k in gp.get("observed") or ()}
    groups = _read_groups(run, len(orders))
    alike, barred = ({int(groups[k]) for k in ids if 0 <= k < len(groups)} for ids in (observed, infeasible))
    kinds = [
        OBSERVED
        if k in observed
        else INFEASIBLE
        if groups[k] in barred
        else ALIKE_ONE
        if groups[k] in alike
        else UNSEEN
        for k in range(len(mean))
    ]
    return Beliefs(orders, mean, std, kinds, groups)


def _read_groups(run: Run, count: int) -> np.ndarray:
    """Which workflows are alike, [n]; where that was not found out, each is like itself only."""
    groups = np.array(_object(run, ALIKE).get("groups") or range(count), dtype=np.intp)
    if groups.shape != (count,):
        raise RedlineError(f"{run.path / ALIKE} tells of {groups.size} workflows, but there are {count}.")
    return groups
