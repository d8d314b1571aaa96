"""Nets on the command line: verify, envs, bench sim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli import main

SCHEDULES = Path(__file__).parents[1] / "data" / "petri" / "schedules"
J0 = SCHEDULES / "cascade_core_J-0_n4_arms1.json"
S0 = SCHEDULES / "single_S-0_n4_arms2.json"


def redline(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_verify_replays_schedules_at_both_speeds(capsys):
    assert redline("verify", "petri", "--schedule", f"{J0},{S0}", "--json", "-q") == 0
    report = answer(capsys)
    assert (report["schedules"], report["mismatches"]) == (2, 0)
    rows = [(row["recorded"], row["compiled"], row["interpreted"]) for row in report["files"]]
    assert rows == [(1010,) * 3, (865,) * 3]


def test_verify_says_what_is_wrong_and_exits_with_1(tmp_path, capsys):
    data = json.loads(J0.read_text())
    data["wafers"][0][1]["pick"] += 16  # one second past the residency window of PM7
    (tmp_path / "late.json").write_text(json.dumps(data))
    assert redline("verify", "petri", "--schedule", tmp_path / "late.json") == 1
    assert "wafer 0 was scrapped at 101" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("verify", "petri"), "redline verify petri --schedule FILE.json"),
        (("verify", "petri", "--traces", "x.npz"), "--traces is for cage2, not for petri"),
        (("verify", "petri", "--schedule", "none.json"), "There is no schedule at none.json"),
        (("verify", "petr"), "Did you mean 'petri'?"),
        (("envs", "petri:cluster/J-0", "--states"), "has times or routes"),
        (("envs", "petri", "--states"), "redline envs petri:FILE.pnml --states"),
        (("envs", "petri:cluster/J-0", "--most", "0"), "Try --most 10000000"),
        (("envs", "petri:cluster/J-0?idle_cleaning=80"), "Try idle_cleaning=80,30, on or off."),
        (("solve", "petri:cluster/J-0?idle_cleaning=on"), "Try idle_cleaning=off."),
        (("solve", "petri:cluster/4-8?change_cleaning=50"), "Try change_cleaning=off."),
        (
            ("eval", "petri:cluster/J-0?idle_cleaning=on", "--policy", "insertion"),
            "does not reckon with idle_cleaning=on",
        ),
        (("bench", "sim", "petri:cluster/J0"), "Did you mean 'J-0'?"),
    ],
)
def test_mistakes_are_one_line_and_exit_with_2(arguments, words, capsys):
    assert redline(*arguments) == 2
    line = capsys.readouterr().err.strip()
    assert words in line
    assert "\n" not in line


def test_envs_lists_the_nets(capsys):
    assert redline("envs", "petri", "--json") == 0
    report = answer(capsys)
    assert "petri:cluster/J-0" in [net["name"] for net in report["nets"]]
    assert {"wafers", "arms"} <= {option["name"] for option in report["options"]["cluster"]}
    assert redline("envs", "petri") == 0
    assert "petri:jobshop/ft06" in capsys.readouterr().out


def test_envs_counts_the_markings_of_a_net(capsys):
    kanban = SCHEDULES.parent / "pnml" / "kanban_2.pnml"
    assert redline("envs", f"petri:{kanban}", "--states", "--json") == 0
    report = answer(capsys)
    assert (report["places"], report["states"], report["edges"], report["dead_states"]) == (16, 4600, 28120, 0)
    assert redline("envs", "petri:cluster/J-0") == 0
    assert "2,330" in capsys.readouterr().out


def test_bench_measures_both_speeds(capsys):
    options = [
        "--batch-sizes",
        "32",
        "--threads",
        "1,2",
        "--seconds",
        "0.01",
        "--turns",
        "1",
        "--no-start-up",
        "--json",
    ]
    assert redline("bench", "sim", "petri:jobshop/ft06", *options) == 0
    report = answer(capsys)
    assert [row["speed"] for row in report["rates"]] == ["compiled", "compiled", "interpreted"]
    assert report["times_interpreted"] > 1
