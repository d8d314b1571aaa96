"""Worker processes that hold envs: started, watched, mended and ended here. None outlives this process.

Workers come from a fork server that has loaded numpy and Gymnasium but never torch: the first costs a second, the next
a few milliseconds. Each answers requests over a pipe; whether the arrays travel there too or lie in shared memory is a
`transport`. What a worker is doing stands in shared memory, so that a death can be told with env, step and action.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import resource
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, reduction
from typing import Any, NamedTuple

import numpy as np

from redline.engines.faults import Death, EnvFailed, EnvTrouble, Failure, Supervisor
from redline.engines.memory import SharedMemory, arrays_in, num_bytes
from redline.engines.slots import Report, Slab, Spaces, Spec, Status, make_slots
from redline.errors import RedlineError
from redline.processes import end_with_parent, environment, how_it_ended, sigint_blocked
from redline.threads import ONE_THREAD

START_SECONDS = 300.0
"""Time for a new worker to import the env and make its first one."""
CLOSE_SECONDS = 2.0
FILES_PER_WORKER = 8
WATCH_SECONDS = 1.0  # how often a silent worker is looked at
TELL_SECONDS = 0.0005  # how long a worker may keep to itself that an env is ready


class Progress(NamedTuple):
    """What a worker has done of a request for single envs so far."""

    places: list[int]
    reports: list[Report]
    played: bool  # a step; else the beginning of an episode


class Worker:
    """A process and what we know of it."""

    def __init__(self, number: int, ids: list[int], status: Status) -> None:
        self.number, self.ids, self.status = number, ids, status
        self.process: Any = None
        self.pipe: Any = None
        self.asked = 0  # answers that are due

    def ask(self, *message: Any) -> None:
        """Send a request. A dead worker is noticed when its answer is waited for."""
        self.ask_for([0], *message)

    def ask_for(self, places: Sequence[int], *message: Any) -> None:
        """Send a request that is answered for each place."""
        self.asked += len(places)
        with contextlib.suppress(OSError):
            self.pipe.send(message)

    def death(self, seeds: Sequence[int], how: str | None = None) -> Death:
        """How this worker, which has stopped answering, came to its end."""
        process = self.process
        if how is None:
            process.join(1.0)
            how = how_it_ended(process.exitcode)
        env, during, step, action = self.status.doing
        known = env is not None and env in self.ids
        seed = seeds[env] if known and env is not None else None
        return Death(self.number, process.pid, how, env if known else None, during, seed, step, action)

    def end(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.join(CLOSE_SECONDS)
            self.process.close() if self.process.exitcode is not None else None
            self.process = None
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None


class Crew:
    """Workers that hold the envs of one engine, several each."""

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        num_workers: int,
        supervisor: Supervisor,
        transport: str = "shared",
        infos: bool = False,
        batched: bool = True,
    ) -> None:
        self.spec, self.supervisor, self.transport = spec, supervisor, transport
        self._infos, self._batched = infos, batched
        require_files(num_workers)
        self._status_memory = SharedMemory(num_workers * Status.FIELDS * 8)
        cells = memoryview(self._status_memory.map).cast("q")
        self.workers = [
            Worker(w, ids, Status(cells[w * Status.FIELDS : (w + 1) * Status.FIELDS]))
            for w, ids in enumerate(deal(num_envs, num_workers))
        ]
        self._memory: SharedMemory | None = None
        self._begun = False
        self.num_envs = num_envs
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    # starting

    def _start_all(self) -> None:
        for worker in self.workers:
            self._start(worker)
        greeting = self._greeting(self.workers[0])
        self.spaces: Spaces = greeting
        shapes = self.spaces.slab_shapes(self.num_envs)
        if self.transport == "shared":
            self._memory = SharedMemory(num_bytes(shapes))
            self.slab = Slab(**arrays_in(self._memory, shapes))
        else:
            self.slab = Slab.local(self.spaces, self.num_envs)
        self._attach(self.workers[0])
        for worker in self.workers[1:]:
            self._greeting(worker)
            self._attach(worker)

    def _start(self, worker: Worker) -> None:
        here, there = connection.Pipe()
        worker.status.idle()
        seeds = [self.supervisor.seeds[i] for i in worker.ids]
        begin = _Start(
            self._status_memory.fd, self._status_memory.num_bytes,
            worker.number, there, self.spec, worker.ids, seeds[0], self._infos, self._batched,
        )  # fmt: skip
        worker.process = start_process(begin, f"redline worker {worker.number}")
        there.close()
        worker.pipe = here

    def _greeting(self, worker: Worker) -> Spaces:
        """Wait for a new worker's spaces, replacing it if it fails and the supervisor says so."""
        while True:
            answer = self._first_word(worker)
            if isinstance(answer, Spaces):
                return answer
            if isinstance(answer, RedlineError):
                raise answer
            # nothing has been played yet, so nothing is lost
            revived = self.supervisor.decide(answer, worker.ids, 0)
            if not revived:
                raise EnvTrouble(f"{answer}. No env of that worker is left.")
            worker.end()
            self._start(worker)

    def _first_word(self, worker: Worker) -> Any:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if worker.pipe.poll(WATCH_SECONDS):
                try:
                    return worker.pipe.recv()
                except (EOFError, OSError):
                    return worker.death(self.supervisor.seeds)
        death = worker.death(self.supervisor.seeds, f"did not answer for {START_SECONDS:.0f} s after it was started")
        worker.end()
        return death

    def _attach(self, worker: Worker) -> None:
        """Tell a worker where its arrays are."""
        first, last = worker.ids[0], worker.ids[-1] + 1
        with contextlib.suppress(OSError):  # a death is noticed at the next answer
            worker.pipe.send(("use", self.transport, self.num_envs, first, last, self.spaces))
            if self._memory is not None:
                reduction.send_handle(worker.pipe, self._memory.fd, worker.process.pid)

    # asking

    def reset(self, seeds: Sequence[int | None] | None, options: dict | None = None) -> list[tuple[Worker, Report]]:
        """Begin new episodes everywhere."""
        for worker in self.workers:
            chosen = [None if seeds is None else seeds[i] for i in worker.ids]
            worker.ask("reset", list(range(len(worker.ids))), chosen, options)
        self._begun = True
        return self.gather()[0]

    def step(self) -> tuple[list[tuple[Worker, Report]], list[int]]:
        """Play one step in all envs with the actions of the slab. Returns the reports and the envs that were lost."""
        slab = self.slab
        for worker in self.workers:
            if self.transport == "shared":
                worker.ask("step", None)
            else:
                worker.ask("step", slab.actions[worker.ids[0] : worker.ids[-1] + 1])
        return self.gather()

    def gather(self) -> tuple[list[tuple[Worker, Report]], list[int]]:
        """Wait for every worker that was asked. Envs that failed begin new episodes before this returns."""
        reports: list[tuple[Worker, Report]] = []
        lost: list[int] = []
        while any(worker.asked for worker in self.workers):
            for worker, answer in self.wait():
                if isinstance(answer, Death):
                    lost += worker.ids
                    self.heal(worker, answer)
                    continue
                assert isinstance(answer, Report)
                reports.append((worker, answer))
                lost += [failure.env for failure in answer.failures]
                self.renew(worker, answer.failures)
        return reports, lost

    def wait(self, timeout: float | None = None) -> list[tuple[Worker, Answer]]:
        """Answers of some of the workers that were asked: at least one, unless the time is up."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            asked = {worker.pipe: worker for worker in self.workers if worker.asked}
            patience = WATCH_SECONDS if until is None else max(0.0, min(WATCH_SECONDS, until - time.monotonic()))
            ready = connection.wait(list(asked), patience)
            found = [(asked[pipe], self._answer(asked[pipe])) for pipe in ready]
            found = found or self._hung(list(asked.values()))
            if found or (until is not None and time.monotonic() >= until):
                return found

    def _answer(self, worker: Worker) -> Answer:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            worker.asked = 0
            return worker.death(self.supervisor.seeds)
        if isinstance(answer, Progress):
            worker.asked -= len(answer.places)
            self.supervisor.saw(max(report.times.slowest for report in answer.reports) * 1e-9)
            return answer
        worker.asked = 0
        report, arrays = answer
        if arrays is not None:
            self._take(worker, arrays)
        self.supervisor.saw(report.times.slowest * 1e-9)
        return report

    def _take(self, worker: Worker, arrays: Any) -> None:
        part = self.slab.part(worker.ids[0], worker.ids[-1] + 1)
        for mine, theirs in zip(part, arrays, strict=False):
            mine[:] = theirs

    def _hung(self, asked: list[Worker]) -> list[tuple[Worker, Answer]]:
        found: list[tuple[Worker, Answer]] = []
        for worker in asked:
            limit = self.supervisor.deadline
            if worker.status.busy_seconds() > limit:
                how = f"hung for {limit:.0f} s (--step-deadline) and was killed"
                worker.asked = 0
                found.append((worker, worker.death(self.supervisor.seeds, how)))
                worker.end()
        return found

    # mending

    def heal(self, worker: Worker, death: Death) -> None:
        """Replace a worker that is gone; its envs begin new episodes."""
        cause: Death | Failure = death
        lost = sum(not self.supervisor.dropped[i] for i in worker.ids)
        while True:
            alive = self.supervisor.decide(cause, worker.ids, lost)
            self.restart(worker)
            places = [worker.ids.index(i) for i in alive]
            worker.ask("reset", places, [self.supervisor.seeds[i] for i in alive], None)
            answer = self._one_answer(worker)
            lost = 0
            if isinstance(answer, Death):
                cause = answer
                continue
            self.renew(worker, answer.failures)
            return

    def restart(self, worker: Worker) -> None:
        """A new process for a worker; its envs have not begun yet."""
        worker.end()
        worker.asked = 0
        self._start(worker)
        self._greeting(worker)
        self._attach(worker)

    def renew(self, worker: Worker, failures: list[Failure]) -> None:
        """Begin new episodes in envs that failed in a worker which is still there."""
        lost = 1
        while failures:
            alive = [i for each in failures for i in self.supervisor.decide(each, [each.env], lost)]
            if not alive:
                return
            worker.ask("reset", [worker.ids.index(i) for i in alive], [self.supervisor.seeds[i] for i in alive], None)
            answer = self._one_answer(worker)
            if isinstance(answer, Death):
                self.heal(worker, answer)
                return
            failures, lost = answer.failures, 0

    def _one_answer(self, worker: Worker) -> Report | Death:
        """Wait for this worker only."""
        while True:
            ready = connection.wait([worker.pipe], WATCH_SECONDS)
            found = [(worker, self._answer(worker))] if ready else self._hung([worker])
            for _, answer in found:
                assert not isinstance(answer, Progress)
                return answer

    def ask_snapshot(self) -> list[dict[str, np.ndarray]] | None:
        """The state of every worker's envs, if they can tell."""
        return self._converse([("snapshot",)] * len(self.workers))

    def restore(self, parts: list[dict[str, np.ndarray]]) -> None:
        """Put the envs into states they were in."""
        self._converse([("restore", part) for part in parts])

    def _converse(self, messages: list[tuple]) -> Any:
        answers = []
        for worker, message in zip(self.workers, messages, strict=True):
            worker.pipe.send(message)
        for worker in self.workers:
            if not worker.pipe.poll(self.supervisor.deadline):
                raise EnvTrouble(f"Worker {worker.number} did not answer.")
            answers.append(worker.pipe.recv())
        return None if any(answer is None for answer in answers) else answers

    def close(self) -> None:
        """End all workers: politely, so that envs can close, but not for long."""
        for worker in self.workers:
            if worker.pipe is not None:
                with contextlib.suppress(OSError):
                    worker.pipe.send(("close",))
        until = time.monotonic() + CLOSE_SECONDS
        for worker in self.workers:
            if worker.process is not None:
                worker.process.join(max(0.0, until - time.monotonic()))
            worker.end()
        if self._memory is not None:
            self._memory.close()
        self._status_memory.close()


def deal(num_envs: int, num_workers: int) -> list[list[int]]:
    """Consecutive envs for each worker, as evenly as can be."""
    edges = np.linspace(0, num_envs, num_workers + 1).round().astype(int)
    return [list(range(first, last)) for first, last in itertools.pairwise(edges)]


def require_files(num_workers: int) -> None:
    """Refuse to begin what would run out of file descriptors, after asking for as many as we may have."""
    in_use = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64
    needed = in_use + FILES_PER_WORKER * num_workers + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
        if most < needed:
            fits = max(1, (most - in_use - 64) // FILES_PER_WORKER)
            raise RedlineError(
                f"{num_workers} workers need about {needed} open files, and this process may have {most}. "
                f"Try --workers {fits}, or a higher limit (ulimit -n)."
            )


Answer = Report | Progress | Death


# Processes


class _Start:
    """What a worker needs to begin, with the descriptor of the status memory sent along."""

    def __init__(self, fd: int, size: int, *rest: Any) -> None:
        self.fd, self.size, self.rest = fd, size, rest

    def __reduce__(self) -> Any:
        return _Start._arrived, (reduction.DupFd(self.fd), self.size, *self.rest)

    @staticmethod
    def _arrived(fd: Any, size: int, *rest: Any) -> _Start:
        return _Start(fd.detach(), size, *rest)

    def __call__(self) -> None:
        _work(self.fd, self.size, *self.rest)


def start_process(target: Callable[[], None], name: str) -> Any:
    """A new process from the fork server that runs `target` and ends with this one."""
    context = fork_server()
    process = context.Process(target=target, name=name, daemon=True)
    with bare_main(), environment(ONE_THREAD), sigint_blocked():
        process.start()
    return process


def fork_server() -> Any:
    """The context whose processes are forked from a clean server of ours."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["redline.engines.crew"])
    return context


@contextlib.contextmanager
def bare_main() -> Iterator[None]:
    """Hides the user's script: a worker has no use for it, and importing it again would run what is not guarded."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(
    fd: int, size: int, number: int, pipe: Any, spec: Spec, ids: list[int], seed: int,
    infos: bool, batched: bool,
) -> None:  # fmt: skip
    """What a worker does all its life: make envs, then answer requests."""
    end_with_parent()
    cells = memoryview(SharedMemory(size, fd).map).cast("q")
    status = Status(cells[number * Status.FIELDS : (number + 1) * Status.FIELDS])
    try:
        slots = make_slots(spec, ids, status, infos, batched)
        spaces = slots.make(seed)
    except EnvFailed as failed:
        pipe.send(failed.failure)
        return
    except RedlineError as error:
        pipe.send(RedlineError(str(error)))
        return
    _send_spaces(pipe, spaces, ids)
    with contextlib.suppress(EOFError, OSError):
        _Answering(pipe, slots).run()
    slots.close()


def _send_spaces(pipe: Any, spaces: Spaces, ids: list[int]) -> None:
    try:
        pipe.send(spaces)
    except Exception as error:
        pipe.send(RedlineError(f"The spaces of env {ids[0]} cannot be sent to another process: {error}"))


class _Answering:
    """The requests a worker understands, each a method."""

    def __init__(self, pipe: Any, slots: Any) -> None:
        self.pipe, self.slots = pipe, slots
        self.send_arrays = False
        self.all = list(range(len(slots.ids)))

    def run(self) -> None:
        """Answer until told to close, or until nobody is there."""
        while True:
            what, *details = self.pipe.recv()
            if what == "close":
                return
            getattr(self, what)(*details)

    def use(self, transport: str, num_envs: int, first: int, last: int, spaces: Spaces) -> None:
        """Learn where the arrays are."""
        if transport == "shared":
            shapes = spaces.slab_shapes(num_envs)
            memory = SharedMemory(num_bytes(shapes), reduction.recv_handle(self.pipe))
            slab = Slab(**arrays_in(memory, shapes)).part(first, last)
            memory.close()
        else:
            slab, self.send_arrays = Slab.local(spaces, last - first), True
        self.slots.use(slab, spaces)

    def reset(self, places: list[int], seeds: list[int | None], options: dict | None) -> None:
        """Begin new episodes."""
        self._answer(self.slots.reset(places, seeds, options))

    def step(self, actions: np.ndarray | None) -> None:
        """Play one step in all envs."""
        if actions is not None:
            self.slots.slab.actions[:] = actions
        self._answer(self.slots.step(self.all))

    def play(self, places: list[int]) -> None:
        """Play one step in some of the envs, telling of each as it is done, or of several when they are quick."""
        said, done, reports = time.monotonic(), list[int](), list[Report]()
        for k in places:
            reports.append(self.slots.step([k]))
            done.append(k)
            if time.monotonic() - said > TELL_SECONDS or k == places[-1]:
                self.pipe.send(Progress(done, reports, True))
                said, done, reports = time.monotonic(), [], []

    def begin(self, places: list[int], seeds: list[int | None]) -> None:
        """Begin new episodes in some of the envs, telling of each as it is done."""
        for k, seed in zip(places, seeds, strict=True):
            self.pipe.send(Progress([k], [self.slots.reset([k], [seed])], False))

    def snapshot(self) -> None:
        """The state of the envs, if they can tell."""
        env: Any = getattr(self.slots, "env", None)
        self.pipe.send(env.snapshot() if hasattr(env, "snapshot") else None)

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Put the envs into a state they were in."""
        self.slots.slab.obs[:] = self.slots.env.restore(snapshot)
        self.pipe.send(True)

    def _answer(self, report: Report) -> None:
        slab = self.slots.slab
        arrays = tuple(slab)[:6] if self.send_arrays else None
        try:
            self.pipe.send((report, arrays))
        except Exception as error:  # something in an info cannot be pickled
            self.pipe.send((_without_infos(report, error), arrays))


def _without_infos(report: Report, error: Exception) -> Report:
    """The same report with the infos that can be pickled; the others are failures of their envs."""
    kept, failures = [], list(report.failures)
    for env, info, final in report.infos:
        try:
            reduction.ForkingPickler.dumps((info, final))
            kept.append((env, info, final))
        except Exception as reason:
            failures.append(Failure(env, "step", f"its info cannot be pickled: {reason}", None, 0))
    return report._replace(infos=kept, failures=failures)
