"""How many threads work, and how they wait.

Two torch threads on two cores lose a factor of forty when one other process wants a core, because OpenMP threads spin at
every barrier until their partner is scheduled again. Telling them to sleep instead costs next to nothing; it has to be
said before torch is loaded.
"""

from __future__ import annotations

import os
import sys

_WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def wait_politely() -> None:
    """Let idle OpenMP threads sleep, unless the user has decided otherwise. Does nothing once torch is loaded."""
    if "torch" not in sys.modules:
        for name, value in _WAIT_POLICY.items():
            os.environ.setdefault(name, value)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(count: int) -> str:
    """Give torch `count` threads (0: one) and say in a line what that means."""
    import torch

    count = count or 1
    torch.set_num_threads(count)
    line = f"{count} torch thread{'s' if count > 1 else ''} on {cores()} cores"
    if count > cores():
        line += f" (more threads than cores: expect them to get in each other's way; try --threads {cores()})"
    elif count > 1 and os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        line += " (they spin while they wait: import redline before torch, or set OMP_WAIT_POLICY=PASSIVE)"
    return line
