"""Improvement by rollouts, on a game of a few steps in which the best action is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from redline.cli import main
from redline.errors import RedlineError
from redline.learn.distil import distil
from redline.learn.evaluate import load_policy
from redline.learn.heads.categorical import Categorical
from redline.learn.improve import improve
from redline.learn.improvement import Improvement
from redline.learn.judge import Arena, Judge, weights_by_age
from redline.learn.likeliest import Likeliest
from redline.learn.moments import visit
from redline.learn.policy import Policy
from redline.threads import use_threads
from redline.timing.stopwatch import Stopwatch

use_threads(1)
OPTIONS = {"rules": "leaderboard", "observation": "memory", "actions": "useful", "max_steps": 12}
ARENA = Arena("cage2", {**OPTIONS, "red_agent": "B_lineAgent"})
QUICK = Improvement(
    episodes=64, states=6, least_visits=8, horizon=10, tries=4, deciding=24, errors=1.0, margin=0.0, judging=64,
    lessons=150,
)  # fmt: skip


def worst() -> Policy:
    """Restores Op_Server0 again and again, which costs a point each time."""
    env = ARENA.make(1)
    torch.manual_seed(0)
    policy = Policy(env.encoding, Categorical(env.num_actions), (16,))
    restore = env.action_names.index("Restore Op_Server0")
    with torch.no_grad():
        policy.network.layers().actor.bias[restore] = 3.0
    return policy


@pytest.fixture(scope="module")
def improved():
    policy = worst()
    watch = Stopwatch()
    with watch.span("improve"):
        gains = improve(policy, ARENA, QUICK, seed=1, watch=watch)
    return policy, gains, watch.lap()


def test_what_costs_without_need_is_unlearned(improved):
    policy, gains, _ = improved
    judge = Judge(ARENA, 64, seed=99)
    difference = judge.compare(worst(), policy)
    assert difference.exceeds(3.0)
    assert gains[0].taken > 0
    assert gains[0].after > gains[0].before


def test_the_same_seed_improves_in_the_same_way_whatever_the_threads(improved):
    policy, gains, _ = improved
    again = worst()
    assert improve(again, dataclasses.replace(ARENA, threads=2), QUICK, 1, Stopwatch()) == gains
    assert all((a == b).all() for a, b in zip(again.arrays().values(), policy.arrays().values(), strict=True))


def same(one: Policy, other: Policy) -> bool:
    return all((array == other.arrays()[name]).all() for name, array in one.arrays().items())


def test_an_improvement_belongs_to_one_process_at_a_time(tmp_path, monkeypatch, capsys):
    command = ["improve", "champion", "--quiet", "--run-dir", str(tmp_path / "run")]

    def once_more(*_: object) -> None:
        monkeypatch.undo()
        assert main(command) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr("redline.cli.improve._improve", once_more)
    assert main(command) == 130
    assert "is in use by process" in capsys.readouterr().err


def test_the_command_goes_on_with_the_same_improvement_and_no_other(tmp_path, monkeypatch, capsys):
    sizes = {"episodes": 32, "states": 2, "least-visits": 4, "horizon": 4, "tries": 2, "deciding": 4, "judging": 8}
    options = [f"--{name}={value}" for name, value in {**sizes, "lessons": 5, "threads": 1}.items()]

    def improve_champion(folder: Path, *more: str) -> int:
        return main(["improve", "champion", *options, "--quiet", "--run-dir", str(folder), *more])

    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("redline.learn.improve._take", stopped)
        assert improve_champion(tmp_path / "run") == 130
    assert f"--run-dir {tmp_path / 'run'}" in capsys.readouterr().err
    assert improve_champion(tmp_path / "run", "--seed", "3") == 2
    assert "another improvement" in capsys.readouterr().err
    assert improve_champion(tmp_path / "run") == 0
    assert improve_champion(tmp_path / "whole") == 0
    assert same(load_policy(tmp_path / "run").policy, load_policy(tmp_path / "whole").policy)
    assert improve_champion(tmp_path / "run") == 2  # it is finished


def test_an_improvement_that_was_stopped_before_it_began_goes_on(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("redline.cli.improve._improve", stop)
        assert main(["improve", "champion", "--quiet", "--run-dir", str(folder)]) == 130
        assert capsys.readouterr().err == (
            f"redline: interrupted. To go on, give the same command with --run-dir {folder}\n"
        )
        assert main(["improve", "champion", "--quiet", "--run-dir", str(folder)]) == 130
    assert main(["improve", "champion", "--quiet", "--run-dir", str(folder), "--seed", "1"]) == 2
    assert "another improvement" in capsys.readouterr().err


def test_time_is_accounted_for(improved):
    *_, breakdown = improved
    assert {path[1] for path in breakdown.seconds if path[0] == "improve" and path[1:]} == {
        "visit", "rollouts", "distil", "judge",
    }  # fmt: skip


def test_a_policy_that_cannot_be_improved_stays_as_it_is():
    policy = worst()
    before = policy.arrays()
    gains = improve(policy, ARENA, dataclasses.replace(QUICK, margin=1e9, judging=8), 1, Stopwatch())
    assert gains[0].taken == 0
    assert all((policy.arrays()[name] == array).all() for name, array in before.items())


def test_moments_belong_to_the_information_state_that_they_show():
    policy = worst()
    moments = visit(policy, ARENA, 16, seed=0)
    assert moments.visits.sum() == len(moments.ages) == 16 * 12
    assert (np.diff(moments.visits) <= 0).all()
    for state, members in enumerate(moments.members):
        assert len(members) == moments.visits[state]
        assert (moments.snapshots["obs"][members] == moments.observations[state]).all()


def test_distillation_leaves_the_rest_alone():
    policy = worst()
    moments = visit(policy, ARENA, 16, seed=0)
    before = Likeliest(policy).actions(moments.observations)
    distil(policy, moments, [], 50, np.random.default_rng(0))
    after = Likeliest(policy).actions(moments.observations)
    assert (before == after).mean() > 0.95


def test_a_reward_counts_for_every_length_that_it_falls_into():
    assert weights_by_age((2, 4), 6).tolist() == [2, 2, 1, 1, 0, 0]
    assert weights_by_age((), 3).tolist() == [1, 1, 1]


def test_the_judge_plays_whole_episodes_and_the_same_for_everybody():
    judge = Judge(ARENA, 20, seed=5)
    scores = judge.scores(worst())
    assert scores.shape == (20,)
    assert (scores <= -12).all()  # a point a step
    assert (judge.scores(worst()) == scores).all()


def test_masks_are_obeyed():
    arena = Arena("petri:jobshop/ft06", {})
    env = arena.make(1)
    torch.manual_seed(0)
    policy = Policy(env.encoding, Categorical(env.num_actions), (16,))
    how = dataclasses.replace(QUICK, episodes=4, states=3, least_visits=1, judging=4, lessons=20, tries=2, deciding=2)
    gains = improve(policy, arena, how, 0, Stopwatch())
    assert gains[0].states == 3


def test_envs_that_cannot_go_back_are_refused():
    with pytest.raises(RedlineError, match="compiled worlds"):
        Arena("CartPole-v1", {})
