"""`redline train` and `redline eval` as people use them: numbers, help, scores on the way, going on, other weights."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import redline
from redline.cli import main
from redline.cli.options import whole
from redline.learn import checkpoint
from redline.metrics import load_metrics
from redline.runs import Run
from redline.worlds.registry import default_world

SMALL = ["--num-envs", "4", "--num-steps", "20", "--total-steps", "240", "--eval-episodes", "3", "-q"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    path = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "CartPole-v1", *SMALL, "--run-dir", str(path), "--eval-every", "80"]) == 0
    return Run.open(path)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100", 100),
        ("1e6", 1_000_000),
        ("100k", 100_000),
        ("2.5M", 2_500_000),
        ("1_000", 1000),
        ("1G", 10**9),
        ("9" * 40, 10**40 - 1),
    ],
)
def test_numbers_are_read_as_people_write_them(text, number):
    assert whole(text) == number


@pytest.mark.parametrize("text", ["", "k", "1.5", "1e-3", "many", "nan", "inf", "1kk"])
def test_what_is_no_whole_number_is_refused_in_one_line(text, capsys):
    assert main(["train", "--total-steps", text or "=", "-q"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_help_shows_the_options_that_people_need_and_help_all_the_rest(capsys):
    def told(*words: str) -> str:
        assert main(["train", *words]) == 0
        return capsys.readouterr().out

    short = told("--help")
    assert "--learning-rate, --lr" in short and "--total-timesteps" in short and "--help-all" in short
    assert "--ready-fraction" not in short and "--red-agent" not in short
    assert len(short.splitlines()) < 60
    assert "--red-agent" in told(default_world().name, "-h")
    assert "--ready-fraction" in told("--help-all")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train", "ALE/Pong-v5"], "pip install ale-py"),
        (["train", "external:./nowhere.py:make"], "There is no file ./nowhere.py"),
        (["eval"], "eval needs TARGET: a run folder"),
        (["train", "CartPole-v1", "--lr", "fast"], "--learning-rate must be a number (got fast)"),
        (["train", "CartPole-v1", "--from", "nowhere"], "nothing at nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(words, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = [each for each in capsys.readouterr().err.splitlines() if each.startswith("redline: ")]
    assert len(said) == 1 and line in said[0]


def test_a_file_of_ones_own_is_an_env_and_a_keyword_it_does_not_take_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import gymnasium as gym\ndef make(**more): return gym.make('CartPole-v1', **more)\n"
    )
    assert main(["train", "external:./mine.py:make", *SMALL]) == 0
    capsys.readouterr()
    assert main(["train", "external:./mine.py:make?speed=3", *SMALL]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "speed" in line


def test_the_best_of_the_scores_on_the_way_is_kept(run):
    metrics = load_metrics(run.metrics)
    scored = np.flatnonzero(np.isfinite(metrics["eval_return"]))
    assert metrics["step"][scored].tolist() == [80, 160, 240]
    best = checkpoint.load(checkpoint.resolve(run.path / "best"))
    assert best.values["eval"]["mean"] == np.nanmax(metrics["eval_return"])
    assert best.step == metrics["step"][np.nanargmax(metrics["eval_return"])]
    assert redline.load(run.path / "best").step == best.step


def test_scores_on_the_way_change_nothing_about_the_training(run, tmp_path):
    assert main(["train", "CartPole-v1", *SMALL, "--run-dir", str(tmp_path / "other")]) == 0
    ours, other = (load_metrics(path / "metrics.csv") for path in (run.path, tmp_path / "other"))
    assert np.array_equal(ours["return"], other["return"], equal_nan=True)


def test_eval_stores_what_it_found_and_shows_both_ways_to_play(run, capsys):
    assert main(["eval", str(run.path), "--episodes", "3", "--deterministic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    stored = run.read_json("scores.json")
    assert [each["actions"] for each in found["scores"]] == ["drawn", "likeliest"]
    assert stored == {"step": 240, "scores": found["scores"]}
    assert found["mean"] == found["scores"][1]["mean"]
    assert f"{found['mean']:.2f}" in (run.path / "report.html").read_text()


def test_an_earlier_checkpoint_is_scored_without_touching_the_score_of_the_run(run):
    before = (run.path / "scores.json").read_bytes()
    assert main(["eval", str(run.path / "best"), "--episodes", "2", "-q"]) == 0
    assert (run.path / "scores.json").read_bytes() == before


def test_a_finished_run_goes_on_past_its_end(tmp_path, capsys):
    path, name = str(tmp_path / "run"), default_world().name
    assert main(["train", name, *SMALL, "--run-dir", path]) == 0
    assert main(["train", "--resume", path, "-q"]) == 0
    assert "nothing to go on with" in capsys.readouterr().out
    assert main(["train", "--resume", path, "--total-steps", "240"]) == 2
    assert main(["train", "--resume", path, "--total-steps", "480", "--eval-episodes", "3"]) == 0
    assert "stretched: they end at 480 steps" in " ".join(capsys.readouterr().err.split())
    metrics = load_metrics(Run.open(tmp_path / "run").metrics)
    assert metrics["step"][-1] == 480 and metrics["learning_rate"][3] > metrics["learning_rate"][2]
    assert Run.open(tmp_path / "run").config["total_steps"] == 480


def test_interrupting_the_final_score_loses_nothing_and_resume_finishes_it(tmp_path, monkeypatch, capsys):
    import redline.learn.evaluate as evaluating

    path, play = tmp_path / "run", evaluating.play

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return play(*args)

    monkeypatch.setattr(evaluating, "play", interrupted)
    assert main(["train", "CartPole-v1", *SMALL, "--run-dir", str(path)]) == 130
    assert f"score with: redline train --resume {path}" in capsys.readouterr().err
    assert not (path / "scores.json").exists()
    monkeypatch.setattr(evaluating, "play", play)
    assert main(["train", "--resume", str(path), "--eval-episodes", "3", "-q"]) == 0
    assert (path / "scores.json").exists() and (path / "report.html").exists()


def test_a_run_begins_with_the_weights_of_another(run, tmp_path):
    steps = ["--num-envs", "4", "--num-steps", "20", "--total-steps", "80", "--eval-episodes", "0", "-q"]
    path = tmp_path / "next"
    assert main(["train", "CartPole-v1", *steps, "--lr", "0", "--from", str(run.path), "--run-dir", str(path)]) == 0
    obs = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    assert np.array_equal(redline.load(path).probabilities(obs), redline.load(run.path).probabilities(obs))


def test_a_run_begins_with_the_weights_of_a_policy_that_comes_with_its_world(tmp_path):
    champion = redline.load("champion")
    options = [f"--{key.replace('_', '-')}={value}" for key, value in champion.config.env_options.items()]
    path = tmp_path / "next"
    begun = [*SMALL, "--eval-episodes", "0", "--lr", "0", "--from", "champion", "--run-dir", str(path)]
    assert main(["train", champion.config.env, *options, *begun]) == 0
    obs = np.random.default_rng(0).integers(0, 2, (4, 119)).astype(np.int8)
    assert np.array_equal(redline.load(path).probabilities(obs), champion.probabilities(obs))


def test_inputs_are_matched_by_name_where_the_observation_has_grown(tmp_path, capsys):
    name, steps = default_world().name, [*SMALL, "--eval-episodes", "0"]
    assert main(["train", name, *steps, "--run-dir", str(tmp_path / "table")]) == 0
    grown = ["--observation", "history", "--history", "2", "--from", str(tmp_path / "table")]
    assert main(["train", name, *steps[:-3], *grown, "--run-dir", str(tmp_path / "history")]) == 0
    assert "inputs are new" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "command",
    [
        ["train", "cage2", "--preset", "none", "--total-steps", "2k", "--num-envs", "8", "--eval-episodes", "2"],
        ["train", "petri:jobshop/ft06", "--total-steps", "2k", "--num-envs", "8", "--eval-episodes", "2"],
        ["eval", "champion", "--episodes", "2"],
    ],
    ids=lambda command: command[1],
)
def test_what_needs_no_torch_does_not_wait_for_it(command: list[str], tmp_path: Path) -> None:
    """Loading it takes longer than all else that comes before the first update."""
    where = ["--run-dir", str(tmp_path / "run")] if command[0] == "train" else []
    program = f"""
import sys
from redline.cli import main
code = main({[*command, *where]!r})
print(code, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"
