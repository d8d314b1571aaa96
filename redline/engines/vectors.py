"""Envs that step together as plain Gymnasium vector envs: in this process, or in workers.

Ended episodes begin again in the same step. An env that failed and was restarted shows as a truncated episode in
`infos["lost"]`: its observation is the first of a new episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from redline.engines.crew import Crew
from redline.engines.faults import EnvFailed, Faults, Supervisor
from redline.engines.slots import Report, Singles, Slab, Spaces, Spec
from redline.errors import RedlineError
from redline.timing.workers import WorkerTimes


class _Together(VectorEnv):
    """What both have in common: slabs in, Gymnasium's five values out."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(self, num_envs: int, faults: Faults, seed: int | None, copy: bool) -> None:
        first_seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1) if seed is None else seed
        self.num_envs = num_envs
        self.supervisor = Supervisor(faults, num_envs, first_seed)
        self._copy, self._begun = copy, False
        self._first_action = 0
        self.closed = True  # until there is something to close

    def _know(self, spaces: Spaces, slab: Slab) -> None:
        self.spaces, self.slab = spaces, slab
        self.single_observation_space, self.single_action_space = spaces.observation, spaces.action
        self.observation_space = batch_space(spaces.observation, self.num_envs)
        self.action_space = batch_space(spaces.action, self.num_envs)
        if self._copy and isinstance(spaces.action, Discrete):  # our own policies count actions from 0
            self._first_action = int(spaces.action.start)
        self.closed = False

    def _seeds(self, seed: int | list[int | None] | None) -> list[int | None] | None:
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
        self.supervisor.seeds = [
            old if new is None else new for new, old in zip(seeds, self.supervisor.seeds, strict=True)
        ]
        return seeds

    def _take_actions(self, actions: np.ndarray) -> None:
        if self.closed:
            raise RedlineError("These envs are closed. Make new ones.")
        if not self._begun:
            raise RedlineError("There is no episode to play a step of. Call reset first.")
        actions = np.asarray(actions)
        if not np.can_cast(actions.dtype, self.slab.actions.dtype, "same_kind"):
            raise RedlineError(f"Actions of dtype {actions.dtype} do not fit: pass dtype {self.slab.actions.dtype}.")
        if actions.shape != self.slab.actions.shape:
            raise RedlineError(
                f"Actions of shape {actions.shape} do not fit {self.num_envs} envs: pass shape {self.slab.actions.shape}."
            )
        self.slab.actions[:] = actions - self._first_action if self._first_action else actions

    def _first(self, infos: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        self._begun = True
        return self._given(self.slab.obs), self._with_masks(infos)

    def _result(self, lost: list[int], extras: dict[str, Any], infos: dict[str, Any]) -> tuple[Any, ...]:
        slab = self.slab
        terminated, truncated, rewards = slab.terminated.copy(), slab.truncated.copy(), slab.rewards.copy()
        dropped = self.supervisor.dropped
        gone = np.zeros(self.num_envs, np.bool_)
        if lost or dropped.any():
            gone[lost] = True
            gone |= dropped
            rewards[gone], terminated[gone], truncated[gone] = 0.0, False, True
            slab.final_obs[gone] = 0
            infos["lost"] = gone
        ended = terminated | truncated
        if ended.any():
            infos["final_obs"], infos["_final_obs"] = slab.final_obs.copy(), ended
            self.supervisor.finished(np.flatnonzero(ended & ~gone))
        if extras:
            infos["episode_metrics"] = extras
        return self._given(slab.obs), rewards, terminated, truncated, self._with_masks(infos)

    def _given(self, obs: np.ndarray) -> np.ndarray:
        return obs.copy() if self._copy else obs

    def _with_masks(self, infos: dict[str, Any]) -> dict[str, Any]:
        if self.spaces.masked:
            infos["action_mask"] = self.slab.masks.copy()
            if self.supervisor.dropped.any():
                infos["action_mask"][self.supervisor.dropped] = True
        return infos

    def _gathered(self, reports: list[Report]) -> dict[str, Any]:
        """What the envs' own infos come to, in Gymnasium's form."""
        infos: dict[str, Any] = {}
        for report in reports:
            for env, info, final in report.infos:
                if final:
                    infos = self._add_info(infos, {"final_info": final}, env)
                rest = {name: value for name, value in info.items() if name != "action_mask"}
                infos = self._add_info(infos, rest, env) if rest else infos
        return infos


class SerialVectorEnv(_Together):
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
        super().__init__(num_envs, faults, seed, copy)
        self._slots = Singles(spec, range(num_envs), infos=infos)
        spaces = self._made(self._slots)
        slab = Slab.local(spaces, num_envs)
        self._slots.use(slab, spaces)
        self._know(spaces, slab)
        self.times = WorkerTimes(1)

    def _made(self, slots: Singles) -> Spaces:
        while True:
            first = self._alive()[0]
            try:
                return slots.make(self.supervisor.seeds[first], first)
            except EnvFailed as failed:
                self.supervisor.decide(failed.failure, [first], 0)

    def _alive(self) -> list[int]:
        return np.flatnonzero(~self.supervisor.dropped).tolist()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes in all envs; env `i` gets seed `seed + i`."""
        seeds, alive = self._seeds(seed) or [None] * self.num_envs, self._alive()
        report = self._slots.reset(alive, [seeds[i] for i in alive], options)
        self._mend(report)
        return self._first(self._gathered([report]))

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Play one step in every env."""
        self._take_actions(actions)
        report = self._slots.step(self._alive())
        self.times.add(0, report.times)
        lost = [failure.env for failure in report.failures if failure.lost]
        self._mend(report)
        return self._result(lost, {}, self._gathered([report]))

    def _mend(self, report: Report) -> None:
        while report.failures:
            alive = [i for each in report.failures for i in self.supervisor.decide(each, [each.env], each.lost)]
            report = self._slots.reset(alive, [self.supervisor.seeds[i] for i in alive])

    def close_extras(self, **kwargs: Any) -> None:
        """Close the envs."""
        self._slots.close()


class WorkerVectorEnv(_Together):
    """Envs in worker processes, several each, stepped side by side.

    `transport` says how arrays travel: "shared" memory, or "pipes".
    """

    remote = True  # whoever steps it waits

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
        super().__init__(num_envs, faults, seed, copy)
        self.crew = Crew(spec, num_envs, workers, self.supervisor, transport, infos)
        self._know(self.crew.spaces, self.crew.slab)
        self.times = WorkerTimes(workers)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes in all envs; env `i` gets seed `seed + i`."""
        reports = self.crew.reset(self._seeds(seed), options)
        return self._first(self._gathered([report for _, report in reports]))

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Play one step in every env."""
        self._take_actions(actions)
        reports, lost = self.crew.step()
        self.times.add_all({worker.number: report.times for worker, report in reports})
        extras = self._joined(reports)
        return self._result(lost, extras, self._gathered([report for _, report in reports]))

    def _joined(self, reports: list[Any]) -> dict[str, np.ndarray]:
        """What our simulators say about ended episodes, over all envs."""
        joined: dict[str, np.ndarray] = {}
        for worker, report in reports:
            for name, values in report.extras.items():
                whole = joined.setdefault(name, np.zeros(self.num_envs, values.dtype))
                whole[worker.ids] = values
        return joined

    def snapshot(self) -> dict[str, np.ndarray] | None:
        """Everything needed to go on from here, if the envs can tell."""
        parts = self.crew.ask_snapshot()
        return None if parts is None else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Go on from a snapshot; returns the observations it stopped at."""
        names = [name for name in snapshot if len(snapshot[name]) == self.num_envs]
        self.crew.restore([{name: snapshot[name][worker.ids] for name in names} for worker in self.crew.workers])
        self._begun = True
        return self._given(self.slab.obs)

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers."""
        self.crew.close()
