"""Improvement by rollouts: a policy is asked what it would do, and then everything else is tried (rollout policy iteration).

The commonest *information states*, the observations that the policy meets, are taken one by one. From moments in which
they were met every action is tried, and then the policy plays on: all actions with the same random numbers, a few times
each, then the best of them many times. Where another action does better beyond doubt, the policy is taught it. A policy
that has ruled an action out will never find by itself that it was wrong; this does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from redline.errors import RedlineError
from redline.learn.aside import look_aside
from redline.learn.distil import distil
from redline.learn.heads.categorical import Categorical
from redline.learn.improvement import START, Gains, Improvement, Keep, Progress, Switch
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
    progress: Progress = START,
    keep: Keep = lambda progress: None,
) -> list[Gains]:
    """Improve a policy in place; it never gets worse on the episodes that judge it. Returns what each round gained.

    `keep` is told of every part that is over, while the policy is what the rest depends on: with both at hand, the same
    call with that `progress` ends as this one would have.
    """
    if not isinstance(policy.head, Categorical):
        raise RedlineError("Only policies that choose one of a number of actions can be improved by rollouts.")
    while progress.goes_on(how):
        number = len(progress.gains)
        if how.aside and progress.switches is None:
            look_aside(policy, arena, how, np.random.SeedSequence([seed, number, 1]), watch)
        this = _Round(policy, arena, how, np.random.SeedSequence([seed, number]), watch)
        if progress.switches is None:
            progress = replace(progress, switches=tuple(this.found()))
            keep(progress)
        assert progress.switches is not None
        gains = this.gains(list(progress.switches))
        progress = Progress((*progress.gains, gains))
        keep(progress)
        say(gains.line("could do better"))
    return list(progress.gains)


class _Round:
    """One round of improvement."""

    def __init__(
        self, policy: Policy, arena: Arena, how: Improvement, entropy: np.random.SeedSequence, watch: Stopwatch
    ) -> None:
        self._policy, self._arena, self._how, self._watch = policy, arena, how, watch
        play_seed, *self._seeds = (int(part) for part in entropy.generate_state(4, np.uint32))
        with watch.span("visit"):
            self._moments = visit(policy, arena, how.episodes, play_seed)
        self._states = self._moments.common(how.states, how.least_visits)

    def found(self) -> list[Switch]:
        """The switches that do better, each by itself; those that promise most first."""
        with self._watch.span("rollouts"):
            rng = np.random.default_rng(self._seeds[0])
            rollouts = Rollouts(self._policy, self._arena, self._how, self._moments, rng)
            return sorted(rollouts.switches(range(self._states)), key=lambda each: -each.worth)

    def gains(self, switches: list[Switch]) -> Gains:
        """Take as many of the switches as do better together. Those of a round that was broken off come from a file."""
        states, actions = len(self._moments.visits), self._policy.head.num_outputs
        if not all(0 <= each.state < states and 0 <= each.new < actions for each in switches):
            raise RedlineError("What was found before is not about these states and actions. Begin a new run.")
        _, judge_seed, lesson_seed = self._seeds
        judge = Judge(self._arena, self._how.judging, judge_seed, self._how.lengths)
        taken, difference = _take(self._policy, judge, self._moments, switches, self._how, lesson_seed, self._watch)
        return Gains.of(self._moments, self._how, switches, taken, difference)


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
        if not difference.falls_short(2.0) if how.aside else difference.exceeds(2.0):
            return len(some), difference
        policy.load(old.arrays())
        some = some[: len(some) // 2]
    if np.isnan(difference.before):
        difference = judge.compare(old, old)
    return 0, difference
