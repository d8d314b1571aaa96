"""Workflows, the 120 priority orders over five types of host, and how far apart they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from redline.sims.cage2 import scenario
from redline.sims.cage2.scenario import TYPES, parse_order

_PAIRS = tuple(itertools.combinations(range(len(TYPES)), 2))


@dataclass(frozen=True, order=True)
class Workflow:
    """A priority order over the host types: the first is repaired first."""

    order: tuple[int, ...]
    """Indices into TYPES, each exactly once."""

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(TYPES))):
            raise ValueError(f"{self.order} is no order of the {len(TYPES)} host types: each index comes exactly once.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The workflow a user wrote: host types between commas or arrows, or the name of a fixed order."""
        return cls(parse_order(text))

    def __str__(self) -> str:
        return " > ".join(TYPES[kind] for kind in self.order)

    @property
    def id(self) -> int:
        """Its place among ALL_WORKFLOWS, 0 to 119."""
        return _IDS[self.order]

    def one_hot(self) -> np.ndarray:
        """What a policy is told, float32 [25]: row = position, column = type."""
        return np.eye(len(TYPES), dtype=np.float32)[list(self.order)].ravel()


_IDS = {order: rank for rank, order in enumerate(itertools.permutations(range(len(TYPES))))}
ALL_WORKFLOWS = tuple(Workflow(order) for order in _IDS)
"""All of them, sorted; a workflow's id is its index here."""

FIXED_ORDERS = {name: Workflow(order) for name, order in scenario.FIXED_ORDERS.items()}


def _all_distances() -> np.ndarray:
    positions = np.argsort([workflow.order for workflow in ALL_WORKFLOWS], axis=1)  # [120, type]
    first, second = np.transpose(_PAIRS)
    comes_first = positions[:, first] < positions[:, second]  # [120, pair]
    distances = (comes_first[:, None] != comes_first[None, :]).sum(axis=2) / len(_PAIRS)
    distances.setflags(write=False)
    return distances


DISTANCES = _all_distances()
"""Kendall distance between any two workflows by id, float64 [120, 120]."""


def kendall(a: Workflow, b: Workflow) -> float:
    """The share of the 10 pairs of types that the two rank differently: 0 when equal, 1 when reversed."""
    return float(DISTANCES[a.id, b.id])


def relabel(workflow: Workflow, permutation: Sequence[int]) -> Workflow:
    """The same order with type `t` called `permutation[t]`. Distances do not notice."""
    return Workflow(tuple(int(permutation[kind]) for kind in workflow.order))
