from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.cli import main
from redline.errors import RedlineError
from redline.metrics import load_metrics
from redline.runs import Run
from redline.search.parallel import Here
from redline.search.search import Budget, Order, Pick, Search
from redline.search.single import Single
from redline.search.ucb import GPUCB
from redline.worlds.cage2.workflow import ALL_WORKFLOWS, DISTANCES, WORKFLOWS

BUDGET = Budget(total_episodes=4000, episodes_per_update=100, max_episodes_per_workflow=600, min_updates=2)
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
SMALL += ["--min-updates", "2", "--eval-episodes", "20", "--compliance-threshold", "0.3", "--method", "gp-ucb"]
TIMES = {"collect_seconds", "update_seconds"}


@dataclass(frozen=True)
class Fake:
    """A training that costs nothing: the nearer a workflow is to number 77, the better."""

    workflow_id: int
    passed: bool
    env_reward: float
    compliance: float
    episodes: int
    checkpoint: str
    rows: list[dict[str, float]] = field(default_factory=list)


def fake_training(task: tuple[Order, str]) -> Fake:
    order, folder = task
    updates = min(2, order.max_updates)
    rows = [{"update": k + 1, "env_reward": -20.0} for k in range(updates)]
    path = f"{folder}/policies/{order.workflow_id}/{order.iteration}"
    reward = -10.0 - 20 * DISTANCES[order.workflow_id, 77] + 0.01 * order.iteration
    passed = order.workflow_id % 7 != 0
    return Fake(order.workflow_id, passed, float(reward), 0.9 if passed else 0.2, 100 * updates, path, rows)


def make_search(folder: Path, parallel: int = 1, seed: int = 0) -> Search:
    run = Run.open(folder) if folder.exists() else Run.at(folder, {"kind": "test"})
    method, runner = Single(GPUCB(DISTANCES, seed)), Here()
    return Search(run, WORKFLOWS, BUDGET, method, runner, lambda order: (order, str(run.path)), fake_training, parallel)


def logs(folder: Path) -> dict[str, Any]:
    found = {}
    for name in ("search_log.csv", "training_log.csv"):
        columns = load_metrics(folder / name)
        found[name] = {key: values.tolist() for key, values in columns.items() if key not in TIMES}
    return found


@dataclass(frozen=True)
class Straight:
    """A search that nobody stopped, the orders it gave and its picks."""

    search: Search
    orders: list[Order]
    picks: list[Pick]

    @property
    def folder(self) -> Path:
        return self.search.run.path


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Straight]:
    """Searches whole, once for each number of workflows at a time and each seed."""

    @functools.cache
    def searched(parallel: int, seed: int = 0) -> Straight:
        search, orders = make_search(tmp_path_factory.mktemp("searches") / "run", parallel, seed), []
        make_task = search.make_task
        search.make_task = lambda order: orders.append(order) or make_task(order)
        picks = list(search)
        search.close()
        return Straight(search, orders, picks)

    return searched


def test_a_search_uses_its_episodes_and_no_more(straight):
    search, picks = straight(1).search, straight(1).picks
    assert search.used == BUDGET.total_episodes
    assert sum(pick.result.episodes for pick in picks) == search.used
    assert max(known.episodes for known in search.method.known.values()) <= BUDGET.max_episodes_per_workflow


def test_what_is_not_obeyed_is_recorded_and_not_picked_again(straight):
    picked = [pick.result.workflow_id for pick in straight(1).picks]
    infeasible = [k for k in picked if k % 7 == 0]
    assert len(infeasible) == len(set(infeasible))
    gp = json.loads((straight(1).folder / "gp.json").read_text())
    assert sorted(gp["infeasible"]) == sorted(infeasible)
    assert all(int(k) % 7 for k in gp["observed"])


def test_a_new_workflow_starts_from_the_nearest_and_a_known_one_from_itself(straight):
    seen: list[int] = []
    for order, pick in zip(straight(1).orders, straight(1).picks, strict=True):
        assert order.workflow_id == pick.result.workflow_id
        if order.workflow_id in seen:
            assert f"/policies/{order.workflow_id}/" in str(order.own)
        elif not seen:
            assert order.own is order.other is None
        else:
            nearest = min(DISTANCES[order.workflow_id, k] for k in seen)
            assert DISTANCES[order.workflow_id, int(Path(str(order.other)).parent.name)] == nearest
        seen.append(order.workflow_id)


@pytest.mark.parametrize("stop_after", [1, 2, 11])
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_search_stopped_anywhere_goes_on_as_if_it_had_not(stop_after: int, parallel: int, straight, tmp_path: Path):
    stopped = make_search(tmp_path / "stopped", parallel)
    for pick in stopped:
        if pick.iteration >= stop_after:
            break  # and nothing is closed: as if the power had failed
    resumed = make_search(tmp_path / "stopped", parallel)
    list(resumed)
    resumed.close()
    whole = straight(parallel)
    assert logs(tmp_path / "stopped") == logs(whole.folder)
    assert {k: vars(v) for k, v in resumed.method.known.items()} == {
        k: vars(v) for k, v in whole.search.method.known.items()
    }


def test_a_search_finds_the_best_corner_sooner_than_chance(straight):
    found = []
    for seed in range(5):
        picks = straight(1, seed).picks
        best = max((pick.result for pick in picks if pick.result.passed), key=lambda result: result.env_reward)
        found.append(DISTANCES[best.workflow_id, 77])
    assert np.mean(found) <= 0.2


def test_a_budget_below_one_update_is_refused(tmp_path: Path):
    run = Run.at(tmp_path / "run", {})
    with pytest.raises(RedlineError, match="Try --total-episodes"):
        Search(
            run,
            WORKFLOWS,
            Budget(50, 100, 600, 2),
            Single(GPUCB(DISTANCES, 0)),
            Here(),
            lambda order: order,
            fake_training,
        )


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
    gate = inner.Gate(threshold=2.0, patience=99, min_updates=1, max_updates=9)

    def task(folder: str) -> inner.Task:
        return inner.Task(7, config, gate, str(tmp_path / folder), episode_steps=20, iteration=3)

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
        ("--beta -1", "Try --beta 2"),
        ("--method best", "top-two"),
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
    assert set(by_run["methods"]) == {"top-two", "GP-UCB", "chance", "no noise"}
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
