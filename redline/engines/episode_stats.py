"""Counts episodes while they are played: returns, lengths, where they began, and which were lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.rollout import Outcome, Rollout, join_metrics


class FinishedEpisodes(NamedTuple):
    """Episodes that ended in the same step."""

    returns: np.ndarray
    lengths: np.ndarray
    metrics: dict[str, np.ndarray]


class EpisodeStats:
    """The account of `num_envs` envs that step together."""

    def __init__(self, num_envs: int) -> None:
        self.returns = np.zeros(num_envs)  # of the episodes under way
        self.lengths = np.zeros(num_envs, np.int64)
        self._began = np.zeros(num_envs, np.int64)  # step of this rollout in which the episode under way began
        self._finished: list[FinishedEpisodes] = []

    def begin(self) -> None:
        """A new rollout."""
        self._began[:] = 0
        self._finished = []

    def step(self, t: int, outcome: Outcome, lost: np.ndarray | None = None) -> None:
        """Count step `t`; an episode that was `lost` in it is no finished one."""
        self.returns += outcome.rewards
        self.lengths += 1
        ended = outcome.terminated | outcome.truncated
        if lost is not None:
            ended = ended & ~lost
        if ended.any():
            more = {name: values[ended] for name, values in outcome.infos.get("episode_metrics", {}).items()}
            self._finished.append(FinishedEpisodes(self.returns[ended], self.lengths[ended], more))
            self._start_anew(t, ended)

    def finish(self, returns: np.ndarray, lengths: np.ndarray, metrics: dict[str, np.ndarray]) -> None:
        """Count episodes that ended while nobody looked, in the order of their steps."""
        if len(returns):
            self._finished.append(FinishedEpisodes(returns, lengths, metrics))

    def forget(self, t: int, lost: np.ndarray) -> list[tuple[int, int, int]]:
        """The cells (env, first step, last step) that the episodes lost in step `t` had filled."""
        cells = [(int(i), int(self._began[i]), t) for i in np.flatnonzero(lost)]
        self._start_anew(t, lost)
        return cells

    def _start_anew(self, t: int, envs: np.ndarray) -> None:
        self.returns[envs] = 0.0
        self.lengths[envs] = 0
        self._began[envs] = t + 1

    def write(self, rollout: Rollout) -> None:
        """Put what was finished into the rollout."""
        if self._finished:
            rollout.episode_returns = np.concatenate([each.returns for each in self._finished])
            rollout.episode_lengths = np.concatenate([each.lengths for each in self._finished])
            rollout.episode_metrics = join_metrics([(len(each.returns), each.metrics) for each in self._finished])

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here."""
        return {"returns": self.returns.copy(), "lengths": self.lengths.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        for name, array in (("returns", self.returns), ("lengths", self.lengths)):
            saved = snapshot.get(name)
            if saved is None or saved.shape != array.shape or saved.dtype != array.dtype:
                raise RedlineError(f"The saved {name} do not fit {len(array)} envs. Make them as they were made then.")
            array[:] = saved


class PlayedEpisode(NamedTuple):
    """An episode of an env that steps at its own pace."""

    score: float
    length: int
    metrics: dict[str, float]


def write_episodes(episodes: Sequence[PlayedEpisode], rollout: Rollout) -> None:
    """Put finished episodes into a rollout, in order."""
    if episodes:
        rollout.episode_returns = np.array([each.score for each in episodes])
        rollout.episode_lengths = np.array([each.length for each in episodes], np.int64)
        rollout.episode_metrics = join_metrics([(1, each.metrics) for each in episodes])
