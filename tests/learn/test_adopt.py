"""Adopting what another policy does better, with two defenders each of which wastes its points where the other does not."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from redline.learn.adopt import adopt
from redline.learn.heads.categorical import Categorical
from redline.learn.improvement import Improvement
from redline.learn.judge import Arena, Judge
from redline.learn.likeliest import Likeliest
from redline.learn.policy import Policy, copy_of
from redline.threads import use_threads
from redline.timing.stopwatch import Stopwatch
from redline.worlds.cage2.memory import INPUTS

use_threads(1)
OPTIONS = {"rules": "leaderboard", "observation": "memory", "actions": "useful", "max_steps": 12}
ARENA = Arena("cage2", {**OPTIONS, "red_agent": "RedMeanderAgent"})
HOW = Improvement(
    episodes=128, states=20, least_visits=8, horizon=12, deciding=32, errors=1.0, margin=0.0, judging=128, lessons=400
)  # fmt: skip
USERS = [f"User{k}.was_scanned" for k in (1, 2, 3, 4)]


def spender(where: float) -> Policy:
    """Restores Op_Server0 at a point a time: once a User host was scanned (`where` 1), or until then (−1)."""
    env = ARENA.make(1)
    torch.manual_seed(0)
    policy = Policy(env.encoding, Categorical(env.num_actions), (16,))
    with torch.no_grad():
        for weights in policy.network.parameters():
            weights.mul_(0.01)
        first = policy.network.layers().trunk[0]
        for name in USERS:
            first.weight[0, INPUTS.index(name)] = 4.0
        first.bias[0] = -2.0
        actor = policy.network.layers().actor
        actor.weight[env.action_names.index("Restore Op_Server0"), 0] = 4.0 * where
        actor.weight[env.action_names.index("Sleep"), 0] = -4.0 * where
    return policy


def same(one: Policy, other: Policy) -> bool:
    return all((array == other.arrays()[name]).all() for name, array in one.arrays().items())


def test_a_policy_takes_over_what_another_does_better_and_keeps_what_it_does_better_itself():
    early, late = spender(-1.0), spender(1.0)
    policy, other = copy_of(late), copy_of(early)
    gains = adopt(policy, other, ARENA, HOW, 1, Stopwatch())
    assert gains[0].taken > 0
    assert same(other, early)
    judge = Judge(ARENA, 128, seed=99)
    assert judge.compare(late, policy).exceeds(3.0)
    assert judge.compare(early, policy).exceeds(3.0)


def test_the_same_seed_adopts_the_same_whatever_the_threads():
    one, two = spender(1.0), spender(1.0)
    first = adopt(one, spender(-1.0), ARENA, HOW, 1, Stopwatch())
    assert adopt(two, spender(-1.0), dataclasses.replace(ARENA, threads=2), HOW, 1, Stopwatch()) == first
    assert same(one, two)


def test_nothing_is_adopted_from_a_policy_that_plays_alike():
    policy = spender(1.0)
    [gains] = adopt(policy, spender(1.0), ARENA, dataclasses.replace(HOW, rounds=3), 1, Stopwatch())
    assert (gains.found, gains.taken) == (0, 0)
    assert same(policy, spender(1.0))


def test_what_does_no_better_on_the_whole_is_not_kept(monkeypatch):
    def spoil(policy: Policy, *arguments: object) -> None:
        policy.load({name: -array for name, array in policy.arrays().items()})

    monkeypatch.setattr("redline.learn.adopt.teach", spoil)
    policy = spender(1.0)
    [gains] = adopt(policy, spender(-1.0), ARENA, HOW, 1, Stopwatch())
    assert gains.found > 0
    assert gains.taken == 0
    assert gains.after == gains.before
    assert same(policy, spender(1.0))


def test_the_two_spenders_choose_what_they_are_made_for():
    env = ARENA.make(64)
    obs, _ = env.reset(seed=3)
    names = np.array(env.action_names)
    assert {*names[Likeliest(spender(-1.0)).actions(obs)]} == {"Restore Op_Server0"}
    assert {*names[Likeliest(spender(1.0)).actions(obs)]} == {"Sleep"}
