"""`redline train` with every engine, as a user types it: what it prints, how it stops, what it leaves behind."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redline.cli import main
from redline.engines import ENGINES
from redline.engines.auto import choose
from redline.threads import cores

SMALL = ["--num-envs", "4", "--num-steps", "20", "--workers", "2", "--eval-episodes", "4"]
TROUBLE = """
import gymnasium as gym, numpy as np

class Trouble(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, after):
        self.after, self.steps = after, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.clock, self.steps = self.clock + 1, self.steps + 1
        if self.after and self.steps > self.after:
            raise ValueError("the machine is on fire")
        return np.zeros(2, np.float32), 1.0, False, self.clock == 10, {}

def make(after=0):
    return Trouble(after)
"""


def redline(*arguments: str | Path) -> int:
    return main([str(each) for each in arguments])


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with an env of the user's own."""
    (tmp_path / "trouble.py").write_text(TROUBLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "ray"])
def test_every_engine_trains_from_the_command_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["slow?mean_ms=0.01", "--engine", name, "--total-steps", "800", *SMALL, "--max-steps", "10"]
    assert redline("train", *arguments, "--runs", tmp_path, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["steps"] == 800
    assert said["episodes"] == 80
    assert said["restarts"] == said["lost_episodes"] == 0
    assert {"collect", "learn"} <= set(said["breakdown"]["spans"])


def test_the_plan_is_printed_and_says_when_there_are_too_many_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    count = str(cores() + 1)
    few = ["--num-envs", count, "--num-steps", "2", "--total-steps", "1", "--eval-episodes", "0", "--runs", tmp_path]
    assert redline("train", "slow?mean_ms=0.01", "--engine", "shared", *few, "--workers", count) == 0
    said = capsys.readouterr().err
    assert f"{count} workers of one thread with 1 env each" in said
    assert "more than the" in said


def test_auto_tries_the_engines_and_says_why_it_takes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("redline.learn.train.choose", functools.partial(choose, seconds=0.1))
    arguments = ["slow?mean_ms=1&wait=true", "--engine", "auto", "--total-steps", "80", *SMALL, "--runs", tmp_path]
    assert redline("train", *arguments) == 0
    said = capsys.readouterr().err
    for name in ENGINES:
        assert f"  {name}" in said
    taken = said.split("Taking ")[1].split(":")[0]
    (run,) = tmp_path.iterdir()
    assert json.loads((run / "config.json").read_text())["engine"] == taken


def test_envs_that_keep_failing_stop_the_run_with_a_checkpoint(in_folder: Path, capsys: pytest.CaptureFixture[str]):
    run = in_folder / "run"
    arguments = ["external:trouble:make?after=45", "--engine", "shared", "--on-env-error", "fail", *SMALL]
    assert redline("train", *arguments, "--total-steps", "800", "--run-dir", run, "-q") == 1
    said = capsys.readouterr().err
    assert "the machine is on fire" in said
    assert "trouble.py" in said
    assert said.strip().splitlines()[-1] == f"redline: stopped at step 160. Go on with: redline train --resume {run}"
    assert redline("train", "--resume", run, "--eval-episodes", "0", "-q") == 1  # it fails again, later on
    assert "stopped at step 320" in capsys.readouterr().err


OWN_WAY = """
import signal
from trouble import Trouble

class OwnWay(Trouble):
    def step(self, action):
        if self.steps == 30:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)
        return super().step(action)

def make():
    return OwnWay(0)
"""


@pytest.mark.parametrize("engine", ["serial", "vector"])
def test_an_env_that_has_its_own_way_with_interrupts_costs_nothing(
    engine: str, in_folder: Path, capsys: pytest.CaptureFixture[str]
):
    (in_folder / "own_way.py").write_text(OWN_WAY)
    before = signal.getsignal(signal.SIGINT)
    assert redline("train", "external:own_way:make", "--engine", engine, *SMALL, "--run-dir", "run", "--quiet") == 130
    signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ("redline: interrupted at step 80. Continue with: redline train --resume run\n")
    assert list((in_folder / "run" / "checkpoints").iterdir())


def test_restarts_are_told_in_the_summary(in_folder: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["external:trouble:make?after=45", "--engine", "pool", "--total-steps", "400", *SMALL]
    assert redline("train", *arguments, "--runs", in_folder) == 0
    assert "episodes were dropped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["slow", "--engine", "vectr"], "Did you mean 'vector'?"),
        (["slow", "--engine", "shared", "--workers", "-1"], "--workers -1 cannot work"),
        (["slow", "--engine", "ready", "--ready-fraction", "0"], "--ready-fraction 0 cannot work"),
        (["slow", "--on-env-error", "ignore"], "Known: restart, drop, fail"),
        (["slow", "--max-restarts", "-1"], "--max-restarts -1 cannot work"),
        (["slow", "--step-deadline", "-1"], "--step-deadline -1 cannot work"),
        (["slow?mean=3"], "Did you mean 'mean_ms'?"),
        (["slow?mean_ms"], "is not an option"),
        (["external:nowhere:make"], "There is no module 'nowhere'"),
        (["external:trouble:mak"], "Did you mean 'make'?"),
        (["external:trouble:make?x=1", "--engine", "pool"], "x"),
        (["external:tests.contracts.toys:Sentences", "--engine", "shared"], "cannot be learned from"),
        (["external:tests.contracts.toys:Sentences", "--engine", "pool"], "cannot be learned from"),
        (["cyborg:Nobody"], "There is no red agent 'Nobody'"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, line, in_folder: Path, capsys: pytest.CaptureFixture[str]):
    assert redline("train", *arguments, "-q", "--num-envs", "2") == 2
    said = capsys.readouterr().err.strip()
    assert line in said
    assert len(said.splitlines()) == 1
    assert not (in_folder / "runs").exists()


@pytest.mark.parametrize(
    ("name", "number", "code"),
    [("serial", signal.SIGINT, 130), ("shared", signal.SIGTERM, 143), ("pool", signal.SIGINT, 130)],
)
def test_a_long_collect_is_broken_off_and_nothing_is_left(name: str, number: int, code: int, tmp_path: Path):
    mark = f"REDLINE_TEST_{os.getpid()}_{time.monotonic_ns()}"
    arguments = ["slow?mean_ms=50&wait=true", "--engine", name, "--num-envs", "16", "--total-steps", "1000000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "redline", "train", *arguments, "--run-dir", str(tmp_path / "run")],
        stderr=subprocess.PIPE, text=True, env={**os.environ, mark: "1"}, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        while "Training on" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == code
        assert "redline train --resume" in said.splitlines()[-1]
        wait_until_gone(mark)
    finally:
        process.kill()


def wait_until_gone(mark: str, seconds: float = 3.0) -> None:
    """Fail if a process with this mark in its environment is still there after a while."""
    until = time.monotonic() + seconds
    while marked(mark):
        assert time.monotonic() < until, f"still there: {marked(mark)}"
        time.sleep(0.05)


def marked(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["slow", "--engine", "serial", "--step-deadline", "2"], "cannot be kept by engine serial"),
        (["slow", "--engine", "pool", "--ray-address", "host:1"], "--ray-address is for engine ray"),
    ],
)
def test_an_option_that_the_engine_has_no_use_for_is_refused(arguments, line, capsys: pytest.CaptureFixture[str]):
    assert redline("train", *arguments, "-q", "--num-envs", "2") == 2
    assert line in capsys.readouterr().err
