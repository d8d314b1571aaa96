"""Worlds are found by name: announced by packages that are installed, or by where they stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import redline
from redline.cli import main
from redline.errors import RedlineError
from redline.worlds.registry import find_world, make_env, world_of

HERE = Path(redline.__file__).parents[1]
LIFT = "world:examples.elevator:WORLD"


def install(site: Path, name: str, entry_points: dict[str, str], source: str) -> None:
    """Lay a package out as an installer does."""
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("")
    lines = [f"{world} = {place}" for world, place in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[redline.worlds]", *lines, ""]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages: one announces two worlds, the others cannot deliver."""
    site = tmp_path_factory.mktemp("site")
    two = "WORLDS = (WORLD, dataclasses.replace(WORLD, name='lift', prefix='lift:'))"
    source = f"import dataclasses\nfrom examples.elevator import WORLD\n{two}\n"
    install(site, "lifts", {"elevator": "lifts:WORLDS"}, source)
    install(site, "unwritten", {"unwritten": "unwritten:WORLD"}, "import no_such_module_anywhere\n")
    install(site, "nameless", {"nameless": "nameless:WORLD"}, "")
    install(site, "wordy", {"wordy": "wordy:WORLD"}, "WORLD = 'a world'\n")
    return site


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which sees the installed packages."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(site)])}
    return subprocess.run(
        [sys.executable, "-m", "redline", *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


def test_announced_worlds_are_listed_and_those_that_fail_harm_nobody(site):
    done = run(site, "envs", "--json")
    assert done.returncode == 0, done.stderr
    told = {world["name"]: world["about"] for world in json.loads(done.stdout)["envs"]}
    assert told["elevator"] == told["lift"] == "One car, five floors: move, or open the doors"
    assert told["unwritten"] == "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    assert told["nameless"].startswith("cannot be loaded: AttributeError")
    assert told["wordy"] == "cannot be loaded: it is a str, not a redline.World"
    assert "cage2" in told


@pytest.mark.parametrize("command", ["train", "envs", "bench sim", "eval", "verify"])
def test_a_world_that_cannot_be_loaded_says_why_in_one_line(site, command):
    done = run(site, *command.split(), "unwritten")
    assert (
        "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_anywhere'" in done.stdout + done.stderr
    )
    assert (done.stdout + done.stderr).strip().count("\n") == 0
    assert done.returncode == (0 if command == "envs" else 2)


def test_an_announced_world_is_trained_in_workers_and_scored(site, tmp_path):
    run_dir = str(tmp_path / "run")
    small = ("--num-envs", "4", "--num-steps", "10", "--total-steps", "80", "--eval-episodes", "2", "--workers", "2")
    done = run(site, "train", "lift:any?rate=0.2", *small, "--engine", "shared", "--run-dir", run_dir, "-q")
    assert done.returncode == 0, done.stderr
    done = run(site, "eval", run_dir, "--episodes", "2", "--json")
    assert json.loads(done.stdout)["env"] == "lift:any"


# By where it stands


def test_a_local_world_may_be_followed_by_names_and_options():
    assert world_of(f"{LIFT}:any?rate=0.1").name == "elevator"
    assert find_world(LIFT) is world_of(LIFT)
    assert make_env(f"{LIFT}?rate=0.1", 2).num_envs == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("world:examples.elevator:WORL", "Did you mean 'WORLD'?"),
        ("world:examples.elevator:Options", "not a redline.World"),
        ("world:examples.elevatr:WORLD", "There is no module 'examples.elevatr'"),
        ("world:examples.elevator", "Write world:package.module:WORLD."),
        (f"{LIFT}?rat=0.1", "Did you mean 'rate'?"),
        (f"{LIFT}?rate=often", "rate=often is not a number. Try rate=0.3."),
        (f"{LIFT}?max_steps=1.5", "max_steps=1.5 is not a whole number."),
        (f"{LIFT}?max_steps=-1", "episodes of -1 steps"),
    ],
)
def test_a_local_world_that_is_not_there_is_refused(name, says):
    with pytest.raises(RedlineError) as caught:
        make_env(name, 1)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_command_takes_a_local_world(tmp_path, capsys):
    def told(*arguments: str) -> dict:
        assert main([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    [world] = told("envs", LIFT)["envs"]
    assert [option["name"] for option in world["options"]] == ["rate", "max_steps"]
    assert main(["solve", LIFT]) == 2
    assert "can be solved" in capsys.readouterr().err
    small = ("--num-envs", "4", "--num-steps", "10", "--minibatches", "1")
    told("profile", LIFT, *small, "--batches", "1", "--rate", "0.2")
    quick = ("--batch-sizes", "4", "--threads", "1", "--seconds", "0.01", "--turns", "1", "--no-start-up")
    assert told("bench", "sim", LIFT, *quick)["steps_per_second"] > 0
