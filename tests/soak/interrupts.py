"""Interrupts commands at many moments, from their first to their last: `python -m tests.soak.interrupts [NAME…]`.

Whatever a command is at, a signal ends it with 128 and the signal's number and one line, or comes too late; what it leaves
behind goes on. Nothing of it is left running.
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

SIGNALS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIMES = (1, 2)
PATIENCE = 300.0
SMALL = ["--num-envs", "4", "--num-steps", "25", "--workers", "2", "--hidden", "8"]
STARTING = 0.15
"""Seconds in which Python itself starts, and has its own way with signals."""


@dataclass(frozen=True)
class Job:
    """A command, and the one that goes on with what it leaves in a folder."""

    command: list[str]
    again: list[str] | None = None


def jobs(folder: str) -> dict[str, Job]:
    run, resume = ["--run-dir", folder], Job([], ["train", "--resume", folder, "--quiet", "--eval-episodes", "1"]).again
    slow = ["train", "slow?mean_ms=0.2&max_steps=20", *SMALL, "--total-steps", "8000", *run, "--eval-episodes", "20"]
    found = {
        engine: Job([*slow, "--engine", engine], resume)
        for engine in ("serial", "pipes", "shared", "ready", "pool", "ray")
    }
    plan = ["train", "cage2", "--total-steps", "20000", *run, "--eval-episodes", "10", "--threads", "1"]
    few = ["--total-episodes", "3000", "--max-episodes-per-workflow", "500", "--eval-episodes", "20"]
    improve = ["improve", "champion", *run, "--threads", "1", "--episodes", "64", "--states", "10", "--tries", "4"]
    improve += ["--deciding", "8", "--judging", "64", "--lessons", "10", "--least-visits", "5"]
    return found | {
        "vector": Job(["train", "cage2", "--preset", "none", "--total-steps", "2000000", *run, "--threads", "1"], resume),
        "plan": Job(plan, ["train", "--resume", folder, "--quiet", "--eval-episodes", "2"]),
        "eval": Job(["eval", "champion", "--episodes", "200"]),
        "search": Job(["search", "cage2", *few, *run], ["search", "--resume", folder, "--quiet"]),
        "sweep": Job(
            ["sweep", "cage2", "--total-steps", "100000", "--seeds", "2", "--folder", folder],
            ["sweep", "--resume", folder, "--quiet"],
        ),
        "improve": Job(improve, improve),
        "play": Job(["play", "champion", "--quiet"]),
        "bench": Job(["bench", "sim", "cage2", "--seconds", "0.2", "--turns", "2", "--threads", "1", "--batch-sizes", "64"]),
    }  # fmt: skip


def attempt(name: str, moment: float | None, number: int, times: int) -> tuple[float, int, list[str]]:
    """Interrupt a job after so many seconds, if at all. Returns its seconds, its exit code, and what is wrong."""
    with tempfile.TemporaryDirectory() as top:
        folder, mark = f"{top}/run", f"REDLINE_INTERRUPT_{os.getpid()}_{time.monotonic_ns()}"
        job, began = jobs(folder)[name], time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "redline", *job.command], env={**os.environ, mark: "1"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
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
            return 0.0, 0, [f"hung: {process.communicate()[1][-300:]}"]
        seconds = time.monotonic() - began
        wrong = _wrong(process.returncode, number, said, early=moment is not None and moment < STARTING)
        if left := _left(mark):
            wrong.append(f"left running: {left}")
        if not wrong and job.again is not None and process.returncode and Path(folder, "config.json").exists():
            wrong = _goes_on(job.again)
        return seconds, process.returncode, wrong


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
    rng, failures = random.Random(options.seed), 0
    for name in options.names or names:
        attempt(name, None, signal.SIGINT, 0)  # whatever is compiled once is compiled now
        whole, _, wrong = attempt(name, None, signal.SIGINT, 0)
        ends: Counter[int] = Counter()
        for k in range(options.moments):
            moment, number, times = whole * (k + rng.random()) / options.moments, rng.choice(SIGNALS), rng.choice(TIMES)
            _, code, found = attempt(name, moment, number, times)
            ends[code] += 1
            wrong += [f"{signal.Signals(number).name} x {times} after {moment:.3f} s: {each}" for each in found]
        print(f"{name}: {whole:.1f} s, {options.moments} moments, ends {dict(ends)}, {len(wrong)} wrong", flush=True)
        for each in wrong:
            print(f"  WRONG: {each}", flush=True)
        failures += len(wrong)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
