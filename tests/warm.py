"""Compiles the kernels of every world before tests share the machine: `python -m tests.warm`.

Else every process that needs a kernel first would compile it, two of them at the same time. What an earlier run left on
disk is only looked at, which takes seconds.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from redline.cli import main
from redline.threads import cores
from redline.worlds.registry import all_worlds

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "petri"
HAVE_KERNELS = ("compiled", "worlds", "learn")
BRIEFLY = ["--num-envs", "4", "--num-steps", "16", "--total-steps", "128", "--eval-episodes", "1", "--quiet"]
MORE = [  # kernels that no training of a world's first example compiles
    ["train", "petri:cluster/J-0?layout=graph&wafers=3", *BRIEFLY],
    ["verify", "petri", "--schedule", str(DATA / "schedules" / "single_S-0_n4_arms1.json")],
    ["envs", f"petri:{DATA / 'pnml' / 'kanban_1.pnml'}", "--states"],
]


def commands() -> list[list[str]]:
    """A moment of training in each compiled world, and what else has kernels of its own."""
    names = [next(iter(world.examples), world.name) for world in all_worlds() if world.compiled]
    return [*MORE, *(["train", name, *BRIEFLY] for name in reversed(names))]


def run(command: list[str]) -> int:
    """Run a command where it leaves nothing behind. One that fails says why, and stops no test but its own."""
    with tempfile.TemporaryDirectory() as folder:
        return main([*command, *(["--run-dir", f"{folder}/run"] if command[0] == "train" else [])])


def warm() -> None:
    """Run them all, one on each core."""
    with ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(run, commands()))


def sources() -> str:
    """A digest of all files that kernels are written in: while it stays, nothing has to be compiled."""
    digest = hashlib.sha256(sys.version.encode())
    for part in HAVE_KERNELS:
        for path in sorted((ROOT / "redline" / part).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    warm()
