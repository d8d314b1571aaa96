"""`redline new` writes a world that works. Its own tests are run with the commands of docs/worlds.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import redline
from redline.cli import main

HERE = str(Path(redline.__file__).parents[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new world, called press."""
    where = tmp_path_factory.mktemp("new")
    assert main(["new", "press_one", "--folder", str(where), "-q"]) == 0
    return where / "press_one"


def run(folder: Path, *command: str) -> str:
    """The output of a command that is run in a folder by a process of its own."""
    environment = {**os.environ, "PYTHONPATH": HERE}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_policy_learns_in_it(folder, tmp_path):
    arguments = ("--total-steps", "200000", "--num-envs", "64", "--run-dir", str(tmp_path / "run"))
    result = json.loads(run(folder, "redline", "train", "world:press_one:WORLD", *arguments, "--json"))
    assert result["mean"] > 8  # whoever always runs it soon breaks it, and whoever always repairs earns nothing
    text = run(folder, "redline", "envs", "world:press_one:WORLD")
    assert "--price 1.0" in text and "Cost of a repair." in text


def test_every_file_is_told(tmp_path, capsys):
    assert main(["new", "press_two", "--folder", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(told["files"]) == sorted(str(path) for path in Path(told["folder"]).rglob("*") if path.is_file())
    assert main(["new", "press_three", "--folder", str(tmp_path)]) == 0
    assert "redline train world:press_three:WORLD" in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "press_four").mkdir()
    assert main(["new", "press_four", "--folder", str(tmp_path)]) == 2
    assert "nothing in it is overwritten" in capsys.readouterr().err
    assert not list((tmp_path / "press_four").iterdir())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my-world", "Try small letters"),
        ("class", "Try small letters"),
        ("Press", "Try small letters"),
        ("numpy", "a module 'numpy' already"),
        ("cage2", "a world 'cage2' already"),
    ],
)
def test_a_name_that_could_not_be_used_is_refused(name, says, tmp_path, capsys):
    assert main(["new", name, "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err.strip()
    assert says in said and said.count("\n") == 0
    assert not list(tmp_path.iterdir())
