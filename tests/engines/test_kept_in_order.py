"""What an env may do besides being an env, and what is left of it: children, BaseExceptions, close, a bug in every env."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from redline.engines import Faults, make_engine
from redline.engines.episodes import Episodes
from redline.engines.faults import EnvTrouble
from redline.engines.settings import Collecting
from redline.learn.certainty import require_certainty
from redline.learn.config import PPOConfig, TrainConfig
from redline.testing.scripted import Scripted
from redline.timing.stopwatch import Stopwatch
from redline.worlds.python.recipe import probe

PATIENCE = 60.0
ODD = """
import os, subprocess, sys, time
import gymnasium
import numpy as np

class Odd(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what="", folder=""):
        self.what, self.folder, self.clock = what, folder, 0
        if what in ("child", "child of a child"):
            self.start()

    def start(self):
        if self.what == "child of a child":
            own = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
            with own.stdout:
                number = int(own.stdout.readline())
        else:
            number = subprocess.Popen(["sleep", "1000"]).pid
        open(os.path.join(self.folder, f"child-{number}"), "w").close()

    def reset(self, *, seed=None, options=None):
        self.clock = 0
        return np.zeros(3, np.float32) if self.what == "old reset" else (np.zeros(1, np.float32), {})

    def step(self, action):
        self.clock += 1
        if self.what == "child in a step" and self.clock == 2:
            self.start()
        once = os.path.join(self.folder, "once")
        if self.what == "base" and self.clock == 3 and not os.path.exists(once):
            open(once, "w").close()
            raise GeneratorExit("a BaseException")
        if self.what == "bug":
            raise ValueError("always the same")
        return np.zeros(1, np.float32), 0.0, False, self.clock == 4, {}

    def close(self):
        if self.what == "hang":
            time.sleep(1000)
"""
ENGINES = ["serial", "vector", "shared", "ready", "pool"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "odd_env.py").write_text(ODD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("odd_env", None)
    return tmp_path


def make(name: str, what: str, folder: Path, **faults: object):
    collecting = Collecting(workers=2, faults=Faults(**faults))  # type: ignore[arg-type]
    return make_engine(name, "external:odd_env:Odd", 4, 0, {"what": what, "folder": str(folder)}, collecting)


@pytest.mark.parametrize("name", ENGINES)
def test_a_base_exception_is_a_failure_like_any_other(
    name: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = make(name, "base", folder)
    assert engine.collect(Scripted(2), 8, Stopwatch()).num_steps
    assert engine.faults.restarts >= 1 and "GeneratorExit: a BaseException" in capfd.readouterr().err
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_a_bug_in_every_env_stops_the_run_at_once(name: str, folder: Path) -> None:
    engine = make(name, "bug", folder)
    with pytest.raises(EnvTrouble, match=r"always the same.*at the same place in the same way"):
        engine.collect(Scripted(2), 8, Stopwatch())
    assert engine.faults.restarts <= 12  # workers find out each at its own pace; 20 would be all that they may
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_a_reset_that_answers_as_old_envs_did_is_named(name: str, folder: Path) -> None:
    with pytest.raises(EnvTrouble, match=r"reset did not return \(observation, info\)"):
        make(name, "old reset", folder).collect(Scripted(2), 8, Stopwatch())


@pytest.mark.parametrize("name", ["serial", "vector"])
def test_an_env_that_will_not_close_is_left_behind(
    name: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.engines.workers.single_envs.CLOSE_SECONDS", 0.1)
    engine = make(name, "hang", folder)
    engine.collect(Scripted(2), 8, Stopwatch())
    engine.close()
    assert "did not close within 0.1 s" in capfd.readouterr().err


@pytest.mark.parametrize("what", ["hang", "base"])
def test_an_env_that_is_looked_at_before_training_cannot_stop_it(
    what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.processes.ends_in_time.__defaults__", (0.1,))
    found = probe(TrainConfig("external:odd_env:Odd", {"what": what, "folder": str(folder)}), 0.05)
    assert (found.actions is None) == (what == "base")


@pytest.mark.parametrize("what", ["child", "child in a step", "child of a child"])
@pytest.mark.parametrize("name", ["shared", "pool"])
@pytest.mark.parametrize("how", ["close", "kill"])
def test_children_of_an_env_end_with_its_worker(how: str, name: str, what: str, folder: Path) -> None:
    engine = make(name, what, folder)
    try:
        engine.collect(Scripted(2), 8, Stopwatch())
        children = [int(path.name.removeprefix("child-")) for path in folder.glob("child-*")]
        assert len(children) >= 4 and all(map(is_alive, children))
        if how == "kill":
            for pid in worker_pids(engine):
                os.kill(pid, signal.SIGKILL)
            engine.collect(Scripted(2), 8, Stopwatch())
    finally:
        if how == "close":
            engine.close()
    left = await_end(children)
    engine.close()
    assert not left


def worker_pids(engine: Any) -> list[int]:
    if isinstance(engine, Episodes):
        return [process.pid for process in engine.workers.processes.values()]
    return [worker.process.pid for worker in engine.envs.env_workers.workers]


def await_end(pids: list[int]) -> list[int]:
    """Those that still run after a while."""
    until = time.monotonic() + PATIENCE
    left = pids
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [pid for pid in left if is_alive(pid)]
    return left


def test_an_env_that_is_only_tried_is_left_behind_too_if_it_will_not_close(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.processes.ends_in_time.__defaults__", (0.1,))
    require_certainty(TrainConfig("external:odd_env:Odd", {"what": "hang"}, ppo=PPOConfig(elite=2)))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
