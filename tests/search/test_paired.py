from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.cli import main
from redline.errors import RedlineError
from redline.metrics import load_metrics
from redline.runs import Run
from redline.search.equivalence import tell_apart
from redline.search.paired import Paired
from redline.search.parallel import Here
from redline.search.search import Budget, Order, Search, WorkClock
from redline.search.top_two import TopTwo
from redline.worlds.cage2.workflow import DISTANCES, WORKFLOWS

BUDGET = Budget(total_episodes=5000, episodes_per_update=100)
TIMES = {"collect_seconds", "update_seconds"}
SMALL = [
    "--total-episodes",
    "200",
    "--episodes-per-update",
    "8",
    "--max-episodes-per-workflow",
    "32",
    "--tolerance",
    "0",
]
SMALL += ["--max-steps", "20", "--min-updates", "2", "--start-episodes", "16", "--eval-episodes", "10"]
SMALL += ["--compliance-threshold", "0"]


@dataclass(frozen=True)
class Fake:
    """A training that costs nothing: a workflow is as good as it is near to number 77, and as lucky as its replicate."""

    workflow_id: int
    passed: bool
    env_reward: float
    compliance: float
    episodes: int
    checkpoint: str
    rows: list[dict[str, float]] = field(default_factory=list)


def fake_training(task: tuple[Order, str]) -> Fake:
    order, folder = task
    rows = [{"update": k + 1, "env_reward": -20.0} for k in range(order.max_updates)]
    reward = -10.0 - 20 * DISTANCES[order.workflow_id, 77] + np.sin(order.replicate)
    path = f"{folder}/policies/{order.workflow_id}/{order.replicate}"
    return Fake(order.workflow_id, True, float(reward), 1.0, 100 * len(rows), path, rows)


def make_search(folder: Path, parallel: int = 1, tolerance: float = 0.0) -> Search:
    run = Run.open(folder) if folder.exists() else Run.at(folder, {"kind": "test"})
    picker = TopTwo(DISTANCES, 0, 3)
    picker.group(np.arange(120) % 6, DISTANCES)
    method = Paired(picker, start_updates=10, updates_each=2, tolerance=tolerance)
    return Search(
        run, WORKFLOWS, BUDGET, method, Here(), lambda order: (order, str(run.path)), fake_training, parallel
    )  # fmt: skip


def logs(folder: Path) -> dict[str, Any]:
    found = {}
    for name in ("search_log.csv", "training_log.csv"):
        columns = load_metrics(folder / name)
        found[name] = {key: values.tolist() for key, values in columns.items() if key not in TIMES}
    return found


def test_replicates_begin_with_the_same_start_and_nobody_spends_more_than_there_is(tmp_path: Path):
    search, orders = make_search(tmp_path / "run"), []
    make_task = search.make_task
    search.make_task = lambda order: orders.append(order) or make_task(order)
    list(search)
    trained = [order for order in orders if order.workflow_id >= 0]
    assert {order.other for order in trained} == {str(search.run.path / start) for start in search.method.starts}
    assert all(order.other.endswith(f"-1/{order.replicate}") for order in trained)
    assert search.used <= BUDGET.total_episodes
    assert search.used == 1000 * len(search.method.starts) + 200 * len(trained)
    search.close()


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_search_stopped_anywhere_goes_on_as_if_it_had_not(parallel: int, tmp_path: Path):
    whole = make_search(tmp_path / "whole", parallel)
    list(whole)
    for stop_after in (0, 2):
        folder = tmp_path / f"stopped-{stop_after}"
        for pick in make_search(folder, parallel):
            if pick.iteration >= stop_after:
                break  # and nothing is closed: as if the power had failed
        resumed = make_search(folder, parallel)
        list(resumed)
        assert logs(folder) == logs(tmp_path / "whole")
        assert resumed.method.trainings == whole.method.trainings


def test_a_search_whose_answer_stands_ends_and_the_rest_trains_the_best(tmp_path: Path):
    search = make_search(tmp_path / "run", tolerance=0.1)
    list(search)
    assert search.updates_left > 0
    left = 100 * search.updates_left
    best = {"workflow_id": 77, "checkpoint": "policies/77/0"}
    known = search.method.finish(search, best)
    assert known is not None
    assert known.episodes == left
    assert search.method.finish(search, best) is known
    again = make_search(tmp_path / "run", tolerance=0.1)
    assert list(again) == []
    assert again.method.finished == known


def test_a_budget_below_one_update_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{__name__}.BUDGET", Budget(50, 100))
    with pytest.raises(RedlineError, match="Try --total-episodes"):
        make_search(tmp_path / "run")


def test_workflows_that_judge_alike_are_one_group():
    groups, apart = tell_apart(np.array([[1.0, 0.5], [0.0, 0.5], [1.0, 0.5]]))
    assert groups[0] == groups[2] != groups[1]
    assert apart.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]


def redline(*arguments: str | Path) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main([str(each) for each in arguments]) == 0
    return said.getvalue()


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("paired") / "run"
    return folder, redline("search", "cage2", *SMALL, "--run-dir", folder)


def test_the_command_says_what_cannot_be_told_from_the_best_and_the_page_agrees(searched):
    folder, said = searched
    ranking = json.loads((folder / "ranking.json").read_text())
    best = ranking["best"]
    assert best["workflow_id"] in ranking["tied"]
    score = f"{best['mean']:.2f} ± {1.96 * best['stderr']:.2f}"
    page = (folder / "report.html").read_text()
    for words in (score, "cannot be told from the best"):
        assert words in said
        assert words in page
    assert best["checkpoint"].split("/")[1] in {path.name for path in (folder / "policies").iterdir()}
    assert (folder / "best").exists()


@pytest.mark.parametrize("start_episodes", [0, 8])
def test_orders_that_are_alike_train_to_the_very_same_result(start_episodes: int, tmp_path: Path):
    """`defender` is never compromised, so its place means nothing; nor does it to who begins with an untrained policy."""
    from redline.cli.search_plan import SearchOptions, SearchPlan, make_search

    options = SearchOptions(env="cage2", episodes_per_update=8, min_updates=2, start_episodes=start_episodes)
    plan = SearchPlan(options, WORKFLOWS, WORKFLOWS.settings(max_steps=20))
    search = make_search(Run.at(tmp_path / "run", plan.config), plan)
    assert isinstance(search.method, Paired)
    start = search.method.start(search, 0)
    results = [search.train(search.make_task(Order(id, 0, 2, None, start))) for id in (0, 96, 24)]
    alike = [WORKFLOWS.spelled(id).replace("defender,", "").replace(",defender", "") for id in (0, 96, 24)]
    assert alike[0] == alike[2]
    assert results[0].env_reward == results[2].env_reward
    first, second = ([row["total_reward"] for row in results[k].rows] for k in (0, 2))
    assert first == second


def test_an_interrupted_command_goes_on_to_the_same_ranking(searched, tmp_path: Path):
    from redline.cli import search as command

    folder = tmp_path / "stopped"
    plan_config = json.loads((searched[0] / "config.json").read_text())
    run = Run.at(folder, {key: value for key, value in plan_config.items() if key != "signature"})
    search = command.make_search(run, command.plan_of(run.config))
    next(iter(search))
    search.close()
    redline("search", "--resume", folder, "-q")
    assert logs(folder) == logs(searched[0])
    first, second = (json.loads((each / "ranking.json").read_text()) for each in (folder, searched[0]))
    assert first == second


def test_what_is_done_within_what_is_done_is_timed_once(monkeypatch: pytest.MonkeyPatch):
    now = iter([10.0, 11.0, 13.0, 20.0, 25.0])
    monkeypatch.setattr("redline.search.search.time.monotonic", lambda: next(now))
    clock = WorkClock(100.0)
    with clock.running(), clock.running():
        assert clock.seconds == 101.0
    assert clock.seconds == 103.0
    with clock.running():
        pass
    assert clock.seconds == 108.0
