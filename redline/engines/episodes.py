"""Collects whole episodes in other processes, which act by themselves with a snapshot of the weights.

Nobody waits for anybody but at the end of a collect: envs live in groups, each at home in one worker, and a group's
episodes are a task whose result is taken as soon as it is there. What the workers are (processes, Ray actors) is the
business of a `Staff`.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from redline.engines.faults import Death, EnvFailed, EnvTrouble, Failure, Supervisor
from redline.engines.settings import split
from redline.engines.slots import Report, Singles, Slab, Spaces, Spec, Status, Times
from redline.errors import RedlineError
from redline.rollout import Acting, Decision, Rollout, join
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes

GROUP_SIZE = 16
"""Envs that act together in a worker: enough to ask the policy about many at once, few enough to lose little in a crash."""
COLUMNS = {"rows", "actions", "log_probs", "values", "next_values", "rewards", "terminated", "truncated"}
WATCH_SECONDS = 1.0  # how often a silent worker is looked at
LONGEST = 100
"""Columns end with an episode, but never later than after this many times the steps asked for."""


class Task(NamedTuple):
    """Play whole episodes in the envs of a group, at least `num_steps` steps in each."""

    group: int
    ids: tuple[int, ...]
    seeds: dict[int, int]  # of the envs that are to be made anew
    chosen: tuple[int, ...]  # the envs to play
    num_envs: int
    num_steps: int
    policy: bytes
    events: bool = False  # whether to tell when everything was done


class Harvest(NamedTuple):
    """What came of a task. Columns of the rollout are the envs `ids`."""

    rollout: Rollout | None
    ids: tuple[int, ...]
    failures: list[Failure]
    times: Times
    spans: dict[str, int] = {}  # nanoseconds of what was done besides stepping envs
    events: tuple[tuple[str, int, int], ...] = ()  # name, start and duration, where they were asked for


class Host:
    """A worker's side: the groups of envs that are at home in this process."""

    def __init__(self, spec: Spec, status: Status | None = None) -> None:
        self._spec, self._status = spec, status or Status()
        self._groups: dict[int, _Group] = {}

    def spaces(self, task: Task) -> Spaces | Failure | RedlineError:
        """The spaces of a group's envs, after making the first."""
        try:
            return self._group(task).spaces(task)
        except EnvFailed as failed:
            self._groups.pop(task.group, None)
            return failed.failure
        except RedlineError as error:
            return RedlineError(str(error))

    def play(self, task: Task) -> Harvest | RedlineError:
        """Carry a task out."""
        try:
            return self._group(task).play(task)
        except RedlineError as error:
            return RedlineError(str(error))

    def _group(self, task: Task) -> _Group:
        if task.group not in self._groups:
            self._groups[task.group] = _Group(self._spec, task.ids, self._status)
        return self._groups[task.group]


class _Group:
    """Some envs and the actor that plays them."""

    def __init__(self, spec: Spec, ids: Sequence[int], status: Status) -> None:
        self._slots = Singles(spec, ids, status)
        self._ids = np.array(ids)
        self._spaces: Spaces | None = None
        self._actor: Any = None
        self._version = -1
        self._returns = np.zeros(len(ids))
        self._lengths = np.zeros(len(ids), np.int64)

    def spaces(self, task: Task) -> Spaces:
        """Of the envs, after making the first if need be."""
        if self._spaces is None:
            first = task.chosen[0]
            self._spaces = self._slots.make(task.seeds.get(first), task.ids.index(first))
            self._slots.use(Slab.local(self._spaces, len(self._ids)), self._spaces)
        return self._spaces

    def play(self, task: Task) -> Harvest:
        """Whole episodes of the chosen envs."""
        try:
            self.spaces(task)
        except EnvFailed as failed:
            return Harvest(None, (), [failed.failure], Times(0, 0, 0))
        self._take_policy(task)
        places = [k for k, i in enumerate(self._ids) if i in task.chosen]
        fresh = [k for k in places if int(self._ids[k]) in task.seeds]
        report = self._slots.reset(fresh, [task.seeds[int(self._ids[k])] for k in fresh])
        self._returns[fresh], self._lengths[fresh] = 0.0, 0
        failures = list(report.failures)
        broken = {failure.env for failure in failures}
        columns = [k for k in places if int(self._ids[k]) not in broken]
        if not columns:
            return Harvest(None, (), failures, report.times)
        playing = _Playing(self, columns, task.num_steps, task.events)
        rollout = playing.run()
        ids = tuple(int(self._ids[k]) for k in columns)
        times = _sum(report.times, playing.times)
        return Harvest(rollout, ids, failures + playing.failures, times, playing.spans(), tuple(playing.events))

    def _take_policy(self, task: Task) -> None:
        policy = pickle.loads(task.policy)
        if policy.version != self._version or self._actor is None:
            env = next((env for env in self._slots.envs if env is not None), None)
            self._actor = policy.actor(task.num_envs, env, self._spaces, before=self._actor)
            self._version = policy.version


class _Playing:
    """One task under way: columns fill step by step and leave when they are long enough and an episode ends."""

    def __init__(self, group: _Group, columns: list[int], num_steps: int, events: bool) -> None:
        self._group, self._slots, self._actor = group, group._slots, group._actor
        self._columns, self._num_steps, self._most = columns, num_steps, LONGEST * num_steps
        self._written: list[tuple[Any, ...]] = []
        self._episodes: list[tuple[float, int]] = []
        self._ends = dict.fromkeys(columns, -1)  # last step of a column that ends an episode
        self.failures: list[Failure] = []
        self.times = Times(0, 0, 0)
        self.events: list[tuple[str, int, int]] = []
        self._watch, self._tell = Stopwatch(), events
        if events:
            self._watch.events = lambda path, start, spent: self.events.append((path[-1], start, spent))
        self._actor.watch = self._watch

    def spans(self) -> dict[str, int]:
        """Nanoseconds of what was done besides stepping envs."""
        return {
            path[0]: round(spent * 1e9) for path, spent in self._watch.breakdown().seconds.items() if len(path) == 1
        }

    def run(self) -> Rollout:
        """Play until every column is done."""
        active, t = list(self._columns), 0
        with self._watch.span("forward"):
            self._actor.begin(self._num_steps)
        while active and t < self._most:
            active = self._step(t, active)
            t += 1
        with self._watch.span("record"):
            return self._rollout(active)

    def _step(self, t: int, active: list[int]) -> list[int]:
        slots, group = self._slots, self._group
        slots.status.at_stake = len(active) + len(self._episodes)
        slab = slots.slab
        assert slab is not None and slots.spaces is not None
        masks = slab.masks[active] if slots.spaces.masked else None
        decision = self._actor.act(slab.obs[active], masks, group._ids[active])
        slab.actions[active] = decision.actions
        report = slots.step(active)
        self.times = _sum(self.times, report.times)
        if self._tell:
            self.events += _events_of(report.times)
        with self._watch.span("record"):
            return self._note(t, active, decision, report)

    def _note(self, t: int, active: list[int], decision: Decision, report: Report) -> list[int]:
        """Write down what came of a step. Returns the columns that go on."""
        slab, group = self._slots.slab, self._group
        assert slab is not None
        lost = {failure.env for failure in report.failures if failure.lost}
        gone = {failure.env for failure in report.failures}
        self.failures += report.failures
        group._returns[active] += slab.rewards[active]
        group._lengths[active] += 1
        terminated, truncated = slab.terminated[active], slab.truncated[active]
        next_values = np.full(len(active), np.nan, np.float32)
        kept = np.array([int(group._ids[k]) not in lost for k in active])
        cut = truncated & ~terminated & kept
        if cut.any():
            next_values[cut] = self._actor.value(slab.final_obs[active][cut])
        self._written.append((list(active), decision, slab.rewards[active], terminated, truncated, next_values))
        ended = (terminated | truncated) & kept
        for k in np.array(active)[ended]:
            self._end_episode(t, int(k))
        full = ended if t + 1 >= self._num_steps else np.zeros_like(ended)
        return [k for j, k in enumerate(active) if not full[j] and int(group._ids[k]) not in gone]

    def _end_episode(self, t: int, k: int) -> None:
        group = self._group
        self._ends[k] = t
        self._episodes.append((float(group._returns[k]), int(group._lengths[k])))
        group._returns[k], group._lengths[k] = 0.0, 0

    def _rollout(self, unfinished: list[int]) -> Rollout:
        columns, length = self._columns, len(self._written)
        place = {k: j for j, k in enumerate(columns)}
        rollout = Rollout.empty(length, len(columns), self._actor.version)
        held = np.zeros((length, len(columns)), np.bool_)
        for t, (active, decision, rewards, terminated, truncated, next_values) in enumerate(self._written):
            where = [place[k] for k in active]
            held[t, where] = True
            rollout.rows[t, where], rollout.actions[t, where] = decision.rows, decision.actions
            rollout.log_probs[t, where], rollout.values[t, where] = decision.log_probs, decision.values
            rollout.rewards[t, where], rollout.next_values[t, where] = rewards, next_values
            rollout.terminated[t, where], rollout.truncated[t, where] = terminated, truncated
        last = np.zeros(len(columns), np.float32)
        if unfinished:  # longer than a collect may get: the episode goes on in the next one
            slab = self._slots.slab
            where = [place[k] for k in unfinished]
            rollout.truncated[-1, where] = True
            last[where] = self._actor.value(slab.obs[unfinished])  # type: ignore[union-attr]
        rollout.link_values(last)
        rollout.held = held
        rollout.forget(self._gaps(held))
        rollout.observations, rollout.masks = self._actor.observations()
        if self._episodes:
            returns, lengths = zip(*self._episodes, strict=True)
            rollout.episode_returns, rollout.episode_lengths = np.array(returns), np.array(lengths, np.int64)
        if rollout.held.all():
            rollout.held = None
        return rollout

    def _gaps(self, held: np.ndarray) -> list[tuple[int, int, int]]:
        """Cells without a step: behind a column's end, and where an episode was lost."""
        ids = self._group._ids
        lost = {failure.env for failure in self.failures}
        gaps = []
        for j, k in enumerate(self._columns):
            first = self._ends[k] + 1 if int(ids[k]) in lost else int(held[:, j].sum())
            if first < len(held):
                gaps.append((j, first, len(held) - 1))
        return gaps


def _events_of(times: Times) -> list[tuple[str, int, int]]:
    resets = [("reset", times.began + times.step, times.reset)] if times.reset else []
    return [("step", times.began, times.step), *resets]


def _sum(one: Times, other: Times) -> Times:
    return Times(one.step + other.step, one.reset + other.reset, max(one.slowest, other.slowest))


class Staff(Protocol):
    """Workers that carry tasks out."""

    num_workers: int

    def start(self, worker: int) -> None:
        """Begin a worker, or begin it again after its death."""

    def submit(self, worker: int, call: str, task: Task) -> Hashable:
        """Hand a task to a worker; a handle stands for it."""

    def wait(self, handles: list[Any], timeout: float) -> list[Any]:
        """Those that are done, after at most `timeout` seconds."""

    def outcome(self, handle: Any) -> Any:
        """What a done task returned, or a `Death`, whose worker is gone then."""

    def hung(self, worker: int, deadline: float) -> bool:
        """Kill a worker that has been at one step for too long; its tasks then end in a `Death`."""

    def close(self) -> None:
        """Let all workers go."""


@dataclass
class _Job:
    worker: int
    group: int
    task: Task


class Episodes:
    """The engine: hands groups to workers and takes what they harvest."""

    def __init__(self, staff: Staff, num_envs: int, supervisor: Supervisor, group_size: int = GROUP_SIZE) -> None:
        self.staff, self.supervisor, self.num_envs = staff, supervisor, num_envs
        shares = [split(ids, -(-len(ids) // group_size)) for ids in split(range(num_envs), staff.num_workers)]
        self._groups = [tuple(ids) for share in shares for ids in share]
        self._home = [worker for worker, share in enumerate(shares) for _ in share]
        self._fresh = [set(ids) for ids in self._groups]  # envs that must begin from a seed
        self._jobs: dict[Any, _Job] = {}
        self.times = WorkerTimes(staff.num_workers)
        try:
            self.spaces = self._first_spaces()
        except BaseException:
            staff.close()
            raise

    def _first_spaces(self) -> Spaces:
        for worker in range(self.staff.num_workers):
            self.staff.start(worker)
        while True:
            self._submit(self._first_group(), "spaces", b"", 1)
            ((job, answer),) = self._take(1)
            if isinstance(answer, Spaces):
                answer.slab_shapes(1)  # refuses what does not fit into arrays
                return answer
            if isinstance(answer, RedlineError):
                raise answer
            self._mend(job, answer, lost=0)

    def _first_group(self) -> int:
        """One with an env that was not dropped; there always is one."""
        return next(g for g, ids in enumerate(self._groups) if not self.supervisor.dropped[list(ids)].all())

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """Whole episodes of every env, `num_steps` steps or more each, all under the same weights."""
        with watch.span("send"):
            blob = pickle.dumps(policy.portable(), pickle.HIGHEST_PROTOCOL)
            for group in range(len(self._groups)):
                self._submit(group, "play", blob, num_steps)
        harvests: list[Harvest] = []
        waited_before = watch.seconds_in("wait")
        while self._jobs:
            with watch.span("wait"):
                taken = self._take(None)
            with watch.span("record"):
                for job, answer in taken:
                    self._receive(job, answer, harvests)
        waited = watch.seconds_in("wait") - waited_before
        with watch.span("wait"):
            self.times.credit(watch, waited)
        with watch.span("record"):
            return self._joined(harvests)

    def _submit(
        self, group: int, call: str, policy: bytes, num_steps: int, chosen: Sequence[int] | None = None
    ) -> None:
        dropped = self.supervisor.dropped
        ids = self._groups[group]
        chosen = tuple(i for i in (ids if chosen is None else chosen) if not dropped[i])
        if not chosen:
            return
        seeds = {i: self.supervisor.seeds[i] for i in self._fresh[group] if i in chosen}
        tell = self.times.trace is not None
        task = Task(group, ids, seeds, chosen, self.num_envs, num_steps, policy, tell)
        worker = self._home[group]
        handle = self.staff.submit(worker, call, task)
        self._jobs[handle] = _Job(worker, group, task)

    def _take(self, count: int | None) -> list[tuple[_Job, Any]]:
        """Answers of jobs that are done: at least one."""
        while True:
            done = self.staff.wait(list(self._jobs), WATCH_SECONDS)
            if done:
                return self._outcomes(done[:count])
            for worker in sorted({job.worker for job in self._jobs.values()}):
                self.staff.hung(worker, self.supervisor.deadline)

    def _outcomes(self, done: list[Any]) -> list[tuple[_Job, Any]]:
        """What these jobs came to, harvests first. A death is told once: its other jobs are found by who mends it."""
        told: dict[int, tuple[_Job, Death]] = {}
        others: list[tuple[_Job, Any]] = []
        for handle in done:
            job = self._jobs[handle]
            if job.worker in told:
                continue
            answer = self.staff.outcome(handle)
            del self._jobs[handle]
            if isinstance(answer, Death):
                told[job.worker] = job, answer
            else:
                others.append((job, answer))
        return [*others, *told.values()]

    def _receive(self, job: _Job, answer: Any, harvests: list[Harvest]) -> None:
        if isinstance(answer, RedlineError):
            raise answer
        if isinstance(answer, Death):
            self._mend(job, answer, lost=None)
            return
        self.times.add(job.worker, answer.times)
        self.times.add_spans(job.worker, answer.spans, answer.events)
        self.supervisor.saw(answer.times.slowest * 1e-9)
        self._fresh[job.group] -= set(answer.ids)
        if answer.rollout is not None:
            harvests.append(answer)
            self._count_finished(answer)
        for each in answer.failures:
            self.supervisor.decide(each, [each.env], each.lost)
            self._fresh[job.group].add(each.env)
        empty = [i for i in job.task.chosen if i not in answer.ids or not self._has_steps(answer, i)]
        self._submit(job.group, "play", job.task.policy, job.task.num_steps, empty)

    def _count_finished(self, harvest: Harvest) -> None:
        rollout = harvest.rollout
        assert rollout is not None
        ends = ((rollout.terminated | rollout.truncated) & rollout.cells()).any(axis=0)
        self.supervisor.finished(np.array(harvest.ids)[ends])

    def _has_steps(self, harvest: Harvest, env: int) -> bool:
        assert harvest.rollout is not None
        return bool(harvest.rollout.cells()[:, harvest.ids.index(env)].any())

    def _mend(self, job: _Job, cause: Death | Failure, lost: int | None) -> None:
        """Begin the worker of a lost job again, and with it all it had still to do."""
        if isinstance(cause, Failure):
            self.supervisor.decide(cause, [cause.env], 0)
            return
        worker = job.worker
        orphans = [handle for handle, other in self._jobs.items() if other.worker == worker]
        jobs = [job, *(self._jobs.pop(handle) for handle in orphans)]
        at_home = [g for g, home in enumerate(self._home) if home == worker]
        if lost is None:
            culprits = {i for each in jobs if cause.env in each.task.chosen for i in each.task.chosen}
            lost = len(culprits or job.task.chosen) if cause.lost is None else cause.lost
        self.supervisor.decide(cause, [i for g in at_home for i in self._groups[g]], lost)
        for group in at_home:
            self._fresh[group] = set(self._groups[group])
        self._move(worker, at_home)
        for each in jobs:
            if each.task.policy:
                self._submit(each.group, "play", each.task.policy, each.task.num_steps, each.task.chosen)

    def _move(self, worker: int, groups: list[int]) -> None:
        """Start a worker again; where that cannot be done, the others take its groups."""
        try:
            self.staff.start(worker)
        except NoRoom as error:
            others = sorted(set(self._home) - {worker})
            if not others:
                raise EnvTrouble(f"Worker {worker} cannot be started again: {error}") from error
            for k, group in enumerate(groups):
                self._home[group] = others[k % len(others)]
            self.supervisor.warn(
                f"redline: worker {worker} cannot be started again ({error}); the others take its envs."
            )

    def _joined(self, harvests: list[Harvest]) -> Rollout:
        harvests = [each for each in harvests if each.rollout is not None and each.rollout.num_steps]
        if not harvests:
            raise EnvTrouble("No env finished an episode.")
        harvests.sort(key=lambda harvest: harvest.ids)
        whole = join([each.rollout for each in harvests])  # type: ignore[misc]
        return _in_order(whole, np.concatenate([each.ids for each in harvests]))

    def snapshot(self) -> None:
        """Envs in other processes cannot be saved."""

    def close(self) -> None:
        """Let the workers go."""
        self.staff.close()


def _in_order(rollout: Rollout, ids: np.ndarray) -> Rollout:
    """Columns in the order of their envs; an env that failed at once was played again, and its first column is empty."""
    full = np.flatnonzero(rollout.cells().any(axis=0))
    order = full[np.argsort(ids[full])]
    if np.array_equal(order, np.arange(len(ids))):
        return rollout
    columns = {name: array[:, order] for name, array in vars(rollout).items() if name in COLUMNS}
    return dataclasses.replace(rollout, version=rollout.version[order], held=rollout.cells()[:, order], **columns)


class NoRoom(Exception):
    """There is no place left for another worker."""
