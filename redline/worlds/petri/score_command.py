"""`redline eval` on timed nets: makespans of a policy beside those of rules and of CP-SAT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from redline.errors import RedlineError
from redline.learn.evaluate import Subject, Trained
from redline.runs import SCHEDULE, SCORES
from redline.worlds.petri.dispatching import rule_actions
from redline.worlds.petri.files import require_files, write_files
from redline.worlds.petri.instances import Instance, parse_petri
from redline.worlds.petri.scores import (
    NetResult,
    Samples,
    best_of,
    play_policy,
    play_rules,
    require_fit,
    result_of,
    solve_result,
)
from redline.worlds.world import Answer, Command, Say


@dataclass(frozen=True)
class NetOptions:
    """What to play, for how long, and what to draw of it."""

    env: str | None = None
    """Play this net instead of the one that the policy was trained on, e.g. with more wafers."""
    samples: int = 64
    """Episodes to sample, of which the best counts."""
    solve_seconds: float = 10.0
    """Seconds that CP-SAT may search for comparison, if the ortools extra is there; 0 leaves it out."""
    gantt: Path | None = None
    """Draw the best schedule as .png (needs the plot extra), as .svg, or as a page in .html."""
    export: Path | None = None
    """Write the firings of the best schedule as .json or .csv."""

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if self.samples < 1:
            raise RedlineError(f"--samples {self.samples} cannot be played. Try --samples 64.")
        if not 0 <= self.solve_seconds < float("inf"):
            raise RedlineError(
                f"--solve-seconds {self.solve_seconds:g} cannot be searched. Try 10, or 0 for no search."
            )


def run(subject: Subject, options: NetOptions, say: Say) -> Answer:
    """Score a trained policy beside the rules, or the rules alone, or one of them."""
    require_files(options.export, options.gantt)
    if subject.trained is None:
        return _rules(subject, options, say)
    given = {} if options.env is not None else subject.env_options
    instance = parse_petri(options.env or subject.env, **given)
    policy = subject.trained.policy
    require_fit(policy, instance)
    ours, samples = play_policy(policy, instance, options.samples, subject.seed)
    results = [*ours, *play_rules(instance), *_solved(instance, options, subject.seed, say)]
    return _answer({**subject.about, "env": instance.name}, instance, results, ours, samples, options)


SCORE = Command(NetOptions, run)


def _rules(subject: Subject, options: NetOptions, say: Say) -> Answer:
    instance = parse_petri(subject.env, **subject.env_options)
    if subject.player is not None:
        results = [result_of(subject.player, instance, rule_actions(instance, subject.player))]
    else:
        results = [*play_rules(instance), *_solved(instance, options, subject.seed, say)]
    if not results:
        raise RedlineError(f"No rule plays {instance.name}. Train a policy on it: redline train '{instance.name}'")
    return _answer({"env": instance.name}, instance, results, results, None, options)


def _solved(instance: Instance, options: NetOptions, seed: int, say: Say) -> list[NetResult]:
    """The schedule that CP-SAT finds, where it can be asked."""
    if not options.solve_seconds or find_spec("ortools") is None:
        return []
    say(f"CP-SAT searches for up to {options.solve_seconds:g} s …")
    try:
        return [solve_result(instance, options.solve_seconds, workers=2, seed=seed)]
    except RedlineError as error:  # a net it cannot be asked about is still worth scoring
        say(f"CP-SAT is left out: {error}")
        return []


def _answer(
    about: dict[str, Any],
    instance: Instance,
    results: Sequence[NetResult],
    candidates: Sequence[NetResult],
    samples: Samples | None,
    options: NetOptions,
) -> Answer:
    """Draw, export, and tell."""
    rows = [result.to_json(instance) for result in results]
    best = best_of(candidates)
    written = write_files(best.schedule, options.export, options.gantt, rows)
    facts = {"lower_bound": instance.lower_bound, "optimum": instance.optimum, "best": best.to_json(instance)}
    drawn = {} if samples is None else {"samples": samples.to_json()}
    lines = results_lines(instance, rows, None if samples is None else samples.to_json())
    lines += [escape(f"Written: {path} ({best.player})") for path in written]
    return Answer({**about, **facts, **drawn, "results": rows}, lines)


def grade(trained: Trained, episodes: int, seed: int) -> Answer:
    """The score at the end of training: the policy beside the rules; the best schedule stays in the run folder."""
    instance = parse_petri(trained.config.env, **trained.config.env_options)
    ours, drawn = play_policy(trained.policy, instance, episodes, seed)
    results = [each.to_json(instance) for each in (*ours, *play_rules(instance))]
    best = best_of(ours)
    facts = {"lower_bound": instance.lower_bound, "optimum": instance.optimum, "best": best.to_json(instance)}
    found = {**facts, "samples": drawn.to_json(), "results": results}
    lines = results_lines(instance, results, drawn.to_json())
    files = {SCHEDULE: best.schedule.to_json(), SCORES: found}
    return Answer({"makespan": best.makespan, **found}, lines, files=files)


def results_lines(
    instance: Instance, rows: list[dict[str, Any]], samples: dict[str, Any] | None
) -> list[RenderableType]:
    """A table of makespans, and what they are measured against."""
    known = "proven optimum " + ("unknown" if instance.optimum is None else str(instance.optimum))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in _columns(rows):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for row in rows:
        table.add_row(*(_cell(row, column) for column in _columns(rows)))
    lines: list[RenderableType] = [escape(f"{instance.name}: lower bound {instance.lower_bound}, {known}"), table]
    if samples is not None and samples["completed"]:
        lines.append(
            f"Of {samples['count']} samples {samples['completed']:.0%} reached the goal, on average at "
            f"{samples['mean']:.0f}, at the latest at {samples['worst']}."
        )
    return lines


_NAMES = {
    "makespan": "makespan",
    "gap_bound": "above bound",
    "gap_optimum": "above optimum",
    "margin_min": "least margin",
    "margin_mean": "mean margin",
    "robot": "robots busy",
    "chamber": "chambers busy",
    "machine": "machines busy",
}


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Columns in which somebody has something."""
    return ["policy", *(name for key, name in _NAMES.items() if any(row[key] not in (None, {}) for row in rows))]


def _cell(row: dict[str, Any], column: str) -> str:
    if column == "policy":
        return str(row["policy"])
    key = next(key for key, name in _NAMES.items() if name == column)
    value = row[key]
    if key == "makespan":
        return str(value) if value is not None else f"{row['outcome']}, {row['finished']} done"
    if value in (None, {}):
        return "–"
    if key.startswith("gap"):
        return f"{value:.1%}"
    if isinstance(value, dict):
        return _busy(value)
    return f"{value:.4g}"


def _busy(shares: dict[str, float]) -> str:
    """Up to three of them by name, else the least and the most busy."""
    used = {name: share for name, share in shares.items() if share > 0}
    if len(used) <= 3:
        return " ".join(f"{name} {share:.0%}" for name, share in used.items()) or "0%"
    return f"{min(used.values()):.0%} – {max(used.values()):.0%}"
