"""Counts episodes while they are played: returns, lengths, where they began, and which were lost."""

from __future__ import annotations

import numpy as np

from redline.errors import RedlineError
from redline.rollout import Outcome, Rollout
from redline.worlds.ranges import require_in_range

MOST = 2**53


class Tally:
    """The account of `num_envs` envs that step together."""

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._began = np.zeros(num_envs, np.int64)  # step of this rollout in which the episode under way began
        self._finished: list[dict[str, np.ndarray]] = []

    def begin(self) -> None:
        """A new rollout."""
        self._began[:] = 0
        self._finished = []

    def step(self, t: int, outcome: Outcome, lost: np.ndarray | None = None) -> None:
        """Count step `t`; an episode that was `lost` in it is no finished one."""
        self._returns += outcome.rewards
        self._lengths += 1
        ended = outcome.terminated | outcome.truncated
        if lost is not None:
            ended = ended & ~lost
        if ended.any():
            more = {name: values[ended] for name, values in outcome.infos.get("episode_metrics", {}).items()}
            self._finished.append({"return": self._returns[ended], "length": self._lengths[ended], **more})
            self._start_anew(t, ended)

    def forget(self, t: int, lost: np.ndarray) -> list[tuple[int, int, int]]:
        """The cells (env, first step, last step) that the episodes lost in step `t` had filled."""
        cells = [(int(i), int(self._began[i]), t) for i in np.flatnonzero(lost)]
        self._start_anew(t, lost)
        return cells

    def _start_anew(self, t: int, envs: np.ndarray) -> None:
        self._returns[envs] = 0.0
        self._lengths[envs] = 0
        self._began[envs] = t + 1

    def write(self, rollout: Rollout) -> None:
        """Put what was finished into the rollout."""
        if self._finished:
            names = self._finished[0]
            whole = {name: np.concatenate([each[name] for each in self._finished]) for name in names}
            rollout.episode_returns, rollout.episode_lengths = whole.pop("return"), whole.pop("length")
            rollout.episode_metrics = whole

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here."""
        return {"returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Go on from a snapshot."""
        for name, array in (("returns", self._returns), ("lengths", self._lengths)):
            saved = snapshot.get(name)
            if saved is None or saved.shape != array.shape or saved.dtype != array.dtype:
                raise RedlineError(f"The saved {name} do not fit {len(array)} envs. Make them as they were made then.")
            require_in_range(name, saved, {"": (-MOST, MOST) if name == "returns" else (0, MOST)})
            array[:] = saved
