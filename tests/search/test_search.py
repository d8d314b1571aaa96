from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
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
from redline.search.search import Budget, Order, Search
from redline.search.ucb import GPUCB
from redline.search.workflow import ALL_WORKFLOWS, DISTANCES

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
SMALL += ["--min-updates", "2", "--eval-episodes", "20", "--compliance-threshold", "0.3"]
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
    return Search(
        run, BUDGET, GPUCB(seed), Here(), lambda order: (order, str(run.path)), fake_training, parallel
    )  # fmt: skip


def logs(folder: Path) -> dict[str, Any]:
    found = {}
    for name in ("search_log.csv", "training_log.csv"):
        columns = load_metrics(folder / name)
        found[name] = {key: values.tolist() for key, values in columns.items() if key not in TIMES}
    return found


def test_a_search_uses_its_episodes_and_no_more(tmp_path: Path):
    search = make_search(tmp_path / "run")
    picks = list(search)
    search.close()
    assert search.used == BUDGET.total_episodes
    assert sum(pick.result.episodes for pick in picks) == search.used
    assert max(known.episodes for known in search.known.values()) <= BUDGET.max_episodes_per_workflow


def test_what_is_not_obeyed_is_recorded_and_not_picked_again(tmp_path: Path):
    search = make_search(tmp_path / "run")
    picked = [pick.result.workflow_id for pick in search]
    search.close()
    infeasible = [k for k in picked if k % 7 == 0]
    assert len(infeasible) == len(set(infeasible))
    gp = json.loads((tmp_path / "run" / "gp.json").read_text())
    assert sorted(gp["infeasible"]) == sorted(infeasible)
    assert all(int(k) % 7 for k in gp["observed"])


def test_a_new_workflow_starts_from_the_nearest_and_a_known_one_from_itself(tmp_path: Path):
    orders: list[Order] = []
    search = make_search(tmp_path / "run")
    search.make_task = lambda order: orders.append(order) or (order, str(search.run.path))
    seen: list[int] = []
    for pick in search:
        order = orders[-1]
        if order.workflow_id in seen:
            assert f"/policies/{order.workflow_id}/" in str(order.own)
        elif not seen:
            assert order.own is order.other is None
        else:
            nearest = min(DISTANCES[order.workflow_id, k] for k in seen)
            assert DISTANCES[order.workflow_id, int(Path(str(order.other)).parent.name)] == nearest
        seen.append(pick.result.workflow_id)
    search.close()


@pytest.mark.parametrize("stop_after", [1, 2, 5, 11])
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_search_stopped_anywhere_goes_on_as_if_it_had_not(stop_after: int, parallel: int, tmp_path: Path):
    straight = make_search(tmp_path / "straight", parallel)
    list(straight)
    straight.close()
    stopped = make_search(tmp_path / "stopped", parallel)
    for pick in stopped:
        if pick.iteration >= stop_after:
            break  # and nothing is closed: as if the power had failed
    resumed = make_search(tmp_path / "stopped", parallel)
    list(resumed)
    resumed.close()
    assert logs(tmp_path / "stopped") == logs(tmp_path / "straight")
    assert {k: vars(v) for k, v in resumed.known.items()} == {k: vars(v) for k, v in straight.known.items()}


def test_a_search_finds_the_best_corner_sooner_than_chance(tmp_path: Path):
    found = []
    for seed in range(5):
        search = make_search(tmp_path / f"run{seed}", seed=seed)
        best = max((pick.result for pick in search if pick.result.passed), key=lambda result: result.env_reward)
        search.close()
        found.append(DISTANCES[best.workflow_id, 77])
    assert np.mean(found) <= 0.2


def test_a_budget_below_one_update_is_refused(tmp_path: Path):
    run = Run.at(tmp_path / "run", {})
    with pytest.raises(RedlineError, match="Try --total-episodes"):
        Search(run, Budget(50, 100, 600, 2), GPUCB(0), Here(), lambda order: order, fake_training)


def redline(*arguments: str | Path) -> int:
    return main([str(each) for each in arguments])


def test_the_command_searches_ranks_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "run"
    assert redline("search", "cage2", *SMALL, "--run-dir", folder, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["episodes"] == 320
    assert {"mean", "stderr", "best", "baselines", "picks", "steps_per_second"} <= set(summary)
    for name in ("config.json", "search_log.csv", "training_log.csv", "gp.json", "ranking.json", "report.html"):
        assert (folder / name).exists(), name
    trained = load_metrics(folder / "training_log.csv")
    assert np.allclose(trained["total_reward"], trained["env_reward"] + trained["alignment_reward"])
    assert redline("eval", folder / "best", "--episodes", "10", "--lengths", "20", "--json") == 0
    assert redline("report", folder) == 0


def test_processes_and_this_process_give_the_same_search(tmp_path: Path):
    for runner in ("here", "processes"):
        options = ["--parallel-workflows", "2", "--runner", runner]
        assert redline("search", "cage2", *SMALL, *options, "--run-dir", tmp_path / runner, "-q") == 0
    assert logs(tmp_path / "here") == logs(tmp_path / "processes")


def test_a_search_killed_at_any_moment_goes_on_as_if_it_had_not(tmp_path: Path):
    assert redline("search", "cage2", *SMALL, "--run-dir", tmp_path / "straight", "-q") == 0
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
    assert logs(folder) == logs(tmp_path / "straight")


def test_a_training_stopped_between_two_updates_goes_on_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from redline.cli.search import SearchOptions
    from redline.learn import workflow as inner

    base = SearchOptions(episodes_per_update=8, max_steps=20).trainer()
    config = inner.workflow_config(base, "user,defender,enterprise,op_server,op_host", 5)
    gate = inner.Gate(threshold=2.0, patience=99, min_updates=1, max_updates=9)

    def task(folder: str) -> inner.Task:
        return inner.Task(7, config, gate, str(tmp_path / folder), iteration=3)

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
    resumed = inner.train_workflow(task("stopped"))
    assert [{k: v for k, v in row.items() if k not in TIMES} for row in resumed.rows] == [
        {k: v for k, v in row.items() if k not in TIMES} for row in straight.rows
    ]
    first, second = (Path(result.checkpoint) / "arrays.safetensors" for result in (straight, resumed))
    assert first.read_bytes() == second.read_bytes()


def test_ctrl_c_says_how_to_go_on(tmp_path: Path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "redline", "search", "cage2", "--run-dir", str(folder), "--no-exhaustive"]
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


def test_every_workflow_is_trained_alike_when_all_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "all"
    small = [
        "--episodes-per-update",
        "2",
        "--max-episodes-per-workflow",
        "2",
        "--max-steps",
        "5",
        "--eval-episodes",
        "2",
    ]
    assert (
        redline("search", "cage2", "--exhaustive", *small, "--compliance-threshold", "0", "--run-dir", folder, "-q")
        == 0
    )
    capsys.readouterr()
    ranking = json.loads((folder / "ranking.json").read_text())
    assert len(ranking["workflows"]) == len(ALL_WORKFLOWS)
    assert {entry["trained_episodes"] for entry in ranking["workflows"]} == {2}
    assert redline("bench", "search", folder, "--seeds", "2", "--total-episodes", "20", "--json") == 0
    assert set(json.loads(capsys.readouterr().out)["methods"]) == {"GP-UCB", "random"}


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_and_this_process_give_the_same_search(tmp_path: Path):
    pytest.importorskip("ray")
    for runner in ("here", "ray"):
        options = ["--parallel-workflows", "2", "--runner", runner, "--total-episodes", "64"]
        assert redline("search", "cage2", *SMALL, *options, "--run-dir", tmp_path / runner, "-q") == 0
    assert logs(tmp_path / "here") == logs(tmp_path / "ray")
