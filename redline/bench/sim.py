"""How fast the CAGE-2 kernel steps, at both speeds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from redline.bench.measure import Throughput, take_turns
from redline.sims.cage2 import kernel
from redline.sims.cage2.observe import Layout
from redline.sims.cage2.scenario import Scenario
from redline.sims.cage2.state import new_state
from redline.sims.speed import at_speed

CYBORG_STEPS_PER_SECOND = 370
"""The original simulator on one core of the machine this was developed on."""


class Stepper:
    """Steps a batch of envs with random Blue actions, drawn beforehand, on one thread or several."""

    SCRIPT = 128  # steps of prepared actions, played over and over

    def __init__(self, num_envs: int, scenario: Scenario, turbo: bool, threads: int = 1, seed: int = 0) -> None:
        layout = Layout(scenario)
        self._settings, self._num_envs = scenario.settings(), num_envs
        self._step = at_speed(kernel.step, turbo)
        self._state = new_state(num_envs, seed)
        self._packed = np.zeros((num_envs, layout.num_words), np.int64)
        self._results = (
            np.zeros(num_envs), np.zeros(num_envs, np.bool_), np.zeros_like(self._packed), np.zeros(num_envs, np.int32),
        )  # fmt: skip
        self._actions = np.random.default_rng(seed).integers(0, scenario.num_actions, (self.SCRIPT, num_envs))
        bounds = np.linspace(0, num_envs, threads + 1).astype(int)
        self._slices = [(int(a), int(b)) for a, b in pairwise(bounds)]
        at_speed(kernel.reset, turbo)(self._state, 0, num_envs, self._settings, self._packed)

    def play(self, num_steps: int) -> int:
        """Step every env `num_steps` times; each thread has its own envs and waits for nobody."""
        if len(self._slices) == 1:
            self._play(*self._slices[0], num_steps)
        else:
            threads = [threading.Thread(target=self._play, args=(*part, num_steps)) for part in self._slices]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return num_steps * self._num_envs

    def _play(self, first: int, last: int, num_steps: int) -> None:
        for t in range(num_steps):
            actions = self._actions[t % self.SCRIPT]
            self._step(self._state, first, last, actions, self._settings, self._packed, *self._results)


def bench_sim(
    scenario: Scenario, batch_sizes: tuple[int, ...], threads: tuple[int, ...], seconds: float, turns: int, seed: int
) -> dict[tuple[str, int, int], Throughput]:
    """Steps per second by (speed, threads, batch size)."""
    contestants: dict[str, Callable[[], int]] = {}
    keys: dict[str, tuple[str, int, int]] = {}
    for size in batch_sizes:
        for count in threads:
            if count <= size:
                _enter(contestants, keys, "compiled", count, size, Stepper(size, scenario, True, count, seed))
    _enter(contestants, keys, "interpreted", 1, 16, Stepper(16, scenario, False, 1, seed))
    return {keys[name]: rate for name, rate in take_turns(contestants, turns, seconds).items()}


def _enter(
    contestants: dict[str, Callable[[], int]],
    keys: dict[str, tuple[str, int, int]],
    speed: str,
    threads: int,
    size: int,
    stepper: Stepper,
) -> None:
    name = f"{speed} {threads} {size}"
    keys[name] = (speed, threads, size)
    steps = max(1, min(Stepper.SCRIPT, 200_000 // size)) if speed == "compiled" else 4
    contestants[name] = lambda: stepper.play(steps)


FIRST_STEP = (
    "import redline, numpy as np; env = redline.make_env('cage2', 8); env.reset(seed=0); "
    "env.step(np.zeros(8, np.int64))"
)


def start_up_seconds() -> dict[str, Any]:
    """Seconds from starting Python to the first step: with the compiled kernel on disk, and without."""
    with tempfile.TemporaryDirectory() as empty:
        cold = _time_first_step({"NUMBA_CACHE_DIR": empty})
        warm = min(_time_first_step({"NUMBA_CACHE_DIR": empty}) for _ in range(3))
    return {"first_step_seconds": warm, "cold_compile_seconds": cold}


def _time_first_step(changes: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIRST_STEP], env={**os.environ, **changes}, check=True, capture_output=True)
    return time.perf_counter() - started
