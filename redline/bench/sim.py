"""How fast the CAGE-2 kernel steps, at both speeds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from redline.bench.measure import Throughput
from redline.bench.stepping import Stepper, race
from redline.sims.cage2 import kernel
from redline.sims.cage2.observe import Layout
from redline.sims.cage2.scenario import Scenario
from redline.sims.cage2.state import new_state
from redline.sims.speed import at_speed

CYBORG_STEPS_PER_SECOND = 370
"""The original simulator on one core of the machine this was developed on."""


class Cage2Stepper(Stepper):
    """Steps a batch of envs with random Blue actions, drawn beforehand."""

    SCRIPT = 128  # steps of prepared actions, played over and over

    def __init__(self, num_envs: int, scenario: Scenario, turbo: bool, threads: int = 1, seed: int = 0) -> None:
        super().__init__(num_envs, threads)
        layout = Layout(scenario)
        self._settings = scenario.settings()
        self._step = at_speed(kernel.step, turbo)
        self._state = new_state(num_envs, seed)
        self._packed = np.zeros((num_envs, layout.num_words), np.int64)
        self._results = (
            np.zeros(num_envs), np.zeros(num_envs, np.bool_), np.zeros_like(self._packed), np.zeros(num_envs, np.int32),
        )  # fmt: skip
        self._actions = np.random.default_rng(seed).integers(0, scenario.num_actions, (self.SCRIPT, num_envs))
        at_speed(kernel.reset, turbo)(self._state, 0, num_envs, self._settings, self._packed)

    def _play(self, first: int, last: int, num_steps: int) -> None:
        for t in range(num_steps):
            actions = self._actions[t % self.SCRIPT]
            self._step(self._state, first, last, actions, self._settings, self._packed, *self._results)


def bench_sim(
    scenario: Scenario, batch_sizes: tuple[int, ...], threads: tuple[int, ...], seconds: float, turns: int, seed: int
) -> dict[tuple[str, int, int], Throughput]:
    """Steps per second by (speed, threads, batch size)."""

    def num_steps(size: int, turbo: bool) -> int:
        return max(1, min(Cage2Stepper.SCRIPT, 200_000 // size)) if turbo else 4

    def make_stepper(size: int, turbo: bool, count: int) -> Cage2Stepper:
        return Cage2Stepper(size, scenario, turbo, count, seed)

    return race(make_stepper, num_steps, batch_sizes, threads, seconds, turns)


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
