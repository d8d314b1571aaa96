"""Sweeps: what is tried, who goes on, and that a run stopped on the way goes on as if nothing had happened."""

from __future__ import annotations

import dataclasses
import json

import pytest

from redline.cli import main
from redline.cli.options import Asked, asking
from redline.cli.sweep import SWEEP
from redline.errors import RedlineError
from redline.learn.config import TrainConfig, config_to_json
from redline.learn.sweeping import Job, NotSaved, Span, draw, grid, is_done, rungs, seeds_from, survivors, train_until
from redline.runs import METRICS, SCORES, Run

TINY = TrainConfig("cage2", {"max_steps": 8}, total_steps=512, num_envs=16, num_steps=8, hidden=(8,), threads=1)


def test_every_combination_is_tried_once():
    assert grid({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    assert grid({}) == [{}]


def test_choices_are_drawn_alike_with_equal_seeds_and_stay_within_their_span():
    axes = {"rate": Span(1e-4, 1e-2, whole=False), "epochs": Span(2, 4, whole=True), "clip": [0.1, 0.2]}
    drawn = draw(axes, 50, seed=3)
    assert drawn == draw(axes, 50, seed=3) != draw(axes, 50, seed=4)
    assert all(1e-4 <= each["rate"] <= 1e-2 and each["epochs"] in (2, 3, 4) for each in drawn)


def test_halving_ends_with_two_at_least_and_few_choices_are_all_trained():
    assert rungs(3, halving=True) == rungs(16, halving=False) == [1.0]
    assert rungs(8, halving=True) == [0.25, 0.5, 1.0]
    assert [survivors(8), survivors(4), survivors(3), survivors(2)] == [4, 2, 2, 2]


@pytest.mark.parametrize(
    ("words", "name", "values"),
    [
        ("--lr 1e-3 3e-3", "learning_rate", [1e-3, 3e-3]),
        ("--hidden 64,64 128,128", "hidden", [(64, 64), (128, 128)]),
        ("--total-steps 100k 200k", "total_steps", [100_000, 200_000]),
        ("--workers 1 2", "workers", [1, 2]),
        ("--dedup true false", "dedup", [True, False]),
        ("--hidden 64,64", "hidden", [(64, 64)]),
        ("--no-dedup", "dedup", [False]),
    ],
)
def test_an_option_takes_several_values(words, name, values):
    with asking(), pytest.raises(Asked) as asked:
        main(["sweep", "cage2"])
    assert asked.value.parser.given(["cage2", *words.split()])[name] == values


def test_a_list_is_one_value(tmp_path, capsys):
    folder = tmp_path / "sweep"
    words = f"sweep cage2 --max-steps 8 --total-steps 128 --num-envs 16 --num-steps 8 --hidden 8,8 --folder {folder}"
    assert main([*words.split(), "--seeds", "1", "--eval-episodes", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": [str(folder / "p00-s0")]}
    assert Run.open(folder / "p00-s0").config["hidden"] == [8, 8]


def test_settings_of_workers_can_be_swept():
    from redline.cli.sweep import _point

    assert _point(TINY, {"workers": 2}).collecting.workers == 2


def test_a_run_stopped_on_the_way_equals_one_that_was_not(tmp_path):
    def job(name: str, until: int) -> Job:
        return Job(str(tmp_path / name), config_to_json(TINY), until, score_episodes=4)

    train_until(job("whole", 512))
    train_until(job("parts", 256))
    assert not (tmp_path / "parts" / SCORES).exists() and not is_done(job("parts", 512))
    train_until(job("parts", 512))
    assert is_done(job("parts", 512))
    whole, parts = ((tmp_path / name / METRICS).read_text().splitlines() for name in ("whole", "parts"))
    timed = whole[0].split(",").index("seconds")
    assert [line.split(",")[:timed] for line in whole] == [line.split(",")[:timed] for line in parts]
    assert (tmp_path / "whole" / SCORES).read_text() == (tmp_path / "parts" / SCORES).read_text()


def test_seeds_are_apart():
    assert seeds_from(7, 3) == [7, 1016, 2025]


def test_a_sweep_ends_in_a_comparison_and_can_be_resumed(tmp_path, capsys):
    folder = tmp_path / "sweep"
    words = f"sweep cage2 --max-steps 8 --total-steps 256 --num-envs 16 --num-steps 8 --hidden 8 --folder {folder}"
    assert main([*words.split(), "--learning-rate", "1e-3", "1e-2", "--seeds", "1", "--eval-episodes", "4", "-q"]) == 0
    assert "learning_rate 0.01" in capsys.readouterr().out
    assert (folder / SWEEP).exists() and (folder / "compare.html").exists()
    (folder / "p01-s0" / SCORES).unlink()
    assert main(["sweep", "--resume", str(folder), "-q"]) == 0
    assert (folder / "p01-s0" / SCORES).exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("cage2 --learning-rat 1 2", "no option --learning-rat"),
        ("cage2 --clip 0.1..0.3", "Add --random 8"),
        ("cage2 --total-episodes 10", "--total-steps instead"),
        ("--resume nowhere", "holds no sweep"),
        ("cage2 --epochs 1..inf --random 2", "must be a range that goes up"),
        ("cage2 --epochs 5..1 --random 2", "must be a range that goes up"),
        ("cage2 --clip 0.1..0.3 --random 100000000", "more than 10,000"),
        (f"cage2 --clip {' '.join(['0.1'] * 101)} --gamma {' '.join(['0.9'] * 101)}", "10,201 choices"),
        ("cage2 --hidden", "--hidden needs a value"),
    ],
)
def test_what_cannot_be_swept_is_said_in_one_line(words, why, capsys):
    assert main(["sweep", *words.split()]) == 2
    assert why in capsys.readouterr().err


def test_a_run_that_another_process_has_is_left_as_it_is(tmp_path):
    job = Job(str(tmp_path / "run"), config_to_json(TINY), 512, score_episodes=0)
    run = Run.at(tmp_path / "run", job.config)
    run.metrics.write_text("what the other one has written\n")
    with run.locked(), pytest.raises(RedlineError, match="in use by process"):
        train_until(job)
    assert run.metrics.read_text() == "what the other one has written\n"


def test_a_run_that_cannot_be_kept_fails(tmp_path):
    job = Job(str(tmp_path / "run"), config_to_json(TINY), 512, score_episodes=0)
    Run.at(tmp_path / "run", job.config).checkpoints.write_text("a file in the way")
    with pytest.raises(NotSaved, match="no checkpoint of step 512 could be written") as found:
        train_until(job)
    assert found.value.exit_code == 1


def test_a_config_with_a_seed_is_otherwise_the_same():
    from redline.learn.sweeping import with_seed

    assert dataclasses.replace(with_seed(TINY, 5), seed=TINY.seed) == TINY
