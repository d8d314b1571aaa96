"""`make fuzz`: every reader gets 100,000 inputs that are almost right, and compiled worlds 10,000 states that are not.

    python -m tests.fuzz [--inputs N] [--states N] [--from SEED] [NAME…]

Each runs in a process of its own with 1 GB of memory above what it begins with. No input may end in a traceback, take over
two seconds, or end the process. What fails is told with its seed, and tried again by
`python -m tests.fuzz --from SEED --inputs 1 NAME`.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import resource
import subprocess
import sys
import time
import traceback
import warnings

import numpy as np

MOST_SECONDS, MOST_BYTES, MOST_FINDINGS = 2.0, 2**30, 10


def main() -> int:
    options = _options()
    if options.here:
        return _here(options)
    from tests.fuzz.readers import NAMES
    from tests.fuzz.states import ENVS

    jobs = [(name, options.inputs) for name in NAMES] + [(env, options.states // len(ENVS)) for env in ENVS]
    failed = 0
    for name, count in jobs:
        if options.names and name not in options.names:
            continue
        command = [
            sys.executable,
            "-m",
            "tests.fuzz",
            "--here",
            "--inputs",
            str(count),
            "--from",
            str(options.first),
            name,
        ]
        code = subprocess.run(command).returncode
        if code < 0:
            print(f"{name}: ended by signal {-code}", flush=True)
        failed += code != 0
    print("nothing found" if not failed else f"{failed} of {len(jobs)} found something")
    return int(failed > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--here", action="store_true")
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


def _here(options: argparse.Namespace) -> int:
    """Try one reader or world in this process."""
    from tests.fuzz.readers import NAMES, reader
    from tests.fuzz.states import Subject

    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    (name,) = options.names
    if name in NAMES:
        try_one = reader(name).try_one
    else:
        subject = Subject(name)
        try_one = lambda seed: subject.try_one(random.Random(seed))  # noqa: E731
    try_one(options.first)  # compiles what is compiled
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MOST_BYTES,) * 2)
    return _try_all(name, try_one, range(options.first, options.first + options.inputs))


def _try_all(name: str, try_one, seeds: range) -> int:
    began, slowest, taken, found = time.monotonic(), 0.0, 0, dict[str, int]()
    for seed in seeds:
        faulthandler.dump_traceback_later(10 * MOST_SECONDS, exit=True)
        started = time.process_time()  # whoever else is at work on this machine is no fault of ours
        try:
            taken += try_one(seed)
        except BaseException as error:
            place = "".join(traceback.format_tb(error.__traceback__)[-1:]).strip().replace("\n", " ")
            found.setdefault(f"{type(error).__name__}: {error} {place}"[:300], seed)
        seconds = time.process_time() - started
        if seconds > MOST_SECONDS:
            found.setdefault("over two seconds", seed)
        slowest = max(slowest, seconds)
    faulthandler.cancel_dump_traceback_later()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{name}: {len(seeds):,} inputs, {taken:,} taken, {time.monotonic() - began:.0f} s, "
        f"slowest {slowest:.2f} s, {memory} MB",
        flush=True,
    )
    for what, seed in list(found.items())[:MOST_FINDINGS]:
        print(f"  seed {seed}: {what}", flush=True)
    return int(bool(found))


def _address_space() -> int:
    with open(f"/proc/{os.getpid()}/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
