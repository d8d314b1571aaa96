"""Playing with the likeliest actions, quickly: each distinct observation is shown to the network once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.lookup import GUIDES
from redline.learn.distinct import Distinct, words_of
from redline.learn.policy import Policy
from redline.worlds.batch import BatchEnv
from redline.worlds.play_on import Answers, Going, PlayedColumns

ROUND = 64
"""Observations are shown to the network in multiples of this, so that an answer does not depend on its neighbours."""


class Followed(NamedTuple):
    """What came of playing on in every env; arrays [N, T]. An env begins again where an episode ended."""

    rewards: np.ndarray  # float32
    ended: np.ndarray  # bool

    def add_returns(self, weights: np.ndarray, ages: np.ndarray, alive: np.ndarray, returns: np.ndarray) -> None:
        """Add to `returns` [N] what the episodes that are `alive` come to until they end.

        A reward counts by the weight of its age: the steps before it, of which there were `ages` when this began.
        """
        for t in range(self.rewards.shape[1]):
            returns += np.where(alive, weights[ages + t] * self.rewards[:, t], 0.0)
            alive &= ~self.ended[:, t]
            if not alive.any():
                break


class Likeliest:
    """Takes a policy's likeliest actions."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._distinct: Distinct | None = None
        self._count, self._answers = 0, _room_for(0, policy.head.num_outputs)

    def actions(self, obs: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray:
        """An action int64 [n] for each observation."""
        rows = self._rows(obs, masks)  # may move the table, so that it is looked at only afterwards
        return self._answers.guide[rows, 0].astype(np.int64)

    def follow(self, env: BatchEnv, steps: int) -> Followed:
        """Play up to so many steps in every env from where it is; at least until each has come to an end once.

        In compiled code, where the env's world and the policy allow it.
        """
        if env.playing is None or not self.policy.steady:
            return self._follow_in_lockstep(env, steps)
        count = env.num_envs
        columns = PlayedColumns.empty(count, steps)
        going = Going(np.zeros(count, np.int64), np.zeros(count, np.uint64), np.zeros(count), np.zeros(count, np.int64))
        ends, num_ends, waiting = env.new_ends(2 * count), 0, np.ones(count, np.bool_)
        while waiting.any():
            masks = env.masks()
            self._rows(env.obs[waiting], None if masks is None else masks[waiting])
            num_ends = env.play_on(0, count, self._lookup(), going, columns, ends, num_ends)
            if num_ends == len(ends.envs):
                num_ends = 0  # nobody asks about them, so that the next ones are written over them
            waiting = going.steps < steps
        return Followed(columns.rewards, columns.terminated | columns.truncated)

    def _follow_in_lockstep(self, env: BatchEnv, steps: int) -> Followed:
        """The same step by step."""
        rewards: list[np.ndarray] = []
        ended: list[np.ndarray] = []
        alive = np.ones(env.num_envs, np.bool_)
        while len(rewards) < steps and alive.any():
            _, paid, terminated, truncated, _ = env.step(self.actions(env.obs, env.masks()))
            rewards.append(paid.astype(np.float32))
            ended.append(terminated | truncated)
            alive &= ~ended[-1]
        return Followed(np.stack(rewards, axis=1), np.stack(ended, axis=1))

    def _rows(self, obs: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """Where the answers to observations stand, after asking about those that are new."""
        words = words_of(obs, masks)
        if self._distinct is None:
            self._distinct = Distinct(words.shape[1])
        rows = self._distinct.find(words)
        if len(self._distinct) > self._count:
            late = np.flatnonzero(rows >= self._count)
            _, first = np.unique(rows[late], return_index=True)
            new = late[first]
            self._learn(self._ask(obs[new], None if masks is None else masks[new]))
        return rows

    def _ask(self, obs: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        count = len(obs)
        padded = np.arange(-(-count // ROUND) * ROUND) % count
        table = self.policy.head.empty(len(padded))
        self.policy.infer(obs[padded], None if masks is None else masks[padded], table)
        return self.policy.head.likeliest(table, np.arange(count))[0]

    def _learn(self, actions: np.ndarray) -> None:
        """Keep the answers to so many new observations."""
        first, last = self._count, self._count + len(actions)
        if last > len(self._answers.values):
            bigger = _room_for(2 * last, self.policy.head.num_outputs)
            for new, old in zip(bigger, self._answers, strict=True):
                new[:first] = old[:first]
            self._answers = bigger
        self._answers.cumulative[first:last] = np.arange(self._answers.cumulative.shape[1]) >= actions[:, None]
        self._answers.guide[first:last] = actions[:, None]
        self._count = last

    def _lookup(self) -> Answers:
        assert self._distinct is not None
        return Answers(self._distinct.index, *self._answers)


class _Table(NamedTuple):
    """Answers in the form in which envs play on by them: the likeliest action has all of the probability."""

    log_probs: np.ndarray  # float32 [rows, actions]
    cumulative: np.ndarray  # float64 [rows, actions]
    guide: np.ndarray  # int32 [rows, GUIDES]
    values: np.ndarray  # float32 [rows]
    visited: np.ndarray  # bool [rows]


def _room_for(rows: int, actions: int) -> _Table:
    return _Table(
        np.zeros((rows, actions), np.float32), np.zeros((rows, actions)), np.zeros((rows, GUIDES), np.int32),
        np.zeros(rows, np.float32), np.zeros(rows, np.bool_),
    )  # fmt: skip
