"""An engine's side of the pipes: workers that hold its envs, started, asked, watched, mended and ended here.

Each answers requests over a pipe; whether the arrays travel there too or lie in shared memory is a `transport`. What a
worker is doing stands on a board in shared memory, so that a death can be told with env, step and action.
"""

from __future__ import annotations

import contextlib
import functools
import select
import time
from collections.abc import Iterable, Sequence
from multiprocessing import connection, reduction
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from redline.engines.faults import EnvTrouble, Failure, Supervisor, WorkerCrash
from redline.engines.settings import split
from redline.engines.spec import Snapshot, Spaces, Spec
from redline.engines.workers.child import (
    STEP_IN_BUFFERS,
    Assignment,
    Close,
    Request,
    Reset,
    Restore,
    StepAll,
    StepProgress,
    TakeSnapshot,
    UseBuffers,
    unpack,
    work,
)
from redline.engines.workers.fork_server import require_files, start_process
from redline.engines.workers.shared_memory import SharedMemory
from redline.engines.workers.status import MAKE, WATCH_SECONDS, StatusBoard, WorkerStatus
from redline.engines.workers.step_buffers import StepBuffers
from redline.engines.workers.stepping import Info, StepReport
from redline.errors import RedlineError
from redline.processes import end_group, how_it_ended

CLOSE_SECONDS = 2.0


class WorkerProcess:
    """A process that holds some of the envs, and what we know of it."""

    def __init__(self, number: int, ids: list[int], status: WorkerStatus) -> None:
        self.number, self.ids, self.status = number, ids, status
        self.rows = slice(ids[0], ids[-1] + 1)  # of its envs in the buffers
        self.process: ForkServerProcess | None = None
        self._pipe: Connection | None = None
        self.asked = 0  # answers that are due
        self.asked_ns = 0  # when the last was asked for
        self.starting = False  # its spaces are due

    @property
    def pipe(self) -> Connection:
        """Our end of it."""
        assert self._pipe is not None
        return self._pipe

    def start(self, assignment: Assignment, pipe: Connection) -> None:
        """Begin a process that answers at the other end of `pipe`."""
        self.status.idle()
        self.asked, self.starting, self._pipe = 0, True, pipe
        self.process = start_process(functools.partial(work, assignment), f"redline worker {self.number}")
        self.asked_ns = time.monotonic_ns()

    def ask(self, request: Request, num_answers: int = 1) -> None:
        """Send a request. A dead worker is noticed when its answer is waited for."""
        self._expect(num_answers)
        with contextlib.suppress(OSError):
            self.pipe.send(request)

    def ask_step(self) -> None:
        """Have all envs step, with the actions in the buffers."""
        self._expect(1)
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(STEP_IN_BUFFERS)

    def _expect(self, num_answers: int) -> None:
        self.asked += num_answers
        self.asked_ns = time.monotonic_ns()

    def death(self, seeds: Sequence[int], how: str | None = None) -> WorkerCrash:
        """How this worker, which has stopped answering, came to its end."""
        process = self.process
        assert process is not None
        if how is None:
            process.join(1.0)
            how = how_it_ended(process.exitcode)
        env, during, step, action = self.status.doing
        env = env if env in self.ids else None
        return WorkerCrash(
            self.number, process.pid, how, env, during, None if env is None else seeds[env], step, action
        )

    def end(self) -> None:
        """Kill it."""
        process, self.process = self.process, None
        pipe, self._pipe = self._pipe, None
        if process is not None:
            end_group(process.pid)
            process.kill()
            process.join(CLOSE_SECONDS)
            if process.exitcode is not None:
                process.close()
        if pipe is not None:
            pipe.close()

    def ask_to_close(self) -> None:
        """Have it close its envs and end."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.send(Close())


WorkerAnswer = StepReport | StepProgress | WorkerCrash


class EnvWorkers:
    """Workers that hold the envs of one engine, several each."""

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        num_workers: int,
        faults: Supervisor,
        transport: str = "shared",
        infos: bool = False,
        batched: bool = True,
    ) -> None:
        self.spec, self.faults, self.num_envs = spec, faults, num_envs
        self._shared, self._infos, self._batched = transport == "shared", infos, batched
        require_files(num_workers)
        self._board = StatusBoard(num_workers)
        shares = split(range(num_envs), num_workers)
        self.workers = [
            WorkerProcess(w, list(ids), status)
            for w, (ids, status) in enumerate(zip(shares, self._board.status, strict=True))
        ]
        self._memory: SharedMemory | None = None
        self._watched = time.monotonic()
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    # starting

    def _start_all(self) -> None:
        for worker in self.workers:
            self._start(worker)
        told = [self._first_spaces(worker) for worker in self.workers]
        self.spaces: Spaces = next(spaces for spaces in told if spaces is not None)
        self.buffers: StepBuffers
        if self._shared:
            self.buffers, self._memory = StepBuffers.shared(self.spaces, self.num_envs)
        else:
            self.buffers = StepBuffers.local(self.spaces, self.num_envs)
        for worker in self.working:
            self._hand_buffers(worker)

    @property
    def working(self) -> list[WorkerProcess]:
        """The workers that have a process; one whose envs were all dropped has none."""
        return [worker for worker in self.workers if worker.process is not None]

    def alive(self, worker: WorkerProcess) -> list[int]:
        """The envs of a worker that were not dropped."""
        return [i for i in worker.ids if not self.faults.dropped[i]]

    def _start(self, worker: WorkerProcess) -> None:
        here, there = connection.Pipe()
        first = self.alive(worker)[0]
        assignment = Assignment(
            worker.number, there, self._board.memory, self.spec, worker.ids, first, self.faults.seeds[first],
            self._infos, self._batched,
        )  # fmt: skip
        try:
            worker.start(assignment, here)
        finally:
            there.close()

    def _first_spaces(self, worker: WorkerProcess) -> Spaces | None:
        """Wait for a new worker's spaces, replacing it if it fails and an env is left for it."""
        while True:
            answer = self._first_answer(worker)
            if isinstance(answer, Spaces):
                worker.starting = False
                return answer
            worker.end()
            if isinstance(answer, RedlineError):
                raise answer
            # nothing has been played yet, so nothing is lost
            self.faults.decide(answer, worker.ids if answer.env is None else [answer.env], 0)
            if not self.alive(worker):
                return None
            self._start(worker)

    def _first_answer(self, worker: WorkerProcess) -> Spaces | Failure | RedlineError | WorkerCrash:
        while True:
            if worker.pipe.poll(WATCH_SECONDS):
                try:
                    return worker.pipe.recv()
                except (EOFError, OSError):
                    return worker.death(self.faults.seeds)
            for _, death in self._end_hung([worker]):
                return death

    def _hand_buffers(self, worker: WorkerProcess) -> None:
        """Tell a worker where its arrays are."""
        rows, process = worker.rows, worker.process
        assert process is not None
        with contextlib.suppress(OSError):  # a death is noticed at the next answer
            worker.pipe.send(UseBuffers(self.spaces, self.num_envs, rows.start, rows.stop, self._shared))
            if self._memory is not None:
                reduction.send_handle(worker.pipe, self._memory.fd, process.pid)

    # asking

    def reset(
        self, seeds: Sequence[int | None] | None, options: Info | None = None
    ) -> list[tuple[WorkerProcess, StepReport]]:
        """Begin new episodes everywhere."""
        for worker in self.working:
            alive = self.alive(worker)
            chosen = [None if seeds is None else seeds[i] for i in alive]
            worker.ask(Reset([worker.ids.index(i) for i in alive], chosen, options))
        return self._gather(playing=False)[0]

    def step(self) -> tuple[list[tuple[WorkerProcess, StepReport]], list[int]]:
        """Play one step in all envs, with the actions in the buffers. Returns the reports and the envs that were lost."""
        for worker in self.working:
            if self._shared:
                worker.ask_step()
            else:
                worker.ask(StepAll(self.buffers.actions[worker.rows]))
        return self._gather(playing=True)

    def _gather(self, playing: bool) -> tuple[list[tuple[WorkerProcess, StepReport]], list[int]]:
        """Wait for every worker that was asked. Envs that failed begin new episodes before this returns.

        Episodes that were under way (`playing`) are lost if their worker dies or their env fails in a step. One that
        had just ended is whole, even if its env then cannot begin the next.
        """
        reports: list[tuple[WorkerProcess, StepReport]] = []
        lost: list[int] = []
        while any(worker.asked for worker in self.workers):
            for worker, answer in self.wait():
                if isinstance(answer, WorkerCrash):
                    alive = self.alive(worker)
                    lost += alive
                    self._replace(worker, answer, len(alive) if playing else 0)
                    continue
                assert isinstance(answer, StepReport)
                reports.append((worker, answer))
                lost += [failure.env for failure in answer.failures if failure.lost]
                lost += self._begin_anew(worker, answer.failures)
        return reports, lost

    def wait(self) -> list[tuple[WorkerProcess, WorkerAnswer]]:
        """Answers of some of the workers that were asked: at least one."""
        found: list[tuple[WorkerProcess, WorkerAnswer]] = []
        while not found:
            asked = {worker.pipe.fileno(): worker for worker in self.workers if worker.asked}
            found = [(asked[fd], self._answer(asked[fd])) for fd in _readable(asked)]
            if time.monotonic() > self._watched + WATCH_SECONDS:  # however lively the others are
                found += self._end_hung([worker for worker in asked.values() if worker.asked])
                self._watched = time.monotonic()
        return found

    def _answer(self, worker: WorkerProcess) -> WorkerAnswer:
        try:
            answer: Any = worker.pipe.recv()
        except (EOFError, OSError):
            worker.asked = 0
            return worker.death(self.faults.seeds)
        if isinstance(answer, StepProgress):
            worker.asked -= len(answer.places)
            self.faults.saw(max(report.times.slowest for report in answer.reports) * 1e-9)
            return answer
        worker.asked = 0
        report, arrays = unpack(answer, self.faults.seeds), answer[1]
        if arrays is not None:
            for mine, theirs in zip(self.buffers.rows(worker.rows).results, arrays, strict=True):
                mine[:] = theirs
        self.faults.saw(report.times.slowest * 1e-9)
        return report

    def _end_hung(self, asked: list[WorkerProcess]) -> list[tuple[WorkerProcess, WorkerCrash]]:
        """Kill those that have been silent for too long."""
        found: list[tuple[WorkerProcess, WorkerCrash]] = []
        for worker in asked:
            phase = worker.status.phase
            patient = phase == MAKE or (worker.starting and not phase)
            limit = self.faults.start_deadline if patient else self.faults.deadline
            if worker.status.silent_seconds(worker.asked_ns) > limit:
                option = "" if patient else " (--step-deadline)"
                worker.asked = 0
                how = f"hung for {limit:g} s{option} and was killed"
                found.append((worker, worker.death(self.faults.seeds, how)))
                worker.end()
        return found

    # mending

    def _replace(self, worker: WorkerProcess, death: WorkerCrash, lost: int) -> None:
        """Replace a worker that is gone, and with it `lost` episodes; its envs begin new ones."""
        self.faults.decide(death, worker.ids, lost)
        self.restart(worker)
        self._begin(worker, self.alive(worker))

    def restart(self, worker: WorkerProcess) -> None:
        """A new process for a worker, if an env is left for it; its envs have not begun yet."""
        worker.end()
        worker.asked = 0
        self.buffers.obs[worker.ids] = 0  # whatever it was writing
        if self.alive(worker):
            self._start(worker)
            if self._first_spaces(worker) is not None:
                self._hand_buffers(worker)

    def _begin_anew(self, worker: WorkerProcess, failures: list[Failure]) -> list[int]:
        """Begin new episodes in envs that failed in a worker which is still there.

        If it dies over that, its other envs lose theirs: those are returned.
        """
        return self._begin(worker, [i for each in failures for i in self.faults.decide(each, [each.env], each.lost)])

    def _begin(self, worker: WorkerProcess, envs: list[int]) -> list[int]:
        if not envs:
            return []
        worker.ask(Reset([worker.ids.index(i) for i in envs], [self.faults.seeds[i] for i in envs]))
        answer = self._answer_of(worker)
        if isinstance(answer, WorkerCrash):
            others = [i for i in self.alive(worker) if i not in envs]
            self._replace(worker, answer, len(others))
            return others
        return self._begin_anew(worker, answer.failures)

    def _answer_of(self, worker: WorkerProcess) -> StepReport | WorkerCrash:
        """Wait for this worker only."""
        while True:
            ready = _readable([worker.pipe.fileno()])
            found = [(worker, self._answer(worker))] if ready else self._end_hung([worker])
            for _, answer in found:
                assert not isinstance(answer, StepProgress)
                return answer

    # saving

    def snapshots(self) -> list[Snapshot] | None:
        """The state of every worker's envs, if they can tell."""
        return self._ask_all([TakeSnapshot()] * len(self.workers))

    def restore(self, snapshots: list[Snapshot]) -> None:
        """Put the envs into states they were in."""
        answers: list[Any] | None = self._ask_all([Restore(snapshot) for snapshot in snapshots])
        if answers is None:
            raise EnvTrouble("A worker was gone before its envs could go on from the checkpoint.")
        for answer in answers:
            if isinstance(answer, RedlineError):
                raise answer
        for worker, obs in zip(self.workers, answers, strict=True):
            self.buffers.obs[worker.ids] = obs

    def _ask_all(self, requests: Sequence[Request]) -> list[Any] | None:
        """An answer of every worker; None if one has none to give, is gone, or was stopped in the middle of a step."""
        if len(self.working) < len(self.workers) or any(worker.asked for worker in self.workers):
            return None
        for worker, request in zip(self.workers, requests, strict=True):
            with contextlib.suppress(OSError):
                worker.pipe.send(request)
        answers = [self._plain_answer(worker) for worker in self.workers]
        return None if any(answer is None for answer in answers) else answers

    def _plain_answer(self, worker: WorkerProcess) -> Any:
        if not worker.pipe.poll(self.faults.deadline) and worker.process is not None:
            worker.process.kill()  # it hangs, and an answer that came late would be taken for another's
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            return None  # its death is told at the next step

    def close(self) -> None:
        """End all workers: politely, so that envs can close, but not for long."""
        for worker in self.workers:
            worker.ask_to_close()
        until = time.monotonic() + CLOSE_SECONDS
        for worker in self.workers:
            if worker.process is not None:
                worker.process.join(max(0.0, until - time.monotonic()))
            worker.end()
        if self._memory is not None:
            self._memory.close()
        self._board.close()


def _readable(descriptors: Iterable[int]) -> list[int]:
    """Those that have something to read, or nobody at the other end, after waiting a while for the first."""
    poll = select.poll()  # made anew each time it is still far quicker than multiprocessing's own `wait`
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(WATCH_SECONDS * 1000)]
