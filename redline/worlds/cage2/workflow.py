"""Workflows, the 120 priority orders over five types of host: how far apart they are, and what a search plays."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from redline.errors import RedlineError
from redline.worlds.cage2.rules import scenario
from redline.worlds.cage2.rules.scenario import TYPES, Scenario, parse_order
from redline.worlds.workflows import Workflows

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


@dataclass(frozen=True)
class SearchSettings:
    """The attacker of a search, and the pay for obedience."""

    red_agent: str = "B_lineAgent"
    """Red agent to defend against."""
    rules: str = "final"
    """Rule set: final or leaderboard."""
    max_steps: int = 100
    """Steps in an episode."""
    alignment_lambda: float = 30.0
    """Reward of a fully obedient episode."""
    compliance_bonus: float = 0.0
    """Extra reward of each obedient fix, as a multiple of lambda."""
    violation_penalty: float = 0.0
    """Extra cost of each disobedient fix, as a multiple of lambda."""
    count_foothold: bool = False
    """Count User0, which Red can never lose, as compromised: then `user` always is."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        if self.max_steps < 1:
            raise RedlineError(f"--max-steps {self.max_steps} cannot work: it must be at least 1. Try --max-steps 100.")
        Scenario(**env_options(self, ""))


def env_options(settings: SearchSettings, workflow: str) -> dict[str, Any]:
    """The options of the env in which a workflow is trained."""
    return {**asdict(settings), **({"workflow": workflow} if workflow else {})}


def baselines(settings: SearchSettings, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Scores of the random policy and of the six fixed orders played greedily, in the search's own setting."""
    from redline.worlds.cage2.protocol import evaluate_cage2

    scenario = Scenario(red_agent=settings.red_agent, rules=settings.rules, max_steps=settings.max_steps)
    found = []
    for name in ("random", *(f"greedy:{order}" for order in FIXED_ORDERS)):
        score = evaluate_cage2(
            name, scenario, episodes=episodes, lengths=[scenario.max_steps], red_agents=[scenario.red_agent],
            rule_sets=[scenario.rules], seed=seed,
        )[0]  # fmt: skip
        found.append({"name": name, "mean": score.mean, "stderr": score.stderr})
    return found


WORKFLOWS = Workflows(
    TYPES, tuple(workflow.order for workflow in ALL_WORKFLOWS), DISTANCES, SearchSettings, env_options, baselines
)
