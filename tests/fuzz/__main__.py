"""`make fuzz`: every reader gets 100,000 inputs that are almost right.

    python -m tests.fuzz [--inputs N] [--from SEED] [NAME…]

All inputs of a reader are tried in one process, a fork of this one with 1 GB of memory above what it begins with. No input
may end in a traceback, take over two seconds of processor time, or end the process; where one does, the next process goes
on behind it. What fails is told with its seed, and tried again by `python -m tests.fuzz --from SEED --inputs 1 NAME`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings

import numpy as np

from tests.fuzz.trying import Findings, Try, try_all

for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # threads do not survive a fork


def main() -> int:
    from tests.fuzz.readers import NAMES

    options = _options(("", *NAMES))
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    seeds = range(options.first, options.first + options.inputs)
    chosen = [name for name in NAMES if not options.names or name in options.names]
    failed = [name for name in chosen if not _passes(name, seeds)]
    print(f"found something: {', '.join(failed)}" if failed else "nothing found")
    return int(bool(failed))


def _options(names: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100_000, help="for each reader")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("names", nargs="*", choices=names, default="")
    return parser.parse_args()


def _passes(name: str, seeds: range) -> bool:
    began = time.monotonic()
    found = try_all(_subject(name), seeds)
    print(f"{name}: {len(seeds):,} inputs, {time.monotonic() - began:.0f} s, {_told(found)}", flush=True)
    for what, seed in found.wrong.items():
        print(f"  seed {seed}: {what}", flush=True)
    return not found.wrong


def _told(found: Findings) -> str:
    return f"{found.taken:,} taken, slowest {found.slowest:.2f} s, {found.memory_mb:.0f} MB"


def _subject(name: str) -> Try:
    """How to try one input, by its seed."""
    from tests.fuzz.readers import reader

    return reader(name).try_one


if __name__ == "__main__":
    sys.exit(main())
