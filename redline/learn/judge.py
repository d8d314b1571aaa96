"""Judging policies by what their likeliest actions come to, in the same episodes for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from redline.errors import RedlineError
from redline.learn.likeliest import Likeliest
from redline.learn.policy import Policy
from redline.worlds.batch import BatchEnv
from redline.worlds.registry import make_env, world_of

BATCH = 2048
"""Episodes played side by side: few enough that their records stay in the cache."""
STRETCH = 100
"""Steps that are played before it is looked who has not ended yet."""
MOST_STEPS = 10_000
"""Steps after which an episode is no longer followed."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Arena:
    """Envs to play in, as often as they are needed."""

    env: str
    options: dict[str, Any]
    threads: int = 1

    def __post_init__(self) -> None:
        """Refuse worlds whose envs cannot be made by the thousand and put back to where they were."""
        if not world_of(self.env).compiled:
            raise RedlineError(
                f"{self.env} cannot be played from the middle of an episode: only compiled worlds can. "
                "`redline envs` lists them."
            )

    def make(self, num_envs: int) -> BatchEnv:
        """A batch that hands out observations as they are stored."""
        env = make_env(self.env, num_envs, encoded=True, **self.options)
        assert isinstance(env, BatchEnv)
        return env

    def spread(self, work: Callable[[T], R], parts: Iterable[T]) -> list[R]:
        """The results of parts of a piece of work, in order, done by as many threads as there are."""
        if self.threads == 1:
            return [work(part) for part in parts]
        pool = ThreadPoolExecutor(self.threads, "player")
        try:
            return list(pool.map(work, parts))
        finally:  # at once, where somebody has interrupted us
            pool.shutdown(cancel_futures=True)


def weights_by_age(lengths: Sequence[int], most: int) -> np.ndarray:
    """What a reward counts for, by the steps before it: once for each episode length that it falls into; else once."""
    if not lengths:
        return np.ones(most)
    ages = np.arange(most)
    return np.asarray(np.sum([ages < length for length in lengths], axis=0, dtype=np.float64))


@dataclass(frozen=True)
class Judge:
    """Scores policies on the same fresh episodes, by their likeliest actions."""

    arena: Arena
    episodes: int = 4096
    seed: int = 0
    lengths: tuple[int, ...] = ()
    """Episode lengths that count, each with the return up to there; none counts the whole episode."""

    def scores(self, policy: Policy) -> np.ndarray:
        """The score float64 [episodes] of each episode: its return, or the sum of its returns at the lengths."""
        firsts = range(0, self.episodes, BATCH)
        return np.concatenate(self.arena.spread(lambda first: self._play(policy, first), firsts))

    def compare(self, old: Policy, new: Policy) -> Judgement:
        """How much better the new one does."""
        before, after = self.scores(old), self.scores(new)
        gains = after - before
        stderr = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else float("inf")
        return Judgement(float(before.mean()), float(after.mean()), stderr)

    def _play(self, policy: Policy, first: int) -> np.ndarray:
        """The scores of the episodes from `first` on. Env `i` has seed `i`, whatever the batch."""
        env = self.arena.make(min(BATCH, self.episodes - first))
        env.reset(seed=self.seed + first)
        alive, ages, total = np.ones(env.num_envs, np.bool_), np.zeros(env.num_envs, np.int64), np.zeros(env.num_envs)
        player, left = Likeliest(policy), max(self.lengths, default=MOST_STEPS)
        weights = weights_by_age(self.lengths, left)
        while left and alive.any():
            steps = min(left, STRETCH)
            player.follow(env, steps).add_returns(weights, ages, alive, total)
            ages += steps
            left -= steps
        env.close()
        return total


@dataclass(frozen=True)
class Judgement:
    """Two policies on the same episodes."""

    before: float
    after: float
    stderr: float
    """Of the difference."""

    @property
    def gain(self) -> float:
        """How much better the second does."""
        return self.after - self.before

    def exceeds(self, errors: float) -> bool:
        """Whether it is better by more than so many standard errors."""
        return self.gain > errors * self.stderr
