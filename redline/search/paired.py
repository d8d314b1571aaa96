"""The search that compares like with like: every workflow is trained from the same starts, with the same random numbers.

Replicate k of every workflow begins with start k, a policy that was trained with nothing to obey, and is trained with
random numbers of its own. So two workflows differ, replicate by replicate, by what obeying them costs and little else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redline.learn.judging import Judging, judge, tell_apart
from redline.runs import ALIKE
from redline.search.search import Known, Order, Pick, Search, TrainedWorkflow
from redline.search.top_two import TopTwo

START = -1
"""Stands in the log for the workflow of a policy that obeys none."""


@dataclass
class PairedSearch(Search):
    """A search by replicates. Iterate to search; then `train_on` spends what is left."""

    ucb: TopTwo
    make_judgement: Callable[[str | None], Judging] | None = None
    """The episodes that tell which workflows are alike, from the checkpoint of the first start; None: all differ."""
    start_updates: int = 0
    """Updates of a start; 0: every training begins from scratch."""
    updates_each: int = 10
    """Updates of one training."""
    threshold: float = 0.9
    """Mean compliance from which on a workflow counts as obeyed."""
    tolerance: float = 0.0
    """The search ends when its answer is expected to lose less than this share of its score against the true best."""
    impartial: bool = False
    """Go on with workflows that are not obeyed."""
    starts: list[str] = field(default_factory=list)  # below the run folder
    trainings: dict[int, list[Known]] = field(default_factory=dict)  # replicate 0 first
    finished: Known | None = None
    """The best workflow, trained on."""

    def __iter__(self) -> Iterator[Pick]:
        """Search until the answer stands, the budget is used or no workflow is left to train."""
        self._tell_apart()
        yield from super().__iter__()

    @property
    def settled(self) -> bool:
        """Whether more episodes are not expected to change the answer."""
        regret = self.ucb.regret()
        return bool(np.isfinite(regret)) and regret <= self.tolerance * abs(self.ucb.best_score())

    @property
    def updates_left(self) -> int:
        """Updates that the budget still has."""
        return self.budget.total_updates - self.used // self.budget.episodes_per_update

    def _tell_apart(self) -> None:
        """Find out which workflows are alike, once; the first start is needed for it."""
        if self.make_judgement is None:
            return
        if not (self.run.path / ALIKE).exists():
            start = self._start(0) if self.start_updates else None
            groups, distances = tell_apart(self.runner.run(judge, [self.make_judgement(start)])[0])
            self.run.write_json(ALIKE, {"groups": groups, "distances": distances})
        found = self.run.read_json(ALIKE)
        self.ucb.group(np.array(found["groups"]), np.array(found["distances"]))

    def _start(self, replicate: int) -> str:
        """The checkpoint of a start, trained now if need be."""
        while len(self.starts) <= replicate:
            began = time.monotonic()
            order = Order(START, START, self.start_updates, None, None, len(self.starts))
            [result] = self.runner.run(self.train, [self.make_task(order)])
            about = {"iteration": START, "workflow_id": START, "order": f"start {order.replicate}"}
            self._log_updates(about, result)
            self.starts.append(self._known(result).checkpoint)
            self.seconds += time.monotonic() - began
            self._save()
        return str(self.run.path / self.starts[replicate])

    def _next_orders(self) -> list[Order]:
        """The next trainings, if the answer does not stand yet and there are episodes for them."""
        if self.settled:
            return []
        ids = self.ucb.ask(self.parallel)
        while ids and self._updates_of(ids) > self.updates_left:
            ids.pop()
        replicates = [self.ucb.replicate(id) for id in ids]
        self.ucb.forget_asked()
        others = [self._start(replicate) if self.start_updates else None for replicate in replicates]
        return [
            Order(id, self.iteration + k, self.updates_each, None, other, replicate)
            for k, (id, replicate, other) in enumerate(zip(ids, replicates, others, strict=True))
        ]

    def _updates_of(self, ids: list[int]) -> int:
        """What training these costs, with the starts that they need."""
        missing = max(self.ucb.replicate(id) + 1 for id in ids) - len(self.starts) if self.start_updates else 0
        return max(missing, 0) * self.start_updates + len(ids) * self.updates_each

    def _remember(self, result: TrainedWorkflow) -> None:
        mine = self.trainings.setdefault(result.workflow_id, [])
        mine.append(self._known(result))
        compliance = float(np.mean([known.compliance for known in mine]))
        obeyed = compliance >= self.threshold
        self.known[result.workflow_id] = Known(
            mine[-1].checkpoint,
            sum(known.episodes for known in mine),
            sum(known.updates for known in mine),
            float(np.mean([known.env_reward for known in mine])),
            compliance,
            obeyed,
        )
        if obeyed or self.impartial:
            self.ucb.tell(result.workflow_id, result.env_reward)
        else:
            self.ucb.tell_infeasible(result.workflow_id)

    def train_on(self, workflow_id: int, checkpoint: str) -> Known | None:
        """Spend what is left of the budget on one workflow's policy; None where nothing is left."""
        if self.finished is None and self.updates_left > 0:
            began = time.monotonic()
            own = str(self.run.path / checkpoint)
            order = Order(workflow_id, self.iteration, self.updates_left, own, None, START)
            [result] = self.runner.run(self.train, [self.make_task(order)])
            name = self.workflows.name(workflow_id)
            self._log_updates({"iteration": self.iteration, "workflow_id": workflow_id, "order": name}, result)
            self.finished = self._known(result)
            self.seconds += time.monotonic() - began
            self._save()
        return self.finished

    def _state(self) -> dict[str, Any]:
        more = {
            "starts": self.starts,
            "trainings": {str(id): [vars(known) for known in mine] for id, mine in self.trainings.items()},
            "finished": self.finished and vars(self.finished),
        }
        return super()._state() | more

    def _read_state(self, state: dict[str, Any]) -> None:
        super()._read_state(state)
        self.starts = list(state["starts"])
        self.trainings = {
            self._id(k): [self._read_known(known) for known in mine] for k, mine in state["trainings"].items()
        }
        self.finished = self._read_known(state["finished"]) if state["finished"] else None
