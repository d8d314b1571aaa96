"""Tries inputs in forks of this process, which may crash, hang or run out of memory without harm to anybody."""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

MOST_SECONDS, MOST_BYTES, MOST_FINDINGS = 2.0, 2**30, 10
PATIENCE, BUSY_PATIENCE = 600, 20.0
"""Looks, a second apart, and seconds of processor time after which an input has hung. Looks are counted and not a clock
read: whoever was stopped meanwhile, together with what it tries, has not waited."""
LOOK_SECONDS = 1.0
WARM_UP = 30
"""Inputs that are tried beforehand, until one is taken: what is compiled is compiled once, and not in every fork."""
Try = Callable[[int], bool]
"""Tries the input of a seed. Returns whether it was taken."""


@dataclass
class Findings:
    """What came of many inputs."""

    taken: int = 0
    slowest: float = 0.0
    memory_mb: float = 0.0
    wrong: dict[str, int] = field(default_factory=dict)
    """What went wrong, with the seed of the first input that did so."""

    def note(self, what: str, seed: int) -> None:
        """Remember what went wrong, unless it is known, or there is enough already."""
        if len(self.wrong) < MOST_FINDINGS:
            self.wrong.setdefault(what, seed)


def try_all(try_one: Try, seeds: range) -> Findings:
    """Try all seeds. Where one ends the process that tries them, another goes on behind it."""
    found, at = Findings(), np.frombuffer(mmap.mmap(-1, 16))  # the seed that is tried, and the processor time before it
    _warm_up(try_one)
    first = seeds.start
    while first < seeds.stop:
        ended = _in_fork(try_one, range(first, seeds.stop), found, at)
        if not ended:
            break
        reached = int(at[0])
        found.note(ended, reached)
        first = reached + 1
    return found


def _warm_up(try_one: Try) -> None:
    for seed in range(WARM_UP):
        with contextlib.suppress(Exception):
            if try_one(seed):
                return


def _in_fork(try_one: Try, seeds: range, found: Findings, at: np.ndarray) -> str:
    """Try seeds in a fork. Returns how it was ended before it was done, if it was."""
    receiver, sender = os.pipe()
    _put(at, seeds.start)
    child = os.fork()
    if not child:
        os.close(receiver)
        _try_here(try_one, seeds, sender, at)
    os.close(sender)
    told, hung = _listen(receiver, child, at)
    status = os.waitpid(child, 0)[1]
    for line in told.decode().splitlines():
        _take(found, *json.loads(line))
    if os.waitstatus_to_exitcode(status) == 0:
        return ""
    return "hung" if hung else f"ended by {_signal_name(status)}"


def _put(at: np.ndarray, seed: int) -> None:
    """Note what is tried, number by number: whoever looks on meanwhile sees each as it was or as it is."""
    at[:] = seed, time.process_time()


def _try_here(try_one: Try, seeds: range, sender: int, at: np.ndarray) -> None:
    """Try seeds, tell what came of them, and end this process."""
    limit = _address_space() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.freeze()  # what was there before need not be looked through at every input
    told = os.fdopen(sender, "w", encoding="utf-8")
    slowest, taken, kinds = 0.0, 0, set[str]()
    for seed in seeds:
        _put(at, seed)
        was_taken, seconds, what = _timed(try_one, seed)
        if seconds > MOST_SECONDS:  # what is compiled once is compiled now, and is no fault of the input
            was_taken, seconds, what = _timed(try_one, seed)
        taken, slowest = taken + was_taken, max(slowest, seconds)
        what = what or ("over two seconds" if seconds > MOST_SECONDS else "")
        if what and what not in kinds and len(kinds) < MOST_FINDINGS:
            kinds.add(what)
            print(json.dumps(["wrong", [what, seed]]), file=told, flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(["sums", [taken, slowest, memory]]), file=told, flush=True)
    os._exit(0)


def _timed(try_one: Try, seed: int) -> tuple[bool, float, str]:
    """Whether an input was taken, its seconds of processor time, and what it raised.

    Whoever else is at work on this machine is no fault of the input.
    """
    taken, what, started = False, "", time.process_time()
    try:
        taken = try_one(seed)
    except BaseException as error:
        what = _described(error)
    return taken, time.process_time() - started, what


def _described(error: BaseException) -> str:
    place = "".join(traceback.format_tb(error.__traceback__)[-1:]).strip().replace("\n", " ")
    said = str(error)[:160].encode(errors="backslashreplace").decode()
    return f"{type(error).__name__}: {said} {place}"[:400]


def _listen(receiver: int, child: int, at: np.ndarray) -> tuple[bytes, bool]:
    """What a fork tells until it ends, and whether it hung and was ended."""
    data, hung, look = b"", False, _Look(child, at)
    while True:
        ready = select.select([receiver], [], [], LOOK_SECONDS)[0]
        if ready:
            more = os.read(receiver, 1 << 16)
            if not more:
                break
            data += more
        elif not hung and look.hangs():
            hung = True
            os.kill(child, signal.SIGKILL)
    os.close(receiver)
    return data, hung


class _Look:
    """Whoever looks, now and then, whether a fork still gets on."""

    def __init__(self, child: int, at: np.ndarray) -> None:
        self._child, self._at = child, at
        self._seed, self._looks = -1.0, 0

    def hangs(self) -> bool:
        """Whether the input that is tried now has been tried for too many looks, or for too much processor time."""
        seed, busy_before = self._at.tolist()
        self._looks = self._looks + 1 if seed == self._seed else 0
        self._seed = seed
        return self._looks > PATIENCE or self._busy() - busy_before > BUSY_PATIENCE

    def _busy(self) -> float:
        with open(f"/proc/{self._child}/stat") as file:
            ticks = file.read().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _take(found: Findings, kind: str, value: list) -> None:
    if kind == "wrong":
        found.note(*value)
    else:
        found.taken += value[0]
        found.slowest, found.memory_mb = max(found.slowest, value[1]), max(found.memory_mb, value[2])


def _signal_name(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _address_space() -> int:
    with open(f"/proc/{os.getpid()}/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
