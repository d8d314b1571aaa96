"""How many threads work, and how they wait.

Two torch threads on two cores lose a factor of forty when one other process wants a core, because OpenMP threads spin at
every barrier until their partner is scheduled again. Telling them to sleep instead costs next to nothing; it has to be
said before torch is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from redline.memory import keep_freed_memory

Piece = TypeVar("Piece")
Result = TypeVar("Result")

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
"""Environment variables of a worker process that keep it to one core."""

_torch_alone = False  # whether torch is to have one thread
_WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def wait_politely() -> None:
    """Let idle OpenMP threads sleep, unless the user has decided otherwise. Does nothing once torch is loaded."""
    if "torch" not in sys.modules:
        for name, value in _WAIT_POLICY.items():
            os.environ.setdefault(name, value)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(count: int) -> tuple[int, str]:
    """How many threads learn (`count`, or one per core for 0), and that in words.

    Torch itself gets one thread: batches are cut into parts instead, and each learner thread works on its own part. What
    they free is kept for them.
    """
    global _torch_alone
    _torch_alone = True
    keep_torch_to_its_threads()
    keep_freed_memory()
    count = count or cores()
    line = f"{count} learner thread{'s' if count > 1 else ''} on {cores()} cores"
    if count > cores():
        line += f", more than there are cores: expect them to get in each other's way (try --threads {cores()})"
    return count, line


def keep_torch_to_its_threads() -> None:
    """Give torch the one thread that `use_threads` leaves it, once it is loaded."""
    if _torch_alone and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


class Crew:
    """Threads that share work, piece by piece. Whoever hands it out is one of them, so that one fewer has to be woken."""

    def __init__(self, threads: int, name: str) -> None:
        self.threads = threads
        self._helpers = ThreadPoolExecutor(threads - 1, name) if threads > 1 else None

    def map(self, work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """What `work` makes of each piece, in their order. Each goes to the first who is free."""
        if self._helpers is None or len(pieces) < 2:
            return [work(piece) for piece in pieces]
        results: dict[int, Result] = {}
        turns = iter(range(len(pieces)))  # taking the next one is a single step of the interpreter

        def take_turns() -> None:
            for turn in turns:
                results[turn] = work(pieces[turn])

        helping = [self._helpers.submit(take_turns) for _ in range(min(self.threads, len(pieces)) - 1)]
        try:
            take_turns()
        finally:
            for each in helping:
                if not each.cancel():
                    each.result()
        return [results[turn] for turn in range(len(pieces))]

    def dismiss(self) -> None:
        """Let go of the threads."""
        if self._helpers is not None:
            self._helpers.shutdown()
