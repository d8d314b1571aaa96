"""Improvement by rollouts, on a game of a few steps in which the best action is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from redline.cli import main
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.aside import look_aside
from redline.learn.distil import distil
from redline.learn.evaluate import load_policy
from redline.learn.heads.categorical import Categorical
from redline.learn.improve import improve
from redline.learn.improvement import Improvement
from redline.learn.improving import begun, improve_in
from redline.learn.judge import Arena, Judge, weights_by_age
from redline.learn.likeliest import Likeliest
from redline.learn.moments import visit
from redline.learn.policy import Policy
from redline.runs import PROGRESS
from redline.threads import use_threads
from redline.timing.breakdown import Breakdown
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


TWICE = dataclasses.replace(QUICK, rounds=2)


def same(one: Policy, other: Policy) -> bool:
    return all((array == other.arrays()[name]).all() for name, array in one.arrays().items())


def test_from_every_part_that_is_over_it_goes_on_to_the_same_end():
    policy, kept = worst(), []
    gains = improve(
        policy, ARENA, TWICE, 1, Stopwatch(), keep=lambda progress: kept.append((progress, policy.arrays()))
    )
    assert [progress.parts for progress, _ in kept] == [1, 2, 3, 4]
    for progress, arrays in kept[:3:2]:
        other = worst()
        other.load(arrays)
        assert improve(other, ARENA, TWICE, 1, Stopwatch(), progress=progress) == gains
        assert same(other, policy)


def test_in_a_run_folder_it_goes_on_where_it_was_broken_off(tmp_path):
    def stop(text: str) -> None:
        raise KeyboardInterrupt

    whole, resumed, run = worst(), worst(), begun(tmp_path / "run", {})
    gains = improve(whole, ARENA, TWICE, 1, Stopwatch())
    with pytest.raises(KeyboardInterrupt):
        improve_in(run, worst(), ARENA, TWICE, 1, stop)  # it speaks at the end of a round
    assert improve_in(begun(run.path, {}), resumed, ARENA, TWICE, 1, str) == gains
    assert same(whole, resumed)
    calls = Breakdown.from_json(run.read_json("breakdown.json")).calls
    assert calls["improve", "rollouts"] == 2


def spoil(progress: dict, arrays: dict[str, np.ndarray], how: str) -> None:
    switch = {"state": 0, "old": 0, "new": 1, "gain": 1.0, "stderr": 0.1, "visits": 1.0}
    if how == "another state":
        progress["progress"]["switches"] = [{**switch, "state": 10**9}]
    elif how == "another action":
        progress["progress"]["switches"] = [{**switch, "new": -1}]
    elif how == "nothing known":
        progress.clear()
    else:
        name = max(arrays, key=lambda each: arrays[each].size)  # one with rows to leave out
        arrays[name] = arrays[name] * np.nan if how == "no numbers" else arrays[name][:1]


@pytest.mark.parametrize("how", ["another state", "another action", "nothing known", "no numbers", "another shape"])
def test_progress_that_no_improvement_came_to_is_refused_in_one_line(tmp_path, how):
    def stop(text: str) -> None:
        raise KeyboardInterrupt

    run = begun(tmp_path / "run", {})
    with pytest.raises(KeyboardInterrupt):
        improve_in(run, worst(), ARENA, dataclasses.replace(QUICK, rounds=2), 1, stop)
    found = checkpoint.load(checkpoint.latest(run.path / PROGRESS))
    values, arrays = dict(found.values), dict(found.arrays)
    spoil(values, arrays, how)
    checkpoint.save(run.path / PROGRESS, found.step, arrays, values, 1)
    with pytest.raises(RedlineError):
        improve_in(begun(run.path, {}), worst(), ARENA, dataclasses.replace(QUICK, rounds=2), 1, str)


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


def test_looking_aside_teaches_what_to_do_where_the_policy_never_comes():
    policy, how = worst(), dataclasses.replace(QUICK, aside=8)
    path = visit(policy, ARENA, 64, seed=3)
    before = policy.arrays()
    taught = look_aside(policy, ARENA, how, np.random.SeedSequence(1), Stopwatch())
    assert taught > 0
    assert not all((policy.arrays()[name] == array).all() for name, array in before.items())
    other = worst()
    assert look_aside(other, ARENA, how, np.random.SeedSequence(1), Stopwatch()) == taught
    assert same(other, policy)
    on_path = Likeliest(policy).actions(path.observations) == Likeliest(worst()).actions(path.observations)
    assert np.average(on_path, weights=path.visits) > 0.9


def test_rounds_that_look_aside_go_on_from_every_part_to_the_same_end():
    how, policy, kept = dataclasses.replace(QUICK, aside=4, rounds=2, margin=1e9, lessons=40), worst(), []
    gains = improve(policy, ARENA, how, 1, Stopwatch(), keep=lambda progress: kept.append((progress, policy.arrays())))
    assert len(gains) == 2  # though neither has taken anything
    progress, arrays = kept[1]
    other = worst()
    other.load(arrays)
    assert improve(other, ARENA, how, 1, Stopwatch(), progress=progress) == gains
    assert same(other, policy)


def test_masks_are_obeyed():
    arena = Arena("petri:jobshop/ft06", {})
    env = arena.make(1)
    torch.manual_seed(0)
    policy = Policy(env.encoding, Categorical(env.num_actions), (16,))
    how = dataclasses.replace(QUICK, episodes=4, states=3, least_visits=1, judging=4, lessons=20, tries=2, deciding=2)
    gains = improve(policy, arena, dataclasses.replace(how, aside=2), 0, Stopwatch())
    assert gains[0].states == 3


def test_envs_that_cannot_go_back_are_refused():
    with pytest.raises(RedlineError, match="compiled worlds"):
        Arena("CartPole-v1", {})
