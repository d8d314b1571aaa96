"""Improvement by rollouts: a policy is asked what it would do, and then everything else is tried (rollout policy iteration).

The commonest *information states*, the observations that the policy meets, are taken one by one. From moments in which
they were met every action is tried, and then the policy plays on: all actions with the same random numbers, a few times
each, then the best of them many times. Where another action does better beyond doubt, the policy is taught it. A policy
that has ruled an action out will never find by itself that it was wrong; this does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
import torch

from redline.errors import RedlineError
from redline.learn.adam import Adam
from redline.learn.distinct import Distinct, as_words
from redline.learn.heads.categorical import MASKED, Categorical
from redline.learn.improvement import START, Gains, Improvement, Keep, Progress, Switch
from redline.learn.judge import Arena, Judge, Judgement, Likeliest, weights_by_age
from redline.learn.policy import Policy
from redline.timing.stopwatch import Stopwatch

ROLLOUTS = 4096
"""Rollouts played side by side."""
MOST_BYTES = 1 << 29
"""Moments of play are kept up to this size."""
SAMPLE = 1024
"""Information states that are taught at a time, beside those that have changed."""
DECIDED = 0.9
"""The probability that an action gets which turned out better."""
Say = Callable[[str], None]


class Moments(NamedTuple):
    """What a policy met while it played, moment by moment, and the information states that they belong to."""

    snapshots: dict[str, np.ndarray]  # [V, ...]
    ages: np.ndarray  # [V] steps since the episode began
    observations: np.ndarray  # [S, ...] the commonest first
    masks: np.ndarray | None  # [S, actions]
    visits: np.ndarray  # [S]
    members: list[np.ndarray]  # for each state, moments


class _Jobs(NamedTuple):
    """Rollouts to play: from a moment, with an action, and a random stream."""

    moments: np.ndarray
    actions: np.ndarray
    streams: np.ndarray


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
    while progress.goes_on(how.rounds):
        this = _Round(policy, arena, how, np.random.SeedSequence([seed, len(progress.gains)]), watch)
        if progress.switches is None:
            progress = replace(progress, switches=tuple(this.found()))
            keep(progress)
        assert progress.switches is not None
        gains = this.gains(list(progress.switches))
        progress = Progress((*progress.gains, gains))
        keep(progress)
        say(
            f"{gains.states} states ({gains.covered:.0%} of all steps): {gains.found} could do better, "
            f"{gains.taken} taken; {gains.before:.2f} → {gains.after:.2f} ± {gains.stderr:.2f}"
        )
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
        self._states = min(how.states, int(np.count_nonzero(self._moments.visits >= how.least_visits)))

    def found(self) -> list[Switch]:
        """The switches that do better, each by itself; those that promise most first."""
        with self._watch.span("rollouts"):
            rng = np.random.default_rng(self._seeds[0])
            search = _Search(self._policy, self._arena, self._how, self._moments, rng)
            return sorted(search.switches(range(self._states)), key=lambda each: -each.worth)

    def gains(self, switches: list[Switch]) -> Gains:
        """Take as many of the switches as do better together."""
        _, judge_seed, lesson_seed = self._seeds
        judge = Judge(self._arena, self._how.judging, judge_seed, self._how.lengths)
        taken, difference = _take(self._policy, judge, self._moments, switches, self._how, lesson_seed, self._watch)
        visits = self._moments.visits
        return Gains(
            states=self._states,
            covered=float(visits[: self._states].sum() / visits.sum()),
            found=len(switches),
            taken=taken,
            promised=sum(each.worth for each in switches),
            before=difference.before,
            after=difference.after if taken else difference.before,
            stderr=difference.stderr,
            switches=tuple(asdict(each) for each in switches[:10]),
        )


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
    old = Policy(policy.encoding, policy.head, policy.network.sizes.hidden, policy.network.sizes.shared)
    old.load(policy.arrays())
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


def visit(policy: Policy, arena: Arena, episodes: int, seed: int) -> Moments:
    """Play episodes with the likeliest actions, keeping every moment."""
    env, player = arena.make(episodes), Likeliest(policy)
    obs, infos = env.reset(seed=seed)
    alive, age, room = np.ones(episodes, np.bool_), 0, MOST_BYTES
    kept: list[dict[str, np.ndarray]] = []
    seen, ages, masks = [], [], []
    while alive.any() and room > 0:
        mask = infos.get("action_mask")
        kept.append({name: array[alive] for name, array in env.snapshot().items()})
        room -= sum(array.nbytes for array in kept[-1].values())
        seen.append(obs[alive])
        ages.append(np.full(len(seen[-1]), age))
        if mask is not None:
            masks.append(mask[alive])
        obs, _, terminated, truncated, infos = env.step(player.actions(obs, mask))
        alive &= ~(terminated | truncated)
        age += 1
    snapshots = {name: np.concatenate([each[name] for each in kept]) for name in kept[0]}
    return _sorted(snapshots, np.concatenate(ages), np.concatenate(seen), np.concatenate(masks) if masks else None)


def _sorted(snapshots: dict[str, np.ndarray], ages: np.ndarray, obs: np.ndarray, masks: np.ndarray | None) -> Moments:
    """Moments with their information states, the commonest first."""
    words = as_words(obs) if masks is None else np.concatenate([as_words(obs), as_words(masks)], axis=1)
    rows = Distinct(words.shape[1]).find(words)
    counts = np.bincount(rows)
    order = np.argsort(-counts, kind="stable")
    by_row = np.argsort(rows, kind="stable")
    groups = np.split(by_row, np.cumsum(counts)[:-1])
    firsts = np.array([groups[k][0] for k in order])
    return Moments(
        snapshots, ages, obs[firsts], None if masks is None else masks[firsts], counts[order],
        [groups[k] for k in order],
    )  # fmt: skip


class _Search:
    """Looks for better actions, by rollouts."""

    def __init__(
        self, policy: Policy, arena: Arena, how: Improvement, moments: Moments, rng: np.random.Generator
    ) -> None:
        self._policy, self._arena, self._how, self._moments, self._rng = policy, arena, how, moments, rng
        self._present = Likeliest(policy).actions(moments.observations, moments.masks)
        self._weights = weights_by_age(how.lengths, int(moments.ages.max()) + how.horizon + 1)
        self._players: dict[int, Likeliest] = {}  # one for each thread: it keeps the answers of the network

    def switches(self, states: Sequence[int]) -> list[Switch]:
        """The states in which another action does better beyond doubt."""
        if not states:
            return []
        means = [each.mean(axis=1) for each in self._tried(states, [self._allowed(k) for k in states], self._how.tries)]
        finals = [self._finalists(k, mean) for k, mean in zip(states, means, strict=True)]
        returns = self._tried(states, finals, self._how.deciding)
        found = (self._switch(*each) for each in zip(states, finals, returns, strict=True))
        return [each for each in found if each is not None]

    def _allowed(self, state: int) -> np.ndarray:
        masks = self._moments.masks
        return np.arange(self._policy.head.num_outputs) if masks is None else np.flatnonzero(masks[state])

    def _finalists(self, state: int, means: np.ndarray) -> np.ndarray:
        """The policy's own action, then the best others."""
        own = self._present[state]
        ranked = self._allowed(state)[np.argsort(-means, kind="stable")]
        return np.array([own, *ranked[ranked != own][: self._how.finalists]])

    def _switch(self, state: int, actions: np.ndarray, returns: np.ndarray) -> Switch | None:
        if len(actions) == 1:
            return None
        gains = returns[1:] - returns[0]
        means, stderrs = gains.mean(axis=1), gains.std(axis=1, ddof=1) / gains.shape[1] ** 0.5
        best = int(np.argmax(means - stderrs))
        gain, stderr = float(means[best]), float(stderrs[best])
        if gain <= self._how.errors * stderr + self._how.margin:
            return None
        visits = float(self._moments.visits[state]) / self._how.episodes
        return Switch(state, int(actions[0]), int(actions[1 + best]), gain, stderr, visits)

    def _tried(self, states: Sequence[int], actions: list[np.ndarray], count: int) -> list[np.ndarray]:
        """Returns [actions, count] for each state: every action from the same moments, with the same random numbers."""
        parts = []
        for state, tried in zip(states, actions, strict=True):
            moments = self._rng.choice(self._moments.members[state], count)
            streams = self._rng.integers(1 << 63, size=count, dtype=np.uint64)
            many = len(tried)
            parts.append(_Jobs(np.tile(moments, many), np.repeat(tried, count), np.tile(streams, many)))
        returns = self._played(_Jobs(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True))))
        ends = np.cumsum([len(part.moments) for part in parts])[:-1]
        return [part.reshape(-1, count) for part in np.split(returns, ends)]

    def _played(self, jobs: _Jobs) -> np.ndarray:
        """The return float64 of every rollout."""
        batches = [_Jobs(*(array[k : k + ROLLOUTS] for array in jobs)) for k in range(0, len(jobs.moments), ROLLOUTS)]
        return np.concatenate(self._arena.spread(self._rollout, batches))

    def _rollout(self, jobs: _Jobs) -> np.ndarray:
        """Take the actions, then let the policy play on."""
        player = self._players.setdefault(threading.get_ident(), Likeliest(self._policy))
        env = self._arena.make(len(jobs.moments))
        env.restore({name: array[jobs.moments] for name, array in self._moments.snapshots.items()})
        env.streams[:] = jobs.streams
        ages = self._moments.ages[jobs.moments]
        total, alive, actions = np.zeros(env.num_envs), np.ones(env.num_envs, np.bool_), jobs.actions
        for k in range(self._how.horizon):
            obs, rewards, terminated, truncated, infos = env.step(actions)
            total += np.where(alive, self._weights[ages + k] * rewards, 0.0)
            alive &= ~(terminated | truncated)
            if not alive.any():
                break
            actions = player.actions(obs, infos.get("action_mask"))
        return total


def distil(
    policy: Policy, moments: Moments, switches: Sequence[Switch], lessons: int, rng: np.random.Generator
) -> None:
    """Teach a policy the switches, and to do everything else as before."""
    inputs = policy.inputs(moments.observations)
    masks = None if moments.masks is None else torch.from_numpy(moments.masks)
    with torch.no_grad():
        targets = _log_probs(policy, inputs, masks).exp()
        for each in switches:
            targets[each.state] *= 1 - DECIDED
            targets[each.state, each.new] += DECIDED
    # rare states count more than their share: they are many, and some of them matter
    shares = moments.visits.astype(np.float64) ** 0.7
    shares /= shares.sum()
    changed = np.array([each.state for each in switches], np.int64)
    optimizer = Adam(policy.weights, 2e-3)
    for lesson in range(lessons):
        optimizer.learning_rate = 2e-3 * (1 - lesson / lessons)
        chosen = torch.from_numpy(np.concatenate([rng.choice(len(shares), SAMPLE, p=shares), changed]))
        log_probs = _log_probs(policy, inputs[chosen], None if masks is None else masks[chosen])
        loss = -(targets[chosen] * log_probs).sum(dim=1).mean()
        policy.weights.grad.zero_()  # type: ignore[union-attr]
        loss.backward()
        optimizer.step()


def _log_probs(policy: Policy, inputs: torch.Tensor, masks: torch.Tensor | None) -> torch.Tensor:
    logits, _ = policy.network(inputs)
    return (logits if masks is None else logits.masked_fill(~masks, MASKED)).log_softmax(dim=1)
