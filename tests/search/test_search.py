from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.cli import main
from redline.metrics import load_metrics
from redline.runs import Run
from redline.worlds.cage2.workflow import ALL_WORKFLOWS, WORKFLOWS

SMALL = [
    "--total-episodes",
    "320",
    "--episodes-per-update",
    "8",
    "--max-episodes-per-workflow",
    "64",
    "--max-steps",
    "20",
]
SMALL += ["--min-updates", "2", "--eval-episodes", "20", "--compliance-threshold", "0.3", "--start-episodes", "16"]
TIMES = {"collect_seconds", "update_seconds"}


def logs(folder: Path) -> dict[str, Any]:
    found = {}
    for name in ("search_log.csv", "training_log.csv"):
        columns = load_metrics(folder / name)
        found[name] = {key: values.tolist() for key, values in columns.items() if key not in TIMES}
    return found


def redline(*arguments: str | Path) -> int:
    return main([str(each) for each in arguments])


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a small search, and what it printed."""
    folder = tmp_path_factory.mktemp("searched") / "run"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert redline("search", "cage2", *SMALL, "--run-dir", folder, "--json") == 0
    return folder, said.getvalue()


def test_the_command_searches_ranks_and_reports(searched):
    folder, printed = searched
    summary = json.loads(printed)
    assert summary["episodes"] == 320
    assert {"mean", "stderr", "best", "baselines", "picks", "steps_per_second"} <= set(summary)
    for name in ("config.json", "search_log.csv", "training_log.csv", "gp.json", "ranking.json", "report.html"):
        assert (folder / name).exists(), name
    trained = load_metrics(folder / "training_log.csv")
    assert np.allclose(trained["total_reward"], trained["env_reward"] + trained["alignment_reward"])
    assert redline("eval", folder / "best", "--episodes", "10", "--lengths", "20", "--json") == 0
    assert redline("report", folder) == 0


def search_two_at_a_time(folder: Path, runner: str) -> dict[str, Any]:
    options = ["--parallel-workflows", "2", "--runner", runner, "--total-episodes", "160"]
    assert redline("search", "cage2", *SMALL, *options, "--run-dir", folder, "-q") == 0
    return logs(folder)


@pytest.fixture(scope="module")
def logs_of_here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return search_two_at_a_time(tmp_path_factory.mktemp("here") / "run", "here")


def test_processes_and_this_process_give_the_same_search(logs_of_here, tmp_path: Path):
    assert search_two_at_a_time(tmp_path / "run", "processes") == logs_of_here


def test_a_search_killed_at_any_moment_goes_on_as_if_it_had_not(searched, tmp_path: Path):
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "redline", "search", "cage2", *SMALL, "--run-dir", str(folder), "-q"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (folder / "search_state.json").exists():
        time.sleep(0.01)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    assert redline("search", "--resume", folder, "-q") == 0
    assert logs(folder) == logs(searched[0])


def test_a_training_stopped_between_two_updates_goes_on_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from redline.cli.search import SearchOptions
    from redline.search import training as inner

    base = SearchOptions(env="cage2", episodes_per_update=8).trainer(20)
    options = WORKFLOWS.env_options(WORKFLOWS.settings(max_steps=20), "user,defender,enterprise,op_server,op_host")
    config = inner.workflow_config(base, options, 5)

    def task(folder: str) -> inner.Task:
        return inner.Task(
            workflow_id=7,
            config=config,
            threshold=2.0,
            updates=9,
            folder=str(tmp_path / folder),
            episode_steps=20,
            iteration=3,
        )

    straight = inner.train_workflow(task("straight"))
    monkeypatch.setattr(inner, "SAVE_SECONDS", 0.0)
    updates = iter(range(5))

    def counted(update: Any, row: Any = inner._row) -> dict[str, float]:
        if next(updates, None) is None:
            raise KeyboardInterrupt
        return row(update)

    with monkeypatch.context() as patch:
        patch.setattr(inner, "_row", counted)
        with pytest.raises(KeyboardInterrupt):
            inner.train_workflow(task("stopped"))
    repeated = []
    row_of = inner._row
    monkeypatch.setattr(inner, "_row", lambda update: repeated.append(update.number) or row_of(update))
    resumed = inner.train_workflow(task("stopped"))
    assert len(repeated) == 9 - 5  # the five updates before the interruption are not trained again
    assert [{k: v for k, v in row.items() if k not in TIMES} for row in resumed.rows] == [
        {k: v for k, v in row.items() if k not in TIMES} for row in straight.rows
    ]
    first, second = (Path(result.checkpoint) / "arrays.safetensors" for result in (straight, resumed))
    assert first.read_bytes() == second.read_bytes()


def test_ctrl_c_says_how_to_go_on(tmp_path: Path):
    folder = tmp_path / "run"
    endless = [*SMALL, "--total-episodes", "100000", "--no-exhaustive"]
    command = [sys.executable, "-m", "redline", "search", "cage2", *endless, "--run-dir", str(folder)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ}
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (folder / "search_state.json").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"redline search --resume {folder}" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--total-episodes 100", "Try --total-episodes"),
        ("--compliance-threshold 1.5", "0 to 1"),
        ("--red-agent Meandr", "Did you mean 'RedMeanderAgent'?"),
        ("--n-workers 7", "Try --n-workers 5"),
        ("--runner clouds", "processes"),
        ("--parallel-workflows 0", "Try --parallel-workflows 1"),
        ("--tolerance 2", "Try --tolerance 0.02"),
        ("--resume nowhere", "nowhere"),
        ("petri", "cage2"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    where = [] if "--resume" in arguments else ["--run-dir", str(tmp_path / "run")]
    assert redline("search", *arguments.split(), *where) == 2
    assert says in capsys.readouterr().err.strip().splitlines()[-1]


def test_the_folder_of_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    Run.at(tmp_path / "other", {"env": "cage2"})
    assert redline("search", "--resume", tmp_path / "other") == 2
    assert "another kind" in capsys.readouterr().err


def test_every_workflow_is_trained_alike_when_all_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.fsync", lambda file: None)  # a disk is slow, and this is written to it 1,400 times
    folder = tmp_path / "all"
    small = ["--episodes-per-update", "2", "--max-episodes-per-workflow", "2", "--max-steps", "5", "--min-updates", "1"]
    small += ["--eval-episodes", "2", "--start-episodes", "0", "--exhaustive"]
    assert redline("search", "cage2", *small, "--run-dir", folder, "-q") == 0
    capsys.readouterr()
    ranking = json.loads((folder / "ranking.json").read_text())
    assert len(ranking["workflows"]) == len(ALL_WORKFLOWS)
    assert {entry["trained_episodes"] for entry in ranking["workflows"]} == {2}
    bench = ["--seeds", "2", "--episodes", "6", "--json"]
    assert redline("bench", "search", folder, *bench, "--table", tmp_path / "t.json", "--svg", tmp_path / "t.svg") == 0
    by_run = json.loads(capsys.readouterr().out)
    assert set(by_run["methods"]) == {"top-two", "chance", "no noise"}
    assert (tmp_path / "t.svg").read_text().startswith("<svg")
    assert redline("bench", "search", tmp_path / "t.json", *bench) == 0
    assert json.loads(capsys.readouterr().out)["methods"] == by_run["methods"]


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_and_this_process_give_the_same_search(logs_of_here, tmp_path: Path):
    pytest.importorskip("ray")
    assert search_two_at_a_time(tmp_path / "run", "ray") == logs_of_here


@pytest.mark.parametrize("engine", ["serial", "ready", "pool"])
def test_any_engine_can_play_the_episodes_of_a_search(engine: str, tmp_path: Path):
    tiny = [
        "--total-episodes",
        "16",
        "--episodes-per-update",
        "8",
        "--max-episodes-per-workflow",
        "8",
        "--max-steps",
        "5",
    ]
    more = ["--min-updates", "1", "--eval-episodes", "5", "--engine", engine, "--run-dir", str(tmp_path / "search")]
    assert main(["search", "cage2", *tiny, *more, "-q"]) == 0
