"""Acts for whichever envs have finished their step; nobody waits for the slowest, but at the end of a collect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redline.engines.crew import Crew, Progress, Worker
from redline.engines.faults import Death, Supervisor
from redline.engines.slots import Report, Spec
from redline.rollout import Acting, Rollout
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes


class Ready:
    """Envs in workers, each filling its own column at its own pace.

    The policy is asked as soon as `ready_fraction` of the envs that are still playing are ready.
    """

    def __init__(
        self, spec: Spec, num_envs: int, workers: int, supervisor: Supervisor, ready_fraction: float = 0.1
    ) -> None:
        self.num_envs, self.supervisor, self._fraction = num_envs, supervisor, ready_fraction
        self.crew = Crew(spec, num_envs, workers, supervisor, "shared", batched=False)
        self.spaces, self.slab = self.crew.spaces, self.crew.slab
        self.times = WorkerTimes(workers)
        self._home = {i: worker for worker in self.crew.workers for i in worker.ids}
        self._has_obs = np.zeros(num_envs, np.bool_)  # an observation waits for an action
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        for worker in self.crew.working:
            self._begin_episodes(worker, self.crew.alive(worker))

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env under fixed weights."""
        course = _Course(num_steps, self.num_envs, policy.version)
        waited_before = watch.seconds_in("wait")
        with watch.span("policy"):
            policy.begin(num_steps)
        for i in np.flatnonzero(self.supervisor.dropped):
            course.leave(int(i))
        while not course.over:
            with watch.span("record"):
                waiting = np.flatnonzero(self._has_obs & (course.t < num_steps))
                enough = len(waiting) > 0 and len(waiting) >= self._enough(course)
            if enough:
                with watch.span("policy"):
                    self._act(policy, course, waiting)
            else:
                with watch.span("wait"):
                    answers = self.crew.wait()
                with watch.span("record"):
                    for worker, answer in answers:
                        self._receive(worker, answer, course)
                if course.cut:
                    with watch.span("policy"):
                        course.bootstrap(policy)
        with watch.span("policy"):
            course.rollout.link_values(policy.value(self.slab.obs))
            course.rollout.observations, course.rollout.masks = policy.observations()
        waited = watch.seconds_in("wait") - waited_before
        with watch.span("wait"):
            self.times.credit(watch, waited)
        with watch.span("record"):
            return course.finished()

    def _enough(self, course: _Course) -> int:
        """How many ready envs are worth asking the policy for."""
        return max(1, int(np.ceil(self._fraction * (course.t < course.num_steps).sum())))

    def _act(self, policy: Acting, course: _Course, envs: np.ndarray) -> None:
        masks = self.slab.masks[envs] if self.spaces.masked else None
        decision = policy.act(self.slab.obs[envs], masks, envs)
        self.slab.actions[envs] = decision.actions
        course.decide(envs, decision)
        self._has_obs[envs] = False
        for worker in self.crew.workers:
            first, last = worker.ids[0], worker.ids[-1]
            places = (envs[(envs >= first) & (envs <= last)] - first).tolist()
            if places:
                worker.ask_for(places, "play", places)

    def _begin_episodes(self, worker: Worker, envs: Sequence[int]) -> None:
        if envs:
            places, seeds = [i - worker.ids[0] for i in envs], [self.supervisor.seeds[i] for i in envs]
            worker.ask_for(places, "begin", places, seeds)

    def _receive(self, worker: Worker, answer: Report | Progress | Death, course: _Course) -> None:
        if isinstance(answer, Death):
            self._replace(worker, answer, course)
            return
        assert isinstance(answer, Progress)
        failed = {failure.env: failure for report in answer.reports for failure in report.failures}
        for report in answer.reports:
            self.times.add(worker.number, report.times)
        for k in answer.places:
            i = worker.ids[k]
            self._has_obs[i] = i not in failed
            if answer.played and not (i in failed and failed[i].lost):
                self._played(i, course)
        for i, failure in failed.items():
            if failure.lost:
                self._lose(i, course, in_flight=True)
            alive = self.supervisor.decide(failure, [i], failure.lost)
            self._begin_episodes(worker, alive)
            if not alive:
                course.leave(i)

    def _played(self, i: int, course: _Course) -> None:
        slab = self.slab
        reward, terminated, truncated = float(slab.rewards[i]), bool(slab.terminated[i]), bool(slab.truncated[i])
        self._returns[i] += reward
        self._lengths[i] += 1
        ended = terminated or truncated
        if truncated and not terminated:
            course.cut.append((int(course.t[i]), i, slab.final_obs[i].copy()))
        course.write(i, reward, terminated, truncated)
        if ended:
            course.episodes.append((float(self._returns[i]), int(self._lengths[i])))
            self._returns[i], self._lengths[i] = 0.0, 0
            self.supervisor.finished([i])

    def _replace(self, worker: Worker, death: Death, course: _Course) -> None:
        """A new worker for one that is gone; the other workers go on meanwhile."""
        before = self.crew.alive(worker)
        lost = [i for i in before if self._has_obs[i] or course.is_acting(i)]
        for i in lost:
            self._lose(i, course, in_flight=not self._has_obs[i])
        self._has_obs[before] = False
        self.supervisor.decide(death, worker.ids, len(lost))
        self.crew.restart(worker)
        alive = self.crew.alive(worker)
        self._begin_episodes(worker, alive)
        for i in set(before) - set(alive):
            course.leave(i)

    def _lose(self, i: int, course: _Course, in_flight: bool) -> None:
        course.lose(i, in_flight)
        self._returns[i], self._lengths[i] = 0.0, 0

    def snapshot(self) -> None:
        """Envs in other processes cannot be saved."""

    def close(self) -> None:
        """End the workers."""
        self.crew.close()


class _Course:
    """One collect: how far every env has come in its column."""

    def __init__(self, num_steps: int, num_envs: int, version: int) -> None:
        self.num_steps = num_steps
        self.rollout = Rollout.empty(num_steps, num_envs, version)
        self.t = np.zeros(num_envs, np.int64)
        self.cut: list[tuple[int, int, np.ndarray]] = []
        self.episodes: list[tuple[float, int]] = []
        self._began = np.zeros(num_envs, np.int64)
        self._acting = np.zeros(num_envs, np.bool_)

    @property
    def over(self) -> bool:
        """Whether all columns are full."""
        return bool((self.t >= self.num_steps).all())

    def is_acting(self, i: int) -> bool:
        """Whether env `i` is at a step."""
        return bool(self._acting[i])

    def decide(self, envs: np.ndarray, decision: object) -> None:
        """Write the policy's part of a step."""
        rollout, t = self.rollout, self.t[envs]
        rollout.rows[t, envs], rollout.actions[t, envs] = decision.rows, decision.actions  # type: ignore[attr-defined]
        rollout.log_probs[t, envs], rollout.values[t, envs] = decision.log_probs, decision.values  # type: ignore[attr-defined]
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
            self.rollout.rows[self.t[i] :, i] = 0
            self.t[i] = self.num_steps

    def bootstrap(self, policy: Acting) -> None:
        """Value the states that episodes were cut in."""
        values = policy.value(np.stack([obs for _, _, obs in self.cut]))
        for (t, i, _), value in zip(self.cut, values, strict=True):
            self.rollout.next_values[t, i] = value
        self.cut = []

    def finished(self) -> Rollout:
        """The rollout, complete."""
        if self.episodes:
            returns, lengths = zip(*self.episodes, strict=True)
            self.rollout.episode_returns = np.array(returns)
            self.rollout.episode_lengths = np.array(lengths, np.int64)
        return self.rollout
