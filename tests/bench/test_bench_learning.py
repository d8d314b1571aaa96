"""Ours and a peer learn the same, and the verdict follows from what they reached."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.learning import OURS, SB3, TASKS, Cell, judge, train_cleanrl
from benchmarks.learning_envs import breakout, cartpole_without_velocities


def cell(contestant: str, seed: int, mean: float, seconds: float = 1.0) -> Cell:
    return Cell("CartPole-v1", contestant, seed, 1000, seconds, [mean - 1.0, mean + 1.0])


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((100.0, 102.0), (50.0, 52.0), "better"),
        ((50.0, 52.0), (100.0, 102.0), "worse"),
        ((50.0, 90.0), (60.0, 100.0), "not worse within noise"),
    ],
)
def test_a_verdict_follows_from_how_far_seeds_are_apart(ours, theirs, verdict):
    cells = [cell(OURS, seed, mean) for seed, mean in enumerate(ours)]
    cells += [cell(SB3, seed, mean) for seed, mean in enumerate(theirs)]
    [found] = judge(cells)
    assert found.learns == verdict


@pytest.mark.parametrize(("seconds", "twice"), [(1.9, False), (2.0, True)])
def test_twice_as_fast_is_half_the_time(seconds, twice):
    [found] = judge([cell(OURS, 0, 1.0), cell(SB3, 0, 1.0, seconds)])
    assert found.is_twice_as_fast is twice


def test_what_was_measured_before_is_not_measured_again(tmp_path, capsys):
    for contestant, mean in ((OURS, 500.0), (SB3, 400.0)):
        kept = cell(contestant, 0, mean)
        (tmp_path / f"CartPole-v1-{TASKS['CartPole-v1'].steps}-{contestant}-0.json").write_text(json.dumps(vars(kept)))
    arguments = ["--envs", "CartPole-v1", "--seeds", "1", "--folder", str(tmp_path)]
    assert learning.main([*arguments, "--json"]) == 0
    [verdict] = json.loads(capsys.readouterr().out)["verdicts"]
    assert (verdict["ours"], verdict["theirs"], verdict["verdict"]) == (500.0, 400.0, "better")
    assert learning.main(arguments) == 0
    assert "better; not 2x as fast" in capsys.readouterr().out


def test_a_real_cell_of_each_is_trained_and_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(learning, "EPISODES", 8)
    pytest.importorskip("sb3_contrib", reason="the extra learning-bench is not installed")
    arguments = ["--envs", "CartPole-places", "--seeds", "1", "--steps", "256", "--folder", str(tmp_path)]
    assert learning.main([*arguments, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(each["contestant"], each["steps"]) for each in cells] == [(OURS, 256), (SB3, 256)]
    assert all(len(each["returns"]) == 8 and min(each["returns"]) >= 8 for each in cells)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_the_single_loop_learns_what_is_discrete_and_what_is_not(name, monkeypatch):
    monkeypatch.setattr(learning, "EPISODES", 2)
    found = train_cleanrl(name, 2048, 0)
    assert found.steps == 2048
    assert len(found.returns) == 2
    assert np.isfinite(found.returns).all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--envs", "CartPole"], "Did you mean 'CartPole-v1'?"),
        (["--peers", "sb4"], "Did you mean 'sb3'?"),
        (["--steps", "0"], "--steps must be at least 1 (got 0)"),
        (["--seeds", "0"], "--seeds must be at least 1 (got 0)"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments, says, capsys):
    assert learning.main(arguments) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert says in line


def test_a_pole_shows_its_places_only():
    env = cartpole_without_velocities()
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.observation_space.shape == (2,)
    assert env.observation_space.contains(env.step(0)[0])


def test_a_game_of_minatar_is_a_picture():
    pytest.importorskip("minatar", reason="the extra learning-bench is not installed")
    env = breakout()
    first, _ = env.reset(seed=1)
    assert env.observation_space.contains(first)
    assert set(np.unique(first)) == {0, 255}
    played = [env.step(k % 6)[0] for k in range(20)]
    env.reset(seed=1)
    np.testing.assert_array_equal(played, [env.step(k % 6)[0] for k in range(20)])
