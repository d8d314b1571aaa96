"""The best episodes so far, kept whole, so that the policy can be drawn back to them (self-imitation).

Where nothing is left to chance a good episode can be played again by whoever remembers it, and PPO, which forgets a
rollout once it has learned from it, need not find it twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.speed import kernel
from redline.rollout import Rollout

LONGEST = 32
"""Rollouts an episode may reach over and still be kept whole."""


MOST_AT_ONCE = 4
"""Episodes of one rollout that are looked at, for each that is kept: equal ones come in crowds."""


class Episode(NamedTuple):
    """All that was seen and done in an episode, and the rewards."""

    observations: np.ndarray  # [L, ...]
    masks: np.ndarray | None  # bool [L, actions]
    actions: np.ndarray  # [L, ...]
    rewards: np.ndarray  # float32 [L]

    @property
    def total(self) -> float:
        """The return."""
        return float(self.rewards.sum(dtype=np.float64))

    def to_go(self, gamma: float) -> np.ndarray:
        """The discounted return from each step on, float64 [L]."""
        ahead = np.zeros(len(self.rewards))
        credit = 0.0
        for t in range(len(ahead) - 1, -1, -1):
            ahead[t] = credit = float(self.rewards[t]) + gamma * credit
        return ahead


class RolloutPart(NamedTuple):
    """As much of a rollout as episodes are put together from."""

    first: int  # its first step, counted from the start of the run
    rows: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    observations: np.ndarray
    masks: np.ndarray | None


@kernel
def _endings(rewards, ended, held, first, totals, begun, wanted):
    """Add rewards up; returns env, first step, last step and return of every episode that ended with more than `wanted`.

    `totals` and `begun` [N] are those of the episodes under way. A step that is not held breaks its episode off.
    """
    found = np.empty((ended.sum(), 4))
    count = 0
    for t in range(rewards.shape[0]):
        for i in range(rewards.shape[1]):
            if held[t, i]:
                totals[i] += rewards[t, i]
                if ended[t, i] and totals[i] > wanted:
                    found[count, 0], found[count, 1], found[count, 2], found[count, 3] = (
                        i,
                        begun[i],
                        first + t,
                        totals[i],
                    )
                    count += 1
            if ended[t, i] or not held[t, i]:
                totals[i] = 0.0
                begun[i] = first + t + 1
    return found[:count]


class Elite:
    """Keeps the `keep` best episodes that it sees, best first, no two with the same actions."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.episodes: list[Episode] = []
        self._clock = 0
        self._parts: list[RolloutPart] = []
        self._totals = np.zeros(0)
        self._begun = np.zeros(0, np.int64)

    def see(self, rollout: Rollout) -> None:
        """Look for better episodes among those that end in a rollout."""
        num_steps, num_envs = rollout.rows.shape
        if len(self._totals) != num_envs:
            self._totals, self._begun = np.zeros(num_envs), np.full(num_envs, self._clock)
        told = (rollout.rows, rollout.actions, rollout.rewards, rollout.observations, rollout.masks)
        self._parts.append(RolloutPart(self._clock, *told))
        ended = rollout.terminated | rollout.truncated
        found = _endings(rollout.rewards, ended, rollout.cells(), self._clock, self._totals, self._begun, self._least())
        self._clock += num_steps
        best = np.argsort(-found[:, 3], kind="stable")[: MOST_AT_ONCE * self.keep]
        for env, first, last in found[best, :3].astype(np.int64).tolist():
            if first >= self._parts[0].first:
                self.add(self._steps(env, first, last))
        self._drop_parts()

    def add(self, episode: Episode) -> bool:
        """Keep an episode if it is among the best. Returns whether it is."""
        if episode.total <= self._least() or any(np.array_equal(episode.actions, e.actions) for e in self.episodes):
            return False
        self.episodes = sorted([*self.episodes, episode], key=lambda each: -each.total)[: self.keep]
        return True

    def _least(self) -> float:
        """The return that an episode must exceed to be kept."""
        return self.episodes[-1].total if len(self.episodes) == self.keep else -np.inf

    def _steps(self, env: int, first: int, last: int) -> Episode:
        """The episode of one env from step `first` to `last`."""
        seen, masks, actions, rewards = [], [], [], []
        for part in self._parts:
            steps = slice(max(0, first - part.first), max(0, last + 1 - part.first))
            rows = part.rows[steps, env]
            seen.append(part.observations[rows])
            actions.append(part.actions[steps, env])
            rewards.append(part.rewards[steps, env])
            if part.masks is not None:
                masks.append(part.masks[rows])
        allowed = np.concatenate(masks) if masks else None
        return Episode(np.concatenate(seen), allowed, np.concatenate(actions), np.concatenate(rewards))

    def _drop_parts(self) -> None:
        """Let go of rollouts that no episode under way began in."""
        oldest = self._begun.min()
        ends = [part.first + len(part.rows) for part in self._parts]
        self._parts = [part for part, end in zip(self._parts, ends, strict=True) if end > oldest][-LONGEST:]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here, as plain arrays."""
        arrays: dict[str, np.ndarray] = {}
        for k, episode in enumerate(self.episodes):
            arrays |= {f"{k}.{name}": array for name, array in episode._asdict().items() if array is not None}
        return {**arrays, **self._under_way()}

    def _under_way(self) -> dict[str, np.ndarray]:
        """The episodes that have not ended yet, one after another."""
        if not self._parts:
            return {}
        whole = self._begun >= self._parts[0].first
        lengths = np.where(whole, self._clock - self._begun, -1)
        kept = [self._steps(int(i), int(self._begun[i]), self._clock - 1) for i in np.flatnonzero(whole)]
        arrays = {"totals": self._totals.copy(), "lengths": lengths}
        for name in Episode._fields:
            column = [getattr(each, name) for each in kept]
            if column and column[0] is not None:
                arrays[f"open.{name}"] = np.concatenate(column)
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        self.episodes = []
        while f"{len(self.episodes)}.actions" in arrays:
            self.episodes.append(Episode(*(arrays.get(f"{len(self.episodes)}.{name}") for name in Episode._fields)))  # type: ignore[arg-type]
        if "totals" in arrays:
            self._restore_under_way(arrays)

    def _restore_under_way(self, arrays: dict[str, np.ndarray]) -> None:
        """One part that holds all episodes under way, each at the end of its column."""
        lengths = arrays["lengths"]
        self._clock = longest = max(1, int(lengths.max()))
        self._totals = arrays["totals"].copy()
        self._begun = np.where(lengths >= 0, longest - lengths, -1)
        self._parts = []
        if "open.actions" not in arrays:
            return
        rows = np.zeros((longest, len(lengths)), np.int64)
        first = 0
        for i, length in enumerate(np.maximum(lengths, 0).tolist()):
            rows[longest - length :, i] = np.arange(first, first + length)
            first += length
        seen, masks = arrays["open.observations"], arrays.get("open.masks")
        known = rows if first else np.zeros((0, len(lengths)), np.int64)
        actions, rewards = arrays["open.actions"][known], arrays["open.rewards"][known]
        self._parts = [RolloutPart(longest - len(known), known, actions, rewards, seen, masks)]
