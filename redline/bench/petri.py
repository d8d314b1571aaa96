"""How fast the net kernel steps, at both speeds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from redline.bench.measure import Throughput, take_turns
from redline.sims.petri import kernel
from redline.sims.petri.net import Net
from redline.sims.petri.state import new_finals, new_state
from redline.sims.petri.tables import tabulate
from redline.sims.speed import at_speed


class Stepper:
    """Steps a batch of envs with random legal actions, drawn from each env's own stream, on one thread or several."""

    def __init__(self, num_envs: int, net: Net, turbo: bool, threads: int = 1, seed: int = 0) -> None:
        self._tables, sizes = tabulate(net)
        self._state, self._finals = new_state(num_envs, sizes, seed), new_finals(num_envs, sizes)
        self._obs, self._final_obs = (np.zeros((num_envs, sizes.observation), np.float32) for _ in range(2))
        self._mask = np.zeros((num_envs, sizes.actions), np.bool_)
        self._rewards, self._actions = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._terminated, self._truncated = (np.zeros(num_envs, np.bool_) for _ in range(2))
        self._step, self._draw = at_speed(kernel.step, turbo), at_speed(kernel.draw_legal, turbo)
        bounds = np.linspace(0, num_envs, threads + 1).astype(int)
        self._slices = [(int(a), int(b)) for a, b in pairwise(bounds)]
        self._num_envs = num_envs
        at_speed(kernel.reset, turbo)(self._tables, self._state, 0, num_envs, self._obs, self._mask, True)

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
        for _ in range(num_steps):
            self._draw(self._state, first, last, self._mask, self._actions)
            self._step(
                self._tables, self._state, first, last, self._actions, self._obs, self._mask, self._rewards,
                self._terminated, self._truncated, True, self._final_obs, self._finals,
            )  # fmt: skip


def bench_net(
    net: Net, batch_sizes: tuple[int, ...], threads: tuple[int, ...], seconds: float, turns: int, seed: int
) -> dict[tuple[str, int, int], Throughput]:
    """Steps per second by (speed, threads, batch size); drawing the actions and beginning anew included."""
    contestants: dict[str, Callable[[], int]] = {}
    keys: dict[str, tuple[str, int, int]] = {}
    entries = [("compiled", count, size) for size in batch_sizes for count in threads if count <= size]
    for speed, count, size in [*entries, ("interpreted", 1, 16)]:
        stepper = Stepper(size, net, speed == "compiled", count, seed)
        num_steps = max(1, min(128, 100_000 // size)) if speed == "compiled" else 2
        name = f"{speed} {count} {size}"
        keys[name] = (speed, count, size)
        contestants[name] = lambda stepper=stepper, num_steps=num_steps: stepper.play(num_steps)  # type: ignore[misc]
    return {keys[name]: rate for name, rate in take_turns(contestants, turns, seconds).items()}
