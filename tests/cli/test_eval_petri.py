"""`redline train` and `redline eval` on nets: schedules, rules beside them, charts, exports."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli import main

FT06 = "petri:jobshop/ft06"
J0 = "petri:cluster/J-0?wafers=4"


def redline(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    options = ["--num-envs", "16", "--num-steps", "64", "--total-steps", "4000", "--run-dir", path, "-q"]
    assert redline("train", FT06, *options) == 0
    return path


def test_rules_are_scored_on_a_net(capsys):
    assert redline("eval", FT06, "--solve-seconds", "0", "--json") == 0
    report = answer(capsys)
    assert (report["lower_bound"], report["optimum"]) == (52, 55)
    assert {row["policy"]: row["makespan"] for row in report["results"]} == {
        "SPT": 88,
        "MWR": 61,
        "MOR": 59,
        "FIFO": 65,
    }
    assert report["best"]["policy"] == "MOR"
    assert report["best"]["gap_optimum"] == pytest.approx(59 / 55 - 1)
    assert 0 < report["best"]["machine"]["I0"] < 1


def test_one_rule_alone(capsys):
    assert redline("eval", J0, "--policy", "insertion", "--json") == 0
    [row] = answer(capsys)["results"]
    assert (row["makespan"], row["margin_min"]) == (1030, 15)
    assert 0 < row["robot"]["TM2"] < 1
    assert 0 < row["chamber"]["PM1"] < 1


def test_a_solver_stands_beside_the_rules(capsys):
    assert redline("eval", J0, "--solve-seconds", "20", "--json") == 0
    rows = answer(capsys)["results"]
    assert rows[-1]["policy"].startswith("CP-SAT")
    assert rows[-1]["makespan"] == rows[-1]["proven_bound"] == 1010
    assert rows[-1]["gap_optimum"] == 0


def test_a_trained_policy_is_scored_beside_the_rules(run, capsys):
    assert redline("eval", run, "--samples", "8", "--solve-seconds", "0", "--json") == 0
    report = answer(capsys)
    players = [row["policy"] for row in report["results"]]
    assert players[:3] == ["policy, likeliest actions", "policy, best of 8 samples", "SPT"]
    assert report["samples"]["count"] == 8
    assert report["samples"]["best"] == report["results"][1]["makespan"]
    assert report["best"]["makespan"] == min(row["makespan"] for row in report["results"][:2])
    assert redline("eval", run, "--samples", "8", "--solve-seconds", "0") == 0
    table = capsys.readouterr().out
    assert "proven optimum 55" in table
    assert "best of 8" in table


def test_the_same_seed_scores_the_same(run, capsys):
    reports = []
    for _ in range(2):
        assert redline("eval", run, "--seed", "3", "--samples", "8", "--solve-seconds", "0", "--json") == 0
        reports.append(answer(capsys))
    assert reports[0] == reports[1]


def test_a_run_keeps_its_best_schedule_and_shows_it(run):
    schedule = json.loads((run / "schedule.json").read_text())
    assert (schedule["outcome"], len(schedule["firings"])) == ("done", 36)
    page = (run / "report.html").read_text()
    assert "Schedule" in page
    assert "policy, likeliest actions" in page
    assert "Makespan while learning" in page


def test_what_is_exported_can_be_verified_again(tmp_path, capsys):
    paths = {suffix: tmp_path / f"schedule{suffix}" for suffix in (".json", ".csv")}
    for path in paths.values():
        assert redline("eval", J0, "--policy", "insertion", "--export", path) == 0
    assert redline("verify", "petri", "--schedule", paths[".json"]) == 0
    assert "makespan 1030 as recorded" in capsys.readouterr().out
    rows = list(csv.DictReader(paths[".csv"].read_text().splitlines()))
    assert len(rows) == len(json.loads(paths[".json"].read_text())["firings"]) == 48
    assert (rows[0]["transition"], rows[0]["token"], rows[0]["from"], rows[0]["to"]) == ("u_LP_TM2", "0", "LP", "TM2")


def test_a_job_shop_schedule_can_be_verified_again(tmp_path, capsys):
    path = tmp_path / "ft06.json"
    assert redline("eval", FT06, "--policy", "MOR", "--export", path) == 0
    assert redline("verify", "petri", "--schedule", path) == 0
    assert "as recorded" in capsys.readouterr().out
    data = json.loads(path.read_text())
    data["firings"][5]["start"] += 1
    path.write_text(json.dumps(data))
    assert redline("verify", "petri", "--schedule", path) == 1
    assert "cannot be done then (recorded makespan 59)" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_the_best_schedule_is_drawn(suffix, tmp_path, capsys):
    path = tmp_path / f"gantt{suffix}"
    assert redline("eval", J0, "--policy", "insertion", "--gantt", path) == 0
    assert path.stat().st_size > 5000
    assert f"Written: {path}" in capsys.readouterr().out.replace("\n", "")


def test_a_policy_plays_another_net_of_the_same_shape(run, tmp_path, capsys):
    other = tmp_path / "other.txt"
    other.write_text("6 6\n" + "\n".join(" ".join(f"{m} {1 + (m * j) % 5}" for m in range(6)) for j in range(6)))
    assert redline("eval", run, "--env", f"petri:jobshop/{other}", "--solve-seconds", "0", "--json") == 0
    assert answer(capsys)["env"].endswith("other.txt")
    assert redline("eval", run, "--env", "petri:jobshop/ft10", "--solve-seconds", "0") == 2
    assert "the policy was trained on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("eval", FT06, "--policy", "insertion"), "There is no rule 'insertion'"),
        (("eval", "petri:jobshop/ft6"), "Did you mean 'ft06'?"),
        (("eval", FT06, "--samples", "0"), "--samples 0 cannot be played"),
        (("eval", FT06, "--solve-seconds", "-1"), "--solve-seconds -1 cannot be searched"),
        (("eval", FT06, "--gantt", "chart.gif"), "Try gantt.png"),
        (("eval", FT06, "--export", "schedule.xml"), "Try schedule.json"),
        (("eval", FT06, "--export", "nowhere/schedule.json"), "there is no folder nowhere"),
        (("eval", FT06, "--episodes", "10"), "which takes --env, --export, --gantt, --samples"),
        (("eval", FT06, "--red-agent", "SleepAgent"), "--red-agent is for cage2, not for petri"),
        (("eval", "cage2", "--policy", "sleep", "--samples", "3"), "--samples is for petri, not for cage2"),
        (("train", FT06, "--warm-start", "insertion"), "There is no rule 'insertion'"),
        (("train", "cage2", "--warm-start", "best"), "cage2 has none"),
    ],
)
def test_mistakes_are_one_line_and_exit_with_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert redline(*arguments) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert words in line
