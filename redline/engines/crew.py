"""Worker processes that hold envs: started, watched, mended and ended here. None outlives this process.

Workers come from a fork server that has loaded numpy and Gymnasium but never torch: the first costs a second, the next
a few milliseconds. Each answers requests over a pipe; whether the arrays travel there too or lie in shared memory is a
`transport`. What a worker is doing stands in shared memory, so that a death can be told with env, step and action.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import resource
import select
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import connection, forkserver, reduction
from typing import Any, NamedTuple

import numpy as np

from redline.engines.faults import Death, EnvFailed, EnvTrouble, Failure, Supervisor
from redline.engines.memory import SharedMemory, arrays_in, num_bytes
from redline.engines.settings import split
from redline.engines.slots import MAKE, Report, Slab, Spaces, Spec, Status, Times, make_slots
from redline.errors import RedlineError
from redline.processes import end_with_parent, environment, how_it_ended, sigint_blocked, step_back
from redline.threads import ONE_THREAD

START_SECONDS = 300.0
"""Time for a new worker to import the env, and for an env to be made."""
CLOSE_SECONDS = 2.0
SERVER_TRIES = 20
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
        self.asked_ns = 0  # when the last was asked for
        self.starting = False  # its spaces are due

    def ask(self, *message: Any) -> None:
        """Send a request. A dead worker is noticed when its answer is waited for."""
        self.ask_for([0], *message)

    def ask_for(self, places: Sequence[int], *message: Any) -> None:
        """Send a request that is answered for each place."""
        self.asked += len(places)
        self.asked_ns = time.monotonic_ns()
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
        self._watched = time.monotonic()
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
        greetings = [self._greeting(worker) for worker in self.workers]
        self.spaces: Spaces = next(spaces for spaces in greetings if spaces is not None)
        shapes = self.spaces.slab_shapes(self.num_envs)
        if self.transport == "shared":
            self._memory = SharedMemory(num_bytes(shapes))
            self.slab = Slab(**arrays_in(self._memory, shapes))
        else:
            self.slab = Slab.local(self.spaces, self.num_envs)
        for worker in self.working:
            self._attach(worker)

    @property
    def working(self) -> list[Worker]:
        """The workers that have a process; one whose envs were all dropped has none."""
        return [worker for worker in self.workers if worker.process is not None]

    def alive(self, worker: Worker) -> list[int]:
        """The envs of a worker that were not dropped."""
        return [i for i in worker.ids if not self.supervisor.dropped[i]]

    def _start(self, worker: Worker) -> None:
        here, there = connection.Pipe()
        worker.status.idle()
        worker.asked, worker.starting = 0, True
        first = self.alive(worker)[0]
        begin = _Start(
            self._status_memory.fd, self._status_memory.num_bytes,
            worker.number, there, self.spec, worker.ids, first, self.supervisor.seeds[first],
            self._infos, self._batched,
        )  # fmt: skip
        worker.pipe = here
        try:
            worker.process = start_process(begin, f"redline worker {worker.number}")
        finally:
            there.close()
        worker.asked_ns = time.monotonic_ns()

    def _greeting(self, worker: Worker) -> Spaces | None:
        """Wait for a new worker's spaces, replacing it if it fails and an env is left for it."""
        while True:
            answer = self._first_word(worker)
            if isinstance(answer, Spaces):
                worker.starting = False
                return answer
            worker.end()
            if isinstance(answer, RedlineError):
                raise answer
            # nothing has been played yet, so nothing is lost
            self.supervisor.decide(answer, worker.ids if answer.env is None else [answer.env], 0)
            if not self.alive(worker):
                return None
            self._start(worker)

    def _first_word(self, worker: Worker) -> Any:
        while True:
            if worker.pipe.poll(WATCH_SECONDS):
                try:
                    return worker.pipe.recv()
                except (EOFError, OSError):
                    return worker.death(self.supervisor.seeds)
            for _, death in self._hung([worker]):
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
        for worker in self.working:
            alive = self.alive(worker)
            chosen = [None if seeds is None else seeds[i] for i in alive]
            worker.ask("reset", [worker.ids.index(i) for i in alive], chosen, options)
        return self.gather(playing=False)[0]

    def step(self) -> tuple[list[tuple[Worker, Report]], list[int]]:
        """Play one step in all envs with the actions of the slab. Returns the reports and the envs that were lost."""
        slab = self.slab
        for worker in self.working:
            if self.transport == "shared":
                worker.ask("step", None)
            else:
                worker.ask("step", slab.actions[worker.ids[0] : worker.ids[-1] + 1])
        return self.gather(playing=True)

    def gather(self, playing: bool) -> tuple[list[tuple[Worker, Report]], list[int]]:
        """Wait for every worker that was asked. Envs that failed begin new episodes before this returns.

        Episodes that were under way (`playing`) are lost if their worker dies or their env fails in a step. One that
        had just ended is whole, even if its env then cannot begin the next.
        """
        reports: list[tuple[Worker, Report]] = []
        lost: list[int] = []
        while any(worker.asked for worker in self.workers):
            for worker, answer in self.wait():
                if isinstance(answer, Death):
                    alive = self.alive(worker)
                    lost += alive
                    self.heal(worker, answer, len(alive) if playing else 0)
                    continue
                assert isinstance(answer, Report)
                reports.append((worker, answer))
                lost += [failure.env for failure in answer.failures if failure.lost]
                lost += self.renew(worker, answer.failures)
        return reports, lost

    def wait(self) -> list[tuple[Worker, Answer]]:
        """Answers of some of the workers that were asked: at least one."""
        found: list[tuple[Worker, Answer]] = []
        while not found:
            asked = {worker.pipe.fileno(): worker for worker in self.workers if worker.asked}
            found = [(asked[fd], self._answer(asked[fd])) for fd in _readable(asked)]
            if time.monotonic() > self._watched + WATCH_SECONDS:  # however lively the others are
                found += self._hung([worker for worker in asked.values() if worker.asked])
                self._watched = time.monotonic()
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
        report = report if isinstance(report, Report) else Report(Times(*report), [], {}, [])
        if arrays is not None:
            self._take(worker, arrays)
        self.supervisor.saw(report.times.slowest * 1e-9)
        return _unpacked(report, self.supervisor.seeds) if report.infos else report

    def _take(self, worker: Worker, arrays: Any) -> None:
        part = self.slab.part(worker.ids[0], worker.ids[-1] + 1)
        for mine, theirs in zip(part, arrays, strict=False):
            mine[:] = theirs

    def _hung(self, asked: list[Worker]) -> list[tuple[Worker, Answer]]:
        found: list[tuple[Worker, Answer]] = []
        for worker in asked:
            phase = worker.status.phase
            patient = phase == MAKE or (worker.starting and not phase)
            limit = START_SECONDS if patient else self.supervisor.deadline
            if worker.status.silent_seconds(worker.asked_ns) > limit:
                option = "" if patient else " (--step-deadline)"
                worker.asked = 0
                how = f"hung for {limit:g} s{option} and was killed"
                found.append((worker, worker.death(self.supervisor.seeds, how)))
                worker.end()
        return found

    # mending

    def heal(self, worker: Worker, death: Death, lost: int) -> None:
        """Replace a worker that is gone, and with it `lost` episodes; its envs begin new ones."""
        self.supervisor.decide(death, worker.ids, lost)
        self.restart(worker)
        self._begin(worker, self.alive(worker))

    def restart(self, worker: Worker) -> None:
        """A new process for a worker, if an env is left for it; its envs have not begun yet."""
        worker.end()
        worker.asked = 0
        self.slab.obs[worker.ids] = 0  # whatever it was writing
        if self.alive(worker):
            self._start(worker)
            if self._greeting(worker) is not None:
                self._attach(worker)

    def renew(self, worker: Worker, failures: list[Failure]) -> list[int]:
        """Begin new episodes in envs that failed in a worker which is still there.

        If it dies over that, its other envs lose theirs: those are returned.
        """
        return self._begin(
            worker, [i for each in failures for i in self.supervisor.decide(each, [each.env], each.lost)]
        )

    def _begin(self, worker: Worker, envs: list[int]) -> list[int]:
        if not envs:
            return []
        worker.ask("reset", [worker.ids.index(i) for i in envs], [self.supervisor.seeds[i] for i in envs], None)
        answer = self._one_answer(worker)
        if isinstance(answer, Death):
            others = [i for i in self.alive(worker) if i not in envs]
            self.heal(worker, answer, len(others))
            return others
        return self.renew(worker, answer.failures)

    def _one_answer(self, worker: Worker) -> Report | Death:
        """Wait for this worker only."""
        while True:
            ready = _readable([worker.pipe.fileno()])
            found = [(worker, self._answer(worker))] if ready else self._hung([worker])
            for _, answer in found:
                assert not isinstance(answer, Progress)
                return answer

    def ask_snapshot(self) -> list[dict[str, np.ndarray]] | None:
        """The state of every worker's envs, if they can tell."""
        return self._converse([("snapshot",)] * len(self.workers))

    def restore(self, parts: list[dict[str, np.ndarray]]) -> None:
        """Put the envs into states they were in."""
        answers = self._converse([("restore", part) for part in parts])
        if answers is None:
            raise EnvTrouble("A worker was gone before its envs could go on from the checkpoint.")
        for worker, obs in zip(self.workers, answers, strict=True):
            self.slab.obs[worker.ids] = obs

    def _converse(self, messages: list[tuple]) -> list[Any] | None:
        """An answer of every worker; None if one has none to give, is gone, or was stopped in the middle of a step."""
        if len(self.working) < len(self.workers) or any(worker.asked for worker in self.workers):
            return None
        for worker, message in zip(self.workers, messages, strict=True):
            with contextlib.suppress(OSError):
                worker.pipe.send(message)
        answers = [self._said(worker) for worker in self.workers]
        return None if any(answer is None for answer in answers) else answers

    def _said(self, worker: Worker) -> Any:
        if not worker.pipe.poll(self.supervisor.deadline):
            raise EnvTrouble(f"Worker {worker.number} did not answer.")
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            return None  # its death is told at the next step

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


def _readable(descriptors: Iterable[int]) -> list[int]:
    """Those that have something to read, or nobody at the other end, after waiting a while for the first."""
    poll = select.poll()  # made anew each time it is still far quicker than multiprocessing's own `wait`
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(WATCH_SECONDS * 1000)]


def deal(num_envs: int, num_workers: int) -> list[list[int]]:
    """Consecutive envs for each worker, as evenly as can be."""
    return [list(ids) for ids in split(range(num_envs), num_workers)]


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

    def start() -> Any:
        process = fork_server().Process(target=target, name=name, daemon=True)
        process.start()
        return process

    return from_fork_server(start)


def from_fork_server(start: Callable[[], Any]) -> Any:
    """What `start` returns, called where new processes are one of ours from birth."""
    with bare_main(), environment(ONE_THREAD), sigint_blocked():
        for _ in range(SERVER_TRIES):
            with contextlib.suppress(ConnectionError, EOFError):
                return start()
            time.sleep(0.1)  # the server has just been killed; once it is gone, another is started
    raise EnvTrouble("No worker can be started: the server they are forked from ends again and again. Try fewer.")


def fork_server() -> Any:
    """The context whose processes are forked from a clean server of ours."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["redline.engines.crew"])
    return context


def end_with_main() -> None:
    """In a process from the fork server: do not outlive the one that wanted it, not even while hanging in an env.

    The server ends when the last descriptor of a certain pipe is closed, and its processes are killed by the kernel when
    it ends. They have inherited that descriptor: one that hangs would keep the server alive, and so itself.
    """
    end_with_parent()
    step_back()
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


@contextlib.contextmanager
def bare_main() -> Iterator[None]:
    """Hides the user's script: a worker has no use for it, and importing it again would run what is not guarded."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(
    fd: int, size: int, number: int, pipe: Any, spec: Spec, ids: list[int], first: int, seed: int,
    infos: bool, batched: bool,
) -> None:  # fmt: skip
    """What a worker does all its life: make envs, env `first` first, then answer requests."""
    end_with_main()
    cells = memoryview(SharedMemory(size, fd).map).cast("q")
    status = Status(cells[number * Status.FIELDS : (number + 1) * Status.FIELDS])
    try:
        slots = make_slots(spec, ids, status, infos, batched)
        spaces = slots.make(seed, ids.index(first))
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
        self._answer("reset", self.slots.reset(places, seeds, options))

    def step(self, actions: np.ndarray | None) -> None:
        """Play one step in all envs."""
        if actions is not None:
            self.slots.slab.actions[:] = actions
        self._answer("step", self.slots.step(self.all))

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
        self.pipe.send(self.slots.slab.obs.copy())

    def _answer(self, during: str, report: Report) -> None:
        arrays = tuple(self.slots.slab)[:6] if self.send_arrays else None
        if not report.failures and not report.extras and not report.infos:  # nothing but times, as nearly always
            self.pipe.send((tuple(report.times), arrays))
        else:
            self.pipe.send((self._packed(during, report) if report.infos else report, arrays))

    def _packed(self, during: str, report: Report) -> Report:
        """The report with every info pickled by itself; an env whose info cannot be pickled has failed."""
        packed: list[Any] = []
        failures = list(report.failures)
        for env, *infos in report.infos:
            try:
                packed.append((env, pickle.dumps(infos, pickle.HIGHEST_PROTOCOL)))
            except Exception as error:
                failures.append(self.slots.bad_info(env, during, error))
        return report._replace(infos=packed, failures=failures)


def _unpacked(report: Report, seeds: Sequence[int]) -> Report:
    """The report with its infos as they were."""
    infos, failures = [], list(report.failures)
    for env, packed in report.infos:  # type: ignore[misc]
        try:
            infos.append((env, *pickle.loads(packed)))
        except Exception as error:
            what = f"it was pickled but cannot be read: {type(error).__name__}: {error}"
            failures.append(Failure(env, "its info", what, seeds[env], 0))
    return report._replace(infos=infos, failures=failures)
