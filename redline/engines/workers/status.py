"""A note of what each process is doing, kept where it outlives the process: env, step and action of a death are known."""

from __future__ import annotations

import secrets
import time
from collections.abc import MutableSequence
from typing import NamedTuple

from redline.engines.workers.shared_memory import SharedMemory

MAKE, RESET, STEP = 1, 2, 3
PHASES = {0: "", MAKE: "making it", RESET: "reset", STEP: "step"}
NO_ACTION, NO_ENV = -(2**63), -1
Cells = MutableSequence[int] | memoryview
STOPPED_SECONDS = 5.0
"""Who does not look around for so long was stopped, or had better things to do."""


class Doing(NamedTuple):
    """Where a process is: in which env, and how far in its episode."""

    env: int | None  # none between two steps
    during: str
    step: int
    action: int | None  # where it is a number


class WorkerStatus:
    """A note of what one process is doing, for others to see."""

    FIELDS = 6

    def __init__(self, cells: Cells | None = None) -> None:
        self.cells: Cells = [0] * self.FIELDS if cells is None else cells

    def at(self, env: int, phase: int, step: int = 0, action: int = NO_ACTION) -> int:
        """Note that work on an env begins. Returns the time."""
        cells, now = self.cells, time.monotonic_ns()
        cells[0], cells[2], cells[3], cells[4], cells[1] = env, step, action, phase, now
        return now

    def idle(self) -> int:
        """Note that the work is done. Returns the time."""
        cells, now = self.cells, time.monotonic_ns()
        cells[4], cells[1] = 0, now
        return now

    def clear(self) -> None:
        """Nothing is known of the process: it begins, or has finished a task."""
        self.idle()
        self.cells[0], self.at_stake = NO_ENV, 0

    def silent_seconds(self, asked_ns: int, awake_ns: int = 0) -> float:
        """Time since the last sign of life: since the present step or reset began, or since the process was asked.

        Nothing counts that was before `awake_ns`, when whoever asks was not awake.
        """
        since = self.cells[1] if self.cells[4] else max(self.cells[1], asked_ns)
        return (time.monotonic_ns() - max(since, awake_ns)) * 1e-9

    @property
    def phase(self) -> int:
        """MAKE, RESET, STEP, or 0 when idle."""
        return int(self.cells[4])

    @property
    def has_begun(self) -> bool:
        """Whether it has been at an env since it was cleared."""
        return self.cells[0] != NO_ENV

    @property
    def doing(self) -> Doing:
        """Env, phase, steps of its episode, action (if it is a number)."""
        env, _, step, action, phase, _ = (int(cell) for cell in self.cells)
        return Doing(env if phase else None, PHASES[phase], step, None if action == NO_ACTION else action)

    @property
    def at_stake(self) -> int:
        """Episodes that nobody else has seen yet: they go with the process."""
        return int(self.cells[5])

    @at_stake.setter
    def at_stake(self, episodes: int) -> None:
        self.cells[5] = episodes


class Wakefulness:
    """Notices that this very process was stopped for a while, as by Ctrl-Z or a batch system that suspends its jobs.

    Workers may have been stopped with it, so their silence means nothing.
    """

    def __init__(self) -> None:
        self._looked = self.since_ns = time.monotonic_ns()

    def look(self) -> int:
        """Called every second or so: since when, in nanoseconds, this process has been awake."""
        now = time.monotonic_ns()
        if now - self._looked > STOPPED_SECONDS * 1e9:
            self.since_ns = now
        self._looked = now
        return self.since_ns


class StatusBoard:
    """The status of every worker of an engine, in memory that the workers write themselves.

    Its first cell holds a token, by which a process that finds a board can tell that it is this one.
    """

    def __init__(self, num_workers: int) -> None:
        self.memory = SharedMemory((1 + num_workers * WorkerStatus.FIELDS) * 8)
        cells = cells_of(self.memory)
        self.token = cells[0] = secrets.randbits(62)
        self.status = [status_in(cells, worker) for worker in range(num_workers)]

    def close(self) -> None:
        """Let go of the memory."""
        self.memory.close()


def cells_of(memory: SharedMemory) -> memoryview:
    """The numbers of a board."""
    return memoryview(memory.map).cast("q")


def status_in(cells: memoryview, worker: int) -> WorkerStatus:
    """A worker's place on a board."""
    first = 1 + worker * WorkerStatus.FIELDS
    return WorkerStatus(cells[first : first + WorkerStatus.FIELDS])
