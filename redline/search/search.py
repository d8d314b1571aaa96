"""The search: pick a workflow, have it trained, learn from the result, until the episodes are used up.

It knows how to ask for training and what comes back, not how policies are trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from redline.errors import RedlineError
from redline.files import warn_on_stderr
from redline.metrics import MetricsLog
from redline.runs import GP, SEARCH_LOG, SEARCH_STATE, TRAINING_LOG, Run, as_written, within
from redline.search.parallel import Runner
from redline.worlds.workflows import Workflows


class TrainedWorkflow(Protocol):
    """A trained workflow, as far as the search needs to know it."""

    @property
    def workflow_id(self) -> int:
        """Its id."""

    @property
    def passed(self) -> bool:
        """Whether it is obeyed."""

    @property
    def env_reward(self) -> float:
        """The environment's own reward, of the last update's episodes."""

    @property
    def compliance(self) -> float:
        """Mean compliance of the same episodes."""

    @property
    def episodes(self) -> int:
        """Episodes it took."""

    @property
    def checkpoint(self) -> str:
        """Where its policy is."""

    @property
    def rows(self) -> list[dict[str, float]]:
        """One row per update, for the log."""


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


@dataclass(frozen=True)
class Budget:
    """How the episodes are spent."""

    total_episodes: int
    episodes_per_update: int
    max_episodes_per_workflow: int
    min_updates: int

    @property
    def total_updates(self) -> int:
        """Updates of all workflows together."""
        return self.total_episodes // self.episodes_per_update

    @property
    def updates_per_workflow(self) -> int:
        """Updates of one workflow, over all its picks."""
        return max(1, self.max_episodes_per_workflow // self.episodes_per_update)


@dataclass
class Known:
    """A workflow that has been trained."""

    checkpoint: str  # below the run folder
    episodes: int
    updates: int
    env_reward: float
    compliance: float
    passed: bool

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Known:
        """What was written down of it."""
        found = cls(**saved)
        numbers = (found.episodes, found.updates, found.env_reward, found.compliance)
        if not isinstance(found.checkpoint, str) or not all(isinstance(number, int | float) for number in numbers):
            raise ValueError("a workflow is known by a checkpoint and numbers")
        return found


@dataclass(frozen=True)
class Order:
    """A pick, as the training function is asked for it."""

    workflow_id: int
    iteration: int
    max_updates: int
    own: str | None
    other: str | None
    replicate: int = 0


@dataclass
class Pick:
    """One finished pick."""

    iteration: int
    result: TrainedWorkflow
    used: int


@dataclass
class Search:
    """A workflow search in its run folder. Iterate to search; everything is on disk before a pick is handed out."""

    run: Run
    workflows: Workflows
    budget: Budget
    ucb: Picker
    runner: Runner
    make_task: Callable[[Order], Any]
    train: Callable[[Any], TrainedWorkflow]
    parallel: int = 1
    known: dict[int, Known] = field(default_factory=dict)
    iteration: int = 0
    used: int = 0  # episodes
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Open the logs."""
        if self.budget.total_updates < 1:
            raise RedlineError(
                f"--total-episodes {self.budget.total_episodes} is less than one update. "
                f"Try --total-episodes {100 * self.budget.episodes_per_update}."
            )
        resume_at = self._restore()
        self._search_log = MetricsLog(self.run.path / SEARCH_LOG, resume_at, every=1, warn=warn_on_stderr)
        self._training_log = MetricsLog(self.run.path / TRAINING_LOG, resume_at, warn=warn_on_stderr)

    def __iter__(self) -> Iterator[Pick]:
        """Search until the budget is used or no workflow is left to train."""
        while True:
            started = time.monotonic()
            orders = self._next_orders()
            if not orders:
                return
            mean, std, ucb = self.ucb.acquisition()
            results = self.runner.run(self.train, [self.make_task(order) for order in orders])
            self.seconds += time.monotonic() - started
            picks = [self._take(order, result, (mean, std, ucb)) for order, result in zip(orders, results, strict=True)]
            self._save()
            yield from picks

    def _next_orders(self) -> list[Order]:
        """The next workflows to train, each with its share of the episodes that are left."""
        left = self.budget.total_updates - self.used // self.budget.episodes_per_update
        count = min(self.parallel, left)
        if count < 1:
            return []
        ids = self.ucb.ask(count)
        return [self._order(workflow_id, left // len(ids), k) for k, workflow_id in enumerate(ids)]

    def _order(self, workflow_id: int, share: int, k: int) -> Order:
        own = self.known.get(workflow_id)
        left = self.budget.updates_per_workflow - (own.updates if own else 0)
        nearest = min(self.known, key=lambda other: (self.workflows.distances[workflow_id, other], other), default=None)
        other = None if own or nearest is None else self._path(self.known[nearest])
        return Order(workflow_id, self.iteration + k, min(left, share), self._path(own) if own else None, other)

    def _path(self, known: Known) -> str:
        return str(self.run.path / known.checkpoint)

    def _take(self, order: Order, result: TrainedWorkflow, acquisition: tuple[Any, Any, Any]) -> Pick:
        """Learn from a result and log it."""
        name = self.workflows.name(result.workflow_id)
        about: dict[str, Any] = {"iteration": order.iteration, "workflow_id": result.workflow_id, "order": name}
        self._log_updates(about, result)
        self.iteration += 1
        mean, std, ucb = (float(values[result.workflow_id]) for values in acquisition)
        outcome = {"env_reward": result.env_reward, "compliance": result.compliance, "episodes": result.episodes}
        scores = {"ucb": ucb, "gp_mean": mean, "gp_std": std}
        self._search_log.append({"step": self.used, **about, **scores, **outcome, "passed": int(result.passed)})
        self._remember(result)
        return Pick(order.iteration, result, self.used)

    def _log_updates(self, about: dict[str, Any], result: TrainedWorkflow) -> None:
        for number, row in enumerate(result.rows, start=1):
            step = self.used + number * self.budget.episodes_per_update
            self._training_log.append({"step": step, **about, **row})
        self.used += result.episodes

    def _remember(self, result: TrainedWorkflow) -> None:
        known = self.known[result.workflow_id] = self._known(result, self.known.get(result.workflow_id))
        if result.passed:
            self.ucb.tell(result.workflow_id, result.env_reward)
            if known.updates >= self.budget.updates_per_workflow:
                self.ucb.retire(result.workflow_id)
        else:
            self.ucb.tell_infeasible(result.workflow_id)

    def _known(self, result: TrainedWorkflow, before: Known | None = None) -> Known:
        """What is now known of a workflow that was trained, for the first time or further."""
        path = str(Path(result.checkpoint).relative_to(self.run.path))  # so that a run folder can be moved
        episodes = result.episodes + (before.episodes if before else 0)
        updates = len(result.rows) + (before.updates if before else 0)
        return Known(path, episodes, updates, result.env_reward, result.compliance, result.passed)

    def _save(self) -> None:
        """Put the state on disk, after the logs it belongs to."""
        self._search_log.sync()
        self._training_log.sync()
        mean, std, _ = self.ucb.acquisition()
        observed = {str(k): known.env_reward for k, known in self.known.items() if known.passed}
        infeasible = [k for k, known in self.known.items() if not known.passed]
        self.run.write_json(GP, {"mean": mean, "std": std, "observed": observed, "infeasible": infeasible})
        self.run.write_json(SEARCH_STATE, self._state())

    def _state(self) -> dict[str, Any]:
        """All that `_restore` needs, ready for JSON."""
        return {
            "iteration": self.iteration,
            "used": self.used,
            "seconds": self.seconds,
            "ucb": self.ucb.snapshot(),
            "known": {str(k): vars(known) for k, known in self.known.items()},
        }

    def _restore(self) -> int | None:
        """Go on where the run folder stands; a pick that was under way is trained again, with the same result."""
        if not (self.run.path / SEARCH_STATE).exists():
            for name in (SEARCH_LOG, TRAINING_LOG):  # rows of a first pick that never finished
                (self.run.path / name).unlink(missing_ok=True)
            return None
        state = self.run.read_json(SEARCH_STATE)
        with as_written(self.run.path / SEARCH_STATE):
            self._read_state(state)
        return self.used

    def _read_state(self, state: dict[str, Any]) -> None:
        self.iteration, self.used = int(state["iteration"]), int(state["used"])
        self.seconds = float(state["seconds"])
        self.known = {self._id(k): self._read_known(known) for k, known in state["known"].items()}
        self.ucb.restore(state["ucb"])

    def _read_known(self, saved: dict[str, Any]) -> Known:
        known = Known.from_json(saved)
        within(self.run.path, known.checkpoint)
        return known

    def _id(self, text: str) -> int:
        if not 0 <= int(text) < len(self.workflows):
            raise ValueError(f"there is no workflow {text}")
        return int(text)

    def close(self) -> None:
        """Let go of logs and workers."""
        self._search_log.close()
        self._training_log.close()
        self.runner.close()
