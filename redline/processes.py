"""Processes of our own: deaf to Ctrl-C, one thread each, and never outliving the process that wanted them.

A `ProcessPool` runs calls in them, and tells how one of them died and what it was at.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Generic, NamedTuple, TypeVar

CLOSE_SECONDS = 5.0
"""Time for an env to close."""
PR_SET_PDEATHSIG = 1  # from linux/prctl.h

_environment_lock = threading.Lock()

R = TypeVar("R")


def how_it_ended(exit_code: int | None) -> str:
    """An exit code in words that follow "the worker"."""
    if exit_code is None:
        return "vanished"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables for as long as it takes to start a process."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Holds Ctrl-C back. A child started meanwhile is deaf to it from birth, and prints no traceback of its imports."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class TimeUp(BaseException):
    """Raised inside a `time_limit` whose time is over."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TimeUp` inside the block when it has lasted that long, even while it sleeps or waits for somebody.

    Signals reach the main thread only, and only if nobody else is using the alarm: elsewhere there is no limit.
    """
    free = threading.current_thread() is threading.main_thread() and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    if not free:
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGALRM) is ring:  # or else somebody needs the alarm more, for we are to end
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def end_with_parent(told_by_kernel: bool = True) -> None:
    """In a new process: leave Ctrl-C and the end of the terminal to the parent, and do not outlive it.

    `told_by_kernel` asks for a SIGKILL when whoever forked us ends, which reaches us even while we hold the interpreter.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if sys.platform == "linux" and told_by_kernel:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if _parent_is_gone(0):  # before we asked to be told
        os._exit(1)


def lead_own_group() -> None:
    """In a new process: lead a process group, so that `end_group` also ends the processes that envs have started."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def end_group(leader: int | None) -> None:
    """Kill all processes of the group that process `leader` leads, also after its own end."""
    if leader is None:
        return
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def ends_in_time(work: Callable[[], object], seconds: float = CLOSE_SECONDS) -> bool:
    """Do something that may never come to an end. Returns whether it did; what goes wrong in it matters to nobody."""
    done = threading.Event()

    def run() -> None:
        with contextlib.suppress(BaseException):
            work()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done.wait(seconds)


def step_back() -> None:
    """Do not push the process that wakes us off its core: it has others to wake first.

    Without this, the first of two workers to be asked delays the asking of the second by milliseconds.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _exit_with_parent() -> None:
    _parent_is_gone(None)
    os._exit(1)


def _parent_is_gone(timeout: float | None) -> bool:
    parent = multiprocessing.parent_process()
    assert parent is not None
    return bool(connection.wait([parent.sentinel], timeout))


class ProcessDeath(NamedTuple):
    """A process of a pool that is gone, and how."""

    pid: int | None
    how: str  # in words that follow "the worker"


class PoolProcess:
    """A process of a pool, in an executor of its own.

    The death of one process breaks its whole `ProcessPoolExecutor`, which does not say whose call it was. With one
    process each, neighbours do not notice.
    """

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor
        (self._process,) = processes_of(executor)
        self._group = self._process.pid

    @property
    def pid(self) -> int | None:
        """Its number."""
        return self._process.pid

    def submit(self, function: Callable[..., R], *args: object) -> Future[R]:
        """Queue a call. Where the process has died with nothing to do, the call is broken at once."""
        try:
            return self._executor.submit(function, *args)
        except BrokenProcessPool as broken:
            future: Future[R] = Future()
            future.set_exception(broken.with_traceback(None))
            return future

    def death(self) -> ProcessDeath:
        """How this process, which has broken a call, came to its end."""
        end_group(self._group)
        self._executor.shutdown()  # its thread reads the exit code; whoever reads beside it finds an empty pipe: 255
        return ProcessDeath(self.pid, how_it_ended(self._process.exitcode))

    def kill(self) -> None:
        """Have it end at once; what it had to do is broken then."""
        end_group(self._group)
        with contextlib.suppress(ValueError, AttributeError):  # it is gone already
            self._process.kill()

    def join(self) -> None:
        """Wait until nothing is left of a process that was killed."""
        self._executor.shutdown(cancel_futures=True)


class ProcessPool(Generic[R]):
    """Processes that run calls, and tell of one that dies.

    `launch` calls what it is given where new processes are ours from birth, and returns what that returns.
    """

    def __init__(
        self,
        context: BaseContext,
        launch: Callable[[Callable[[], ProcessPoolExecutor]], ProcessPoolExecutor],
    ) -> None:
        self._context, self._launch = context, launch
        self._processes: list[PoolProcess] = []
        self._process_of: dict[Future[R], PoolProcess] = {}
        _open_pools.add(self)

    def start(self, begin: Callable[..., None], *args: object) -> PoolProcess:
        """A new process, which calls `begin` before anything else."""

        def open_executor() -> ProcessPoolExecutor:
            executor = ProcessPoolExecutor(1, mp_context=self._context, initializer=begin, initargs=args)
            executor.submit(os.getpid)  # an executor starts its process with its first task
            return executor

        process = PoolProcess(self._launch(open_executor))
        self._processes.append(process)
        return process

    def submit(self, process: PoolProcess, function: Callable[..., R], *args: object) -> Future[R]:
        """Queue a call in a process of this pool."""
        future = process.submit(function, *args)
        self._process_of[future] = process
        return future

    def came_too_late(self, future: Future[R]) -> bool:
        """Whether a call that was just submitted will not even begin, because its process had died before."""
        return future.done() and isinstance(future.exception(), BrokenProcessPool)

    def first_done(self, futures: Sequence[Future[R]], timeout: float | None = None) -> list[Future[R]]:
        """Those that something has come of, after waiting for the first of them, but no longer than `timeout` seconds."""
        return list(wait(futures, timeout, FIRST_COMPLETED).done)

    def outcome(self, future: Future[R]) -> R | ProcessDeath:
        """The result of a call that is done, or how its process died."""
        process = self._process_of.pop(future)
        if isinstance(future.exception(), BrokenProcessPool):  # raised, it would keep all that is around us alive
            return process.death()
        return future.result()

    def end(self, processes: Sequence[PoolProcess]) -> None:
        """Kill processes, whatever they are at; nothing will come of their calls."""
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        ended = {id(process) for process in processes}
        self._processes = [each for each in self._processes if id(each) not in ended]
        self._process_of = {future: each for future, each in self._process_of.items() if id(each) not in ended}

    def close(self) -> None:
        """End all processes. Closing twice is fine."""
        self.end(self._processes)


def processes_of(executor: ProcessPoolExecutor) -> list[BaseProcess]:
    """The processes of an executor that has begun: the only way to learn their exit codes."""
    return list(executor._processes.values())


_open_pools: weakref.WeakSet[ProcessPool] = weakref.WeakSet()


def _close_pools() -> None:
    """At the end of this process, before executors wait for tasks that may never be done."""
    for pool in list(_open_pools):
        pool.close()


threading._register_atexit(_close_pools)  # type: ignore[attr-defined]  # atexit itself comes after that wait
