"""Trains for minutes while something fails every few seconds, then counts what is left: `make soak`.

Every engine gets its share of the time. Workers are killed, stopped and made to segfault; envs raise, exit and return
NaN. At the end every episode that was counted must be one that an env finished, whole and once, and no process, file
descriptor, shared memory or megabyte may be left over.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redline.engines import Collecting, Faults
from redline.learn.config import TrainConfig
from redline.learn.train import Trainer
from redline.threads import cores

ENGINES = ("serial", "pipes", "shared", "ready", "pool", "ray")
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)
ORDERS = ("raise", "nan", "exit")
DEADLINE = 3.0
GROWTH_MB = 80.0
SHARED = ("psm_", "sem.", "torch_", "plasma", "ray")
"""How what is shared between processes is called; whatever else comes and goes there is not ours."""


class Saboteur(threading.Thread):
    """Does harm every few seconds until told to stop, once between two updates at most."""

    def __init__(self, folder: Path, seed: int, every: float) -> None:
        super().__init__(daemon=True)
        self._folder, self._random, self._every = folder, random.Random(seed), every
        self.done: Counter[str] = Counter()
        self.stopping = threading.Event()
        self.kinds: list[Any] = [*SIGNALS, *ORDERS]
        self.workers: Callable[[], list[int]] = lambda: workers_of(os.getpid())
        self.updates: Callable[[], int] = lambda: 0
        self._last = -1

    def spare(self, trainer: Trainer) -> None:
        """Leave out what would end the training itself, or what takes half a minute to be noticed."""
        engine, self.updates = trainer.config.engine, lambda: trainer.number
        if engine == "serial":  # the env's process is ours
            self.kinds = ["raise", "nan"]
        if engine == "ray":
            self.kinds = [signal.SIGKILL, signal.SIGSEGV, *ORDERS]
            actors: Any = trainer.engine.workers.actors  # type: ignore[attr-defined]
            self.workers = lambda: [actor.pid for actor in list(actors.values()) if actor.pid and not actor.gone]

    def run(self) -> None:
        while not self.stopping.wait(self._random.uniform(0.5, 1.5) * self._every):
            if self.updates() == self._last:
                continue  # whoever is struck before anything is done will never do anything, on a busy machine
            self._last = self.updates()
            kind = self._random.choice(self.kinds)
            if isinstance(kind, str):
                (self._folder / f"fault-{kind}-{time.monotonic_ns()}").touch()
                self.done[kind] += 1
            elif workers := self.workers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(workers), kind)
                    self.done[kind.name] += 1


def workers_of(pid: int) -> list[int]:
    """Processes below ours that hold envs: children of the fork server."""
    return [child for server in children(pid) for child in children(server)]


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def soak(engine: str, minutes: float, seed: int, every: float) -> tuple[list[str], str]:
    """What is wrong after `minutes` of one engine, and a line about what happened."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files_before = open_files_of_one_update(engine, folder, seed)
        saboteur = Saboteur(folder, seed, every)
        counted, trainer, grown = train(engine, folder, minutes, seed, saboteur)
        gc.collect()
        files = open_files()
        noted = Counter(line for notes in folder.glob("episodes-*") for line in notes.read_text().splitlines())
    faults = trainer.engine.faults
    wrong = [f"{sum((counted - noted).values())} counted episodes were never finished"] if counted - noted else []
    wrong += [] if sum(counted.values()) == trainer.episodes else ["the trainer counted otherwise"]
    wrong += [] if grown < GROWTH_MB else [f"memory grew by {grown:.0f} MB"]
    kept = faults.restarts if engine == "ray" else 0  # Ray keeps its connections to actors that died
    allowed = files_before + kept + 2
    wrong += [] if files <= allowed else [f"open files went from {files_before} to {files}"]
    wrong += [f"{len(left)} workers are left" for left in [workers_of(os.getpid())] if left]
    return wrong, (
        f"{engine}: {trainer.step:,} steps, {sum(counted.values()):,} episodes counted of {sum(noted.values()):,} finished, "
        f"{faults.restarts} restarts, {faults.lost_episodes} partial episodes dropped, "
        f"memory {grown:+.0f} MB; faults: {', '.join(f'{kind} {n}' for kind, n in saboteur.done.items())}"
    )


def open_files_of_one_update(engine: str, folder: Path, seed: int) -> int:
    """How many files are open after one update, none of which came to harm. Ray leaves some of its own open for good."""
    trainer = Trainer(config_of(engine, folder, seed))
    trainer.update()
    trainer.close()
    gc.collect()
    for notes in folder.glob("episodes-*"):
        notes.unlink()
    return open_files()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def config_of(engine: str, folder: Path, seed: int) -> TrainConfig:
    faults = Faults(max_restarts=10**6, step_deadline=0.0 if engine == "serial" else DEADLINE)
    return TrainConfig(
        "external:tests.soak.noted:make", {"folder": str(folder)}, engine=engine, num_envs=12, num_steps=200,
        total_steps=10**12, seed=seed, device="cpu",
        collecting=Collecting(workers=1 if engine == "serial" else max(3, cores()), faults=faults),
    )  # fmt: skip


def train(
    engine: str, folder: Path, minutes: float, seed: int, saboteur: Saboteur
) -> tuple[Counter[str], Trainer, float]:
    """Train under fire. Returns the episodes that were counted, the trainer, and how many MB memory has grown."""
    trainer, counted = Trainer(config_of(engine, folder, seed)), Counter[str]()
    collect = trainer.engine.collect

    def noting(*args: Any) -> Any:
        rollout = collect(*args)
        for total, length in zip(rollout.episode_returns, rollout.episode_lengths, strict=True):
            counted[f"{int(total)} {length}"] += 1
        return rollout

    trainer.engine.collect = noting
    try:
        warm_until = time.monotonic() + min(20.0, 6 * minutes)
        while time.monotonic() < warm_until:
            trainer.update()
        before, until = memory_mb(), time.monotonic() + 60 * minutes
        saboteur.spare(trainer)
        saboteur.start()
        while time.monotonic() < until:
            trainer.update()
        saboteur.stopping.set()
        saboteur.join()
        return counted, trainer, memory_mb() - before
    finally:
        saboteur.stopping.set()
        trainer.close()


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def in_use() -> set[str]:
    """What somebody has in shared memory, perhaps another program: whatever nobody has there is left over."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            places = [line.split()[-1] for line in (process / "maps").read_text().splitlines() if "/dev/shm/" in line]
            places += [os.readlink(file) for file in (process / "fd").iterdir()]
            found |= {Path(place).name for place in places if place.startswith("/dev/shm/")}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all engines together")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between faults, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", default=",".join(ENGINES))
    arguments = parser.parse_args()
    engines = arguments.engines.split(",")
    shm_before = set(os.listdir("/dev/shm"))
    failures = 0
    for engine in engines:
        wrong, line = soak(engine, arguments.minutes / len(engines), arguments.seed, arguments.every)
        print(line, flush=True)
        for each in wrong:
            print(f"  WRONG: {each}", flush=True)
        failures += len(wrong)
    left = {name for name in set(os.listdir("/dev/shm")) - shm_before - in_use() if name.startswith(SHARED)}
    if left:
        print(f"WRONG: left in /dev/shm: {left}", flush=True)
        failures += 1
    print("soak failed" if failures else "soak passed", flush=True)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
