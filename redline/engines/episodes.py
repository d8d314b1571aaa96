"""Collects whole episodes in other processes, which act by themselves with a snapshot of the weights.

Nobody waits for anybody but at the end of a collect: envs live in groups, each at home in one worker, and a group's
episodes are a task whose result is taken as soon as it is there. What the workers are (processes, Ray actors) is the
business of `EpisodeWorkers`.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from redline.engines.engine import EngineSetup
from redline.engines.faults import EnvTrouble, Failure, Supervisor, WorkerCrash
from redline.engines.settings import split, worker_plan
from redline.engines.spec import EnvDescription, Snapshot, Spaces
from redline.engines.workers.episode_player import (
    EnvGroup,
    EpisodeTask,
    PlayedEpisodes,
    PlayEpisodes,
    TaskAnswer,
    TellSpaces,
)
from redline.engines.workers.status import WATCH_SECONDS
from redline.engines.workers.step_buffers import buffer_shapes
from redline.errors import RedlineError
from redline.rollout import Acting, Rollout, join
from redline.timing.progress import tell
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes

GROUP_SIZE = 16
"""Envs that act together in a worker: enough to ask the policy about many at once, few enough to lose little in a crash."""
COLUMNS = {"rows", "actions", "log_probs", "values", "next_values", "rewards", "terminated", "truncated"}

Handle = TypeVar("Handle", bound=Hashable)


class EpisodeWorkers(Protocol[Handle]):
    """Workers that carry tasks out; a handle stands for a task under way."""

    @property
    def num_workers(self) -> int:
        """How many there are."""

    def start(self, worker: int) -> None:
        """Begin a worker, or begin it again after its death; `NoRoom` if there is no place for it."""

    def submit(self, worker: int, task: EpisodeTask) -> Handle:
        """Hand a task to a worker."""

    def wait(self, handles: list[Handle], timeout: float) -> list[Handle]:
        """Those that are done, after at most `timeout` seconds."""

    def outcome(self, handle: Handle) -> TaskAnswer | WorkerCrash:
        """The answer to a task that is done, or a `WorkerCrash`, whose worker is gone then."""

    def end_if_hung(self, worker: int) -> bool:
        """Kill a worker that has been at one step for too long; its tasks then end in a `WorkerCrash`."""

    def close(self) -> None:
        """Let all workers go."""


class NoRoom(Exception):
    """There is no place left for another worker."""


@dataclass
class _Job:
    """A task under way in a worker."""

    worker: int
    task: EpisodeTask


class Episodes(Generic[Handle]):
    """The engine: hands groups to workers and takes the episodes that they played."""

    def __init__(
        self,
        setup: EngineSetup,
        make_workers: Callable[[Supervisor], EpisodeWorkers[Handle]],
        group_size: int = GROUP_SIZE,
    ) -> None:
        self.num_envs, self.faults = setup.num_envs, setup.supervisor()
        self.workers = make_workers(self.faults)
        self.num_workers = self.workers.num_workers
        self.plan = worker_plan(self.num_workers, self.num_envs)
        self.times = WorkerTimes(self.num_workers)
        shares = [split(ids, -(-len(ids) // group_size)) for ids in split(range(self.num_envs), self.num_workers)]
        self._groups = [EnvGroup(g, tuple(ids)) for g, ids in enumerate(ids for share in shares for ids in share)]
        self._home = [worker for worker, share in enumerate(shares) for _ in share]
        self._fresh = [set(group.ids) for group in self._groups]  # envs that must begin from a seed
        self._jobs: dict[Handle, _Job] = {}
        try:
            spaces = self._first_spaces()
            self.env = EnvDescription.of(setup.spec, spaces)
        except BaseException:
            self.workers.close()
            raise

    def _first_spaces(self) -> Spaces:
        for worker in range(self.num_workers):
            self.workers.start(worker)
        while True:
            self._ask_spaces()
            ((job, answer),) = self._take(1)
            if isinstance(answer, Spaces):
                buffer_shapes(answer, 1)  # refuses what does not fit into arrays
                return answer
            if isinstance(answer, RedlineError):
                raise answer
            # nothing has been played yet, so nothing is lost
            if isinstance(answer, WorkerCrash):
                self._restart_failed(job, answer, lost=0)
            elif isinstance(answer, Failure):
                self.faults.decide(answer, [answer.env], 0)

    def _ask_spaces(self) -> None:
        """Have a worker tell the spaces, of an env that was not dropped; there always is one."""
        env = int(np.flatnonzero(~self.faults.dropped)[0])
        group = next(group for group in self._groups if env in group.ids)
        seed = self.faults.seeds[env] if env in self._fresh[group.number] else None
        self._submit(TellSpaces(group, env, seed))

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """Whole episodes of every env, `num_steps` steps or more each, all under the same weights."""
        with watch.span("send"):
            pickled = pickle.dumps(policy.parameters(), pickle.HIGHEST_PROTOCOL)
            for group in self._groups:
                self._play(group, pickled, num_steps, group.ids)
        played: list[PlayedEpisodes] = []
        waited_before = watch.seconds_in("wait")
        while self._jobs:
            with watch.span("wait"):
                taken = self._take(None)
            with watch.span("record"):
                for job, answer in taken:
                    self._receive(job, answer, played)
        waited = watch.seconds_in("wait") - waited_before
        with watch.span("wait"):
            self.times.credit(watch, waited)
        with watch.span("record"):
            return _joined(played)

    def _play(self, group: EnvGroup, policy: bytes, num_steps: int, envs: Sequence[int]) -> None:
        """Have episodes played in those of `envs` that were not dropped."""
        chosen = tuple(i for i in envs if not self.faults.dropped[i])
        if not chosen:
            return
        seeds = {i: self.faults.seeds[i] for i in self._fresh[group.number] if i in chosen}
        events = self.times.trace is not None
        self._submit(PlayEpisodes(group, seeds, chosen, self.num_envs, num_steps, policy, events))

    def _submit(self, task: EpisodeTask) -> None:
        worker = self._home[task.group.number]
        self._jobs[self.workers.submit(worker, task)] = _Job(worker, task)

    def _take(self, count: int | None) -> list[tuple[_Job, TaskAnswer | WorkerCrash]]:
        """Answers of jobs that are done: at least one."""
        while True:
            tell(len(self._groups) - len(self._jobs), len(self._groups))
            done = self.workers.wait(list(self._jobs), WATCH_SECONDS)
            if done:
                return self._outcomes(done[:count])
            for worker in sorted({job.worker for job in self._jobs.values()}):
                self.workers.end_if_hung(worker)

    def _outcomes(self, done: list[Handle]) -> list[tuple[_Job, TaskAnswer | WorkerCrash]]:
        """The answers to jobs that are done, deaths last. A death is told once: its other jobs are found by who mends it."""
        deaths: dict[int, tuple[_Job, TaskAnswer | WorkerCrash]] = {}
        others: list[tuple[_Job, TaskAnswer | WorkerCrash]] = []
        for handle in done:
            job = self._jobs[handle]
            if job.worker in deaths:
                continue
            answer = self.workers.outcome(handle)
            del self._jobs[handle]
            if isinstance(answer, WorkerCrash):
                deaths[job.worker] = job, answer
            else:
                others.append((job, answer))
        return [*others, *deaths.values()]

    def _receive(self, job: _Job, answer: TaskAnswer | WorkerCrash, played: list[PlayedEpisodes]) -> None:
        if isinstance(answer, RedlineError):
            raise answer
        if isinstance(answer, WorkerCrash):
            self._restart_failed(job, answer, lost=None)
            return
        task = job.task
        assert isinstance(answer, PlayedEpisodes) and isinstance(task, PlayEpisodes)
        self._account(job.worker, answer)
        fresh = self._fresh[task.group.number]
        fresh -= set(answer.ids)
        if answer.rollout is not None:
            played.append(answer)
        for each in answer.failures:
            self.faults.decide(each, [each.env], each.lost)
            fresh.add(each.env)
        empty = [i for i in task.chosen if i not in answer.ids or not _has_steps(answer, i)]
        self._play(task.group, task.policy, task.num_steps, empty)

    def _account(self, worker: int, answer: PlayedEpisodes) -> None:
        self.times.add(worker, answer.times)
        self.times.add_spans(worker, answer.spans, answer.events)
        self.faults.saw(answer.times.slowest * 1e-9)
        if answer.rollout is not None:
            rollout = answer.rollout
            ends = ((rollout.terminated | rollout.truncated) & rollout.cells()).any(axis=0)
            self.faults.finished(np.array(answer.ids)[ends])

    def _restart_failed(self, job: _Job, death: WorkerCrash, lost: int | None) -> None:
        """Begin the worker of a lost job again, and with it all it had still to do."""
        worker = job.worker
        orphans = [handle for handle, other in self._jobs.items() if other.worker == worker]
        jobs = [job, *(self._jobs.pop(handle) for handle in orphans)]
        at_home = [group for group, home in zip(self._groups, self._home, strict=True) if home == worker]
        if lost is None:
            culprits = {i for each in jobs if death.env in each.task.chosen for i in each.task.chosen}
            lost = len(culprits or job.task.chosen) if death.lost is None else death.lost
        self.faults.decide(death, [i for group in at_home for i in group.ids], lost)
        for group in at_home:
            self._fresh[group.number] = set(group.ids)
        self._restart(worker, at_home)
        for each in jobs:
            if isinstance(each.task, PlayEpisodes):
                self._play(each.task.group, each.task.policy, each.task.num_steps, each.task.chosen)

    def _restart(self, worker: int, groups: list[EnvGroup]) -> None:
        """Start a worker again; where that cannot be done, the others take its groups."""
        try:
            self.workers.start(worker)
        except NoRoom as error:
            others = sorted(set(self._home) - {worker})
            if not others:
                raise EnvTrouble(f"Worker {worker} cannot be started again: {error}") from error
            for k, group in enumerate(groups):
                self._home[group.number] = others[k % len(others)]
            self.faults.warn(f"redline: worker {worker} cannot be started again ({error}); the others take its envs.")

    def snapshot(self) -> Snapshot | None:
        """Envs in other processes cannot be saved."""
        return None

    def restore(self, snapshot: Snapshot) -> None:
        """There is no snapshot of such an engine."""
        raise NotImplementedError("Envs in other processes have no snapshots to go on from.")

    def close(self) -> None:
        """Let the workers go."""
        self.workers.close()


def _has_steps(played: PlayedEpisodes, env: int) -> bool:
    assert played.rollout is not None
    return bool(played.rollout.cells()[:, played.ids.index(env)].any())


def _joined(played: list[PlayedEpisodes]) -> Rollout:
    """Everything that was played, as one rollout."""
    played = sorted((each for each in played if each.rollout is not None and each.rollout.num_steps), key=_ids)
    if not played:
        raise EnvTrouble("No env finished an episode.")
    whole = join([each.rollout for each in played if each.rollout is not None])
    return _in_order(whole, np.concatenate([each.ids for each in played]))


def _ids(played: PlayedEpisodes) -> tuple[int, ...]:
    return played.ids


def _in_order(rollout: Rollout, ids: np.ndarray) -> Rollout:
    """Columns in the order of their envs; an env that failed at once was played again, and its first column is empty."""
    full = np.flatnonzero(rollout.cells().any(axis=0))
    order = full[np.argsort(ids[full])]
    if np.array_equal(order, np.arange(len(ids))):
        return rollout
    columns: dict[str, Any] = {name: array[:, order] for name, array in vars(rollout).items() if name in COLUMNS}
    return dataclasses.replace(rollout, version=rollout.version[order], held=rollout.cells()[:, order], **columns)
