"""A checkpoint is never worse than the one before it, whenever a run is stopped."""

from __future__ import annotations

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
from redline.engines import ENGINES
from redline.errors import Abandoned
from redline.learn import checkpoint
from redline.learn.config import Saving, TrainConfig, config_to_json
from redline.learn.session import Session
from redline.learn.train import Trainer
from redline.runs import REPORT, Run

CONFIG = TrainConfig("cage2", num_envs=4, num_steps=10, total_steps=160, hidden=(8,), threads=1)


def begin(path: Path, config: TrainConfig = CONFIG) -> Session:
    return Session.begin(Run.at(path, config_to_json(config)), Trainer(config), Saving(), print)


def break_off(session: Session) -> None:
    """Have the next collect end in the middle, as Ctrl-C does when it takes too long."""
    actor, calls = session.trainer.actor, iter(range(10**6))

    def giving_up(do: Any) -> Any:
        def call(*args: Any) -> Any:
            if next(calls) == 2:
                raise Abandoned
            return do(*args)

        return call

    for name in ("act", "answers"):  # in step with the others, or playing on
        setattr(actor, name, giving_up(getattr(actor, name)))
    with pytest.raises(Abandoned):
        session.update()


def weights(session: Session) -> np.ndarray:
    return np.concatenate([array.reshape(-1) for array in session.trainer.policy.arrays().values()])


@pytest.mark.parametrize("engine", ["vector", "serial", "shared"])
def test_a_run_whose_collect_was_broken_off_goes_on_bit_for_bit(tmp_path: Path, engine: str) -> None:
    config = TrainConfig(**{**vars(CONFIG), "engine": engine})
    whole = begin(tmp_path / "whole", config)
    list(whole)
    stopped = begin(tmp_path / "stopped", config)
    stopped.update()
    stopped.trainer._collect_seconds = 10.0  # as if that had been slow
    break_off(stopped)
    assert stopped.save()
    stopped.close()
    warned: list[str] = []
    again = Session.resume(tmp_path / "stopped", Saving(), warned.append)
    list(again)
    assert not warned
    np.testing.assert_array_equal(weights(again), weights(whole))
    for session in (whole, again):
        session.close()


def test_a_good_checkpoint_is_not_replaced_by_one_without_envs(tmp_path: Path) -> None:
    session = begin(tmp_path / "run")
    session.update()
    assert session.save()
    break_off(session)  # no snapshot was taken before a collect as quick as these
    assert session.save()
    found = checkpoint.load(checkpoint.latest(session.run.checkpoints))
    assert any(name.startswith("engine.") for name in found.arrays)
    session.close()


def test_a_run_that_cannot_write_its_last_checkpoint_says_so_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    run = ["--run-dir", str(tmp_path / "run"), "--num-envs", "2", "--num-steps", "4", "--total-steps", "8"]
    assert main(["train", "cage2", *run, "--eval-episodes", "0"]) == 1
    told = capsys.readouterr()
    assert "no checkpoint of step 8 could be written" in told.err and "Next:" not in told.out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_run_whose_disk_is_full_at_the_end_says_what_is_lost_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        run = ["--run-dir", str(tmp_path / "run"), "--num-envs", "2", "--num-steps", "4", "--total-steps", "8"]
        assert main(["train", "cage2", "--preset", "none", *run, "--eval-episodes", "0"]) == 1
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    told = capsys.readouterr()
    assert "no checkpoint of step 8 could be written" in told.err and "report.html: No space left" in told.err
    assert "Next:" not in told.out and "Report:" not in told.out


def test_a_report_that_cannot_be_written_takes_no_policy_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / REPORT).mkdir(parents=True)
    run = ["--run-dir", str(tmp_path / "run"), "--num-envs", "2", "--num-steps", "4", "--total-steps", "8"]
    assert main(["train", "cage2", "--preset", "none", *run, "--eval-episodes", "0"]) == 1
    told = capsys.readouterr()
    assert "report.html: Is a directory" in told.err and "Next:" in told.out
    assert checkpoint.load(checkpoint.resolve(tmp_path / "run")).step == 8


def test_a_run_that_was_interrupted_while_it_was_scored_is_scored_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    run = ["--run-dir", str(tmp_path / "run"), "--num-envs", "2", "--num-steps", "4", "--total-steps", "8", "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr("redline.cli.train._summarise", interrupted)
        assert main(["train", "cage2", *run]) == 130
    assert "--resume" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path / "run"), "--eval-episodes", "2", "--quiet"]) == 0
    assert "Score" in capsys.readouterr().out and (tmp_path / "run" / REPORT).exists()


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "ray"])
def test_two_interrupts_at_once_leave_a_run_that_goes_on(tmp_path: Path, engine: str) -> None:
    run = tmp_path / "run"
    env = ["slow?mean_ms=0.5&max_steps=5", "--engine", engine, "--num-envs", "4", "--num-steps", "10", "--workers", "2"]
    command = [sys.executable, "-m", "redline", "train", *env, "--total-steps", "1000000", "--run-dir", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (run / "metrics.csv").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and "Continue with: redline train --resume" in told, told
    assert checkpoint.load(checkpoint.latest(run / "checkpoints")).step > 0
