"""The report of a training run: how it learned, how it scores, where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.learn.config import config_to_json, recipe
from redline.metrics import final_return, load_numbers
from redline.report.charts.bar_chart import share_bar
from redline.report.charts.line_chart import Series, line_chart
from redline.report.draw import Drawing, fixed, short
from redline.report.page import DESK_WIDTH, Section, facts, figure_for, settings_table, table, write_page
from redline.report.playing import episode_sections
from redline.report.stages import stage_sections
from redline.runs import BREAKDOWN, REPORT, Run, scores_in
from redline.timing.breakdown import Breakdown
from redline.timing.rows import leaves, rows
from redline.worlds.registry import world_of

NEEDED = (
    "step", "episodes", "seconds", "steps_per_second", "return", "return_std", "distinct", "entropy",
)  # fmt: skip
"""The metrics that a report shows."""
Metrics = dict[str, np.ndarray]
"""The columns of a run's metrics."""


def write_report(run: Run, trust: bool = False) -> Path:
    """Write the report into the run folder and return its path. It holds episodes, where the policy can be played."""
    metrics = load_numbers(run.metrics, NEEDED)
    sections = [
        Section("In short", _headline(metrics)),
        *sections_of(run),
        *stage_sections(run),
        *episode_sections(run, trust),
        Section("Learning", _learning(metrics)),
        *_time(run),
        Section("Settings", settings_table(run.config, usual_settings(run))),
    ]
    return write_page(run.path / REPORT, f"Redline: {run.config.get('env', 'run')}", run.path.name, sections)


def usual_settings(run: Run) -> dict[str, Any] | None:
    """The settings that a run would have had if nothing had been said; None where that cannot be told."""
    try:
        return config_to_json(recipe(str(run.config.get("env"))))
    except RedlineError:
        return None


def sections_of(run: Run) -> list[Section]:
    """The sections that a run's world has about it; of a world that has none, the score alone."""
    try:
        tell = world_of(str(run.config.get("env"))).sections
    except RedlineError:  # the package that brought this world is gone
        tell = None
    return _score(run) if tell is None else tell(run)


def learning_chart(metrics: Metrics, width: int = DESK_WIDTH) -> Drawing:
    """Return over steps, at the updates in which episodes ended."""
    ended = np.isfinite(metrics["return"])
    step, mean, std = (metrics[name][ended] for name in ("step", "return", "return_std"))
    return line_chart(
        [Series("mean episode return", step, mean, mean - std, mean + std)],
        title="Return of the episodes played while learning (band: one standard deviation)",
        x_label="env steps",
        y_label="episode return",
        width=width,
    )


def _read(run: Run, name: str) -> Any:
    """The content of a JSON file, None where it is not there."""
    return run.read_json(name) if (run.path / name).exists() else None


def _headline(metrics: Metrics) -> str:
    seconds = float(metrics["seconds"].sum())
    steps = float(metrics["step"][-1])
    settled = metrics["steps_per_second"][len(metrics["step"]) // 2 :]
    return facts(
        [
            ("env steps", short(steps)),
            ("episodes", short(float(metrics["episodes"][-1]))),
            ("seconds of training", f"{seconds:.0f}"),
            ("steps/s overall", short(steps / seconds)),
            ("steps/s once settled (median)", short(float(np.median(settled)))),
            ("mean episode return at the end", fixed(final_return(metrics["return"]))),
        ]
    )


class Curve(NamedTuple):
    """A chart of some columns of the metrics."""

    title: str
    y_label: str
    columns: tuple[tuple[str, str], ...]
    """Column and name of each line."""
    log_y: bool = False


CURVES = (
    Curve("Env steps per second, learning included", "steps/s", (("steps_per_second", "steps/s"),)),
    Curve("Losses", "loss", (("policy_loss", "policy"), ("value_loss", "value"))),
    Curve("How far the policy moved in an update (KL)", "KL", (("kl", "KL"),)),
    Curve("Share of steps whose update was clipped", "share", (("clipped", "clipped"),)),
    Curve(
        "How much of the returns the value function explains",
        "explained variance",
        (("explained_variance", "explained"),),
    ),
    Curve("How undecided the policy is (entropy)", "entropy", (("entropy", "entropy"),)),
    Curve("Distinct observations in an update", "count", (("distinct", "distinct observations"),), log_y=True),
)


def _learning(metrics: Metrics) -> str:
    body = figure_for(lambda width: learning_chart(metrics, width)) if _has(metrics, "return") else ""
    step, mean = metrics["step"], metrics["return"]
    late = np.isfinite(mean) & (np.arange(len(step)) >= len(step) // 8)
    if late.any():
        body += figure_for(
            lambda width: line_chart(
                [Series("mean episode return", step[late], mean[late])],
                title="Return after the first eighth of the run", x_label="env steps", y_label="episode return", width=width,
            )
        )  # fmt: skip
    return body + "".join(_curve(curve, metrics) for curve in CURVES)


def _curve(curve: Curve, metrics: Metrics) -> str:
    """The chart of a curve, nothing where the run knows none of it."""
    lines = [(metrics[column], name) for column, name in curve.columns if _has(metrics, column)]
    if not lines:
        return ""
    return figure_for(
        lambda width: line_chart(
            [Series(name, metrics["step"], values) for values, name in lines],
            title=curve.title, x_label="env steps", y_label=curve.y_label, log_y=curve.log_y, width=width, height=280,
        )
    )  # fmt: skip


def _has(metrics: Metrics, column: str) -> bool:
    """Whether a column holds a number at all."""
    found = metrics.get(column)
    return found is not None and found.dtype.kind == "f" and bool(np.isfinite(found).any())


def _score(run: Run) -> list[Section]:
    """The mean return that was found last: at the end of training, or by `redline eval` since."""
    lines = [[fixed(each["mean"]), f"± {each['stderr']:.2f}", each["episodes"]] for each in scores_in(run)]
    if not lines:
        return []
    return [Section("Score", table(["mean return", "standard error", "episodes"], lines))]


def _time(run: Run) -> list[Section]:
    """Where the time went, where the run tells."""
    found = _read(run, BREAKDOWN)
    if found is None:
        return []
    breakdown = Breakdown.from_json(found)
    parts = [(row.name, row.share) for row in leaves(breakdown) if row.share > 0]
    lines = [["\u2003" * row.depth + row.name, f"{row.seconds:.2f}", f"{row.share:.1%}"] for row in rows(breakdown)]
    chart = figure_for(lambda width: share_bar(parts, title="Share of the training time", width=width))
    body = chart + table(["part", "seconds", "share"], lines)
    return [Section("Where the time went", body)]
