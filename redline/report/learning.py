"""The report of a training run: how it learned, how it scores, where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.metrics import load_metrics
from redline.report.chart import Series, line_chart, share_bar
from redline.report.page import Section, facts, figure, note, page, short, table
from redline.report.petri import HEADING, schedule_section_html
from redline.runs import Run
from redline.timing.breakdown import Breakdown
from redline.timing.rows import leaves, rows

SCORES = "scores.json"
SCHEDULE = "schedule.json"
BREAKDOWN = "breakdown.json"
REPORT = "report.html"


def write_report(run: Run) -> Path:
    """Write `report.html` into the run folder and return its path."""
    metrics = load_metrics(run.metrics)
    sections = [Section("In short", _headline(run, metrics)), Section("Learning", _learning(metrics))]
    scores = _read(run, SCORES)
    if scores is not None and "results" in scores:
        sections.insert(1, Section(HEADING, _schedule(run, scores["results"])))
    elif scores is not None:
        sections.append(Section("Score", _scores(scores)))
    breakdown = _read(run, BREAKDOWN)
    if breakdown is not None:
        sections.append(Section("Where the time went", _time(Breakdown.from_json(breakdown))))
    sections.append(Section("Settings", _settings(run.config)))
    path = run.path / REPORT
    try:
        path.write_text(page(f"Redline: {run.config.get('env', 'run')}", run.path.name, sections), encoding="utf-8")
    except OSError as error:
        raise RedlineError(f"The report cannot be written to {path}: {error.strerror}.") from error
    return path


def _read(run: Run, name: str) -> Any:
    return run.read_json(name) if (run.path / name).exists() else None


def _headline(run: Run, metrics: dict[str, np.ndarray]) -> str:
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
            ("mean episode return at the end", _final_return(metrics["return"])),
        ]
    )


def _schedule(run: Run, results: list[dict[str, Any]]) -> str:
    """The best schedule of a timed net, and how others do."""
    from redline.sims.petri.replay import read_schedule

    return schedule_section_html(read_schedule(run.read_json(SCHEDULE)), results)


def _final_return(returns: np.ndarray) -> str:
    """Mean over the last updates in which an episode ended."""
    known = returns[np.isfinite(returns)][-10:]
    return f"{known.mean():.2f}" if len(known) else "–"


def _learning(metrics: dict[str, np.ndarray]) -> str:
    step, mean = metrics["step"], metrics["return"]
    late = slice(max(0, len(step) // 8), None)
    tail = line_chart(
        [Series("mean episode return", step[late], mean[late])],
        title="The same without the first eighth",
        x_label="env steps",
        y_label="episode return",
    )
    speed = line_chart(
        [Series("steps/s", step, metrics["steps_per_second"])],
        title="Env steps per second, learning included",
        x_label="env steps",
        y_label="steps/s",
    )
    rows_seen = line_chart(
        [
            Series("distinct observations", step, metrics["distinct"]),
            Series("entropy x 100", step, 100 * metrics["entropy"]),
        ],
        title="Distinct observations in an update, and how undecided the policy is",
        x_label="env steps",
        y_label="count",
        log_y=True,
    )
    charts = [learning_chart(metrics), tail, speed, rows_seen]
    if "makespan" in metrics:
        charts.insert(0, _makespan_chart(metrics))
    return "".join(figure(chart) for chart in charts)


def _makespan_chart(metrics: dict[str, np.ndarray]) -> str:
    step, best = metrics["step"], np.fmin.accumulate(metrics["makespan_min"])
    return line_chart(
        [Series("mean of completed episodes", step, metrics["makespan"]), Series("shortest so far", step, best)],
        title="Makespan while learning",
        x_label="env steps",
        y_label="makespan",
    )


def learning_chart(metrics: dict[str, np.ndarray], standalone: bool = False) -> str:
    """Return over steps, as SVG; `standalone` for use outside the report."""
    step, mean, std = metrics["step"], metrics["return"], metrics["return_std"]
    return line_chart(
        [Series("mean episode return", step, mean, mean - std, mean + std)],
        title="Return of the episodes played while learning (band: one standard deviation)",
        x_label="env steps",
        y_label="episode return",
        standalone=standalone,
    )


def write_learning_svg(run: Run, path: Path) -> None:
    """The learning curve alone, as a picture that looks right on light and dark pages."""
    try:
        path.write_text(learning_chart(load_metrics(run.metrics), standalone=True), encoding="utf-8")
    except OSError as error:
        raise RedlineError(
            f"The picture cannot be written to {path}: {error.strerror}. Pass another --svg path."
        ) from error


def _scores(scores: dict[str, Any]) -> str:
    lines = [
        [s["rules"], s["red_agent"], s["length"], f"{s['mean']:.2f}", f"± {s['stderr']:.2f}", s["episodes"]]
        for s in scores["scores"]
    ]
    return table(["rules", "Red", "steps", "mean return", "standard error", "episodes"], lines) + note(
        "Published leaderboard scores were measured under the rule set `leaderboard`; compare only with those rows."
    )


def _time(breakdown: Breakdown) -> str:
    parts = [(row.name, row.share) for row in leaves(breakdown) if row.share > 0]
    lines = [["\u2003" * row.depth + row.name, f"{row.seconds:.2f}", f"{row.share:.1%}"] for row in rows(breakdown)]
    return figure(share_bar(parts, title="Share of the training time")) + table(["part", "seconds", "share"], lines)


def _settings(config: dict[str, Any]) -> str:
    flat: list[list[Any]] = []
    for name, value in config.items():
        if isinstance(value, dict):
            flat += [[f"{name}.{inner}", str(each)] for inner, each in value.items()]
        else:
            flat.append([name, str(value)])
    return table(["setting", "value"], flat)
