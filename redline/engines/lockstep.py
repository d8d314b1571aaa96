"""Steps all envs together and asks the policy once per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from redline.engines.engine import EngineKind, EngineSetup
from redline.engines.episode_stats import EpisodeStats
from redline.engines.faults import Faults, Supervisor
from redline.engines.same_step import SameStep
from redline.engines.settings import worker_plan
from redline.engines.spec import EnvDescription, Savable, Snapshot
from redline.engines.vectors import SerialVectorEnv, SupervisedVectorEnv, WorkerVectorEnv
from redline.errors import RedlineError
from redline.rollout import Acting, Outcome, Rollout, remembering
from redline.timing.progress import tell
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes


class Lockstep:
    """Collects from any `VectorEnv` that resets an ended episode in the same step."""

    def __init__(self, envs: VectorEnv, seed: int, env: EnvDescription | None = None) -> None:
        if envs.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise RedlineError(
                f"{envs} does not reset ended episodes in the same step. Make it with AutoresetMode.SAME_STEP."
            )
        self.envs = envs
        self._obs, infos = envs.reset(seed=seed)
        self._masks = _masks_in(infos)
        self._stats = EpisodeStats(envs.num_envs)
        self._supervised = isinstance(envs, SupervisedVectorEnv)
        if isinstance(envs, SupervisedVectorEnv):
            self.env = env or envs.describe()
            self.faults, self.times, self.num_workers = envs.faults, envs.times, envs.num_workers
            self._waits = envs.has_workers
        else:  # nobody tells how long they took, or replaces one that fails
            self.env = env or EnvDescription.of_vector(envs.envs if isinstance(envs, SameStep) else envs)
            if self.env.given is not None and not isinstance(envs, SameStep):
                raise RedlineError(
                    f"{envs} gives observations {self.env.given}, which are no arrays. Pass a factory of single envs."
                )
            self.faults, self.times, self.num_workers = Supervisor(Faults(), envs.num_envs, seed), WorkerTimes(1), 1
            self._waits = False

    @property
    def plan(self) -> str:
        """The work of its workers in words; empty where it has none."""
        return worker_plan(self.num_workers, self.envs.num_envs) if self._waits else ""

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env under fixed weights."""
        rollout = Rollout.empty(num_steps, self.envs.num_envs, policy.version, self.env.single_action_space)
        self._stats.begin()
        acting, recording = watch.span("policy"), watch.span("record")
        stepping = watch.span("wait" if self._waits else "env")
        with acting:
            policy.begin(num_steps)
            memory = remembering(policy)
        for t in range(num_steps):
            tell(t, num_steps)
            with acting:
                decision = policy.act(self._obs, self._masks)
            with stepping:
                outcome = Outcome(*self.envs.step(decision.for_envs))
                if self._supervised:
                    self.times.credit(watch)
            with recording:
                rollout.write(t, decision, outcome)
                lost = outcome.infos.get("lost")
                self._stats.step(t, outcome, lost)
                cut = outcome.truncated & ~outcome.terminated
                if lost is not None:
                    rollout.forget(self._stats.forget(t, lost))
                    cut &= ~lost
            if cut.any():  # these episodes would have gone on without us
                with acting:
                    final = outcome.final_obs(cut)
                    values = policy.value(final) if memory is None else memory.value_of(final, np.flatnonzero(cut))
                    rollout.next_values[t, cut] = values
            if memory is not None:
                memory.forget(outcome.terminated | outcome.truncated)
            self._obs, self._masks = outcome.obs, _masks_in(outcome.infos)
        with acting:
            rollout.link_values(policy.value(self._obs))
            rollout.observations, rollout.masks = policy.observations()
            rollout.memories = None if memory is None else memory.first_memories()
        with recording:
            self._stats.write(rollout)
        return rollout

    def snapshot(self) -> Snapshot | None:
        """Everything needed to go on from here, if the envs can tell."""
        state = self.envs.snapshot() if isinstance(self.envs, Savable) else None
        if state is None:
            return None
        masks = {} if self._masks is None else {"masks": self._masks.copy()}
        return {**state, **masks, **self._stats.snapshot()}

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""
        if not isinstance(self.envs, Savable):
            raise RedlineError("These envs cannot be put into a state from a file. Begin a new run.")
        self._stats.restore(snapshot)
        masks = snapshot.get("masks")
        if (masks is None) != (self._masks is None) or (masks is not None and masks.shape != self._masks.shape):  # type: ignore[union-attr]
            raise RedlineError("The saved masks do not fit these envs. Make them as they were made then.")
        self._obs = self.envs.restore(snapshot)
        self._masks = masks

    def close(self) -> None:
        """Close the envs."""
        self.envs.close()


def _masks_in(infos: dict[str, Any]) -> np.ndarray | None:
    """Masks bool [N, actions], if the env gives any; Gymnasium's own envs write them as int8."""
    masks = infos.get("action_mask")
    return None if masks is None else np.asarray(masks, np.bool_)


# Envs that step together


def one_after_another(setup: EngineSetup) -> VectorEnv:
    """Envs in this process, stepped one by one."""
    faults = setup.collecting.faults
    return SerialVectorEnv(
        setup.spec, setup.num_envs, faults=faults, seed=setup.seed, infos=setup.infos, copy=setup.copy
    )


def in_one_call(setup: EngineSetup) -> VectorEnv:
    """Envs in this process, stepped by one call where their world is compiled."""
    if setup.spec.vector is not None:
        return SameStep(setup.spec.vector, setup.num_envs)
    return setup.spec.batch(setup.num_envs) if setup.spec.native else one_after_another(setup)


def in_workers(transport: str) -> Callable[[EngineSetup], VectorEnv]:
    """Envs in worker processes, whose arrays travel by that `transport`: shared or pipes."""

    def make(setup: EngineSetup) -> VectorEnv:
        return WorkerVectorEnv(
            setup.spec, setup.num_envs, workers=setup.num_workers, transport=transport,
            faults=setup.collecting.faults, seed=setup.seed, infos=setup.infos, copy=setup.copy,
        )  # fmt: skip

    return make


def lockstep_kind(
    step_together: Callable[[EngineSetup], VectorEnv], about: str, rank: int, has_workers: bool = False
) -> EngineKind:
    """The way to collect in lockstep from envs that step together."""

    def make(setup: EngineSetup) -> Lockstep:
        envs = step_together(setup)
        try:
            return Lockstep(envs, setup.first_seed)
        except BaseException:
            envs.close()
            raise

    return EngineKind(make, about, rank, has_workers, step_together)
