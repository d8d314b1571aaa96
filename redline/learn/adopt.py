"""Adopting: a policy takes over what another does better (policy switching, taught).

Two policies may each be better somewhere; one may have been trained against a single opponent, say. Where the first one
comes, both are followed from the same moments with the same random numbers. From every information state on in which the
other does better beyond doubt, an episode is handed over to it, and the first is taught to play that way by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from redline.learn.distil import Lessons, probabilities, teach
from redline.learn.distinct import Distinct, words_of
from redline.learn.improvement import Gains, Improvement, Switch
from redline.learn.judge import Arena, Judge
from redline.learn.likeliest import Likeliest
from redline.learn.moments import Moments, visit
from redline.learn.policy import Policy, copy_of
from redline.learn.rollouts import Rollouts
from redline.timing.stopwatch import Stopwatch

Say = Callable[[str], None]


def adopt(
    policy: Policy,
    other: Policy,
    arena: Arena,
    how: Improvement,
    seed: int,
    watch: Stopwatch,
    say: Say = lambda text: None,
) -> list[Gains]:
    """Have a policy take over what another does better, in place; it never gets worse on the episodes that judge it."""
    gains: list[Gains] = []
    while len(gains) < how.rounds and all(each.taken for each in gains):
        seeds = np.random.SeedSequence([seed, len(gains), 2]).generate_state(5, np.uint32)
        gains.append(_round(policy, other, arena, how, [int(each) for each in seeds], watch))
        say(gains[-1].line("do better with the other policy"))
    return gains


def _round(
    policy: Policy, other: Policy, arena: Arena, how: Improvement, seeds: Sequence[int], watch: Stopwatch
) -> Gains:
    """Look where the other does better, hand over there, and keep that if it does better as a whole."""
    visit_seed, rollout_seed, play_seed, lesson_seed, judge_seed = seeds
    with watch.span("visit"):
        moments = visit(policy, arena, how.episodes, visit_seed)
    with watch.span("rollouts"):
        switches = _better(policy, other, arena, how, moments, rollout_seed)
    old = copy_of(policy)
    if switches:
        with watch.span("visit"):
            lessons = _handed_over(policy, other, arena, moments, switches, how.episodes, play_seed)
        with watch.span("distil"):
            _teach(policy, other, lessons, how.lessons, np.random.default_rng(lesson_seed))
    with watch.span("judge"):
        difference = Judge(arena, how.judging, judge_seed, how.lengths).compare(old, policy)
    taken = len(switches) if difference.exceeds(2.0) else 0
    if not taken:
        policy.load(old.arrays())
    return Gains.of(moments, how, switches, taken, difference)


def _better(policy: Policy, other: Policy, arena: Arena, how: Improvement, moments: Moments, seed: int) -> list[Switch]:
    """The states from which on the other does better beyond doubt; those that promise most first."""
    states = range(moments.common(how.states, how.least_visits))
    if not states:
        return []
    chosen, returns = [], []
    for each in (policy, other):
        rollouts = Rollouts(each, arena, how, moments, np.random.default_rng(seed))  # the same draws for both
        chosen.append(rollouts.present)
        first = [rollouts.present[state : state + 1] for state in states]
        returns.append([tried[0] for tried in rollouts.tried(states, first, how.deciding)])
    found = []
    for state, mine, theirs in zip(states, *returns, strict=True):
        gain, stderr = float((theirs - mine).mean()), float((theirs - mine).std(ddof=1)) / how.deciding**0.5
        if gain > how.errors * stderr + how.margin:
            visits = float(moments.visits[state]) / how.episodes
            found.append(Switch(state, int(chosen[0][state]), int(chosen[1][state]), gain, stderr, visits))
    return sorted(found, key=lambda each: -each.worth)


class _Lessons(NamedTuple):
    """Information states, and whose they are."""

    observations: np.ndarray  # [S, ...]
    masks: np.ndarray | None  # [S, actions]
    visits: np.ndarray  # [S]
    handed_over: np.ndarray  # bool [S]


def _handed_over(
    policy: Policy,
    other: Policy,
    arena: Arena,
    moments: Moments,
    switches: Sequence[Switch],
    episodes: int,
    seed: int,
) -> _Lessons:
    """Play episodes, each handed over to the other policy in the first of the states in which that does better."""
    marks = words_of(moments.observations, moments.masks)[[each.state for each in switches]]
    marked = Distinct(marks.shape[1])
    marked.find(marks)
    env, mine, theirs = arena.make(episodes), Likeliest(policy), Likeliest(other)
    obs, infos = env.reset(seed=seed)
    alive, over = np.ones(episodes, np.bool_), np.zeros(episodes, np.bool_)
    seen, masks, whose = [], [], []
    for _ in range(int(moments.ages.max()) + 1):
        mask = infos.get("action_mask")
        over |= marked.find(words_of(obs, mask)) < len(marks)
        seen.append(obs[alive])
        whose.append(over[alive])
        if mask is not None:
            masks.append(mask[alive])
        actions = np.where(over, theirs.actions(obs, mask), mine.actions(obs, mask))
        obs, _, terminated, truncated, infos = env.step(actions)
        alive &= ~(terminated | truncated)
        if not alive.any():
            break
    return _lessons(np.concatenate(seen), np.concatenate(masks) if masks else None, np.concatenate(whose))


def _lessons(obs: np.ndarray, masks: np.ndarray | None, whose: np.ndarray) -> _Lessons:
    """Each information state once. One that is met in both ways belongs to whoever meets it more often."""
    words = words_of(obs, masks)
    rows = Distinct(words.shape[1]).find(words)
    visits = np.bincount(rows)
    _, first = np.unique(rows, return_index=True)
    handed_over = 2 * np.bincount(rows, weights=whose) > visits
    return _Lessons(obs[first], None if masks is None else masks[first], visits, handed_over)


def _teach(policy: Policy, other: Policy, lessons: _Lessons, count: int, rng: np.random.Generator) -> None:
    """Teach a policy to play like whoever is better in each state."""
    observations, masks = lessons.observations, lessons.masks
    mine, theirs = (probabilities(each, observations, masks) for each in (policy, other))
    targets = np.where(lessons.handed_over[:, None], theirs, mine)
    teach(policy, Lessons(observations, masks, targets, lessons.visits, np.empty(0, np.int64)), count, rng)
