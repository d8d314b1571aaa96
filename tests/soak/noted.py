"""An env that notes every episode it finishes, and fails when it is told to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

LENGTHS = (8, 40)


class Noted(gym.Env[np.ndarray, int]):
    """Every episode has a number of its own, which its rewards add up to; finished ones are noted in a file.

    A file `fault-…` in the folder is an order for whoever finds it first: to raise, to return NaN, or to exit.
    """

    observation_space = gym.spaces.Box(-1, 1e9, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.notes = self.folder / f"episodes-{os.getpid()}"
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(1, 2**40))
        self.length = int(self.np_random.integers(*LENGTHS))
        self.clock = 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.clock += 1
        self.steps += 1
        if self.steps % 16 == 0:
            self._obey()
        ended = self.clock == self.length
        if ended:
            with open(self.notes, "a", encoding="ascii") as file:
                file.write(f"{self.number} {self.length}\n")
        return self._obs(), float(self.number) if ended else 0.0, ended, False, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.clock, self.length, self.number % 1000], np.float32)

    def _obey(self) -> None:
        for order in self.folder.glob("fault-*"):
            try:
                order.unlink()
            except FileNotFoundError:
                continue
            kind = order.name.split("-")[1]
            if kind == "raise":
                raise ValueError("as ordered")
            if kind == "exit":
                os._exit(7)
            self.number = float("nan")  # type: ignore[assignment]


def make(folder: str) -> Noted:
    """What the name of an external env points to."""
    return Noted(folder)
