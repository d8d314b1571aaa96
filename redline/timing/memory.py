"""Memory of this process and those below it, as one number."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path


def tree_memory_mb(without: Set[int] = frozenset()) -> float:
    """Megabytes of this process and its descendants but those `without`; pages they share are counted once.

    0 where the system does not tell.
    """
    return sum(_proportional_kb(pid) for pid in (os.getpid(), *(descendants() - without))) / 1024


def descendants() -> set[int]:
    """Processes that this one has started, from any of its threads, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = children.get(waiting.pop(), [])
        found.update(new)
        waiting += new
    return found


def _proportional_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration):  # it has just ended, or this is no Linux
        return 0
