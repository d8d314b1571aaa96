"""The example of a world of one's own: every promise, every command, every engine; and a policy learns in it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from redline.cli import main
from redline.engines import ENGINES
from redline.metrics import load_metrics
from redline.testing import WorldContract

EXAMPLES = Path(__file__).parents[2] / "examples"
LIFT = "world:examples.elevator:WORLD"


class TestElevator(WorldContract):
    names = (f"{LIFT}?max_steps=12", f"{LIFT}?max_steps=30&rate=0.9")


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_example_is_short():
    lines = [len((EXAMPLES / name).read_text().splitlines()) for name in ("elevator.py", "elevator_original.py")]
    assert sum(lines) <= 150


def test_a_policy_learns_to_run_the_elevator(tmp_path, capsys):
    run = tmp_path / "run"
    told(capsys, "train", LIFT, "--num-envs", 1024, "--num-steps", 50, "--total-steps", 1_000_000, "--run-dir", run)
    metrics = load_metrics(run / "metrics.csv")
    returns, distinct = metrics["return"], metrics["distinct"]
    assert np.mean(returns[-3:]) > np.mean(returns[np.isfinite(returns)][:3]) + 30
    assert distinct[-1] < 1024 * 50 / 10  # most of what is seen has been seen before
    score = told(capsys, "eval", run, "--episodes", 200)
    assert score["mean"] > -80
    assert Path(told(capsys, "report", run)["report"]).stat().st_size > 1000


def test_both_speeds_train_the_very_same_policy(tmp_path, capsys):
    small = ("--num-envs", 4, "--num-steps", 20, "--total-steps", 160, "--max-steps", 15, "--eval-episodes", 4)
    results = [
        told(capsys, "train", LIFT, *small, "--run-dir", tmp_path / speed, f"--{speed}")
        for speed in ("turbo", "no-turbo")
    ]
    compiled, interpreted = (load_metrics(tmp_path / speed / "metrics.csv") for speed in ("turbo", "no-turbo"))
    for name in ("return", "loss", "entropy", "distinct"):
        np.testing.assert_array_equal(compiled[name], interpreted[name])
    assert results[0]["mean"] == results[1]["mean"]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_trains_in_it(engine, tmp_path, capsys):
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    small = ("--num-envs", 4, "--num-steps", 20, "--total-steps", 160, "--max-steps", 15, "--eval-episodes", 4)
    result = told(capsys, "train", LIFT, *small, "--run-dir", tmp_path / "run", "--engine", engine, "--workers", 2)
    assert result["steps"] >= 160 and result["episodes"] > 4
