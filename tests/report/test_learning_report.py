"""The report of a training run, made of what its folder holds and of what its world has to tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.cli.report import run as report
from redline.metrics import MetricsLog
from redline.report.learning import sections_of, write_report
from redline.runs import SCHEDULE, SCORES, Run
from redline.search import KIND
from redline.timing.breakdown import Breakdown
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.schedule import Schedule
from tests.report.reading import Outline

NET = "petri:cluster/S-0?wafers=1"


def make_run(path: Path, env: str, **more: float) -> Run:
    """A folder as training leaves it behind before anything is scored."""
    run = Run.at(path, {"env": env, "ppo": {"learning_rate": 0.001}})
    with MetricsLog(run.metrics) as log:
        for step in range(1, 20):
            row = {"step": step, "episodes": step, "seconds": 0.5, "steps_per_second": 2.0, "return": -20.0 + step}
            log.append({**row, "return_std": 1.0, "distinct": 5, "entropy": 0.3, **more})
    return run


def headings(run: Run) -> list[str]:
    return Outline(write_report(run).read_text()).inside("h2")


def score(**more: Any) -> dict[str, Any]:
    return {"scores": [{"mean": -18.25, "stderr": 0.5, "episodes": 64, **more}]}


def test_a_report_needs_no_more_than_metrics(tmp_path: Path):
    run = make_run(tmp_path / "run", "cage2")
    assert headings(run) == ["In short", "Learning", "Settings"]
    assert "ppo.learning_rate" in (run.path / "report.html").read_text()


def test_the_world_tells_the_score_in_its_own_words(tmp_path: Path):
    run = make_run(tmp_path / "run", "cage2")
    run.write_json(SCORES, score(rules="leaderboard", red_agent="B_lineAgent", length=100))
    run.write_json("breakdown.json", Breakdown(1.0, {("collect",): 1.0}, {("collect",): 3}).to_json())
    assert headings(run) == ["In short", "Score", "Learning", "Where the time went", "Settings"]
    cells = Outline((run.path / "report.html").read_text()).inside("td")
    assert cells[:6] == ["leaderboard", "B_lineAgent", "100", "−18.25", "± 0.50", "64"]
    assert "sum" not in cells


def test_scores_of_several_settings_are_added_up_beside_the_published_ones(tmp_path: Path):
    run = make_run(tmp_path / "run", "cage2")
    found = [score(rules="leaderboard", red_agent="B_lineAgent", length=length)["scores"][0] for length in (30, 50)]
    run.write_json(SCORES, {"scores": found})
    write_report(run)
    cells = Outline((run.path / "report.html").read_text()).inside("td")
    first = cells.index("sum")
    assert cells[first - 1 : first + 3] == ["leaderboard", "sum", "−36.50", "−9.88"]  # Cardiff: −3.47 and −6.41


@pytest.mark.parametrize("env", ["CartPole-v1", "a-package-that-is-gone:env"])
def test_a_world_without_a_page_of_its_own_has_its_mean_return(tmp_path: Path, env: str):
    run = make_run(tmp_path / "run", env)
    run.write_json(SCORES, score())
    assert headings(run)[1] == "Score"
    assert Outline(sections_of(run)[0].body_html).inside("td") == ["−18.25", "± 0.50", "64"]


def test_a_net_shows_its_schedule_and_how_makespans_fell(tmp_path: Path):
    run = make_run(tmp_path / "run", NET, makespan=200.0, makespan_min=180.0)
    net = parse_petri(NET).net
    first = next(k for k, transition in enumerate(net.transitions) if transition.name == "u_LP_TM1")
    schedule = Schedule(NET, net, 5, "running", np.array([(0, 5, first, 0)], np.int32))
    run.write_json(SCHEDULE, schedule.to_json())
    run.write_json(SCORES, {"results": [{"policy": "SPT", "makespan": 200, "outcome": "done"}]})
    assert headings(run) == ["In short", "Schedule", "Makespan", "Learning", "Settings"]
    page = (run.path / "report.html").read_text()
    assert "Makespan while learning" in page and "wafer 0 on TM1" in page and "SPT" in page


def test_a_net_that_was_never_scored_still_has_its_makespans(tmp_path: Path):
    run = make_run(tmp_path / "run", NET, makespan=200.0, makespan_min=180.0)
    assert headings(run) == ["In short", "Makespan", "Learning", "Settings"]


def test_the_command_writes_the_page_and_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = make_run(tmp_path / "run", "cage2")
    assert report([str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(run.path / "report.html")}
    assert (run.path / "report.html").exists()


def test_a_search_that_has_only_begun_has_a_page(tmp_path: Path):
    run = Run.at(tmp_path / "begun", {"kind": KIND})
    assert report([str(run.path), "--quiet"]) == 0
    assert (run.path / "report.html").exists()
