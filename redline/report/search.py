"""The report of a workflow search: which repair order won, what the search believes of the others, how each learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.files import reason
from redline.metrics import load_metrics
from redline.report.chart import Bar, Mark, Series, bar_chart, line_chart
from redline.report.dots import Dot, Kind, dot_columns, dot_rows
from redline.report.heatmap import ABOVE, BELOW, heat_map
from redline.report.learning import REPORT, _settings
from redline.report.page import NOTHING, Section, escape, facts, figure, note, page, short, table
from redline.runs import Run
from redline.search.workflow import ALL_WORKFLOWS, TYPES

SEARCH_LOG = "search_log.csv"
TRAINING_LOG = "training_log.csv"
GP = "gp.json"
RANKING = "ranking.json"

PICK_COLUMNS = ("step", "workflow_id", "env_reward", "compliance", "episodes", "passed")
UPDATE_COLUMNS = ("step", "workflow_id", "episodes", "env_reward", "compliance", "collect_seconds", "update_seconds")
WIDE = 1.96  # standard errors to each side that hold the true mean 95 times in 100
NUM_HIGHLIGHTED = 4
MAX_RANKED = 40
"""Rows of the ranking chart; the table has them all."""

PASSED = Kind("passed the compliance gate", "blue")
INFEASIBLE = Kind("infeasible: did not pass", "red", "cross")
BASELINE = Kind("baseline", "muted", "ring")
OBSERVED = Kind("observed", "blue")
UNSEEN = Kind("predicted only", "axis", "ring")
STATUS = {PASSED: "passed", INFEASIBLE: "infeasible", BASELINE: "baseline", OBSERVED: "observed", UNSEEN: "not trained"}

POSITIONS = np.argsort([workflow.order for workflow in ALL_WORKFLOWS], axis=1)
"""Where each type stands in each workflow, [120, type]."""
PLACES = ("1st", "2nd", "3rd", "4th", "5th")


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


@dataclass(frozen=True)
class Beliefs:
    """What the GP holds of all 120 workflows."""

    mean: np.ndarray  # float64 [120]
    std: np.ndarray  # float64 [120]
    kinds: list[Kind]

    @property
    def best_first(self) -> list[int]:
        """Ids by falling mean; unknown means come last."""
        return [int(k) for k in np.argsort(-self.mean, kind="stable")]


@dataclass(frozen=True)
class Search:
    """All that a search has left behind so far."""

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

    @property
    def highlighted(self) -> list[int]:
        """Ids of the few workflows to point out, best first."""
        passed = [each for each in self.workflows if each.kind is PASSED]
        winner = [self.best] if self.best else []
        return list(dict.fromkeys(each.workflow_id for each in winner + passed))[:NUM_HIGHLIGHTED]


def write_search_report(run: Run) -> Path:
    """Write `report.html` into the folder of a search, finished or not, and return its path."""
    search = read_search(run)
    sections = [
        Section("In short", _headline(run, search)),
        Section("Ranking", _ranking(search)),
        Section("What the search believes", _beliefs(search)),
        Section("Which type at which place", _places(search)),
        Section("Which pairs matter", _pairs(search)),
        Section("Learning", _learning(search)),
        Section("Settings", _settings(run.config)),
    ]
    red = run.config.get("red_agent")
    subtitle = f"{run.path.name}, against {red}" if red else run.path.name
    path = run.path / REPORT
    try:
        path.write_text(page("Redline: workflow search", subtitle, sections), encoding="utf-8")
    except OSError as error:
        raise RedlineError(f"The report cannot be written to {path}: {reason(error)}.") from error
    return path


def read_search(run: Run) -> Search:
    """What the folder holds. A file that is not there yet leaves its part empty."""
    picks, updates = _log(run.path / SEARCH_LOG, PICK_COLUMNS), _log(run.path / TRAINING_LOG, UPDATE_COLUMNS)
    gp, ranking = _object(run, GP), _object(run, RANKING)
    infeasible = {int(k) for k in gp.get("infeasible") or ()}
    if ranking:
        workflows = [_scored(entry, infeasible) for entry in ranking.get("workflows") or ()]
        best = _scored(ranking["best"], infeasible) if ranking.get("best") else None
    else:
        workflows = _scored_in_training(picks, infeasible)
        best = next((each for each in workflows if each.kind is PASSED), None)
    baselines = [
        Scored(str(entry.get("name", NOTHING)), BASELINE, _number(entry, "mean"), _number(entry, "stderr"))
        for entry in ranking.get("baselines") or ()
    ]
    return Search(
        picks=picks,
        updates=updates,
        beliefs=_read_beliefs(run, gp, infeasible) if gp else None,
        workflows=sorted(workflows, key=_worst_last),
        baselines=baselines,
        best=best,
        evaluated=bool(ranking),
        threshold=_number(run.config, "compliance_threshold"),
    )


def position_values(mean: np.ndarray) -> np.ndarray:
    """Mean value of the workflows that have a type at a place, [type, place]."""
    spots = range(len(TYPES))
    return np.array([[mean[POSITIONS[:, kind] == place].mean() for place in spots] for kind in spots])


def pair_effects(mean: np.ndarray) -> list[tuple[str, str, float]]:
    """For each pair of types: what repairing the first before the second is worth on average. Largest size first."""
    effects = []
    for a, b in combinations(range(len(TYPES)), 2):
        first = POSITIONS[:, a] < POSITIONS[:, b]
        effects.append((TYPES[a], TYPES[b], float(mean[first].mean() - mean[~first].mean())))
    return sorted(effects, key=lambda effect: -abs(effect[2]))


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
    known = np.isfinite(log["workflow_id"])
    return {name: values[known] for name, values in log.items()}


def _numbers(cells: np.ndarray) -> np.ndarray:
    return cells if cells.dtype == np.float64 else np.array([_to_number(cell) for cell in cells], dtype=np.float64)


def _to_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _number(entry: dict[str, Any], name: str) -> float:
    return _to_number(entry.get(name))


def _name(workflow_id: int) -> str:
    return str(ALL_WORKFLOWS[workflow_id]) if 0 <= workflow_id < len(ALL_WORKFLOWS) else f"workflow {workflow_id}"


def _scored(entry: dict[str, Any], infeasible: set[int]) -> Scored:
    number = _number(entry, "workflow_id")
    workflow_id = int(number) if math.isfinite(number) else -1
    return Scored(
        name=str(entry.get("order") or _name(workflow_id)),
        kind=PASSED if entry.get("passed", True) and workflow_id not in infeasible else INFEASIBLE,
        mean=_number(entry, "mean"),
        stderr=_number(entry, "stderr"),
        compliance=_number(entry, "compliance"),
        trained_episodes=_number(entry, "trained_episodes"),
        workflow_id=workflow_id,
    )


def _scored_in_training(picks: dict[str, np.ndarray], infeasible: set[int]) -> list[Scored]:
    """The last word of the search log on each workflow, for as long as there is no final evaluation."""
    workflows = []
    for number in np.unique(picks["workflow_id"]):
        rows = np.flatnonzero(picks["workflow_id"] == number)
        last, workflow_id = rows[-1], int(number)
        workflows.append(
            Scored(
                name=_name(workflow_id),
                kind=PASSED if picks["passed"][last] == 1 and workflow_id not in infeasible else INFEASIBLE,
                mean=float(picks["env_reward"][last]),
                compliance=float(picks["compliance"][last]),
                trained_episodes=float(np.nansum(picks["episodes"][rows])),
                workflow_id=workflow_id,
            )
        )
    return sorted(workflows, key=_worst_last)


def _worst_last(scored: Scored) -> float:
    return -scored.mean if math.isfinite(scored.mean) else math.inf


def _read_beliefs(run: Run, gp: dict[str, Any], infeasible: set[int]) -> Beliefs:
    mean, std = (np.array(gp.get(name) or [], dtype=np.float64) for name in ("mean", "std"))
    if mean.shape != (len(ALL_WORKFLOWS),) or std.shape != mean.shape:
        raise RedlineError(
            f"{run.path / GP} holds {mean.size} means and {std.size} stds, but there are {len(ALL_WORKFLOWS)} "
            f"workflows. Delete it to do without."
        )
    observed = {int(k) for k in gp.get("observed") or ()}
    kinds = [INFEASIBLE if k in infeasible else OBSERVED if k in observed else UNSEEN for k in range(len(mean))]
    return Beliefs(mean, std, kinds)


def _headline(run: Run, search: Search) -> str:
    picks, updates = search.picks, search.updates
    steps = np.concatenate([picks["step"], updates["step"]])
    used = np.nanmax(steps) if np.isfinite(steps).any() else 0.0
    budget = _number(run.config, "total_episodes")
    trained = np.union1d(updates["workflow_id"], picks["workflow_id"])
    counted = facts(
        [
            (f"episodes of {short(budget)}" if math.isfinite(budget) else "episodes", short(float(used))),
            ("picks", len(picks["step"])),
            ("workflows trained", len(trained)),
            ("passed the gate", sum(each.kind is PASSED for each in search.workflows)),
            ("infeasible", sum(each.kind is INFEASIBLE for each in search.workflows)),
            ("score of the best", fixed(search.best.mean) if search.best else NOTHING),
            ("seconds of training", f"{np.nansum(updates['collect_seconds'] + updates['update_seconds']):,.0f}"),
        ]
    )
    return counted + _winner(search)


def _winner(search: Search) -> str:
    best = search.best
    if best is None:
        return note("No workflow has passed the compliance gate yet.")
    where = "in the final evaluation" if search.evaluated else "while training (the final evaluation is still to come)"
    return (
        f"<p>Best workflow: <strong>{escape(best.name)}</strong>, with {escape(_with_interval(best))} an episode "
        f"and a compliance of {escape(fixed(best.compliance))} {escape(where)}.</p>"
    )


def _with_interval(scored: Scored) -> str:
    wide = f" ± {WIDE * scored.stderr:.2f}" if math.isfinite(scored.stderr) else ""
    return fixed(scored.mean) + wide


def fixed(value: float) -> str:
    """A number with two decimals, a dash for none."""
    return f"{value:.2f}".replace("-", "−") if math.isfinite(value) else NOTHING


def _ranking(search: Search) -> str:
    if not search.workflows:
        return note("No workflow has been trained to its end yet, so there is nothing to rank.")
    everyone = sorted(search.workflows + search.baselines, key=_worst_last)
    shown = ranked(search)
    chart = dot_rows(
        [Dot(each.name, each.mean, each.kind, WIDE * each.stderr) for each in shown],
        title="Environment reward an episode, best first" + (" (bars: 95 % interval)" if search.evaluated else ""),
        unit="environment reward an episode",
        floor=lowest_shown(search),
    )
    best_id = search.best.workflow_id if search.best else None
    left_out = len(everyone) - len(shown)
    caption = f"The {left_out} worst workflows are in the table only. " if left_out else ""
    if any(each.mean < lowest_shown(search) for each in shown):
        caption += "Arrows: far below the rest, off the chart."
    best_row = next(
        (k for k, each in enumerate(everyone) if each.kind is not BASELINE and each.workflow_id == best_id), None
    )
    lines = [
        [
            place,
            each.name,
            fixed(each.mean),
            f"{WIDE * each.stderr:.2f}" if math.isfinite(each.stderr) else NOTHING,
            fixed(each.compliance),
            int(each.trained_episodes) if math.isfinite(each.trained_episodes) else NOTHING,
            STATUS[each.kind],
        ]
        for place, each in enumerate(everyone, start=1)
    ]
    headers = ["", "workflow or baseline", "mean", "± 95 %", "compliance", "trained episodes", "gate"]
    early = "" if search.evaluated else note(f"There is no {RANKING} yet: these are the rewards of each last training.")
    return early + figure(chart, caption.strip()) + table(headers, lines, highlight=best_row)


def ranked(search: Search) -> list[Scored]:
    """Who is in the ranking chart, best first: every baseline, and as many workflows as there is room for."""
    room = max(MAX_RANKED - len(search.baselines), NUM_HIGHLIGHTED)
    return sorted(search.workflows[:room] + search.baselines, key=_worst_last)


def lowest_shown(search: Search) -> float:
    """Below this, a score would only squeeze the others together."""
    return far_below(np.array([each.mean for each in search.workflows]))


def far_below(values: np.ndarray) -> float:
    """Eight times as far below the highest value as the median is, and no nearer to it than zero."""
    values = values[np.isfinite(values)]
    if not values.size:
        return -math.inf
    highest = float(values.max())
    reach = max(8 * (highest - float(np.median(values))), abs(highest))
    return highest - reach if reach else -math.inf


def _beliefs(search: Search) -> str:
    if search.beliefs is None:
        return note(f"There is no {GP} yet: the search has not fitted its Gaussian process.")
    mean, std, kinds = search.beliefs.mean, search.beliefs.std, search.beliefs.kinds
    order = search.beliefs.best_first
    chart = dot_columns(
        [Dot(_name(k), float(mean[k]), kinds[k], float(std[k])) for k in order],
        title="Gaussian process over all 120 workflows (bars: one standard deviation)",
        x_label="place by mean",
        y_label="environment reward an episode",
    )
    lines = [
        [place, k, _name(k), fixed(mean[k]), f"± {std[k]:.2f}", STATUS[kinds[k]]]
        for place, k in enumerate(order[:10], start=1)
    ]
    return figure(chart, "Point at a dot to read its order. The ten highest means:") + table(
        ["place", "id", "workflow", "mean", "std", ""], lines
    )


def _places(search: Search) -> str:
    if search.beliefs is None:
        return note(f"This needs {GP}.")
    chart = heat_map(
        position_values(search.beliefs.mean),
        TYPES,
        PLACES,
        title="Mean GP value of the workflows with this type at this place",
        x_label="place in the workflow",
        centre=float(search.beliefs.mean.mean()),
    )
    return figure(chart, "Blue is better than the mean of all 120, orange is worse. Each cell averages 24 workflows.")


def _pairs(search: Search) -> str:
    if search.beliefs is None:
        return note(f"This needs {GP}.")
    chart = bar_chart(
        [
            Bar(f"{a} before {b}", effect, colour=ABOVE if effect > 0 else BELOW)
            for a, b, effect in pair_effects(search.beliefs.mean)
        ],
        title="What repairing one type before another is worth, largest first",
        unit="mean GP value with this order, minus the reverse",
    )
    return figure(chart, "Above zero: better this way round. Below: better the other way round.")


def _learning(search: Search) -> str:
    rewards = curves(search, "env_reward")
    if not rewards:
        return note(f"There are no rows in {TRAINING_LOG} yet.")
    charts = [_reward_chart(rewards, "Environment reward while training, best workflows in colour")]
    floor = far_below(search.updates["env_reward"])
    if (search.updates["env_reward"] < floor).any():
        near = [Series(c.name, c.x, above(floor, c.y), quiet=c.quiet) for c in rewards]
        charts.append(_reward_chart(near, f"The same above {short(floor, 2)}"))
    charts.append(
        line_chart(
            curves(search, "compliance"),
            title="Compliance while training",
            x_label="episodes of this workflow",
            y_label="complying share of the fixes",
            marks=[Mark(search.threshold, "threshold")],
        )
    )
    grey = "Grey: the other workflows. A new workflow starts from the policy of the nearest one trained before it."
    return "".join(figure(chart) for chart in charts) + note(grey)


def _reward_chart(curves: Sequence[Series], title: str) -> str:
    return line_chart(curves, title=title, x_label="episodes of this workflow", y_label="environment reward an episode")


def above(floor: float, values: Any) -> np.ndarray:
    """Values, with gaps where they lie below `floor`."""
    return np.where(np.asarray(values) >= floor, values, np.nan)


def curves(search: Search, column: str) -> list[Series]:
    """One curve a workflow over its own episodes: the highlighted ones best first, then the others, quiet."""
    updates, ids = search.updates, [int(k) for k in np.unique(search.updates["workflow_id"])]
    highlighted = [k for k in search.highlighted if k in ids]
    others = [k for k in ids if k not in highlighted]
    curves = []
    for k in highlighted + others:
        rows = updates["workflow_id"] == k
        curves.append(Series(_name(k), updates["episodes"][rows], updates[column][rows], quiet=k in others))
    return curves
