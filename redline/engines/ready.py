"""Acts for whichever envs have finished their step; nobody waits for the slowest, but at the end of a collect."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
import numpy as np

from redline.engines.engine import EngineSetup
from redline.engines.episode_stats import PlayedEpisode, write_episodes
from redline.engines.faults import WorkerCrash
from redline.engines.settings import worker_plan
from redline.engines.spec import EnvDescription, Snapshot
from redline.engines.vectors import TALLIED, require_rows
from redline.engines.workers.child import ResetEach, StepEach, StepProgress
from redline.engines.workers.parent import EnvWorkers, WorkerAnswer, WorkerProcess
from redline.errors import RedlineError
from redline.rollout import Acting, Decision, Rollout, remembering
from redline.timing.progress import tell
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes


class Ready:
    """Envs in workers, each filling its own column at its own pace.

    The policy is asked as soon as `ready_fraction` of the envs that are still playing are ready.
    """

    def __init__(self, setup: EngineSetup) -> None:
        self.num_envs, self.num_workers = setup.num_envs, setup.num_workers
        self._fraction = setup.collecting.ready_fraction
        self.plan = worker_plan(self.num_workers, self.num_envs)
        self.faults = setup.supervisor()
        self.env_workers = EnvWorkers(setup.spec, self.num_envs, self.num_workers, self.faults, batched=False)
        self._buffers, spaces = self.env_workers.buffers, self.env_workers.spaces
        self._masked = spaces.masked
        self.env = EnvDescription.of(setup.spec, spaces)
        self.times = WorkerTimes(self.num_workers)
        self._has_obs = np.zeros(self.num_envs, np.bool_)  # an observation waits for an action
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        for worker in self.env_workers.working:
            self._begin_episodes(worker, self.env_workers.alive(worker))

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env under fixed weights."""
        if remembering(policy) is not None:
            raise RedlineError(
                "A recurrent network needs envs that step together, and those of engine ready do not. Try --engine shared."
            )
        columns = _Columns(num_steps, self.num_envs, policy.version, self.env.single_action_space)
        waited_before = watch.seconds_in("wait")
        with watch.span("policy"):
            policy.begin(num_steps)
        for i in np.flatnonzero(self.faults.dropped):
            columns.leave(int(i))
        while not columns.over:
            with watch.span("record"):
                waiting = np.flatnonzero(self._has_obs & (columns.t < num_steps))
                enough = len(waiting) > 0 and len(waiting) >= self._enough(columns)
            if enough:
                with watch.span("policy"):
                    self._act(policy, columns, waiting)
            else:
                with watch.span("wait"):
                    answers = self.env_workers.wait()
                tell(int(columns.t.sum()), columns.num_steps * self.env_workers.num_envs)
                with watch.span("record"):
                    for worker, answer in answers:
                        self._receive(worker, answer, columns)
                if columns.cut:
                    with watch.span("policy"):
                        columns.bootstrap(policy)
        with watch.span("policy"):
            columns.rollout.link_values(policy.value(self._buffers.obs))
            columns.rollout.observations, columns.rollout.masks = policy.observations()
        waited = watch.seconds_in("wait") - waited_before
        with watch.span("wait"):
            self.times.credit(watch, waited)
        with watch.span("record"):
            return columns.finished()

    def _enough(self, columns: _Columns) -> int:
        """How many ready envs are worth asking the policy for."""
        return max(1, int(np.ceil(self._fraction * (columns.t < columns.num_steps).sum())))

    def _act(self, policy: Acting, columns: _Columns, envs: np.ndarray) -> None:
        masks = self._buffers.masks[envs] if self._masked else None
        decision = policy.act(self._buffers.obs[envs], masks, envs)
        self._buffers.actions[envs] = decision.for_envs
        columns.decide(envs, decision)
        self._has_obs[envs] = False
        for worker in self.env_workers.workers:
            first, last = worker.ids[0], worker.ids[-1]
            places = (envs[(envs >= first) & (envs <= last)] - first).tolist()
            if places:
                worker.ask(StepEach(places), len(places))

    def _begin_episodes(self, worker: WorkerProcess, envs: Sequence[int]) -> None:
        if envs:
            places, seeds = [i - worker.ids[0] for i in envs], [self.faults.seeds[i] for i in envs]
            worker.ask(ResetEach(places, list(seeds)), len(places))

    def _receive(self, worker: WorkerProcess, answer: WorkerAnswer, columns: _Columns) -> None:
        if isinstance(answer, WorkerCrash):
            self._replace(worker, answer, columns)
            return
        assert isinstance(answer, StepProgress)
        failed = {failure.env: failure for report in answer.reports for failure in report.failures}
        for report in answer.reports:
            self.times.add(worker.number, report.times)
        for k, report in zip(answer.places, answer.reports, strict=True):
            i = worker.ids[k]
            self._has_obs[i] = i not in failed
            if answer.stepped and not (i in failed and failed[i].lost):
                self._played(i, columns, {name: float(values[k]) for name, values in report.metrics.items()})
        for i, failure in failed.items():
            if failure.lost:
                self._lose(i, columns, in_flight=True)
            alive = self.faults.decide(failure, [i], failure.lost)
            self._begin_episodes(worker, alive)
            if not alive:
                columns.leave(i)

    def _played(self, i: int, columns: _Columns, metrics: dict[str, float]) -> None:
        buffers = self._buffers
        reward, terminated, truncated = (
            float(buffers.rewards[i]),
            bool(buffers.terminated[i]),
            bool(buffers.truncated[i]),
        )
        self._returns[i] += reward
        self._lengths[i] += 1
        ended = terminated or truncated
        if truncated and not terminated:
            columns.cut.append((int(columns.t[i]), i, buffers.final_obs[i].copy()))
        columns.write(i, reward, terminated, truncated)
        if ended:
            columns.episodes.append(PlayedEpisode(float(self._returns[i]), int(self._lengths[i]), metrics))
            self._returns[i], self._lengths[i] = 0.0, 0
            self.faults.finished([i])

    def _replace(self, worker: WorkerProcess, death: WorkerCrash, columns: _Columns) -> None:
        """A new worker for one that is gone; the other workers go on meanwhile."""
        before = self.env_workers.alive(worker)
        lost = [i for i in before if self._has_obs[i] or columns.is_acting(i)]
        for i in lost:
            self._lose(i, columns, in_flight=not self._has_obs[i])
        self._has_obs[before] = False
        self.faults.decide(death, worker.ids, len(lost))
        self.env_workers.restart(worker)
        alive = self.env_workers.alive(worker)
        self._begin_episodes(worker, alive)
        for i in set(before) - set(alive):
            columns.leave(i)

    def _lose(self, i: int, columns: _Columns, in_flight: bool) -> None:
        columns.lose(i, in_flight)
        self._returns[i], self._lengths[i] = 0.0, 0

    def snapshot(self) -> Snapshot | None:
        """Between two collects all envs wait for an action, so those of a compiled world can be saved."""
        parts = self.env_workers.snapshots()
        if parts is None or not self._has_obs.all():
            return None
        state = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {**state, "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot, once the episodes that began with the workers are told of."""
        nobody = _Columns(1, self.num_envs, 0, self.env.single_action_space)
        while not self._has_obs.all():
            for worker, answer in self.env_workers.wait():
                self._receive(worker, answer, nobody)
        state = {name: array for name, array in snapshot.items() if name not in TALLIED}
        require_rows(snapshot, self.num_envs)
        workers = self.env_workers.workers
        self.env_workers.restore([{name: array[worker.ids] for name, array in state.items()} for worker in workers])
        self._returns[:], self._lengths[:] = snapshot["returns"], snapshot["lengths"]

    def close(self) -> None:
        """End the workers."""
        self.env_workers.close()


class _Columns:
    """The rollout of one collect: how far every env has come in its column."""

    def __init__(self, num_steps: int, num_envs: int, version: int, action_space: gym.Space) -> None:
        self.num_steps = num_steps
        self.rollout = Rollout.empty(num_steps, num_envs, version, action_space)
        self.t = np.zeros(num_envs, np.int64)
        self.cut: list[tuple[int, int, np.ndarray]] = []
        self.episodes: list[PlayedEpisode] = []
        self._began = np.zeros(num_envs, np.int64)
        self._acting = np.zeros(num_envs, np.bool_)

    @property
    def over(self) -> bool:
        """Whether all columns are full."""
        return bool((self.t >= self.num_steps).all())

    def is_acting(self, i: int) -> bool:
        """Whether env `i` is at a step."""
        return bool(self._acting[i])

    def decide(self, envs: np.ndarray, decision: Decision) -> None:
        """Write the policy's part of a step."""
        rollout, t = self.rollout, self.t[envs]
        rollout.rows[t, envs], rollout.actions[t, envs] = decision.rows, decision.actions
        rollout.log_probs[t, envs], rollout.values[t, envs] = decision.log_probs, decision.values
        self._acting[envs] = True

    def write(self, i: int, reward: float, terminated: bool, truncated: bool) -> None:
        """Write the env's part of a step."""
        rollout, t = self.rollout, self.t[i]
        rollout.rewards[t, i], rollout.terminated[t, i], rollout.truncated[t, i] = reward, terminated, truncated
        self._acting[i] = False
        self.t[i] += 1
        if terminated or truncated:
            self._began[i] = self.t[i]

    def lose(self, i: int, in_flight: bool) -> None:
        """The episode under way in env `i` is lost, with the step it was at, if it was at one."""
        at_step = in_flight and bool(self._acting[i])
        last = int(self.t[i]) - (0 if at_step else 1)
        if last >= self._began[i]:
            self.rollout.forget([(i, int(self._began[i]), last)])
        self.t[i] = self._began[i] = last + 1
        self._acting[i] = False

    def leave(self, i: int) -> None:
        """Env `i` is not going to fill the rest of its column."""
        if self.t[i] < self.num_steps:
            self.rollout.forget([(i, int(self.t[i]), self.num_steps - 1)])
            self.t[i] = self.num_steps

    def bootstrap(self, policy: Acting) -> None:
        """Value the states that episodes were cut in."""
        values = policy.value(np.stack([obs for _, _, obs in self.cut]))
        for (t, i, _), value in zip(self.cut, values, strict=True):
            self.rollout.next_values[t, i] = value
        self.cut = []

    def finished(self) -> Rollout:
        """The rollout, complete."""
        write_episodes(self.episodes, self.rollout)
        return self.rollout
