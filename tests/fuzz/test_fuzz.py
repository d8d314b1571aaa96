"""A taste of `make fuzz`, and everything it has found."""

from __future__ import annotations

import mmap
import os
import signal
import time

import numpy as np
import pytest

from tests.fuzz.readers import NAMES, reader
from tests.fuzz.trying import PATIENCE, _Look, _put, try_all

FOUND = {
    "timings": (21, 47), "job shops": (2742, 31217), "routes": (12546, 91370), "tool files": (42, 1344),
    "networks": (0, 3, 182, 1262, 33837, 71902, 98370), "recordings": (248,), "other recordings": (135,),
    "checkpoints": (29276,),
    "profiles": (5, 16, 1285, 1565), "stages": (28592, 98819),
    "team recordings": (4, 11, 17, 41, 61, 62, 64, 73, 122, 226, 1445, 17736),
}  # fmt: skip
"""Seeds of inputs that once did not end in one line, by reader."""
SLOW_TO_COMPILE = ("recordings", "team recordings", "other recordings", "schedules")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SLOW_TO_COMPILE])
def test_whatever_is_read_comes_to_an_end_or_to_one_line(name: str) -> None:
    subject = reader(name)
    for seed in (*FOUND.get(name, ()), *range(1000, 1020)):
        subject.try_one(seed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SLOW_TO_COMPILE)
def test_whatever_was_recorded_is_replayed_or_told_in_one_line(name: str) -> None:
    subject = reader(name)
    for seed in (*FOUND.get(name, ()), *range(1000, 1010)):
        subject.try_one(seed)


def test_an_input_that_ends_the_process_is_told_and_the_next_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.trying.WARM_UP", 0)

    def read(seed: int) -> bool:
        if seed == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if seed == 5:
            raise KeyError("five")
        return seed % 2 == 0

    found = try_all(read, range(1, 10))
    assert found.wrong["ended by SIGSEGV"] == 3
    assert [seed for what, seed in found.wrong.items() if "KeyError" in what] == [5]
    assert found.taken == 4 - 1  # what was taken before a crash is not told


def test_an_input_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.trying.PATIENCE", 2)
    monkeypatch.setattr("tests.fuzz.trying.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("tests.fuzz.trying.WARM_UP", 0)
    found = try_all(lambda seed: time.sleep(1000 if seed == 2 else 0) is None, range(1, 4))
    assert found.wrong == {"hung": 2}


def test_who_was_stopped_for_long_is_not_taken_for_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    look = _Look(os.getpid(), np.array([1, 1e9]))
    assert not look.hangs()
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    assert not look.hangs()


def test_what_is_slow_only_the_first_time_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.trying.WARM_UP", 0)
    monkeypatch.setattr("tests.fuzz.trying.MOST_SECONDS", 0.05)
    compiled = set[int]()

    def read(seed: int) -> bool:
        if seed not in compiled or seed == 2:
            ready = time.process_time() + (0.1 if seed in (1, 2) else 0)
            while time.process_time() < ready:
                compiled.add(seed)
        return True

    assert try_all(read, range(4)).wrong == {"over two seconds": 2}


def test_who_is_at_work_is_never_taken_for_hung() -> None:
    at = np.frombuffer(mmap.mmap(-1, 16))
    _put(at, 1)
    child = os.fork()
    if not child:
        while True:
            _put(at, 1)
    try:
        look = _Look(child, at)
        assert not any(look.hangs() for _ in range(PATIENCE))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
