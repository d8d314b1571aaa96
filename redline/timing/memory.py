"""How much memory this process and its children hold together."""

from __future__ import annotations

import os
from pathlib import Path


def tree_memory_mb() -> float:
    """Megabytes of this process and all below it; pages they share are counted once. 0 where that is not to be known."""
    return sum(_pss_kb(pid) for pid in _tree(os.getpid())) / 1024


def _tree(pid: int) -> list[int]:
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [pid, *(each for child in below for each in _tree(int(child)))]


def _pss_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0
