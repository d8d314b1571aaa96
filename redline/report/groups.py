"""Runs beside each other: which of them differ only by their seed, and what can be said about the rest.

Intervals over seeds are those of the interquartile mean under a bootstrap that is stratified by env: a sample has as many
runs of each env as there are. A verdict takes a permutation test: how often would runs that are dealt to the groups by
chance be as far apart? Of several groups some two are always far apart, so the test allows for all that stand between
the two that are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.learn.config import TrainConfig, config_to_json, recipe
from redline.learn.trust import may_be_asked
from redline.metrics import final_return, load_metrics
from redline.report.page import flat_settings, same_setting
from redline.runs import BREAKDOWN, CONFIG, SCORES, SEARCH_STATE, Run, as_written
from redline.signature import unsigned
from redline.timing.breakdown import Breakdown
from redline.worlds.registry import world_of

RESAMPLES = 2000
MOST_DEALS = 5000
"""Ways to deal runs to groups that are tried; where there are fewer, each of them once."""
LEVEL = 0.05
POINTS = 100
"""Of a curve over seeds."""
NOT_SETTINGS = ("seed", "env", "threads")
"""What does not make two runs different: a seed, and what changes only the speed. The env is told apart."""


@dataclass(frozen=True)
class RunFacts:
    """A run in a few numbers."""

    path: Path
    env: str
    settings: dict[str, Any]
    """All of them, those inside others by a dotted name."""
    changed: dict[str, Any]
    """Those that differ from what the env's recipe has."""
    seed: int
    steps: int
    goal: int | None
    state: str
    score: float | None
    stderr: float | None
    measure: str
    """What the score is: a return, or a time, whose negative counts."""
    metrics: dict[str, np.ndarray]

    @property
    def final_return(self) -> float:
        """Mean return at the end of training; NaN where no episode ended."""
        return final_return(self.metrics.get("return", np.empty(0)))

    def breakdown(self) -> Breakdown | None:
        """Where its time went, if that is known."""
        file = self.path / BREAKDOWN
        return Breakdown.from_json(Run.open(self.path).read_json(BREAKDOWN)) if file.exists() else None


def read_run(path: Path) -> RunFacts:
    """A run folder in a few numbers."""
    with as_written(path):
        return _read_run(path)


def _read_run(path: Path) -> RunFacts:
    run = Run.open(path)
    if (path / SEARCH_STATE).exists():
        raise RedlineError(f"{path} is a workflow search, not a training run. See redline report {path}.")
    config = unsigned(run.config)
    env = str(config.get("env"))
    settings = dict(flat_settings(config))
    metrics = load_metrics(run.metrics) if run.metrics.is_file() else {}
    steps = int(metrics["step"][-1]) if len(metrics.get("step", ())) else 0
    score, stderr, measure = _score(run)
    asked = may_be_asked(run.config)
    goal = _goal(config, asked)
    return RunFacts(
        path, env, settings, _changed(env, settings, asked), int(config.get("seed", 0)), steps, goal,
        _state(run, steps, config, metrics, goal), score, stderr, measure, metrics,
    )  # fmt: skip


def find_runs(root: Path) -> list[RunFacts]:
    """The runs in a folder and in folders of it, oldest first. What cannot be read is left out."""
    found = []
    for config in sorted(
        [*root.glob(f"*/{CONFIG}"), *root.glob(f"*/*/{CONFIG}")], key=lambda path: path.stat().st_mtime
    ):
        try:
            found.append(read_run(config.parent))
        except RedlineError:
            continue
    return found


def _changed(env: str, settings: Mapping[str, Any], asked: bool) -> dict[str, Any]:
    try:
        found = recipe(env) if asked else TrainConfig(env)
    except RedlineError:  # an env that cannot be made here: what any env gets
        found = TrainConfig(env)
    usual = dict(flat_settings(config_to_json(found)))
    skipped = ("env", "seed", "total_steps", "total_episodes")
    return {
        name: value
        for name, value in settings.items()
        if name not in skipped and not name.startswith("stages") and not same_setting(value, usual.get(name))
    }


def _goal(config: Mapping[str, Any], asked: bool) -> int | None:
    """How many steps a run should have; where it does not say so, its world does, if that may be asked."""
    if config.get("total_episodes") is not None:
        return None
    if config.get("total_steps") is not None:
        return int(config["total_steps"])
    if not asked:
        return None
    try:
        return world_of(str(config.get("env"))).steps(str(config.get("env")))
    except RedlineError:
        return None


def _state(run: Run, steps: int, config: Mapping[str, Any], metrics: Mapping[str, np.ndarray], goal: int | None) -> str:
    if run.is_running():
        return "running"
    if "stages" in config or (run.path / SCORES).exists():
        return "finished" if (run.path / SCORES).exists() else "stopped"
    if config.get("total_episodes") is not None and len(metrics.get("episodes", ())):
        return "finished" if metrics["episodes"][-1] >= int(config["total_episodes"]) else "stopped"
    return "finished" if goal is not None and steps >= goal else "stopped"


def _score(run: Run) -> tuple[float | None, float | None, str]:
    """The score that the run ended with, its standard error over episodes, and what it is."""
    if not (run.path / SCORES).exists():
        return None, None, "return"
    found = run.read_json(SCORES)
    if found.get("scores"):
        first = found["scores"][0]
        return float(first["mean"]), float(first["stderr"]), "return"
    best = found.get("best") or {}
    return (None if best.get("makespan") is None else -float(best["makespan"])), None, "makespan"


# Groups


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only by their seed."""

    name: str
    runs: tuple[RunFacts, ...]

    @property
    def env(self) -> str:
        """What they were trained on."""
        return self.runs[0].env

    def values(self, by_score: bool) -> np.ndarray:
        """The score of each run, or how it did at the end of training."""
        each = [run.score if by_score else run.final_return for run in self.runs]
        return np.array([np.nan if value is None else value for value in each], float)


@dataclass(frozen=True)
class Interval:
    """An interquartile mean, with the interval that holds 95 % of its bootstrap."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class GroupVerdict:
    """How a group compares with the best one."""

    better: str
    worse: str
    difference: Interval
    chance: float
    """Share of random deals of the same runs to the groups in which some two differ at least as much."""
    enough: bool
    """Whether there are seeds enough for any verdict at all."""

    @property
    def told_apart(self) -> bool:
        """Whether the difference is more than noise."""
        return self.enough and self.chance <= LEVEL

    def __str__(self) -> str:
        size = f"{self.difference.mean:.4g} ({self.difference.low:.4g} to {self.difference.high:.4g})"
        if not self.enough:
            return f"{self.better} and {self.worse} differ by {size}: too few seeds to tell. Try --seeds 5."
        if self.told_apart:
            return f"{self.better} is better than {self.worse} by {size}, p = {self.chance:.2g}."
        return f"{self.better} and {self.worse} cannot be told apart: {size} is within noise, p = {self.chance:.2g}."


def group_runs(runs: Sequence[RunFacts]) -> list[RunGroup]:
    """Runs that differ only by seed together, named by what sets them apart from the others."""
    kinds: dict[str, list[RunFacts]] = {}
    for run in runs:
        kinds.setdefault(_kind(run), []).append(run)
    grouped = list(kinds.values())
    differing = differences(grouped)
    return [RunGroup(_name(members, differing, len(grouped)), tuple(members)) for members in grouped]


def _kind(run: RunFacts) -> str:
    kept = {name: str(value) for name, value in run.settings.items() if name not in NOT_SETTINGS}
    return repr((run.env, sorted(kept.items())))


def differences(grouped: Sequence[Sequence[RunFacts]]) -> dict[str, list[str]]:
    """Settings in which groups differ, each with the value in every group."""
    columns = [{"env": members[0].env, **members[0].settings} for members in grouped]
    names = dict.fromkeys(name for column in columns for name in column if name not in ("seed", "threads"))
    found = {name: [str(column.get(name, "–")) for column in columns] for name in names}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def _name(members: Sequence[RunFacts], differing: Mapping[str, Sequence[str]], groups: int) -> str:
    if groups == 1:
        return members[0].env
    one = {"env": members[0].env, **members[0].settings}
    parts = [f"{name.rpartition('.')[2]} {one.get(name, '–')}" for name in differing]
    return ", ".join(parts[:3]) + (" …" if len(parts) > 3 else "")


# Statistics


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the middle half, along the last axis: a quarter of the values is left out at either end."""
    cut = values.shape[-1] // 4
    kept = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut]
    return np.asarray(kept.mean(axis=-1))


def resampled(strata: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Bootstrap samples [RESAMPLES, runs]: from each stratum as many runs as it has."""
    drawn = [values[rng.integers(0, len(values), (RESAMPLES, len(values)))] for values in strata]
    return np.concatenate(drawn, axis=1)


def interval(values: np.ndarray, seed: int = 0) -> Interval:
    """The interquartile mean of some runs of one env, with its interval."""
    values = values[np.isfinite(values)]
    if not len(values):
        return Interval(float("nan"), float("nan"), float("nan"))
    means = interquartile_mean(resampled([values], np.random.default_rng(seed)))
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(interquartile_mean(values)), float(low), float(high))


def verdict(
    better: RunGroup, worse: RunGroup, by_score: bool, between: Sequence[RunGroup] = ()
) -> GroupVerdict:  # fmt: skip
    """Whether the difference between two groups is more than noise, with those that did better than the worse `between`."""
    one, other, *rest = (_finite(group.values(by_score)) for group in (better, worse, *between))
    rng = np.random.default_rng(0)
    means = [interquartile_mean(resampled([values], rng)) for values in (one, other)]
    low, high = np.quantile(means[0] - means[1], (0.025, 0.975))
    apart = float(interquartile_mean(one) - interquartile_mean(other))
    possible = comb(len(one) + len(other), len(one))
    chance = _chance_of_several([one, other, *rest], rng) if rest else _chance(one, other, possible, rng)
    return GroupVerdict(
        better.name, worse.name, Interval(apart, float(low), float(high)), chance, 2 / possible <= LEVEL
    )


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _chance_of_several(values: Sequence[np.ndarray], rng: np.random.Generator) -> float:
    """Share of deals of all runs to all groups in which some two are at least as far apart as the first two are now."""
    every = np.concatenate(values)
    sizes = [len(each) for each in values if len(each)]
    dealt = every[np.argsort(rng.random((MOST_DEALS, len(every))), axis=1)]
    sums = np.add.reduceat(dealt, np.cumsum([0, *sizes[:-1]]), axis=1)
    apart = np.ptp(sums / np.array(sizes), axis=1)
    seen = abs(float(values[0].mean() - values[1].mean()))
    found = int((apart >= seen - 1e-9 * max(1.0, seen)).sum())
    return (1 + found) / (1 + MOST_DEALS)  # as they are now is a deal, too


def _chance(one: np.ndarray, other: np.ndarray, possible: int, rng: np.random.Generator) -> float:
    """Share of deals of all runs to two groups in which their means are at least as far apart.

    Means, not interquartile means: of few runs those leave too little to deal.
    """
    every, size = np.concatenate([one, other]), len(one)
    if possible <= MOST_DEALS:
        chosen = np.array(list(combinations(range(len(every)), size)))
    else:
        chosen = np.argsort(rng.random((MOST_DEALS, len(every))), axis=1)[:, :size]
    ours = every[chosen].sum(axis=1)
    apart = np.abs(ours / size - (every.sum() - ours) / len(other))
    seen = abs(float(one.mean() - other.mean()))
    return float((apart >= seen - 1e-9 * max(1.0, seen)).mean())


@dataclass(frozen=True)
class GroupCurve:
    """Return over steps of a group: the interquartile mean over its seeds, with intervals."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curve(group: RunGroup) -> GroupCurve | None:
    """How a group learned, over the steps that all its runs have; None where no episode ended."""
    known = [(run.metrics["step"], run.metrics["return"]) for run in group.runs if "return" in run.metrics]
    known = [(step[np.isfinite(value)], value[np.isfinite(value)]) for step, value in known]
    known = [(step, value) for step, value in known if len(step)]
    if not known:
        return None
    steps = np.linspace(max(step[0] for step, _ in known), min(step[-1] for step, _ in known), POINTS)
    values = np.stack([np.interp(steps, step, value) for step, value in known], axis=1)  # [points, runs]
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, values.shape[1], (RESAMPLES // 4, values.shape[1]))
    low, high = np.quantile(interquartile_mean(values[:, drawn]), (0.025, 0.975), axis=1)
    return GroupCurve(steps, interquartile_mean(values), low, high)
