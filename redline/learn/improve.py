"""Improvement by rollouts: a policy is asked what it would do, and then everything else is tried (rollout policy iteration).

The commonest *information states*, the observations that the policy meets, are taken one by one. From moments in which
they were met every action is tried, and then the policy plays on: all actions with the same random numbers, a few times
each, then the best of them many times. Where another action does better beyond doubt, the policy is taught it. A policy
that has ruled an action out will never find by itself that it was wrong; this does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from redline.errors import RedlineError
from redline.learn.distil import distil
from redline.learn.heads.categorical import Categorical
from redline.learn.improvement import Gains, Improvement, Switch
from redline.learn.judge import Arena, Judge, Judgement
from redline.learn.moments import Moments, visit
from redline.learn.policy import Policy, copy_of
from redline.learn.rollouts import Rollouts
from redline.timing.stopwatch import Stopwatch

Say = Callable[[str], None]


def improve(
    policy: Policy,
    arena: Arena,
    how: Improvement,
    seed: int,
    watch: Stopwatch,
    say: Say = lambda text: None,
) -> list[Gains]:
    """Improve a policy in place; it never gets worse on the episodes that judge it. Returns what each round gained.

    A round that takes nothing is the last.
    """
    if not isinstance(policy.head, Categorical):
        raise RedlineError("Only policies that choose one of a number of actions can be improved by rollouts.")
    gains: list[Gains] = []
    while len(gains) < how.rounds and all(each.taken for each in gains):
        entropy = np.random.SeedSequence([seed, len(gains)])
        seeds = [int(part) for part in entropy.generate_state(4, np.uint32)]
        gains.append(_round(policy, arena, how, seeds=seeds, watch=watch))
        say(gains[-1].line("could do better"))
    return gains


def _round(policy: Policy, arena: Arena, how: Improvement, seeds: Sequence[int], watch: Stopwatch) -> Gains:
    """Look for switches, each better by itself, and take as many as do better together."""
    play_seed, rollout_seed, judge_seed, lesson_seed = seeds
    with watch.span("visit"):
        moments = visit(policy, arena, how.episodes, seed=play_seed)
    with watch.span("rollouts"):
        rng = np.random.default_rng(rollout_seed)
        rollouts = Rollouts(policy, arena, how=how, moments=moments, rng=rng)
        states = range(moments.common(how.states, how.least_visits))
        switches = sorted(rollouts.switches(states), key=lambda each: -each.worth)
    judge = Judge(arena, how.judging, seed=judge_seed, lengths=how.lengths)
    taken, difference = _take(policy, judge, moments, switches, how, lesson_seed, watch)
    return Gains.of(moments, how, switches, taken, difference)


def _take(
    policy: Policy,
    judge: Judge,
    moments: Moments,
    switches: list[Switch],
    how: Improvement,
    seed: int,
    watch: Stopwatch,
) -> tuple[int, Judgement]:
    """Teach as many switches as do better together, those that promise most first. Returns how many that were."""
    old = copy_of(policy)
    some = switches
    difference = Judgement(float("nan"), float("nan"), float("nan"))
    for _ in range(how.attempts):
        if not some:
            break
        with watch.span("distil"):
            distil(policy, moments, some, how.lessons, np.random.default_rng(seed))
        with watch.span("judge"):
            difference = judge.compare(old, policy)
        if difference.exceeds(2.0):
            return len(some), difference
        policy.load(old.arrays())
        some = some[: len(some) // 2]
    if np.isnan(difference.before):
        difference = judge.compare(old, old)
    return 0, difference
