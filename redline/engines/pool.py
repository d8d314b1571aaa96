"""Processes of `concurrent.futures` that collect whole episodes."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import reduction
from typing import Any

from redline.engines.crew import bare_main, fork_server, require_files
from redline.engines.episodes import Host, Task
from redline.engines.faults import Death, Supervisor
from redline.engines.memory import SharedMemory
from redline.engines.slots import Spec, Status
from redline.errors import RedlineError
from redline.processes import end_with_parent, environment, how_it_ended, sigint_blocked
from redline.threads import ONE_THREAD


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
        self._hung: dict[int, str] = {}

    def start(self, worker: int) -> None:
        """A new process for a worker."""
        self._end(worker)
        self._status[worker].idle()
        self._hung.pop(worker, None)
        begin = _Begin(self._memory.fd, self._memory.num_bytes, worker, self._spec)
        pool = ProcessPoolExecutor(1, mp_context=fork_server(), initializer=begin)
        with bare_main(), environment(ONE_THREAD), sigint_blocked():
            pool.submit(os.getpid)  # an executor starts its process with its first task
        (self._processes[worker],) = pool._processes.values()  # the only way to learn pid and exit code
        self._pools[worker] = pool

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
        return future

    def wait(self, handles: list[Future[Any]], timeout: float) -> list[Future[Any]]:
        """Those that are done."""
        return list(wait(handles, timeout, FIRST_COMPLETED).done)

    def outcome(self, handle: Future[Any]) -> Any:
        """What a task returned, or how its worker died."""
        worker = self._worker_of.pop(handle)
        try:
            return handle.result()
        except BrokenProcessPool:
            return self._death(worker)

    def _death(self, worker: int) -> Death:
        process = self._processes[worker]
        process.join(1.0)
        how = self._hung.get(worker) or how_it_ended(process.exitcode)
        env, during, step, action = self._status[worker].doing
        seed = None if env is None else self._supervisor.seeds[env]
        return Death(worker, process.pid, how, env, during, seed, step, action)

    def hung(self, worker: int, deadline: float) -> bool:
        """Kill a worker that has been at one step for too long."""
        if self._status[worker].busy_seconds() <= deadline or worker in self._hung:
            return False
        self._hung[worker] = f"hung for {deadline:.0f} s (--step-deadline) and was killed"
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
        end_with_parent()
        size, worker, spec = self._rest
        cells = memoryview(SharedMemory(size, self._fd).map).cast("q")
        _host = Host(spec, Status(cells[worker * Status.FIELDS : (worker + 1) * Status.FIELDS]))


def _carry_out(call: str, task: Task) -> Any:
    return getattr(_host, call)(task)
