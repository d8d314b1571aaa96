"""Envs of a compiled world, stepped by one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redline.engines.spec import Savable, Snapshot, Spaces, Spec
from redline.engines.workers.status import RESET, STEP, WorkerStatus
from redline.engines.workers.step_buffers import StepBuffers
from redline.engines.workers.stepping import Info, StepReport, StepTimes


class BatchedEnvs:
    """Envs of a compiled world, stepped by one call, all of them together."""

    def __init__(self, spec: Spec, ids: Sequence[int], status: WorkerStatus) -> None:
        self.ids, self.status = list(ids), status
        self._env = spec.batch(len(self.ids))
        self._buffers: StepBuffers | None = None

    @property
    def buffers(self) -> StepBuffers:
        """The arrays in use."""
        assert self._buffers is not None
        return self._buffers

    def make(self, seed: int | None, place: int = 0) -> Spaces:
        """The spaces of the envs."""
        _, infos = self._env.reset(seed=0)
        return Spaces(self._env.single_observation_space, self._env.single_action_space, "action_mask" in infos)

    def use(self, buffers: StepBuffers, spaces: Spaces) -> None:
        """From now on write into these arrays."""
        self._buffers = buffers

    def reset(self, places: Sequence[int], seeds: Sequence[int | None], options: Info | None = None) -> StepReport:
        """Begin new episodes in some of the envs."""
        started = self.status.at(self.ids[0], RESET)
        mask = np.zeros(len(self.ids), np.bool_)
        mask[list(places)] = True
        whole: list[int | None] = [None] * len(self.ids)
        for k, seed in zip(places, seeds, strict=True):
            whole[k] = seed
        more = {} if mask.all() else {"reset_mask": mask}
        chosen: Any = whole  # Gymnasium's own vector envs take a list, too
        obs, infos = self._env.reset(seed=chosen, options={**(options or {}), **more} or None)
        self.buffers.obs[:] = obs
        self._take_masks(infos)
        spent = self.status.idle() - started
        return StepReport(StepTimes(0, spent, spent, started), [], {}, [])

    def step(self, places: Sequence[int]) -> StepReport:
        """Play one step in all envs."""
        buffers, started = self.buffers, self.status.at(self.ids[0], STEP)
        obs, rewards, terminated, truncated, infos = self._env.step(buffers.actions)
        buffers.obs[:], buffers.rewards[:] = obs, rewards
        buffers.terminated[:], buffers.truncated[:] = terminated, truncated
        if "final_obs" in infos:
            buffers.final_obs[:] = infos["final_obs"]
        self._take_masks(infos)
        spent = self.status.idle() - started
        return StepReport(StepTimes(spent, 0, spent, started), [], infos.get("episode_metrics", {}), [])

    def _take_masks(self, infos: Info) -> None:
        if "action_mask" in infos:
            self.buffers.masks[:] = infos["action_mask"]

    def snapshot(self) -> Snapshot | None:
        """The state of the envs, if they can tell."""
        return self._env.snapshot() if isinstance(self._env, Savable) else None

    def restore(self, snapshot: Snapshot) -> np.ndarray:
        """Put the envs into a state they were in; returns the observations of then."""
        assert isinstance(self._env, Savable)
        self.buffers.obs[:] = self._env.restore(snapshot)
        return self.buffers.obs.copy()

    def close(self) -> None:
        """Close the envs."""
        self._env.close()
