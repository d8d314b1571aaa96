"""Workflows: orders of priority that a world's policies can be trained to obey, for a search to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Workflows:
    """All orders of some types of things, by id, and what a world makes of them.

    An env that is given a workflow tells of every episode `env_return` (what it would have paid without one),
    `alignment` (what obedience paid), `compliance` (0 to 1) and `fixes`.
    """

    types: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]
    """Indices into `types`, the most important first; a workflow's id is its place here."""
    distances: np.ndarray
    """How far apart any two are, float64 [n, n]: 0 when equal, 1 when reversed."""
    settings: type
    """A frozen dataclass of the env's options that a search takes; `max_steps` is one of them."""
    env_options: Callable[[Any, str], dict[str, Any]]
    """The env's options, from the settings and a workflow as `spelled` writes it; the empty one obeys none."""
    baselines: Callable[[Any, int, int], list[dict[str, Any]]]
    """Name, mean and stderr of players that were not trained, from settings, a number of episodes and a seed."""

    def __len__(self) -> int:
        return len(self.orders)

    def name(self, id: int) -> str:
        """A workflow for people to read."""
        return " > ".join(self.types[kind] for kind in self.orders[id])

    def spelled(self, id: int) -> str:
        """A workflow as an option has it."""
        return ",".join(self.types[kind] for kind in self.orders[id])
