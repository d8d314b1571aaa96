"""Envs that step together as plain Gymnasium vector envs: in this process, or in workers.

Ended episodes begin again in the same step. An env that failed and was restarted shows as a truncated episode in
`infos["lost"]`: its observation is the first of a new episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from redline.engines.faults import EnvFailed, Faults, Supervisor
from redline.engines.spec import EnvDescription, Snapshot, Spaces, Spec
from redline.engines.workers.parent import EnvWorkers, WorkerProcess
from redline.engines.workers.single_envs import SingleEnvs
from redline.engines.workers.step_buffers import StepBuffers
from redline.engines.workers.stepping import StepReport
from redline.errors import RedlineError
from redline.timing.workers import WorkerTimes

TALLIED = ("returns", "lengths", "masks")
"""What a snapshot holds beside the envs themselves."""
Seeds = int | list[int | None] | None
StepAnswer = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class SupervisedVectorEnv(VectorEnv):
    """Envs of others that step together, each replaced when it fails: step buffers in, Gymnasium's five values out."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
    has_workers = False

    def __init__(
        self, spec: Spec, num_envs: int, num_workers: int, faults: Faults, seed: int | None, copy: bool
    ) -> None:
        first_seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1) if seed is None else seed
        self._spec, self.num_envs, self.num_workers = spec, num_envs, num_workers
        self.faults = Supervisor(faults, num_envs, first_seed)
        self.times = WorkerTimes(num_workers)
        self._copy, self._begun = copy, False
        self.closed = True  # until there is something to close

    def describe(self) -> EnvDescription:
        """All that a policy must know about these envs."""
        return EnvDescription.of(self._spec, self.spaces)

    def _use(self, spaces: Spaces, buffers: StepBuffers) -> None:
        self.spaces, self.buffers = spaces, buffers
        self.single_observation_space, self.single_action_space = spaces.observation, spaces.action
        self.observation_space = batch_space(spaces.observation, self.num_envs)
        self.action_space = batch_space(spaces.action, self.num_envs)
        self.closed = False

    def _seeds(self, seed: Seeds) -> list[int | None] | None:
        if self.closed:
            raise RedlineError("These envs are closed. Make new ones.")
        if seed is None:
            return None
        if isinstance(seed, int | np.integer):
            if seed < 0:
                raise RedlineError(f"A seed of {seed} cannot be used. Pass a whole number of at least 0.")
            seeds: list[int | None] = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise RedlineError(f"{len(seeds)} seeds cannot be dealt to {self.num_envs} envs. Pass one number instead.")
        self.faults.seeds = [old if new is None else new for new, old in zip(seeds, self.faults.seeds, strict=True)]
        return seeds

    def _take_actions(self, actions: np.ndarray) -> None:
        if self.closed:
            raise RedlineError("These envs are closed. Make new ones.")
        if not self._begun:
            raise RedlineError("There is no episode to play a step of. Call reset first.")
        actions = np.asarray(actions)
        if not np.can_cast(actions.dtype, self.buffers.actions.dtype, "same_kind"):
            raise RedlineError(f"Actions of dtype {actions.dtype} do not fit: pass dtype {self.buffers.actions.dtype}.")
        if actions.shape != self.buffers.actions.shape:
            raise RedlineError(
                f"Actions of shape {actions.shape} do not fit {self.num_envs} envs: pass shape {self.buffers.actions.shape}."
            )
        self.buffers.actions[:] = actions

    def _first(self, infos: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        self._begun = True
        return self._given(self.buffers.obs), self._with_masks(infos)

    def _result(self, lost: list[int], metrics: dict[str, np.ndarray], infos: dict[str, Any]) -> StepAnswer:
        buffers = self.buffers
        terminated, truncated, rewards = buffers.terminated.copy(), buffers.truncated.copy(), buffers.rewards.copy()
        dropped = self.faults.dropped
        gone = np.zeros(self.num_envs, np.bool_)
        if lost or dropped.any():
            gone[lost] = True
            gone |= dropped
            rewards[gone], terminated[gone], truncated[gone] = 0.0, False, True
            buffers.final_obs[gone] = 0
            infos["lost"] = gone
        ended = terminated | truncated
        if ended.any():
            infos["final_obs"], infos["_final_obs"] = buffers.final_obs.copy(), ended
            self.faults.finished(np.flatnonzero(ended & ~gone))
        if metrics:
            infos["episode_metrics"] = metrics
        return self._given(buffers.obs), rewards, terminated, truncated, self._with_masks(infos)

    def _given(self, obs: np.ndarray) -> np.ndarray:
        return obs.copy() if self._copy else obs

    def _with_masks(self, infos: dict[str, Any]) -> dict[str, Any]:
        if self.spaces.masked:
            infos["action_mask"] = self.buffers.masks.copy()
            if self.faults.dropped.any():
                infos["action_mask"][self.faults.dropped] = True
        return infos

    def _gathered(self, reports: list[StepReport]) -> dict[str, Any]:
        """The envs' own infos in Gymnasium's form."""
        infos: dict[str, Any] = {}
        for report in reports:
            for env, info, final in report.infos:
                if final:
                    infos = self._add_info(infos, {"final_info": final}, env)
                rest = {name: value for name, value in info.items() if name != "action_mask"}
                infos = self._add_info(infos, rest, env) if rest else infos
        return infos


class SerialVectorEnv(SupervisedVectorEnv):
    """Envs stepped one after another in this process: no parallelism, nothing to go wrong, the honest baseline."""

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        *,
        faults: Faults = Faults(),  # noqa: B008
        seed: int | None = None,
        infos: bool = True,
        copy: bool = True,
    ) -> None:
        super().__init__(spec, num_envs, 1, faults, seed, copy)
        self._envs = SingleEnvs(spec, range(num_envs), infos=infos)
        spaces = self._first_spaces()
        buffers = StepBuffers.local(spaces, num_envs)
        self._envs.use(buffers, spaces)
        self._use(spaces, buffers)

    def _first_spaces(self) -> Spaces:
        while True:
            first = self._alive()[0]
            try:
                return self._envs.make(self.faults.seeds[first], first)
            except EnvFailed as failed:
                self.faults.decide(failed.failure, [first], 0)

    def _alive(self) -> list[int]:
        return np.flatnonzero(~self.faults.dropped).tolist()

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes in all envs; env `i` gets seed `seed + i`."""
        seeds, alive = self._seeds(seed) or [None] * self.num_envs, self._alive()
        report = self._envs.reset(alive, [seeds[i] for i in alive], options)
        self._restart_failed(report)
        return self._first(self._gathered([report]))

    def step(self, actions: np.ndarray) -> StepAnswer:
        """Play one step in every env."""
        self._take_actions(actions)
        report = self._envs.step(self._alive())
        self.times.add(0, report.times)
        lost = [failure.env for failure in report.failures if failure.lost]
        self._restart_failed(report)
        return self._result(lost, report.metrics, self._gathered([report]))

    def _restart_failed(self, report: StepReport) -> None:
        while report.failures:
            alive = [i for each in report.failures for i in self.faults.decide(each, [each.env], each.lost)]
            report = self._envs.reset(alive, [self.faults.seeds[i] for i in alive])

    def snapshot(self) -> Snapshot | None:
        """Everything needed to go on from here, if the envs can tell."""
        return self._envs.snapshot()

    def restore(self, snapshot: Snapshot) -> np.ndarray:
        """Go on from a snapshot; returns the observations it stopped at."""
        state = {name: array for name, array in snapshot.items() if name not in TALLIED}
        require_rows(state, self.num_envs)
        self._envs.restore(state)
        self._begun = True
        return self._given(self.buffers.obs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the envs."""
        self._envs.close()


class WorkerVectorEnv(SupervisedVectorEnv):
    """Envs in worker processes, several each, stepped side by side.

    `transport` says how arrays travel: "shared" memory, or "pipes".
    """

    has_workers = True

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        *,
        workers: int,
        transport: str = "shared",
        faults: Faults = Faults(),  # noqa: B008
        seed: int | None = None,
        infos: bool = True,
        copy: bool = True,
    ) -> None:
        super().__init__(spec, num_envs, workers, faults, seed, copy)
        self.env_workers = EnvWorkers(spec, num_envs, workers, self.faults, transport, infos)
        self._use(self.env_workers.spaces, self.env_workers.buffers)

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes in all envs; env `i` gets seed `seed + i`."""
        reports = self.env_workers.reset(self._seeds(seed), options)
        return self._first(self._gathered([report for _, report in reports]))

    def step(self, actions: np.ndarray) -> StepAnswer:
        """Play one step in every env."""
        self._take_actions(actions)
        reports, lost = self.env_workers.step()
        self.times.add_all({worker.number: report.times for worker, report in reports})
        return self._result(lost, self._metrics(reports), self._gathered([report for _, report in reports]))

    def _metrics(self, reports: list[tuple[WorkerProcess, StepReport]]) -> dict[str, np.ndarray]:
        """The metrics of ended episodes that envs tell, over all envs; NaN where they do not."""
        joined: dict[str, np.ndarray] = {}
        for worker, report in reports:
            for name, values in report.metrics.items():
                whole = joined.setdefault(name, np.full(self.num_envs, np.nan))
                whole[worker.ids] = values
        return joined

    def snapshot(self) -> Snapshot | None:
        """Everything needed to go on from here, if the envs can tell."""
        parts = self.env_workers.snapshots()
        return None if parts is None else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def restore(self, snapshot: Snapshot) -> np.ndarray:
        """Go on from a snapshot; returns the observations it stopped at."""
        require_rows(snapshot, self.num_envs)
        workers = self.env_workers.workers
        self.env_workers.restore([{name: snapshot[name][worker.ids] for name in snapshot} for worker in workers])
        self._begun = True
        return self._given(self.buffers.obs)

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers."""
        self.env_workers.close()


def require_rows(snapshot: Snapshot, num_envs: int) -> None:
    """Refuse a snapshot of another number of envs."""
    for name, array in snapshot.items():
        if array.ndim < 1 or len(array) != num_envs:
            raise RedlineError(f"The saved {name} do not fit {num_envs} envs. Make them as they were made then.")
