"""Independent tasks side by side: in this process, in several, or on a Ray cluster.

Who finishes first changes nothing. Results come back in the order of the tasks, and if several tasks fail, the error is
that of the earliest one. A task must be safe to run again, because it is when its worker dies halfway.
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

from redline.errors import RedlineError, unknown
from redline.files import warn_on_stderr
from redline.on_ray import connect, disconnect
from redline.processes import (
    PoolProcess,
    ProcessDeath,
    ProcessPool,
    end_with_parent,
    environment,
    sigint_blocked,
)
from redline.threads import ONE_THREAD

T = TypeVar("T")
R = TypeVar("R")
Handle = TypeVar("Handle")

RUNNERS = ("here", "processes", "ray")
ATTEMPTS = 3
"""How often a task is run before we believe that it is the task that kills its workers."""


class Runner(Protocol):
    """A way to run tasks that know nothing of each other."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """The results of `function` for all tasks, in the order of the tasks."""

    def close(self) -> None:
        """Let the workers go. Closing twice is fine."""


def make_runner(name: str, workers: int, ray_address: str | None = None) -> Runner:
    """The runner of that name. `ray_address` is for "ray": "auto" or host:port joins a cluster that is already there."""
    if name not in RUNNERS:
        raise unknown("runner", name, RUNNERS)
    if workers < 1:
        raise RedlineError(f"{workers} workers cannot run anything. Try 1 or more.")
    if name == "ray":
        return OnRay(workers, ray_address)
    return Processes(workers) if name == "processes" else Here()


class Here:
    """Runs tasks one after another, in this process."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """The results of `function` for all tasks."""
        return [function(task) for task in tasks]

    def close(self) -> None:
        """There is nobody to let go."""


# What crosses between processes. Payloads and answers travel as bytes: an object that cannot be read on the other side
# is then an error like any other, where an executor would take it for the death of a worker.


class Raised(NamedTuple):
    """A task's exception, and the traceback that does not survive the journey."""

    error: BaseException
    traceback: str


class Died(NamedTuple):
    """A worker that is gone, in words that follow "its worker"."""

    how: str


class WorkerTraceback(Exception):
    """The worker's traceback as text: the cause of the exception that reaches the caller."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


def attempt(payload: bytes, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """Run one pickled (function, task) in a worker, and pickle what comes of it: a 1-tuple with the result or a `Raised`."""
    try:
        function, task = pickle.loads(payload)
        return dumps((function(task),))
    except BaseException as error:
        return dumps(Raised(_portable(error, dumps), traceback.format_exc().rstrip()))


def _portable(error: BaseException, dumps: Callable[[Any], bytes]) -> BaseException:
    """The error itself if it can be unpickled, else the nearest thing that can."""
    try:
        pickle.loads(dumps(error))
    except Exception:
        stays = isinstance(error, RedlineError)
        return RedlineError(str(error)) if stays else RuntimeError(f"{type(error).__name__}: {error}")
    return error


class Workers(Protocol[Handle]):
    """Workers that run payloads; a handle stands for one attempt under way."""

    def start(self, payload: bytes) -> Handle:
        """Begin an attempt."""

    def first_done(self, handles: list[Handle]) -> list[Handle]:
        """Wait until something has come of at least one attempt."""

    def outcome(self, handle: Handle) -> bytes | Died:
        """The outcome: the pickled answer, or a dead worker."""

    def abandon(self, handles: list[Handle]) -> None:
        """Stop these attempts now."""


def run_all(workers: Workers[Handle], payloads: Sequence[bytes], num_workers: int) -> list[Any]:
    """All results in order, or the error of the earliest task that fails.

    Tasks start in order. So when one fails, those before it have at least started: they may finish, in case one of them
    fails too. Those after it are stopped.
    """
    waiting = deque(range(len(payloads)))
    running: dict[Handle, int] = {}
    answers: dict[int, Any] = {}
    deaths: Counter[int] = Counter()
    try:
        while waiting or running:
            while waiting and len(running) < num_workers:
                index = waiting.popleft()
                running[workers.start(payloads[index])] = index
            for handle in sorted(workers.first_done(list(running)), key=running.__getitem__):
                if handle not in running:
                    continue  # stopped a moment ago, because an earlier task failed
                outcome = workers.outcome(handle)
                index = running.pop(handle)
                if isinstance(outcome, Died):
                    deaths[index] += 1
                    if deaths[index] < ATTEMPTS:
                        attempts = f"attempt {deaths[index] + 1} of {ATTEMPTS}"
                        task = f"Task {index + 1} of {len(payloads)}"
                        warn_on_stderr(f"{task} is run again ({attempts}): its worker {outcome.how}.")
                        waiting.appendleft(index)
                        continue
                    answers[index] = _given_up(index, len(payloads), outcome)
                else:
                    answers[index] = pickle.loads(outcome)
                if isinstance(answers[index], Raised):
                    waiting = deque(other for other in waiting if other < index)
                    workers.abandon([other_handle for other_handle, other in running.items() if other > index])
                    running = {other_handle: other for other_handle, other in running.items() if other < index}
    finally:
        workers.abandon(list(running))
    in_order = [answers[index] for index in sorted(answers)]
    for answer in in_order:
        if isinstance(answer, Raised):
            raise answer.error from (WorkerTraceback(answer.traceback) if answer.traceback else None)
    return [result for (result,) in in_order]


def _given_up(index: int, num_tasks: int, died: Died) -> Raised:
    line = f"Task {index + 1} of {num_tasks} lost its worker {ATTEMPTS} times; the last one {died.how}."
    if "SIGKILL" in died.how:
        line += " Linux does that when memory runs out: try fewer workers."
    return Raised(RedlineError(line), "")


# Processes on this machine


class Processes:
    """Runs tasks in worker processes, which stay for the next `run`.

    Never forked: this process may have loaded torch, whose threads a fork would lose.
    """

    def __init__(self, workers: int) -> None:
        self._num_workers = workers
        self._pool: ProcessPool[bytes] = ProcessPool(multiprocessing.get_context("spawn"), _launch)
        self._idle: list[PoolProcess] = []
        self._busy: dict[Future[bytes], PoolProcess] = {}

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """The results of `function` for all tasks. The function must be importable by name, as pickle wants it."""
        return run_all(self, [pickle.dumps((function, task)) for task in tasks], self._num_workers)

    def close(self) -> None:
        """End the workers at once: they hold nothing that is not on disk or already here."""
        self._pool.close()
        self._idle.clear()
        self._busy.clear()

    def start(self, payload: bytes) -> Future[bytes]:
        """Hand the payload to an idle worker, or to a new one."""
        while self._idle:
            process = self._idle.pop()
            future = self._pool.submit(process, attempt, payload)
            if not self._pool.came_too_late(future):
                self._busy[future] = process
                return future
            self._pool.end([process])  # it died while it had nothing to do: no task has suffered
        # The kernel tells a child when the thread that made it ends. Only for the main thread is that the parent's end.
        by_main_thread = threading.current_thread() is threading.main_thread()
        process = self._pool.start(end_with_parent, by_main_thread)
        future = self._pool.submit(process, attempt, payload)
        self._busy[future] = process
        return future

    def first_done(self, handles: list[Future[bytes]]) -> list[Future[bytes]]:
        """Wait for the first of them."""
        return self._pool.first_done(handles)

    def outcome(self, handle: Future[bytes]) -> bytes | Died:
        """The answer, or how the worker died."""
        outcome = self._pool.outcome(handle)
        process = self._busy.pop(handle)
        if isinstance(outcome, ProcessDeath):
            self._pool.end([process])
            return Died(f"(pid {outcome.pid}) {outcome.how}")
        self._idle.append(process)
        return outcome

    def abandon(self, handles: list[Future[bytes]]) -> None:
        """Kill the workers that are at it."""
        self._pool.end([self._busy.pop(handle) for handle in handles if handle in self._busy])


def _launch(open_executor: Callable[[], ProcessPoolExecutor]) -> ProcessPoolExecutor:
    with environment(ONE_THREAD), sigint_blocked():  # a child inherits both, and has them before its first import
        return open_executor()


# A Ray cluster


class OnRay:
    """Runs tasks on Ray: a cluster of this machine alone, or the one at `address` ("auto" or host:port).

    Where the program has called `ray.init` itself, that connection is used, and left open.
    """

    def __init__(self, workers: int, address: str | None = None) -> None:
        self._ray, self._ours = connect(workers, address)
        self._num_workers = workers
        # Ray's own retries are silent, so the retries are ours: they are counted and reported as for processes.
        options = {"num_cpus": 1, "max_retries": 0, "runtime_env": {"env_vars": ONE_THREAD}}
        self._attempt = self._ray.remote(**options)(attempt)

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """The results of `function` for all tasks. Functions a worker cannot import are sent along."""
        dumps = self._ray.cloudpickle.dumps
        return run_all(self, [dumps((function, task)) for task in tasks], self._num_workers)

    def close(self) -> None:
        """Disconnect, if it was us who connected; a cluster of our own goes away."""
        if self._ours:
            self._ours = False
            disconnect(self._ray)

    def start(self, payload: bytes) -> Any:
        """Submit it as a Ray task."""
        return self._attempt.remote(payload, self._ray.cloudpickle.dumps)

    def first_done(self, handles: list[Any]) -> list[Any]:
        """Wait for the first of them."""
        return self._ray.wait(handles, num_returns=1)[0]

    def outcome(self, handle: Any) -> bytes | Died:
        """The answer, or that the worker or its node died."""
        lost = self._ray.exceptions
        try:
            return self._ray.get(handle)
        except (lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError, lost.OutOfMemoryError) as error:
            return Died(f"on Ray was lost ({type(error).__name__})")

    def abandon(self, handles: list[Any]) -> None:
        """Have Ray kill the workers that are at it."""
        for handle in handles:
            self._ray.cancel(handle, force=True)
