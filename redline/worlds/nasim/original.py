"""The original simulator, the PyPI package `nasim`, where it is installed: to measure ourselves by, and to be equal to."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from redline.compiled.rng import uniform
from redline.compiled.speed import interpreted
from redline.worlds.nasim.instances import PREFIX, is_file
from redline.worlds.nasim.options import NetworkOptions

BLOCK = 256  # steps between two looks at the clock


class OriginalNasim:
    """One env of the original, which draws its random numbers from a stream like those of our envs."""

    def __init__(self, name: str, options: NetworkOptions, stream: np.uint64 | None = None) -> None:
        package: Any = importlib.import_module("nasim")
        bare = name.removeprefix(PREFIX)
        with _sets_in_order():
            if is_file(bare):
                self.env = package.load(bare, fully_obs=options.fully_obs)
            else:
                self.env = package.make_benchmark(bare, seed=options.network_seed, fully_obs=options.fully_obs)
        self.stream = SimpleNamespace(rng=np.uint64(0) if stream is None else stream)

    @contextlib.contextmanager
    def drawing_ours(self) -> Iterator[None]:
        """While this lasts, it draws from its stream."""
        draw = interpreted(uniform)
        ours = SimpleNamespace(random=SimpleNamespace(rand=lambda: draw(self.stream)))
        with _replaced("nasim.envs.network", "np", ours):
            yield


@contextlib.contextmanager
def _sets_in_order() -> Iterator[None]:
    """While this lasts, the original's generator lists a set of services in order, whatever process it runs in."""

    def ordered(items: Any) -> list[Any]:
        by_number = isinstance(items, set)
        return sorted(items, key=lambda name: int(name.partition("_")[2])) if by_number else list(items)

    with _replaced("nasim.scenarios.generator", "list", ordered):
        yield


@contextlib.contextmanager
def _replaced(module_name: str, name: str, value: Any) -> Iterator[None]:
    """While this lasts, a module sees something else under a name."""
    names = vars(importlib.import_module(module_name))
    before = {name: names[name]} if name in names else {}
    names[name] = value
    try:
        yield
    finally:
        del names[name]
        names.update(before)


def steps_per_second(name: str, options: dict[str, Any], seconds: float) -> float | None:
    """Steps per second of the original with random actions on one core; None where it is not installed."""
    try:
        env = OriginalNasim(name, NetworkOptions(**options)).env
    except ImportError:
        return None
    actions = np.random.default_rng(0).integers(0, env.action_space.n, 16 * BLOCK).reshape(-1, BLOCK).tolist()
    _play(env, actions[0])
    started, blocks = time.perf_counter(), 0
    while time.perf_counter() - started < seconds or not blocks:
        _play(env, actions[blocks % len(actions)])
        blocks += 1
    return blocks * BLOCK / (time.perf_counter() - started)


def _play(env: Any, actions: list[int]) -> None:
    for action in actions:
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
