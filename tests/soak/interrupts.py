"""Interrupts commands at many moments, from their first to their last: `python -m tests.soak.interrupts [NAME…]`.

Whatever a command is at, a signal ends it with 128 and the signal's number and one line, or comes too late; what it leaves
behind goes on. Nothing of it is left running. Jobs that are exact end with the same checkpoints, byte for byte, as one that
was left alone.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from redline.runs import ARRAYS, CONFIG, RANKING, STEP

SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIMES = (1, 2)
PATIENCE = 300.0
SMALL = ["--num-envs", "4", "--num-steps", "25", "--workers", "2", "--hidden", "8"]
EARLIER = 0.7
"""The part of a moment that came too late after which it is tried again."""
STARTING = 0.15
"""Seconds in which Python itself starts, and has its own way with signals."""


Kept = dict[str, bytes]
"""What a job leaves that must be the same however often it was interrupted, by where it is."""


@dataclass(frozen=True)
class Job:
    """A command, the one that goes on with what it leaves in a folder, and whether that comes to the very same."""

    command: list[str]
    again: list[str] | None = None
    exact: bool = False


@dataclass(frozen=True)
class Attempt:
    """What came of a job."""

    begun: float
    """Seconds until there was a run folder."""
    seconds: float
    code: int
    wrong: list[str]
    kept: Kept


def jobs(folder: str) -> dict[str, Job]:
    run, quick = ["--run-dir", folder], ["--quiet", "--eval-episodes", "2"]
    resume = ["train", "--resume", folder, *quick]
    slow = ["train", "slow?mean_ms=0.2&max_steps=20", *SMALL, "--total-steps", "8000", *run, "--eval-episodes", "20"]
    found = {
        engine: Job([*slow, "--engine", engine], resume)
        for engine in ("serial", "pipes", "shared", "ready", "pool", "ray")
    }
    one, few_steps = ["--preset", "none", "--threads", "1", *run, *quick], ["--total-steps", "20000"]
    few_updates = ["--num-envs", "8", "--num-steps", "40", *few_steps]
    found |= {
        f"exact {engine}": Job(["train", "cage2", *SMALL, *few_steps, *one, "--engine", engine], resume, exact=True)
        for engine in ("serial", "pipes", "shared", "vector")
    }
    found |= {
        f"exact {env}": Job(["train", env, *few_updates, *one], resume, exact=True)
        for env in ("cage4", "petri:jobshop/ft06", "nasim:tiny")
    }
    plan = ["train", "cage2", "--preset", "short", "--num-envs", "64", "--num-steps", "50", "--total-steps", "200000"]
    few = ["--total-episodes", "8000", "--max-episodes-per-workflow", "500", "--eval-episodes", "20"]
    improve = ["improve", "champion", *run, "--threads", "1", "--episodes", "64", "--states", "10", "--tries", "4"]
    improve += ["--deciding", "8", "--judging", "64", "--lessons", "10", "--least-visits", "5"]
    whole = ["train", "cage2", "--preset", "none", "--total-steps", "2000000", *run, "--threads", "1"]
    return found | {
        "vector": Job(whole, resume, exact=True),
        "plan": Job([*plan, *run, *quick, "--threads", "1"], resume, exact=True),
        "eval": Job(["eval", "champion", "--episodes", "200"]),
        "search": Job(["search", "cage2", *few, *run], ["search", "--resume", folder, "--quiet"], exact=True),
        "sweep": Job(
            ["sweep", "cage2", "--total-steps", "100000", "--seeds", "2", "--folder", folder],
            ["sweep", "--resume", folder, "--quiet"], exact=True,
        ),
        "improve": Job(improve, improve, exact=True),
        "play": Job(["play", "champion", "--quiet"]),
        "bench": Job(["bench", "sim", "cage2", "--seconds", "0.2", "--turns", "2", "--threads", "1", "--batch-sizes", "64"]),
    }  # fmt: skip


def attempt(name: str, moment: float | None, number: int, times: int) -> Attempt:
    """Interrupt a job after so many seconds, if at all, and go on with what it leaves.

    An exact one is interrupted when it has begun: seconds count from when it has a run folder.
    """
    with tempfile.TemporaryDirectory() as top:
        folder, mark = f"{top}/run", f"REDLINE_INTERRUPT_{os.getpid()}_{time.monotonic_ns()}"
        job, began = jobs(folder)[name], time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "redline", *job.command], env={**os.environ, mark: "1"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        while job.exact and process.poll() is None and not any(Path(top).rglob(CONFIG)):
            time.sleep(0.01)
        begun = time.monotonic() - began
        if moment is not None:
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                for _ in range(times):
                    process.send_signal(number)
        try:
            said = process.communicate(timeout=PATIENCE)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            return Attempt(0.0, 0.0, 0, [f"hung: {process.communicate()[1][-300:]}"], {})
        seconds = time.monotonic() - began
        early = not job.exact and moment is not None and moment < STARTING
        wrong = _wrong(process.returncode, number, said, early)
        if left := _left(mark):
            wrong.append(f"left running: {left}")
        if not wrong and job.again is not None and process.returncode and any(Path(top).rglob(CONFIG)):
            wrong = _goes_on(job.again)
        return Attempt(begun, seconds, process.returncode, wrong, _kept(Path(top)))


def _kept(top: Path) -> Kept:
    """The last checkpoint of each place that has some, and how workflows rank."""
    places = {path.parent for path in top.rglob(f"{STEP}*")}
    last = {str(place.relative_to(top)): max(place.glob(f"{STEP}*")) for place in places}
    found = {f"{name}/{path.name}": (path / ARRAYS).read_bytes() for name, path in last.items()}
    return found | {str(path.relative_to(top)): path.read_bytes() for path in top.rglob(RANKING)}


def _differs(job: Job, whole: Attempt, this: Attempt) -> list[str]:
    """Where a job that was interrupted, and went on, ended otherwise than one that was left alone."""
    if not job.exact or this.wrong:
        return []
    names = sorted(whole.kept.keys() | this.kept.keys())
    return [f"{name} is not the same" for name in names if whole.kept.get(name) != this.kept.get(name)]


def _wrong(code: int, number: int, said: str, early: bool) -> list[str]:
    if early and code in (-number, 1):
        return []
    wrong = [] if code in (0, 128 + number) else [f"exit code {code}"]
    told = [line for line in said.splitlines() if line.startswith("redline: interrupted")]
    wrong += [] if len(told) == (code == 128 + number) else [f"{len(told)} lines about it"]
    wrong += ["a traceback"] if "Traceback" in said or "Exception ignored" in said else []
    return [f"{each}: {said[-1500:]}" for each in wrong]


def _goes_on(again: list[str]) -> list[str]:
    done = subprocess.run([sys.executable, "-m", "redline", *again], capture_output=True, text=True, timeout=600)
    return [] if done.returncode == 0 else [f"does not go on ({done.returncode}): {done.stderr[-1500:]}"]


def _left(mark: str) -> list[str]:
    """Commands that still run with this mark in their environment, a few seconds later."""
    found: list[str] = []
    for _ in range(100):
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark.encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_text().replace("\0", " ")[:80])
            except OSError:
                continue
        if not found:
            break
        time.sleep(0.1)
    return found


def main() -> int:
    names = tuple(jobs(""))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=30, help="for each job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", choices=("", *names), default="")
    options = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` would make all that is started here deaf
    failures = sum(_interrupts(name, options.moments, random.Random(options.seed)) for name in options.names or names)
    return bool(failures)


def _interrupts(name: str, moments: int, rng: random.Random) -> int:
    """Interrupt a job at so many moments, and tell. Returns how much is wrong."""
    attempt(name, None, signal.SIGINT, 0)  # whatever is compiled once is compiled now
    whole, job = attempt(name, None, signal.SIGINT, 0), jobs("")[name]
    wrong, ends = list(whole.wrong), Counter[int]()
    seconds = whole.seconds - (whole.begun if job.exact else 0.0)
    for k in range(moments):
        number, times = rng.choice(SIGNALS), rng.choice(TIMES)
        moment = seconds * (k + rng.random()) / moments
        this = attempt(name, moment, number, times)
        while not this.code and moment > seconds / 10:  # the machine was less busy: it was over before
            moment *= EARLIER
            this = attempt(name, moment, number, times)
        ends[this.code] += 1
        found = this.wrong + _differs(job, whole, this)
        wrong += [f"{signal.Signals(number).name} x {times} after {moment:.3f} s: {each}" for each in found]
    same = ", what they went on to was compared" if job.exact else ""
    print(f"{name}: {seconds:.1f} s, {moments} moments, ends {dict(ends)}{same}, {len(wrong)} wrong", flush=True)
    for each in wrong:
        print(f"  WRONG: {each}", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
