"""Processes of `concurrent.futures` that collect whole episodes."""

from __future__ import annotations

import time
from concurrent.futures import Future

from redline.engines.engine import EngineSetup
from redline.engines.episodes import Episodes
from redline.engines.faults import Supervisor, WorkerCrash
from redline.engines.spec import Spec
from redline.engines.workers.episode_player import EpisodePlayer, EpisodeTask, TaskAnswer
from redline.engines.workers.fork_server import end_with_main, fork_server, from_fork_server, require_files
from redline.engines.workers.shared_memory import SharedMemory
from redline.engines.workers.status import RESET, STEP, StatusBoard, cells_of, status_in
from redline.processes import PoolProcess, ProcessDeath, ProcessPool


def make_pool(setup: EngineSetup) -> Episodes[Future[TaskAnswer]]:
    """The engine `pool`."""
    return Episodes(setup, lambda faults: PoolWorkers(setup.spec, setup.num_workers, faults))


class PoolWorkers:
    """Processes of a pool, one per worker: when one dies, the others and their envs stay where they are."""

    def __init__(self, spec: Spec, num_workers: int, faults: Supervisor) -> None:
        require_files(num_workers)
        self.num_workers, self._spec, self._faults = num_workers, spec, faults
        self._board = StatusBoard(num_workers)
        self._pool: ProcessPool[TaskAnswer] = ProcessPool(fork_server(), from_fork_server)
        self.processes: dict[int, PoolProcess] = {}
        self._worker_of: dict[Future[TaskAnswer], int] = {}
        self._asked_ns = [0] * num_workers
        self._hung: dict[int, str] = {}

    def start(self, worker: int) -> None:
        """A new process for a worker."""
        if worker in self.processes:
            self._pool.end([self.processes.pop(worker)])
        self._board.status[worker].clear()
        self._hung.pop(worker, None)
        self._worker_of = {future: other for future, other in self._worker_of.items() if other != worker}
        self.processes[worker] = self._pool.start(_begin, self._board.memory, worker, self._spec)

    def submit(self, worker: int, task: EpisodeTask) -> Future[TaskAnswer]:
        """Queue a task. If its worker is dead already, that is told when the task is waited for."""
        future = self._pool.submit(self.processes[worker], _carry_out, task)
        self._worker_of[future] = worker
        self._asked_ns[worker] = time.monotonic_ns()
        return future

    def wait(self, handles: list[Future[TaskAnswer]], timeout: float) -> list[Future[TaskAnswer]]:
        """Those that are done."""
        return self._pool.first_done(handles, timeout)

    def outcome(self, handle: Future[TaskAnswer]) -> TaskAnswer | WorkerCrash:
        """The answer to a task, or how its worker died."""
        worker = self._worker_of.pop(handle)
        outcome = self._pool.outcome(handle)
        if isinstance(outcome, ProcessDeath):
            return self._death(worker, outcome)
        self._board.status[worker].unreported_episodes = 0
        return outcome

    def _death(self, worker: int, death: ProcessDeath) -> WorkerCrash:
        status, how = self._board.status[worker], self._hung.get(worker) or death.how
        env, during, step, action = status.doing
        seed = None if env is None else self._faults.seeds[env]
        return WorkerCrash(worker, death.pid, how, env, during, seed, step, action, status.unreported_episodes)

    def end_if_hung(self, worker: int) -> bool:
        """Kill a worker that has been at one thing for too long."""
        status, faults = self._board.status[worker], self._faults
        at_env = status.phase in (RESET, STEP)
        thinks = not status.phase and status.has_begun
        limit = faults.deadline if at_env else faults.think_deadline if thinks else faults.start_deadline
        if status.silent_seconds(self._asked_ns[worker]) <= limit or worker in self._hung:
            return False
        self._hung[worker] = f"hung for {limit:g} s{' (--step-deadline)' if at_env else ''} and was killed"
        self.processes[worker].kill()
        return True

    def close(self) -> None:
        """End all processes."""
        self._pool.close()
        self._board.close()


# In a worker

_player: EpisodePlayer | None = None


def _begin(board: SharedMemory, worker: int, spec: Spec) -> None:
    """In a new process, before its first task."""
    global _player
    end_with_main()
    _player = EpisodePlayer(spec, status_in(cells_of(board), worker))


def _carry_out(task: EpisodeTask) -> TaskAnswer:
    assert _player is not None
    return _player.carry_out(task)
