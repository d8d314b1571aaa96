from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_sb3 = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="Stable-Baselines3 is not installed"
)


def run(name: str, *arguments: str, tmp: Path) -> str:
    """What an example prints; SB3 leaves a folder in `tmp`. A warning of any kind counts as a failure."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "TMPDIR": str(tmp)}
    done = subprocess.run(command, cwd=EXAMPLES.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_sb3
@pytest.mark.parametrize(("name", "num_steps"), [("sb3_single.py", 2048), ("sb3_batched.py", 8192)])
def test_an_example_trains_and_says_how_it_scored_before_and_after(name, num_steps, tmp_path):
    before, after = run(name, "--total-steps", "100", tmp=tmp_path).splitlines()  # rounded up to one whole update
    number = r"(-\d+\.\d)"
    assert re.fullmatch(f"Mean episode reward before training: {number}", before)
    assert re.fullmatch(f"Mean episode reward after {num_steps} steps: {number}", after)
    assert before.split()[-1] != after.split()[-1]


def test_train_and_play_trains_plays_and_scores(tmp_path):
    trained, played, scored = run("train_and_play.py", "--total-steps", "500", tmp=tmp_path).splitlines()
    assert " updates; the last episodes returned " in trained and played.startswith("One episode: ")
    assert re.fullmatch(r"Mean return of 100 episodes: \d+\.\d ± \d+\.\d", scored)


def test_an_env_of_ones_own_is_trained_on_in_workers_and_comes_back_from_its_folder(tmp_path):
    arguments = ("--total-steps", "500", "--run-dir", str(tmp_path / "run"))
    first, *acts = run("own_env.py", *arguments, tmp=tmp_path).splitlines()
    assert re.fullmatch(r"Mean return before training -\d+\.\d, after [\d,]+ steps -\d+\.\d", first)
    assert len(acts) == 3 and (tmp_path / "run" / "metrics.csv").exists()


def test_a_loop_written_for_the_original_wrapper_plays_cage4(tmp_path):
    lines = run("cage4_parallel.py", "--episodes", "2", "--steps", "8", tmp=tmp_path).splitlines()
    assert [re.sub(r"-?\d+ in|with .*", "…", line) for line in lines] == [
        f"Episode {episode}: score … 7 steps; blue_agent_0 ended …" for episode in range(2)
    ]


def test_every_example_is_run_by_a_test():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "cage4_in_cyborg.py",  # needs the original of CAGE-4
        "cage4_parallel.py",
        "champion_in_cyborg.py",  # in tests/worlds/cage2
        "sb3_single.py",
        "sb3_batched.py",
        "elevator.py",
        "elevator_original.py",
        "own_env.py",
        "train_and_play.py",
    }
