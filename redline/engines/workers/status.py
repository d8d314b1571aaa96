"""A note of what each process is doing, kept where it outlives the process: env, step and action of a death are known."""

from __future__ import annotations

import time
from collections.abc import MutableSequence
from typing import NamedTuple

from redline.engines.workers.shared_memory import SharedMemory

MAKE, RESET, STEP = 1, 2, 3
PHASES = {0: "", MAKE: "making it", RESET: "reset", STEP: "step"}
NO_ACTION, NO_ENV = -(2**63), -1
Cells = MutableSequence[int] | memoryview
WATCH_SECONDS = 1.0
"""How often an engine looks at a silent worker."""


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
        self._last_sign = 0
        self._silent_looks = 0

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
        self.cells[0], self.unreported_episodes = NO_ENV, 0

    def silent_seconds(self, asked_ns: int) -> float:
        """Called once every `WATCH_SECONDS`: how long the worker has shown no sign of life.

        This counts looks, not time on the clock: an engine that is suspended does not look.
        """
        sign = self.cells[1]
        if not self.phase:
            sign = max(sign, asked_ns)
        if sign == self._last_sign:
            self._silent_looks += 1
        else:
            self._last_sign = sign
            self._silent_looks = 0
        return self._silent_looks * WATCH_SECONDS

    @property
    def busy_seconds(self) -> float:
        """How long the present step or reset has taken."""
        if not self.phase:
            return 0.0
        return (time.monotonic_ns() - self.cells[1]) * 1e-9

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
    def unreported_episodes(self) -> int:
        """Episodes that nobody else has seen yet: they go with the process."""
        return int(self.cells[5])

    @unreported_episodes.setter
    def unreported_episodes(self, episodes: int) -> None:
        self.cells[5] = episodes


class StatusBoard:
    """The status of every worker of an engine, in memory that the workers write themselves."""

    def __init__(self, num_workers: int) -> None:
        self.memory = SharedMemory(num_workers * WorkerStatus.FIELDS * 8)
        cells = cells_of(self.memory)
        self.status = [status_in(cells, worker) for worker in range(num_workers)]

    def close(self) -> None:
        """Let go of the memory."""
        self.memory.close()


def cells_of(memory: SharedMemory) -> memoryview:
    """The numbers of a board."""
    return memoryview(memory.map).cast("q")


def status_in(cells: memoryview, worker: int) -> WorkerStatus:
    """A worker's place on a board."""
    first = worker * WorkerStatus.FIELDS
    return WorkerStatus(cells[first : first + WorkerStatus.FIELDS])
