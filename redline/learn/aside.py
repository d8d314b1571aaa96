"""Looking aside: what to do where a policy never comes, because it never goes there.

An action may be worth taking only if one knows what to do afterwards, and who never takes it does not know. So the best of
the other actions are taken, the policy plays on, and the information states that only this leads to are improved like those
on its path. That changes nothing of what it does, until one of these actions is found to be the better one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from redline.learn.distil import distil
from redline.learn.distinct import Distinct, words_of
from redline.learn.improvement import Improvement
from redline.learn.judge import Arena, Judge
from redline.learn.likeliest import Likeliest
from redline.learn.moments import Moments, gathered, together, visit
from redline.learn.policy import Policy, copy_of
from redline.learn.rollouts import Rollouts
from redline.timing.stopwatch import Stopwatch

DEVIATIONS = 6
"""Other actions to take in a state: the best."""
REPEATS = 32
"""Times to take each of them."""
STEPS = 12
"""Steps to play on after it."""
NOTHING = 0.02
"""An action that makes less of a difference has changed nothing."""
BATCH = 4096


def look_aside(
    policy: Policy, arena: Arena, how: Improvement, entropy: np.random.SeedSequence, watch: Stopwatch
) -> int:
    """Teach a policy what to do after actions that it would not take. Returns how many states it was taught.

    It is left as it was if that makes it worse by more than two standard errors.
    """
    play_seed, choice_seed, judge_seed, lesson_seed = (int(part) for part in entropy.generate_state(4, np.uint32))
    rng = np.random.default_rng(choice_seed)
    with watch.span("visit"):
        path = visit(policy, arena, how.episodes, play_seed)
    few = replace(how, tries=max(1, how.tries // 2), deciding=max(2, how.deciding // 2))
    with watch.span("rollouts"):
        beside = _beside(policy, arena, few, path, rng)
        switches = (
            []
            if beside is None
            else Rollouts(policy, arena, few, beside, rng).switches(range(min(how.aside, len(beside.visits))))
        )
    if beside is None or not switches:
        return 0
    old, first = copy_of(policy), len(path.visits)
    with watch.span("distil"):
        shifted = [replace(each, state=first + each.state) for each in switches]
        distil(policy, together(path, beside), shifted, how.lessons, np.random.default_rng(lesson_seed))
    with watch.span("judge"):
        difference = Judge(arena, how.judging, judge_seed, how.lengths).compare(old, policy)
    if difference.falls_short(2.0):
        policy.load(old.arrays())
        return 0
    return len(switches)


def _beside(policy: Policy, arena: Arena, how: Improvement, path: Moments, rng: np.random.Generator) -> Moments | None:
    """Moments off the path: those that the best other actions lead to."""
    moments, actions = _deviations(policy, arena, how, path, rng)
    known = Distinct(words_of(path.observations, path.masks).shape[1])
    known.find(words_of(path.observations, path.masks))
    player, found = Likeliest(policy), _Found()
    for k in range(0, len(moments), BATCH):
        part = moments[k : k + BATCH]
        env = arena.make(len(part))
        env.restore({name: array[part] for name, array in path.snapshots.items()})
        env.streams[:] = rng.integers(1 << 63, size=len(part), dtype=np.uint64)
        chosen, alive = actions[k : k + BATCH], np.ones(len(part), np.bool_)
        for step in range(1, STEPS + 1):
            obs, _, terminated, truncated, infos = env.step(chosen)
            alive &= ~(terminated | truncated)
            mask = infos.get("action_mask")
            new = alive & (known.find(words_of(obs, mask)) >= len(path.visits))
            found.add(env.snapshot(), path.ages[part] + step, obs, mask, new)
            chosen = player.actions(obs, mask)
    return found.moments()


def _deviations(
    policy: Policy, arena: Arena, how: Improvement, path: Moments, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Moments on the path and actions to take in them that the policy would not, many of each."""
    rollouts = Rollouts(policy, arena, how, path, rng)
    states = range(path.common(how.states, how.least_visits))
    allowed = [rollouts.allowed(state) for state in states]
    moments, actions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for state, tried, returns in zip(states, allowed, rollouts.tried(states, allowed, how.tries), strict=True):
        means = returns.mean(axis=1)
        gains = means - means[tried == rollouts.present[state]]
        ranked = np.argsort(-gains, kind="stable")
        for action in tried[ranked[np.abs(gains[ranked]) > NOTHING][:DEVIATIONS]]:
            moments.append(rng.choice(path.members[state], REPEATS))
            actions.append(np.full(REPEATS, action))
    return np.concatenate(moments), np.concatenate(actions)


class _Found:
    """Moments as they come."""

    def __init__(self) -> None:
        self._snapshots: list[dict[str, np.ndarray]] = []
        self._ages: list[np.ndarray] = []
        self._obs: list[np.ndarray] = []
        self._masks: list[np.ndarray] = []

    def add(
        self,
        snapshot: dict[str, np.ndarray],
        ages: np.ndarray,
        obs: np.ndarray,
        mask: np.ndarray | None,
        new: np.ndarray,
    ) -> None:
        """Keep those that are new."""
        if new.any():
            self._snapshots.append({name: array[new] for name, array in snapshot.items()})
            self._ages.append(ages[new])
            self._obs.append(obs[new])
            if mask is not None:
                self._masks.append(mask[new])

    def moments(self) -> Moments | None:
        """All of them, if there are any."""
        if not self._ages:
            return None
        snapshots = {name: np.concatenate([each[name] for each in self._snapshots]) for name in self._snapshots[0]}
        masks = np.concatenate(self._masks) if self._masks else None
        return gathered(snapshots, np.concatenate(self._ages), np.concatenate(self._obs), masks)
