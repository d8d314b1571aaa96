"""Rollouts: actions tried from moments of play, with the same random numbers for each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from redline.learn.improvement import Improvement, Switch
from redline.learn.judge import Arena, weights_by_age
from redline.learn.likeliest import Likeliest
from redline.learn.moments import Moments
from redline.learn.policy import Policy

ROLLOUTS = 4096
"""Rollouts played side by side."""


class _Jobs(NamedTuple):
    """Rollouts to play: from a moment, with an action, and a random stream."""

    moments: np.ndarray
    actions: np.ndarray
    streams: np.ndarray


class Rollouts:
    """Looks for better actions, by rollouts."""

    def __init__(
        self, policy: Policy, arena: Arena, how: Improvement, moments: Moments, rng: np.random.Generator
    ) -> None:
        self._policy, self._arena, self._how, self._moments, self._rng = policy, arena, how, moments, rng
        self.present = Likeliest(policy).actions(moments.observations, moments.masks)
        self._weights = weights_by_age(how.lengths, int(moments.ages.max()) + how.horizon + 1)
        self._players: dict[int, Likeliest] = {}  # one for each thread: it keeps the answers of the network

    def switches(self, states: Sequence[int]) -> list[Switch]:
        """The states in which another action does better beyond doubt."""
        if not states:
            return []
        means = [each.mean(axis=1) for each in self.tried(states, [self.allowed(k) for k in states], self._how.tries)]
        finals = [self._finalists(k, mean) for k, mean in zip(states, means, strict=True)]
        returns = self.tried(states, finals, self._how.deciding)
        found = (self._switch(*each) for each in zip(states, finals, returns, strict=True))
        return [each for each in found if each is not None]

    def allowed(self, state: int) -> np.ndarray:
        """The actions that may be taken in a state."""
        masks = self._moments.masks
        return np.arange(self._policy.head.num_outputs) if masks is None else np.flatnonzero(masks[state])

    def _finalists(self, state: int, means: np.ndarray) -> np.ndarray:
        """The policy's own action, then the best others."""
        own = self.present[state]
        ranked = self.allowed(state)[np.argsort(-means, kind="stable")]
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

    def tried(self, states: Sequence[int], actions: list[np.ndarray], count: int) -> list[np.ndarray]:
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
        _, rewards, terminated, truncated, _ = env.step(jobs.actions)
        total, alive = self._weights[ages] * rewards.astype(np.float32), ~(terminated | truncated)
        if self._how.horizon > 1 and alive.any():
            player.follow(env, self._how.horizon - 1).add_returns(self._weights, ages + 1, alive, total)
        return np.asarray(total)
