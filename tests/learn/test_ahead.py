"""The learner is compiled on another core before it is needed, and nothing of that is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import redline.learn.ahead
from redline.learn.ahead import BEGIN, compile_ahead
from redline.learn.config import TrainConfig

TRAIN = """
import sys
from redline.learn.ahead import compile_learner, compile_plain_path
from redline.learn.gae import gae
from redline.learn.heads.categorical import _draw_once, write_gradient
from redline.learn.network.one_call import gradient_in_one_call
from redline.learn.network.steady_pass import answer
from redline.cli import main

compile_learner(2)
compile_plain_path()
kernels = [answer, gradient_in_one_call(write_gradient), gae, _draw_once]
before = [len(each.signatures) for each in kernels]
assert before == [1, 1, 2, 1], before
assert main(sys.argv[1:]) == 0
assert [len(each.signatures) for each in kernels] == before
"""


@pytest.mark.parametrize("env", ["cage2", "nasim:tiny", "petri:cluster/J-0?wafers=3", "CartPole-v1"])
def test_what_is_compiled_ahead_is_what_a_run_needs(env: str, tmp_path: Path) -> None:
    few = ["--num-envs", "4", "--num-steps", "16", "--total-steps", "128", "--eval-episodes", "0", "--quiet"]
    command = [sys.executable, "-c", TRAIN, "train", env, *few, "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_another_core_is_asked_only_where_there_is_something_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(redline.learn.ahead, "_begun", [])
    monkeypatch.setattr(redline.learn.ahead, "cores", lambda: 2)

    class Noted:
        def __init__(self, command: list[str], **_: object) -> None:
            begun.append(command)

        def wait(self) -> None:
            """It has ended already."""

        kill = wait

    monkeypatch.setattr(redline.learn.ahead.subprocess, "Popen", Noted)
    monkeypatch.setattr(redline.learn.ahead, "_is_there", lambda: True)
    compile_ahead(TrainConfig("cage2"))
    assert not begun
    monkeypatch.setattr(redline.learn.ahead, "_is_there", lambda: False)
    for usual in ({"threads": 1}, {"activation": "relu"}, {"recurrent": "gru"}, {"hidden": ()}, {"device": "cuda"}):
        compile_ahead(TrainConfig("cage2", **usual))
    assert not begun
    compile_ahead(TrainConfig("cage2", hidden=(8, 8, 8)))
    assert [command[-1] for command in begun] == ["3"]


def test_it_ends_when_whoever_wanted_it_does(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    ahead = subprocess.Popen(
        [sys.executable, "-c", f"import sys\n{BEGIN}", "2"], stdin=subprocess.PIPE, env=environment
    )
    assert ahead.stdin is not None
    ahead.stdin.close()
    assert ahead.wait(60) == 1


def test_it_runs_nothing_that_lies_about(tmp_path: Path) -> None:
    for name in ("numba", "numpy", "redline"):
        (tmp_path / f"{name}.py").write_text("open('was-run', 'w')")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": ""}
    begin = (
        f"import sys; sys.path[:] = {sys.path!r}\nimport redline.learn.ahead as ahead\n"
        "from redline.learn.config import TrainConfig\nahead.cores = lambda: 2\n"
        "ahead.compile_ahead(TrainConfig('cage2'))\n"
        "[process] = ahead._begun\n"
        "try: process.wait(3)\n"
        "except ahead.subprocess.TimeoutExpired: pass\n"
    )
    subprocess.run([sys.executable, "-P", "-c", begin], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert not (tmp_path / "was-run").exists()
