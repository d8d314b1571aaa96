"""How fast the net kernel steps, at both speeds."""

from __future__ import annotations

import numpy as np

from redline.bench.measure import Throughput
from redline.bench.stepping import Stepper, race
from redline.sims.petri import kernel
from redline.sims.petri.net import Net
from redline.sims.petri.state import new_finals, new_state
from redline.sims.petri.tables import tabulate
from redline.sims.speed import at_speed


class NetStepper(Stepper):
    """Steps a batch of envs with random legal actions, drawn from each env's own stream."""

    def __init__(self, num_envs: int, net: Net, turbo: bool, threads: int = 1, seed: int = 0) -> None:
        super().__init__(num_envs, threads)
        self._tables, sizes = tabulate(net)
        self._state, self._finals = new_state(num_envs, sizes, seed), new_finals(num_envs, sizes)
        self._obs, self._final_obs = (np.zeros((num_envs, sizes.observation), np.float32) for _ in range(2))
        self._mask = np.zeros((num_envs, sizes.actions), np.bool_)
        self._rewards, self._actions = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._terminated, self._truncated = (np.zeros(num_envs, np.bool_) for _ in range(2))
        self._step, self._draw = at_speed(kernel.step, turbo), at_speed(kernel.draw_legal, turbo)
        at_speed(kernel.reset, turbo)(self._tables, self._state, 0, num_envs, self._obs, self._mask, True)

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

    def num_steps(size: int, turbo: bool) -> int:
        return max(1, min(128, 100_000 // size)) if turbo else 2

    def make_stepper(size: int, turbo: bool, count: int) -> NetStepper:
        return NetStepper(size, net, turbo, count, seed)

    return race(make_stepper, num_steps, batch_sizes, threads, seconds, turns)
