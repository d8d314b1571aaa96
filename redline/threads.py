"""How many threads work, and how they wait.

Two torch threads on two cores lose a factor of forty when one other process wants a core, because OpenMP threads spin at
every barrier until their partner is scheduled again. Telling them to sleep instead costs next to nothing; it has to be
said before torch is loaded.
"""

from __future__ import annotations

import os
import sys

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
"""Environment variables of a worker process that keep it to one core."""

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

    Torch itself gets one thread: batches are cut into parts instead, and each learner thread works on its own part.
    """
    import torch

    torch.set_num_threads(1)
    count = count or cores()
    line = f"{count} learner thread{'s' if count > 1 else ''} on {cores()} cores"
    if count > cores():
        line += f", more than there are cores: expect them to get in each other's way (try --threads {cores()})"
    return count, line
