"""A race between the speeds of a kernel: envs in slices, a thread each, by speed and batch size."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from redline.bench.measure import Throughput, take_turns


class Stepper(ABC):
    """Steps a batch of envs on one thread or several. A simulator says how a slice of them is played."""

    def __init__(self, num_envs: int, threads: int) -> None:
        self._num_envs = num_envs
        bounds = np.linspace(0, num_envs, threads + 1).astype(int)
        self._slices = [(int(a), int(b)) for a, b in pairwise(bounds)]

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

    @abstractmethod
    def _play(self, first: int, last: int, num_steps: int) -> None:
        """Step envs `first` up to `last`, and no others."""


def pairings(
    batch_sizes: tuple[int, ...], threads: tuple[int, ...]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(threads, batch size) of the rows to measure, and of those left out: every thread needs an env of its own."""
    pairs = [(count, size) for size in batch_sizes for count in threads]
    return [pair for pair in pairs if pair[0] <= pair[1]], [pair for pair in pairs if pair[0] > pair[1]]


def race(
    make_stepper: Callable[[int, bool, int], Stepper],
    num_steps: Callable[[int, bool], int],
    batch_sizes: tuple[int, ...],
    threads: tuple[int, ...],
    seconds: float,
    turns: int,
) -> dict[tuple[str, int, int], Throughput]:
    """Steps per second by (speed, threads, batch size): compiled in all sizes, interpreted in one.

    `make_stepper` is given a batch size, whether it is compiled, and threads; `num_steps` the first two.
    """
    contestants: dict[str, Callable[[], int]] = {}
    keys: dict[str, tuple[str, int, int]] = {}
    entries = [("compiled", count, size) for count, size in pairings(batch_sizes, threads)[0]]
    for speed, count, size in [*entries, ("interpreted", 1, 16)]:
        turbo = speed == "compiled"
        name = f"{speed} {count} {size}"
        keys[name] = (speed, count, size)
        contestants[name] = partial(make_stepper(size, turbo, count).play, num_steps(size, turbo))
    return {keys[name]: rate for name, rate in take_turns(contestants, turns, seconds).items()}
