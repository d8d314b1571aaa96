"""A timed net in a report: the best schedule with its Gantt chart, how busy everything was, how others do on the net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.files import reason, replace_file
from redline.metrics import load_metrics
from redline.report.charts.line_chart import Series, line_chart
from redline.report.draw import NOTHING, Drawing, percent
from redline.report.page import DESK_WIDTH, Section, facts, figure_for, table, write_page
from redline.runs import SCHEDULE, SCORES, Run, as_written
from redline.worlds.petri.gantt import WIDTH as GANTT_WIDTH
from redline.worlds.petri.gantt import draw_gantt, known_makespans, name_of, outcome_of, unit_of
from redline.worlds.petri.lanes import AT_STATION, CLEANING, FIRING, ON_ARM, Lane, end_of, lanes, margins
from redline.worlds.petri.replay import read_schedule
from redline.worlds.petri.schedule import Schedule, require_format

HEADING = "Schedule"
BUSY = {"robot": ("picking", "placing"), "transition": (FIRING,)}
"""Phases in which a lane is at work; for stations and machines that is processing."""
Score = Mapping[str, Any]


def sections(run: Run) -> list[Section]:
    """The best schedule of a run beside those of others, and how makespans fell while it learned."""
    found: list[Section] = []
    scores = run.read_json(SCORES) if (run.path / SCORES).exists() else {}
    if isinstance(scores, dict) and "results" in scores:
        with as_written(run.path / SCHEDULE):
            schedule = read_schedule(_own_schedule(run))
        with as_written(run.path / SCORES):
            found.append(Section(HEADING, schedule_section_html(schedule, scores["results"])))
    metrics = load_metrics(run.metrics)
    if "makespan" in metrics and np.isfinite(metrics["makespan"]).any():
        found.append(Section("Makespan", figure_for(lambda width: makespan_chart(metrics, width))))
    return found


def _own_schedule(run: Run) -> dict[str, Any]:
    """The schedule in a run folder. It may only be of the net that the run is on: any other could be any file."""
    found, env = run.read_json(SCHEDULE), str(run.config.get("env"))
    net = found.get("net") if isinstance(found, dict) else None
    if not isinstance(net, str) or net.partition("?")[0] != env.partition("?")[0]:
        raise RedlineError(f"{run.path / SCHEDULE} is no schedule of {env}. Delete it, and the report is made without.")
    return found


def makespan_chart(metrics: Mapping[str, np.ndarray], width: int = DESK_WIDTH) -> Drawing:
    """Makespan over steps, on average and at best."""
    step, best = metrics["step"], np.fmin.accumulate(metrics["makespan_min"])
    return line_chart(
        [Series("mean of completed episodes", step, metrics["makespan"]), Series("shortest so far", step, best)],
        title="Makespan while learning",
        x_label="env steps",
        y_label="makespan",
        width=width,
    )


def write_schedule_page(schedule: Schedule, path: Path, scores: Sequence[Score] = ()) -> None:
    """Write a schedule as a page of its own."""
    count = len(schedule.log)
    subtitle = f"{outcome_of(schedule)}, {count:,} firing{'' if count == 1 else 's'}"
    sections = [Section(HEADING, schedule_section_html(schedule, scores))]
    write_page(path, f"Redline: {name_of(schedule)}", subtitle, sections)


def write_schedule(schedule: Schedule, path: Path) -> None:
    """Write the firings of a schedule as JSON or CSV, as the path's ending says."""
    require_format(path)
    try:
        replace_file(path, schedule.encode(path.suffix))
    except OSError as error:
        raise RedlineError(f"The schedule cannot be written to {path}: {reason(error)}.") from error


def schedule_section_html(schedule: Schedule, scores: Sequence[Score] = ()) -> str:
    """The body of the section: facts, Gantt chart, utilisation, and a row for each of the scores.

    A score may have policy, makespan, outcome, gap_bound and gap_optimum (shares of 1), margin_min, and the shares of
    time for which each robot and each chamber was busy; whatever is missing or None shows as a dash.
    """
    parts = [_facts(schedule), _gantt(schedule)]
    if lanes(schedule):
        parts += ["<h3>How busy everything was</h3>", utilisation_table(schedule)]
    if scores:
        parts += ["<h3>The same net, played by others</h3>", score_table(scores)]
    return "\n".join(parts)


def _gantt(schedule: Schedule) -> str:
    caption = "Point at a bar to read who it is, where, from when to when and how much of a residency limit was left."
    return figure_for(lambda width: draw_gantt(schedule, width), caption, wide=GANTT_WIDTH)


def _facts(schedule: Schedule) -> str:
    unit, done = unit_of(schedule), schedule.outcome == "done"
    bound, optimum = known_makespans(schedule)
    left = margins(schedule)
    pairs: list[tuple[str, object]] = [
        ("net", name_of(schedule).partition("?")[0].rpartition("/")[2]),
        ("outcome", schedule.outcome),
        ("makespan" if done else "clock", f"{schedule.makespan:,}{unit}"),
        ("above the lower bound", _gap(schedule.makespan, bound) if done else NOTHING),
        ("above the optimum", _gap(schedule.makespan, optimum) if done else NOTHING),
    ]
    if left:
        pairs += [
            ("smallest residency margin", f"{min(left)}{unit}"),
            ("mean residency margin", f"{fmean(left):.1f}{unit}"),
        ]
    return facts(pairs)


def _gap(makespan: int, reference: int | None) -> str:
    return percent(makespan / reference - 1) if reference else NOTHING


def utilisation_table(schedule: Schedule) -> str:
    """Busy, occupied, waiting and cleaning time of every lane; a column that is all 0 is left out."""
    unit = " (s)" if unit_of(schedule) else ""
    headers = ["", "kind", "visits", f"busy{unit}", "utilisation", "occupied", f"waiting{unit}", f"cleaning{unit}"]
    rows = [_utilisation(lane, max(1, end_of(schedule))) for lane in lanes(schedule)]
    return _table(headers, rows, nothing=0)


def _utilisation(lane: Lane, end: int) -> list[object]:
    busy = lane.seconds(*BUSY.get(lane.kind, ("processing",)))
    occupied = lane.seconds(*AT_STATION, *ON_ARM, FIRING)
    waiting, cleaning = lane.seconds("waiting", "holding", "late"), lane.seconds(CLEANING)
    visits = len(lane.visits)
    return [lane.name, lane.kind, visits, busy, percent(busy / end), percent(occupied / end), waiting, cleaning]


def _table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], nothing: object, highlight: int | None = None
) -> str:
    """A table without the columns that hold nothing but `nothing`; the first three always stay."""
    kept = [k for k, cells in enumerate(zip(*rows, strict=True)) if k < 3 or any(cell != nothing for cell in cells)]
    return table([headers[k] for k in kept], [[row[k] for k in kept] for row in rows], highlight=highlight)


def score_table(scores: Sequence[Score]) -> str:
    """A row per score, the best makespan pointed out. Columns in which nobody has anything are left out."""
    rows = [_score(score) for score in scores]
    headers = [
        "policy", "makespan", "outcome", "above the bound", "above the optimum", "smallest margin", "busiest robot",
        "busiest chamber",
        "busiest machine",
    ]  # fmt: skip
    done = [(score["makespan"], k) for k, score in enumerate(scores) if _finished(score)]
    highlight = min(done)[1] if len(done) > 1 else None
    return _table(headers, rows, nothing=None, highlight=highlight)


def _finished(score: Score) -> bool:
    return score.get("makespan") is not None and score.get("outcome") in (None, "done")


def _score(score: Score) -> list[object]:
    gaps = [score.get("gap_bound"), score.get("gap_optimum")]
    return [
        score.get("policy"),
        score.get("makespan"),
        score.get("outcome"),
        *(None if gap is None else percent(gap) for gap in gaps),
        score.get("margin_min"),
        _busiest(score.get("robot")),
        _busiest(score.get("chamber")),
        _busiest(score.get("machine")),
    ]


def _busiest(shares: Mapping[str, float] | None) -> str | None:
    """The name with the largest share, and the share."""
    if not shares:
        return None
    name = max(shares, key=lambda key: shares[key])
    return f"{name} {percent(shares[name])}"
