"""Plans in stages: what one stage learned is where the next begins, and a plan that was stopped goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from redline.cli import main
from redline.learn.config import TrainConfig
from redline.learn.evaluate import load_policy
from redline.learn.finite import NotFinite
from redline.learn.ppo import PPO
from redline.learn.stages import Chain, plan_config, smaller
from redline.metrics import load_metrics
from redline.runs import REPORT, RESULT, SCORES, Run
from redline.worlds.cage2.presets import champion, short
from redline.worlds.registry import world_of

SMALL = ["--num-envs", "8", "--num-steps", "20", "--total-steps", "1280", "--threads", "1", "--quiet"]


def train(folder: Path, *more: str) -> int:
    return main(["train", "cage2", "--preset", "short", *SMALL, "--run-dir", str(folder), *more])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan") / "run"
    assert train(folder, "--eval-episodes", "4") == 0
    return Run.open(folder)


def weights(path: Path) -> dict[str, np.ndarray]:
    return load_policy(path).policy.arrays()


def test_a_plan_leaves_a_run_with_a_policy_a_score_and_a_report(run):
    assert load_policy(run.path).decided
    assert {each["length"] for each in run.read_json("scores.json")["scores"]} == {30, 50, 100}
    page = (run.path / "report.html").read_text()
    assert "Stages" in page
    assert "1-table" in page
    kinds = [(each["name"], each["kind"]) for each in run.read_json("stages.json")["stages"]]
    assert kinds == [("table", "ppo"), ("memory", "ppo"), ("try", "ppo"), ("improve", "improve"), ("polish", "ppo")]


def test_a_loss_that_is_not_finite_ends_a_plan_with_one_line_that_names_the_last_good_checkpoint(
    tmp_path, monkeypatch, capsys
):
    update = PPO.update

    def spoiled(ppo, rollout, *args, **kwargs):
        if rollout.rows.shape[1] == 8:  # not before the plan begins, when all is compiled
            raise NotFinite("The loss came to nan, so learning stops. Try another.")
        return update(ppo, rollout, *args, **kwargs)

    monkeypatch.setattr(PPO, "update", spoiled)
    assert train(tmp_path / "run") == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "The loss came to nan" in line
    [checkpoint] = (tmp_path / "run" / "stages" / "1-table" / "checkpoints").glob("step-*")
    assert line.endswith(f"Stopped at step 0. The last good checkpoint is {checkpoint}.")


def test_the_metrics_of_all_stages_are_those_of_one_run(run):
    metrics = load_metrics(run.metrics)
    assert (np.diff(metrics["step"]) > 0).all()
    assert sorted(set(metrics["stage"])) == [1, 2, 3, 5]
    assert metrics["step"][-1] == sum(each["steps"] for each in run.read_json("stages.json")["stages"])


def test_rules_are_those_of_the_board_unless_others_are_asked_for():
    def rules(*options: str) -> str:
        asked = TrainConfig("cage2", dict(option.split("=") for option in options))
        return str(short(asked)[-1].config.env_options["rules"])

    assert rules() == "leaderboard"
    assert rules("rules=final") == "final"


def test_nothing_that_helps_in_training_counts_where_policies_are_judged():
    for stage in champion(TrainConfig("cage2")):
        judged = {**stage.config.env_options, **(stage.guard.env_options if stage.guard else {})}
        if stage.improve is not None or stage.guard is not None:
            assert not any(judged.get(name, 0.0) for name in ("tidy", "accidents", "restore_rebate"))


def test_stages_have_seeds_of_their_own_and_follow_from_that_of_the_plan():
    seeds = [stage.config.seed for stage in champion(TrainConfig("cage2", seed=5))]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [stage.config.seed for stage in champion(TrainConfig("cage2", seed=5))]
    assert not {*seeds} & {stage.config.seed for stage in champion(TrainConfig("cage2", seed=6))}


def test_a_plan_is_written_down_whole(tmp_path):
    stages = smaller(champion(TrainConfig("cage2")), 100_000)
    run = Run.at(tmp_path / "run", plan_config("champion", stages))
    chain = Chain(Run.open(run.path), None, print, print)  # type: ignore[arg-type]
    assert chain.stages == stages
    assert sum(stage.steps for stage in stages) == pytest.approx(100_000, rel=0.01)


def test_a_finished_plan_has_nothing_to_go_on_with(run, capsys):
    assert main(["train", "--resume", str(run.path), "--quiet"]) == 0
    assert "finished" in capsys.readouterr().out


def cut(folder: Path, count: int) -> None:
    """A run as if it had been killed after so many stages: the result of the last is there, and nothing of later ones."""
    found = Run.open(folder).read_json("stages.json")
    (folder / "stages.json").write_text(json.dumps({**found, "stages": found["stages"][:count]}))
    steps = sum(each["steps"] for each in found["stages"][:count])
    for path in (folder / "checkpoints").iterdir():
        if int(path.name.removeprefix("step-")) > steps:
            shutil.rmtree(path)
    for each in found["stages"][count:]:
        shutil.rmtree(folder / "stages" / each["folder"])


def test_a_plan_that_was_stopped_between_stages_goes_on_to_the_same_policy(run, tmp_path):
    other = tmp_path / "run"
    assert train(other, "--eval-episodes", "0") == 0
    cut(other, 1)
    assert main(["train", "--resume", str(other), "--quiet", "--eval-episodes", "0"]) == 0
    assert all((weights(other)[name] == array).all() for name, array in weights(run.path).items())


def test_a_plan_goes_back_to_an_earlier_policy_and_does_a_broken_off_adoption_again(tmp_path):
    folder = tmp_path / "run"
    assert train(folder, "--preset", "champion", "--total-steps", "640", "--eval-episodes", "0") == 0
    done = Run.open(folder).read_json("stages.json")["stages"]
    assert [each["folder"] for each in done if each["kind"] == "adopt"] == ["11-adopt", "18-adopt"]
    assert [stage.back_to for stage in champion(TrainConfig("cage2")) if stage.back_to] == [4, 11]
    before, whole = weights(folder / "stages" / "4-again" / RESULT), weights(folder)
    if not done[10]["kept"]:
        adopted = weights(folder / "stages" / "11-adopt" / RESULT)
        assert all((adopted[name] == array).all() for name, array in before.items())
    cut(folder, 10)
    (folder / "stages" / "11-adopt").mkdir()  # broken off
    assert main(["train", "--resume", str(folder), "--quiet", "--eval-episodes", "0"]) == 0
    assert all((weights(folder)[name] == array).all() for name, array in whole.items())


def test_the_experts_of_a_plan_meet_one_red_each_and_all_else_meets_both():
    stages = champion(TrainConfig("cage2"))
    reds = [stage.config.env_options["red_agent"] for stage in stages]
    both, one, other = "B_lineAgent,RedMeanderAgent", "B_lineAgent", "RedMeanderAgent"
    assert reds == [both] * 4 + [one] * 6 + [both] + [other] * 6 + [both] * 2


def test_ctrl_c_says_how_to_go_on_and_that_ends_where_it_would_have(run, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "redline", "train", "cage2", "--preset", "short", *SMALL, "--run-dir", str(folder)]
    process = subprocess.Popen([*command, "--eval-episodes", "0"], stderr=subprocess.PIPE, text=True, env=os.environ)
    limit = time.monotonic() + 120
    while not (folder / "stages.json").exists() and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    if process.returncode:  # it may have been quicker than the signal
        assert process.returncode == 130
        assert f"redline train --resume {folder}" in said
        assert main(["train", "--resume", str(folder), "--quiet", "--eval-episodes", "0"]) == 0
    assert all((weights(folder)[name] == array).all() for name, array in weights(run.path).items())


def test_a_signal_in_the_last_moment_of_an_improvement_is_heard(run, tmp_path, monkeypatch, capsys):
    improve = Chain.improve

    def interrupted(chain: Chain, number: int) -> None:
        improve(chain, number)
        signal.raise_signal(signal.SIGINT)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Chain, "improve", interrupted)
        assert train(folder, "--eval-episodes", "0") == 130
    assert "interrupted in stage 5" in capsys.readouterr().err
    assert main(["train", "--resume", str(folder), "--quiet", "--eval-episodes", "0"]) == 0
    assert all((weights(folder)[name] == array).all() for name, array in weights(run.path).items())


def test_a_plan_that_was_interrupted_while_it_was_scored_is_scored_when_it_goes_on(run, tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    for name in (SCORES, REPORT):
        (folder / name).unlink(missing_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr("redline.cli.train_stages._graded", interrupted)
        assert main(["train", "--resume", str(folder), "--quiet"]) == 130
    said = capsys.readouterr().err
    assert said.count("interrupted") == 1 and f"redline train --resume {folder}" in said
    assert main(["train", "--resume", str(folder), "--quiet", "--eval-episodes", "2"]) == 0
    assert (folder / REPORT).exists() and (folder / SCORES).exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "chompion"], "champion"),
        (["--preset", "champion", "--learning-rate", "0.1"], "--learning-rate"),
        (["--preset", "champion", "--tidy", "0.1"], "--tidy"),
        (["--preset", "short", "--actions", "reduced"], "--actions"),
    ],
)
def test_what_a_preset_cannot_do_is_said_in_one_line(options, words, capsys):
    assert main(["train", "cage2", *options]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


def test_a_world_without_presets_says_so(capsys):
    assert main(["train", "slow", "--preset", "short"]) == 2
    assert "no presets" in capsys.readouterr().err


@pytest.mark.parametrize("own", [[], ["--red-agent", "RedMeanderAgent"]])
def test_settings_of_ones_own_are_trained_with_by_ppo_alone(own, tmp_path):
    small = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "32", "--eval-episodes", "0", "--quiet"]
    assert main(["train", "cage2", *small, *own, "--run-dir", str(tmp_path / "run")]) == 0
    assert "stages" not in Run.open(tmp_path / "run").config


def test_a_preset_that_is_named_takes_options_of_the_env(tmp_path):
    assert train(tmp_path / "run", "--forget", "age", "--red-agent", "RedMeanderAgent", "--eval-episodes", "0") == 0
    options = [each["config"]["env_options"] for each in Run.open(tmp_path / "run").config["stages"]]
    assert {(each["forget"], each["red_agent"]) for each in options} == {("age", "RedMeanderAgent")}


def test_the_first_preset_is_the_short_one():
    assert next(iter(world_of("cage2").presets)) == "short"
