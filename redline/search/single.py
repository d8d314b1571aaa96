"""The search of the guides: one training of each workflow, from the policy of the nearest trained before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from redline.search.ranking import rank
from redline.search.search import Known, Order, Search, TrainedWorkflow


class Picker(Protocol):
    """Chooses the workflows."""

    def ask(self, count: int = 1) -> list[int]:
        """Workflows to train next."""

    def tell(self, id: int, value: float) -> None:
        """The worth of one."""

    def tell_infeasible(self, id: int) -> None:
        """One that is not obeyed."""

    def retire(self, id: int) -> None:
        """One whose budget is used up."""

    def acquisition(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, std and UCB of all workflows."""

    def snapshot(self) -> dict[str, Any]:
        """Its state, ready for JSON."""

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""


@dataclass
class Single:
    """Trains each workflow until it is obeyed, and further when it is picked again."""

    picker: Picker
    known: dict[int, Known] = field(default_factory=dict)

    def begin(self, search: Search) -> None:
        """There is nothing to find out first."""

    def next_orders(self, search: Search) -> list[Order]:
        """The next workflows to train, each with its share of the episodes that are left."""
        left = search.updates_left
        ids = self.picker.ask(min(search.parallel, left)) if left > 0 else []
        return [self._order(search, id, left // len(ids), k) for k, id in enumerate(ids)]

    def _order(self, search: Search, id: int, share: int, k: int) -> Order:
        own = self.known.get(id)
        left = search.budget.updates_per_workflow - (own.updates if own else 0)
        nearest = min(self.known, key=lambda other: (search.workflows.distances[id, other], other), default=None)
        other = None if own or nearest is None else search.path(self.known[nearest])
        return Order(id, search.iteration + k, min(left, share), search.path(own) if own else None, other)

    def learn(self, search: Search, result: TrainedWorkflow) -> None:
        """Tell the picker what a workflow is worth, or that it is not obeyed."""
        id = result.workflow_id
        self.known[id] = search.known_by(result, self.known.get(id))
        if not result.passed:
            self.picker.tell_infeasible(id)
            return
        self.picker.tell(id, result.env_reward)
        if self.known[id].updates >= search.budget.updates_per_workflow:
            self.picker.retire(id)

    def beliefs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, standard deviation and UCB of all workflows."""
        return self.picker.acquisition()

    def rank(self, search: Search, settings: Any, episodes: int, seed: int) -> dict[str, Any]:
        """Every workflow by its one policy."""
        return rank(search.run, search.workflows, settings, self.known, episodes, seed)

    def finish(self, search: Search, best: dict[str, Any]) -> Known | None:
        """The search has used all there was."""

    def snapshot(self) -> dict[str, Any]:
        """Its state, ready for JSON."""
        return {"ucb": self.picker.snapshot(), "known": {str(k): vars(known) for k, known in self.known.items()}}

    def restore(self, search: Search, saved: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self.known = {search.id_of(k): search.read_known(known) for k, known in saved["known"].items()}
        self.picker.restore(saved["ucb"])
