"""How fast a compiled world steps, at both speeds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import gymnasium as gym
import numpy as np

from redline.bench.measure import Throughput
from redline.bench.stepping import Stepper, race
from redline.compiled.rng import GOLDEN, actor_seed, seed_streams, unit
from redline.compiled.speed import at_speed, kernel
from redline.worlds.batch import BatchEnv
from redline.worlds.registry import make_env
from redline.worlds.results import StepResults

SCRIPT = 128  # steps of prepared actions, played over and over


@kernel
def draw_allowed(streams, first, last, mask, actions):
    """An allowed action for each env, each as likely, from a stream of its own."""
    for i in range(first, last):
        allowed = 0
        for a in range(mask.shape[1]):
            allowed += mask[i, a]
        streams[i] += GOLDEN
        left = int(unit(streams[i]) * allowed)
        for a in range(mask.shape[1]):
            if mask[i, a]:
                if left == 0:
                    actions[i] = a
                    break
                left -= 1


class EnvStepper(Stepper):
    """Steps a batch of envs with random allowed actions; where all are allowed, or for a team, they are drawn beforehand."""

    def __init__(self, env: BatchEnv, turbo: bool, threads: int = 1, seed: int = 0) -> None:
        super().__init__(env.num_envs, threads)
        env.reset(seed=seed)
        self._env, self._masked = env, bool(env.mask.shape[1]) and not env.agents
        self._results = StepResults.zeros(env.num_envs)
        space = env.single_action_space
        counts = space.nvec if isinstance(space, gym.spaces.MultiDiscrete) else env.num_actions
        shape = (SCRIPT, env.num_envs, *(space.shape or ()))
        self._script = np.random.default_rng(actor_seed(seed)).integers(0, counts, shape)
        self._streams, self._draw = seed_streams(actor_seed(seed), env.num_envs), at_speed(draw_allowed, turbo)

    def _play(self, first: int, last: int, num_steps: int) -> None:
        env = self._env
        for t in range(num_steps):
            actions = self._script[t % SCRIPT]
            if self._masked:
                self._draw(self._streams, first, last, env.mask, actions)
            env.play(first, last, actions, self._results)


def bench_sim(
    name: str,
    options: dict[str, Any],
    batch_sizes: tuple[int, ...],
    threads: tuple[int, ...],
    seconds: float,
    turns: int,
    seed: int,
) -> dict[tuple[str, int, int], Throughput]:
    """Steps per second by (speed, threads, batch size); drawing actions and beginning anew included."""

    def num_steps(size: int, turbo: bool) -> int:
        return max(1, min(SCRIPT, 200_000 // size)) if turbo else 2

    def make_stepper(size: int, turbo: bool, count: int) -> EnvStepper:
        env = make_env(name, size, encoded=True, turbo=turbo, **options)
        assert isinstance(env, BatchEnv)  # the command has asked the world
        return EnvStepper(env, turbo, count, seed)

    return race(make_stepper, num_steps, batch_sizes, threads, seconds, turns)


FIRST_STEP = (
    "import sys, json, redline, numpy as np; env = redline.make_env(sys.argv[1], 8, **json.loads(sys.argv[2])); "
    "env.reset(seed=0); env.step(env.action_masks().argmax(axis=-1))"
)


def start_up_seconds(name: str, options: str) -> dict[str, float]:
    """Seconds from starting Python to the first step: with the compiled kernel on disk, and without. Options as JSON."""
    with tempfile.TemporaryDirectory() as empty:
        cold = _time_first_step(name, options, {"XDG_CACHE_HOME": empty})
        warm = min(_time_first_step(name, options, {"XDG_CACHE_HOME": empty}) for _ in range(3))
    return {"first_step_seconds": warm, "cold_compile_seconds": cold}


def _time_first_step(name: str, options: str, changes: dict[str, str]) -> float:
    command = [sys.executable, "-c", FIRST_STEP, name, options]
    started = time.perf_counter()
    subprocess.run(command, env={**os.environ, **changes}, check=True, capture_output=True)
    return time.perf_counter() - started
