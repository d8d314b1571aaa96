"""The report of a workflow search: which repair order won, what the search believes of the others, how each learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from redline.report.draw import NOTHING, Drawing, escape, fixed, short, write_picture
from redline.report.page import Section, facts, figure_for, note, settings_table, table, write_page
from redline.report.search_charts import (
    beliefs_chart,
    compliance_chart,
    lowest_shown,
    pairs_chart,
    places_chart,
    ranked,
    ranking_chart,
    reward_charts,
)
from redline.report.search_results import (
    BASELINE,
    INFEASIBLE,
    PASSED,
    STATUS,
    Scored,
    SearchResults,
    read_search,
    workflow_name,
    worst_last,
)
from redline.report.verdict import in_words, with_interval
from redline.runs import GP, GP_PNG, LEARNING_PNG, POSITIONS_PNG, RANKING, RANKING_PNG, REPORT, TRAINING_LOG, Run


def write_search_report(run: Run) -> Path:
    """Write the report into the folder of a search, finished or not, and return its path."""
    results = read_search(run)
    sections = [
        Section("In short", _headline(results)),
        Section("Ranking", _ranking(results)),
        Section("What the search believes", _beliefs(results)),
        Section("Which type at which place", _places(results)),
        Section("Which pairs matter", _pairs(results)),
        Section("Learning", _learning(results)),
        Section("Settings", settings_table(run.config)),
    ]
    red = run.config.get("red_agent")
    subtitle = f"{run.path.name}, against {red}" if red else run.path.name
    return write_page(run.path / REPORT, "Redline: workflow search", subtitle, sections)


def write_search_svg(run: Run, path: Path) -> Path:
    """How each workflow learned, as a picture that looks right on light and dark pages."""
    write_picture(reward_charts(read_search(run))[-1], path, ".svg")
    return path


def write_search_pngs(run: Run) -> list[Path]:
    """Write the main charts into the run folder as PNG files. A chart with nothing to show yet is left out."""
    paths = []
    for name, chart in _pictures(read_search(run)).items():
        write_picture(chart, run.path / name)
        paths.append(run.path / name)
    return paths


def _pictures(results: SearchResults) -> dict[str, Drawing]:
    """The charts that have something to show, by the names of their files."""
    charts = {}
    if any(math.isfinite(each.mean) for each in results.workflows):
        charts[RANKING_PNG] = ranking_chart(results)
    if results.beliefs is not None:
        charts |= {GP_PNG: beliefs_chart(results.beliefs), POSITIONS_PNG: places_chart(results.beliefs)}
    if len(results.updates["step"]):
        charts[LEARNING_PNG] = reward_charts(results)[-1]
    return charts


def _headline(results: SearchResults) -> str:
    picks, updates = results.picks, results.updates
    steps = np.concatenate([picks["step"], updates["step"]])
    used = np.nanmax(steps) if np.isfinite(steps).any() else 0.0
    trained = np.union1d(updates["workflow_id"], picks["workflow_id"])
    counted = facts(
        [
            (
                f"episodes of {short(results.budget)}" if math.isfinite(results.budget) else "episodes",
                short(float(used)),
            ),
            ("picks", len(picks["step"])),
            ("workflows trained", len(trained)),
            ("passed the gate", sum(each.kind is PASSED for each in results.workflows)),
            ("infeasible", sum(each.kind is INFEASIBLE for each in results.workflows)),
            ("score of the best", fixed(results.best.mean) if results.best else NOTHING),
            ("seconds of searching", f"{_seconds(results):,.0f}"),
        ]
    )
    return counted + _winner(results)


def _seconds(results: SearchResults) -> float:
    """Of all sittings, as the command prints it; earlier versions tell of the updates only."""
    if math.isfinite(results.seconds):
        return results.seconds
    return float(np.nansum(results.updates["collect_seconds"] + results.updates["update_seconds"]))


def _winner(results: SearchResults) -> str:
    best = results.best
    if best is None:
        return note("No workflow has passed the compliance gate yet.")
    if results.ranking:
        name = escape(best.name)
        first, *lines = (escape(line.strip()) for line in in_words(results.ranking, len(results.orders)).split("\n"))
        return "".join(f"<p>{line}</p>" for line in [first.replace(name, f"<strong>{name}</strong>", 1), *lines])
    where = "while training (the final evaluation is still to come)"
    score = escape(with_interval(best.mean, best.stderr))
    obeyed = f"a compliance of {escape(fixed(best.compliance))} {where}"
    return f"<p>Best workflow: <strong>{escape(best.name)}</strong>, with {score} an episode and {obeyed}.</p>"


def _ranking(results: SearchResults) -> str:
    if not results.workflows:
        return note("No workflow has been trained to its end yet, so there is nothing to rank.")
    everyone, shown = sorted(results.workflows + results.baselines, key=worst_last), ranked(results)
    left_out = len(everyone) - len(shown)
    caption = f"The {left_out} worst workflows are in the table only. " if left_out else ""
    if any(each.mean < lowest_shown(results) for each in shown):
        caption += "Arrows: far below the rest, off the chart."
    early = note(f"There is no {RANKING} yet: these are the rewards of each last training.")
    chart = figure_for(partial(ranking_chart, results), caption.strip())
    return ("" if results.evaluated else early) + chart + _ranking_table(results, everyone)


def _ranking_table(results: SearchResults, everyone: list[Scored]) -> str:
    best_id = results.best.workflow_id if results.best else None
    best_row = next(
        (k for k, each in enumerate(everyone) if each.kind is not BASELINE and each.workflow_id == best_id), None
    )
    lines = [
        [
            place,
            each.name,
            fixed(each.mean),
            f"{each.reach:.2f}" if math.isfinite(each.stderr) else NOTHING,
            fixed(each.compliance),
            int(each.trained_episodes) if math.isfinite(each.trained_episodes) else NOTHING,
            STATUS[each.kind],
        ]
        for place, each in enumerate(everyone, start=1)
    ]
    headers = ["", "workflow or baseline", "mean", "± 95 %", "compliance", "trained episodes", "gate"]
    return table(headers, lines, highlight=best_row)


BELIEFS = (
    "Scores while training, by which the search picks; the ranking above is of fresh episodes. Point at a dot to read its "
    "order. The highest means, at most ten:"
)


def _beliefs(results: SearchResults) -> str:
    beliefs = results.beliefs
    if beliefs is None:
        return note(f"There is no {GP} yet: the search has not finished a training.")
    lines = [
        [
            workflow_name(beliefs.workflows, k) + (f" and {count - 1} alike" if count > 1 else ""),
            fixed(beliefs.mean[k]),
            f"{beliefs.reach[k]:.2f}",
            STATUS[beliefs.kinds[k]],
        ]
        for k, count in beliefs.distinct_best_first[:10]
    ]
    chart = figure_for(partial(beliefs_chart, beliefs), BELIEFS)
    return chart + table(["workflow", "mean", "± 95 %", ""], lines)


def _places(results: SearchResults) -> str:
    if results.beliefs is None:
        return note(f"This needs {GP}.")
    orders = results.orders
    each = len(orders) // len(orders.types)
    caption = "Blue is better than the mean of all, orange is worse; pale is within the noise. "
    caption += f"Each cell averages {each} workflows."
    return figure_for(partial(places_chart, results.beliefs), caption)


def _pairs(results: SearchResults) -> str:
    if results.beliefs is None:
        return note(f"This needs {GP}.")
    caption = "Above zero: better this way round. Below: better the other way round."
    return figure_for(partial(pairs_chart, results.beliefs), caption)


def _learning(results: SearchResults) -> str:
    if not len(results.updates["step"]):
        return note(f"There are no rows in {TRAINING_LOG} yet.")
    rewards: list[Callable[[int], Drawing]] = [
        partial(_reward_chart, results, k) for k in range(len(reward_charts(results)))
    ]
    charts: list[Callable[[int], Drawing]] = [*rewards, partial(compliance_chart, results)]
    return "".join(figure_for(draw) for draw in charts) + note("Grey: the other workflows.")


def _reward_chart(results: SearchResults, k: int, width: int) -> Drawing:
    return reward_charts(results, width)[k]
