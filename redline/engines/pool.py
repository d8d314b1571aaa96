"""Processes of `concurrent.futures` that collect whole episodes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import reduction
from typing import Any

from redline.engines import crew
from redline.engines.crew import end_with_main, fork_server, from_fork_server, require_files
from redline.engines.episodes import Host, Task
from redline.engines.faults import Death, Supervisor
from redline.engines.memory import SharedMemory
from redline.engines.slots import RESET, STEP, Spec, Status
from redline.errors import RedlineError
from redline.processes import how_it_ended


class Processes:
    """Every worker is a pool of one process: the death of one breaks its own pool only, and its envs stay where they are."""

    def __init__(self, spec: Spec, num_workers: int, supervisor: Supervisor) -> None:
        require_files(num_workers)
        _require_semaphores()
        self.num_workers, self._spec, self._supervisor = num_workers, spec, supervisor
        self._memory = SharedMemory(num_workers * Status.FIELDS * 8)
        cells = memoryview(self._memory.map).cast("q")
        self._status = [Status(cells[w * Status.FIELDS : (w + 1) * Status.FIELDS]) for w in range(num_workers)]
        self._pools: list[ProcessPoolExecutor | None] = [None] * num_workers
        self._processes: list[Any] = [None] * num_workers
        self._worker_of: dict[Future[Any], int] = {}
        self._asked_ns = [0] * num_workers
        self._hung: dict[int, str] = {}
        _at_work.add(self)

    def start(self, worker: int) -> None:
        """A new process for a worker."""
        self._end(worker)
        self._status[worker].idle()
        self._status[worker].at_stake = 0
        self._hung.pop(worker, None)
        self._worker_of = {future: other for future, other in self._worker_of.items() if other != worker}
        begin = _Begin(self._memory.fd, self._memory.num_bytes, worker, self._spec)

        def open_pool() -> ProcessPoolExecutor:
            pool = ProcessPoolExecutor(1, mp_context=fork_server(), initializer=begin)
            pool.submit(os.getpid)  # an executor starts its process with its first task
            return pool

        pool = self._pools[worker] = from_fork_server(open_pool)
        (self._processes[worker],) = pool._processes.values()  # the only way to learn pid and exit code

    def submit(self, worker: int, call: str, task: Task) -> Future[Any]:
        """Queue a task."""
        pool = self._pools[worker]
        assert pool is not None
        try:
            future = pool.submit(_carry_out, call, task)
        except BrokenProcessPool as broken:  # it died with nothing to do; told when this one is waited for
            future = Future()
            future.set_exception(broken)
        self._worker_of[future] = worker
        self._asked_ns[worker] = time.monotonic_ns()
        return future

    def wait(self, handles: list[Future[Any]], timeout: float) -> list[Future[Any]]:
        """Those that are done."""
        return list(wait(handles, timeout, FIRST_COMPLETED).done)

    def outcome(self, handle: Future[Any]) -> Any:
        """What a task returned, or how its worker died."""
        worker = self._worker_of.pop(handle)
        try:
            answer = handle.result()
        except BrokenProcessPool:
            return self._death(worker)
        self._status[worker].at_stake = 0
        return answer

    def _death(self, worker: int) -> Death:
        process, pool = self._processes[worker], self._pools[worker]
        assert pool is not None
        pool.shutdown()  # its thread reads the exit code; whoever reads beside it finds an empty pipe and says 255
        how = self._hung.get(worker) or how_it_ended(process.exitcode)
        env, during, step, action = self._status[worker].doing
        seed = None if env is None else self._supervisor.seeds[env]
        return Death(worker, process.pid, how, env, during, seed, step, action, self._status[worker].at_stake)

    def hung(self, worker: int, deadline: float) -> bool:
        """Kill a worker that has been at one step for too long."""
        status = self._status[worker]
        at_env = status.phase in (RESET, STEP)  # else it makes an env, or thinks
        limit = deadline if at_env else max(deadline, crew.START_SECONDS)
        if status.silent_seconds(self._asked_ns[worker]) <= limit or worker in self._hung:
            return False
        self._hung[worker] = f"hung for {limit:g} s{' (--step-deadline)' if at_env else ''} and was killed"
        self._processes[worker].kill()
        return True

    def _end(self, worker: int) -> None:
        pool, self._pools[worker] = self._pools[worker], None
        if pool is not None:
            with contextlib.suppress(ValueError, AttributeError):
                self._processes[worker].kill()
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            with contextlib.suppress(ValueError, AttributeError):
                process.kill()
        for worker in range(self.num_workers):
            self._end(worker)
        self._memory.close()


_at_work: weakref.WeakSet[Processes] = weakref.WeakSet()


def _end_all() -> None:
    """At the end of this process, before executors wait for tasks that may never be done."""
    for processes in list(_at_work):
        processes.close()


threading._register_atexit(_end_all)  # type: ignore[attr-defined]  # atexit itself comes after that wait


def _require_semaphores() -> None:
    """A pool's queues need named semaphores, which live in /dev/shm."""
    try:
        fork_server().Lock()
    except OSError as error:
        raise RedlineError(
            f"--engine pool needs semaphores in /dev/shm, which cannot be made: {error.strerror}. Try --engine shared."
        ) from error


_host: Host | None = None


class _Begin:
    """In a new process: what it needs to know before its first task."""

    def __init__(self, fd: int, size: int, worker: int, spec: Spec) -> None:
        self._fd, self._rest = fd, (size, worker, spec)

    def __reduce__(self) -> Any:
        return _Begin._arrived, (reduction.DupFd(self._fd), *self._rest)

    @staticmethod
    def _arrived(fd: Any, *rest: Any) -> _Begin:
        return _Begin(fd.detach(), *rest)

    def __call__(self) -> None:
        global _host
        end_with_main()
        size, worker, spec = self._rest
        cells = memoryview(SharedMemory(size, self._fd).map).cast("q")
        _host = Host(spec, Status(cells[worker * Status.FIELDS : (worker + 1) * Status.FIELDS]))


def _carry_out(call: str, task: Task) -> Any:
    return getattr(_host, call)(task)
