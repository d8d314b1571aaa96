"""What `redline eval` does on timed nets: makespans of a policy beside those of rules and of CP-SAT."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from redline.cli.console import err, out, print_json
from redline.cli.options import Output
from redline.cli.petri import require_files, write_files
from redline.errors import RedlineError


@dataclass(frozen=True)
class Nets:
    """Timed nets."""

    env: str | None = None
    """Timed nets: play this net instead of the one that the policy was trained on, e.g. with more wafers."""
    samples: int = 64
    """Timed nets: episodes to sample, of which the best counts."""
    solve_seconds: float = 10.0
    """Timed nets: seconds that CP-SAT may search for comparison, if the ortools extra is there; 0 leaves it out."""
    gantt: Path | None = None
    """Timed nets: draw the best schedule as .png (needs the plot extra), as .svg, or as a page in .html."""
    export: Path | None = None
    """Timed nets: write the firings of the best schedule as .json or .csv."""

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        if self.samples < 1:
            raise RedlineError(f"--samples {self.samples} cannot be played. Try --samples 64.")
        if not 0 <= self.solve_seconds < float("inf"):
            raise RedlineError(
                f"--solve-seconds {self.solve_seconds:g} cannot be searched. Try 10, or 0 for no search."
            )


def eval_net(name: str, rule: str | None, nets: Nets, seed: int, output: Output) -> int:
    """Score the rules on a net, or one of them."""
    from redline.evaluate.petri import play_rules, result_of
    from redline.sims.petri.instances import parse_petri
    from redline.sims.petri.rules import rule_actions

    require_files(nets.export, nets.gantt)
    instance = parse_petri(name)
    if rule is not None:
        results = [result_of(rule, instance, rule_actions(instance, rule))]
    else:
        results = [*play_rules(instance), *_solved(instance, nets, seed, output)]
    if not results:
        raise RedlineError(f"No rule plays {instance.name}. Train a policy on it: redline train '{instance.name}'")
    return _finish({"env": instance.name}, instance, results, results, None, nets, output)


def eval_run(trained: Any, about: dict[str, Any], nets: Nets, seed: int, output: Output) -> int:
    """Score a trained policy beside the rules."""
    from redline.evaluate.petri import play_policy, play_rules, require_fit
    from redline.sims.petri.instances import parse_petri

    require_files(nets.export, nets.gantt)
    config = trained.config
    options = {} if nets.env is not None else config.env_options
    instance = parse_petri(nets.env or config.env, **options)
    require_fit(trained.policy, instance)
    ours, samples = play_policy(trained.policy, instance, nets.samples, seed)
    results = [*ours, *play_rules(instance), *_solved(instance, nets, seed, output)]
    return _finish({**about, "env": instance.name}, instance, results, ours, samples, nets, output)


def _solved(instance: Any, nets: Nets, seed: int, output: Output) -> list[Any]:
    """What CP-SAT finds, where it can be asked."""
    from redline.evaluate.petri import solve_result

    if not nets.solve_seconds or find_spec("ortools") is None:
        return []
    if not output.quiet and not output.json:
        err.print(f"CP-SAT searches for up to {nets.solve_seconds:g} s …", soft_wrap=True)
    try:
        return [solve_result(instance, nets.solve_seconds, workers=2, seed=seed)]
    except RedlineError as error:  # a net it cannot be asked about is still worth scoring
        if not output.quiet and not output.json:
            err.print(f"CP-SAT is left out: {error}", soft_wrap=True, markup=False)
        return []


def _finish(
    about: dict[str, Any],
    instance: Any,
    results: list[Any],
    candidates: list[Any],
    samples: Any,
    nets: Nets,
    output: Output,
) -> int:
    """Print, draw, export."""
    from redline.evaluate.petri import best_of

    rows = [result.to_json(instance) for result in results]
    best = best_of(candidates)
    written = write_files(best.schedule, nets.export, nets.gantt, rows)
    facts = {"lower_bound": instance.lower_bound, "optimum": instance.optimum, "best": best.to_json(instance)}
    if output.json:
        drawn = {} if samples is None else {"samples": samples.to_json()}
        print_json({**about, **facts, **drawn, "results": rows})
        return 0
    print_results(instance, rows, None if samples is None else samples.to_json())
    for path in written:
        out.print(f"Written: {path} ({best.player})", soft_wrap=True, markup=False)
    return 0


def print_results(instance: Any, rows: list[dict[str, Any]], samples: dict[str, Any] | None) -> None:
    """A table of makespans, and what they are measured against."""
    known = "proven optimum " + ("unknown" if instance.optimum is None else str(instance.optimum))
    out.print(f"{instance.name}: lower bound {instance.lower_bound}, {known}", soft_wrap=True, markup=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in _columns(rows):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for row in rows:
        table.add_row(*(_cell(row, column) for column in _columns(rows)))
    out.print(table)
    if samples is not None and samples["completed"]:
        out.print(
            f"Of {samples['count']} samples {samples['completed']:.0%} reached the goal, on average at "
            f"{samples['mean']:.0f}, at the latest at {samples['worst']}.",
            soft_wrap=True,
        )


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
