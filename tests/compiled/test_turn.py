"""Of several processes that need a kernel at the same time, one compiles it and the others wait."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.errors import TypingError

import redline.compiled.turn
from redline.compiled import kernel

WORLD = """
import numpy as np
from redline.compiled import kernel


@kernel
def step(numbers):
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i] ** 3 + np.sin(numbers[i])
    return total
"""
PLAY = """
import sys, numpy as np
from their_step import step
print("ready", flush=True)
sys.stdin.readline()
step(np.arange(3.0))
print(sum(step.stats.cache_misses.values()), sum(step.stats.cache_hits.values()))
"""


def test_processes_that_start_together_compile_a_kernel_once(tmp_path: Path) -> None:
    (tmp_path / "their_step.py").write_text(WORLD)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PLAY}"]
    players = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
        for _ in range(4)
    ]
    for each in players:
        assert each.stdout is not None and each.stdout.readline() == "ready\n"
    for each in players:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    said = sorted(each.communicate(timeout=300)[0] for each in players)
    assert said == ["0 1\n"] * 3 + ["1 0\n"]


@pytest.fixture
def lock() -> Path:
    """The file that says whose turn it is to compile `wrong`."""
    return Path(wrong._cache._turn._path)


@kernel
def wrong(number):
    return number.is_no_part_of_it


def test_a_kernel_that_cannot_be_compiled_is_anybodys_turn_again(lock: Path) -> None:
    with pytest.raises(TypingError):
        wrong(1.0)
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_whoever_waits_for_a_process_that_was_stopped_compiles_by_itself_in_the_end(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redline.compiled.turn, "PATIENCE", 0.2)
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TypingError):
            wrong(1)
