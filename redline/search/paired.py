"""The method that compares like with like: every workflow is trained from the same starts, with the same random numbers.

Replicate k of every workflow begins with start k, a policy that was trained with nothing to obey, and is trained with
random numbers of its own. So two workflows differ, replicate by replicate, by what obeying them costs and little else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redline.runs import ALIKE
from redline.search.equivalence import Judging, judge, tell_apart
from redline.search.ranking import rank
from redline.search.search import Known, Order, Search, TrainedWorkflow
from redline.search.top_two import TopTwo

START = -1
"""Stands in the log for the workflow of a policy that obeys none."""


@dataclass
class Paired:
    """Trains workflows replicate by replicate until the answer stands."""

    picker: TopTwo
    start_updates: int = 0
    """Updates of a start; after none it is an untrained policy."""
    updates_each: int = 10
    """Updates of one training."""
    threshold: float = 0.9
    """Mean compliance from which on a workflow counts as obeyed."""
    tolerance: float = 0.0
    """The search ends when its answer is expected to lose less than this share of its score against the true best."""
    impartial: bool = False
    """Go on with workflows that are not obeyed, and leave no episodes over for the best."""
    make_judgement: Callable[[str], Judging] | None = None
    """The episodes that tell which workflows are alike, from the checkpoint of the first start; None: all differ."""
    starts: list[str] = field(default_factory=list)  # below the run folder
    trainings: dict[int, list[Known]] = field(default_factory=dict)  # replicate 0 first
    finished: Known | None = None
    """The best workflow, trained on."""

    def begin(self, search: Search) -> None:
        """Find out which workflows are alike, once; the first start is needed for it."""
        if self.make_judgement is None:
            return
        if not (search.run.path / ALIKE).exists():
            judgement = self.make_judgement(self.start(search, 0))
            groups, distances = tell_apart(search.runner.run(judge, [judgement])[0])
            search.run.write_json(ALIKE, {"groups": groups, "distances": distances})
        found = search.run.read_json(ALIKE)
        self.picker.group(np.array(found["groups"]), np.array(found["distances"]))

    def start(self, search: Search, replicate: int) -> str:
        """The checkpoint of a start, trained now if need be."""
        while len(self.starts) <= replicate:
            order = Order(START, START, self.start_updates, None, None, len(self.starts))
            search.train_apart(order, f"start {order.replicate}", lambda known: self.starts.append(known.checkpoint))
        return str(search.run.path / self.starts[replicate])

    @property
    def settled(self) -> bool:
        """Whether more episodes are not expected to change the answer."""
        regret = self.picker.regret()
        return bool(np.isfinite(regret)) and regret <= self.tolerance * abs(self.picker.best_score())

    def next_orders(self, search: Search) -> list[Order]:
        """The next trainings, if the answer does not stand yet and there are episodes for them."""
        if self.settled:
            return []
        ids = self.picker.ask(search.parallel)
        while ids and self._updates_of(ids) > search.updates_left:
            ids.pop()
        replicates = [self.picker.replicate(id) for id in ids]
        self.picker.forget_asked()
        return [
            Order(id, search.iteration + k, self.updates_each, None, self.start(search, replicate), replicate)
            for k, (id, replicate) in enumerate(zip(ids, replicates, strict=True))
        ]

    def _updates_of(self, ids: list[int]) -> int:
        """What training these costs, with the starts that they need."""
        missing = max(self.picker.replicate(id) + 1 for id in ids) - len(self.starts)
        return max(missing, 0) * self.start_updates + len(ids) * self.updates_each

    def learn(self, search: Search, result: TrainedWorkflow) -> None:
        """One more training of a workflow: tell the picker of it, or that the workflow is not obeyed."""
        id = result.workflow_id
        self.trainings.setdefault(id, []).append(search.known_by(result))
        if self._obeyed(self.trainings[id]) or self.impartial:
            self.picker.tell(id, result.env_reward)
        else:
            self.picker.tell_infeasible(id)

    @property
    def known(self) -> dict[int, Known]:
        """Every workflow by all its trainings."""
        return {id: self._together(mine) for id, mine in self.trainings.items()}

    def _together(self, mine: list[Known]) -> Known:
        reward, compliance = (float(np.mean([getattr(known, name) for known in mine])) for name in MEANS)
        episodes, updates = (sum(getattr(known, name) for known in mine) for name in SUMS)
        return Known(mine[-1].checkpoint, episodes, updates, reward, compliance, self._obeyed(mine))

    def _obeyed(self, mine: list[Known]) -> bool:
        return float(np.mean([known.compliance for known in mine])) >= self.threshold

    def beliefs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, standard deviation and upper end of the 95 % interval of all workflows."""
        return self.picker.acquisition()

    def rank(self, search: Search, settings: Any, episodes: int, seed: int) -> dict[str, Any]:
        """Every workflow by all its trainings."""
        known, groups = self.known, self.picker.groups
        return rank(search.run, search.workflows, settings, known, self.trainings, groups, episodes, seed)

    def finish(self, search: Search, best: dict[str, Any]) -> Known | None:
        """Spend what is left of the budget on the best workflow's policy."""
        if self.finished is None and search.updates_left > 0 and not self.impartial:
            id, own = best["workflow_id"], str(search.run.path / best["checkpoint"])
            order = Order(id, search.iteration, search.updates_left, own, None, START)
            search.train_apart(order, search.workflows.name(id), self._finished)
        return self.finished

    def _finished(self, known: Known) -> None:
        self.finished = known

    def snapshot(self) -> dict[str, Any]:
        """Its state, ready for JSON."""
        return {
            "picker": self.picker.snapshot(),
            "known": {str(id): vars(known) for id, known in self.known.items()},
            "starts": self.starts,
            "trainings": {str(id): [vars(known) for known in mine] for id, mine in self.trainings.items()},
            "finished": self.finished and vars(self.finished),
        }

    def restore(self, search: Search, saved: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self.picker.restore(saved["picker"])
        self.starts = list(saved["starts"])
        self.trainings = {
            search.id_of(id): [search.read_known(known) for known in mine] for id, mine in saved["trainings"].items()
        }
        self.finished = search.read_known(saved["finished"]) if saved["finished"] else None


MEANS, SUMS = ("env_reward", "compliance"), ("episodes", "updates")
