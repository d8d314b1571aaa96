"""How benchmarks measure: contestants take turns, results are medians with their spread, the machine is described."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from redline.threads import cores


@dataclass(frozen=True)
class Throughput:
    """Steps per second: the median of several turns, and their quartiles."""

    median: float
    low: float
    high: float
    turns: int

    @classmethod
    def of(cls, rates: list[float]) -> Throughput:
        """The throughput that several rates come to."""
        low, median, high = np.percentile(rates, (25, 50, 75))
        return cls(float(median), float(low), float(high), len(rates))

    def to_json(self) -> dict[str, float]:
        """As plain data."""
        return {"median": self.median, "low": self.low, "high": self.high, "turns": self.turns}


def take_turns(contestants: Mapping[str, Callable[[], int]], turns: int, seconds: float = 0.0) -> dict[str, Throughput]:
    """Every contestant's rate. Each is called once to warm up; then they run in turn, so that noise hits all alike.

    A contestant does some work and returns how many steps it was; one turn repeats it for at least `seconds`.
    """
    for work in contestants.values():
        work()
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, work in contestants.items():
            rates[name].append(_rate(work, seconds))
    return {name: Throughput.of(each) for name, each in rates.items()}


def _rate(work: Callable[[], int], seconds: float) -> float:
    started, steps = time.perf_counter(), 0
    while True:
        steps += work()
        spent = time.perf_counter() - started
        if spent >= seconds:
            return steps / spent


def peak_memory_mb() -> float:
    """The most memory this process has held so far."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (1024 * 1024 if sys.platform == "darwin" else 1024)


def describe_machine() -> dict[str, Any]:
    """The machine and the versions that the numbers were measured on."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{package: version(package) for package in ("numpy", "numba", "torch", "gymnasium")},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine_line(machine: dict[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{machine['cores']} cores ({machine['processor']}), load {machine['load']}, Python {machine['python']}, "
        f"torch {machine['torch']}, numba {machine['numba']}"
    )
