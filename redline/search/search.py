"""The search: have workflows trained, learn from the results, until the episodes are used up.

It keeps the run folder, counts episodes and knows how to ask for training; how policies are trained it does not know. Which
workflow is trained next, from where, and what is made of the result is the business of `Paired`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from redline.errors import RedlineError
from redline.files import warn_on_stderr
from redline.metrics import MetricsLog
from redline.runs import GP, SEARCH_LOG, SEARCH_STATE, TRAINING_LOG, Run, as_written, within
from redline.search.parallel import Runner
from redline.worlds.workflows import Workflows

if TYPE_CHECKING:
    from redline.search.paired import Paired


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


@dataclass(frozen=True)
class Budget:
    """How the episodes are spent."""

    total_episodes: int
    episodes_per_update: int

    @property
    def total_updates(self) -> int:
        """Updates of all workflows together."""
        return self.total_episodes // self.episodes_per_update


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


class WorkClock:
    """Seconds that a search has worked, over all its sittings."""

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Until now."""
        return self._before + (0.0 if self._since is None else time.monotonic() - self._since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what is done inside: once, however deep."""
        if self._since is not None:
            yield
            return
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._before, self._since = self.seconds, None


@dataclass
class Search:
    """A workflow search in its run folder. Iterate to search; everything is on disk before a pick is handed out."""

    run: Run
    workflows: Workflows
    budget: Budget
    method: Paired
    runner: Runner
    make_task: Callable[[Order], Any]
    train: Callable[[Any], TrainedWorkflow]
    parallel: int = 1
    iteration: int = 0
    used: int = 0  # episodes
    clock: WorkClock = field(default_factory=WorkClock)

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
        """Search until the budget is used or the method asks for no more."""
        with self.clock.running():
            self.method.begin(self)
        while picks := self._next_picks():
            yield from picks

    def _next_picks(self) -> list[Pick]:
        """Trainings side by side, and what was learnt from them on disk; none at the end of the search."""
        with self.clock.running():
            if not (orders := self.method.next_orders(self)):
                return []
            beliefs = self.method.beliefs()
            results = self.runner.run(self.train, [self.make_task(order) for order in orders])
            picks = [self._take(order, result, beliefs) for order, result in zip(orders, results, strict=True)]
            self._save()
        return picks

    @property
    def updates_left(self) -> int:
        """Updates that the budget still has."""
        return self.budget.total_updates - self.used // self.budget.episodes_per_update

    def known_by(self, result: TrainedWorkflow) -> Known:
        """What is now known of a workflow that was trained."""
        path = str(Path(result.checkpoint).relative_to(self.run.path))  # so that a run folder can be moved
        return Known(path, result.episodes, len(result.rows), result.env_reward, result.compliance, result.passed)

    def train_apart(self, order: Order, name: str, done: Callable[[Known], None]) -> None:
        """A training that is no pick: its episodes count, and it is on disk once `done` has taken note of it."""
        with self.clock.running():
            [result] = self.runner.run(self.train, [self.make_task(order)])
            self._log_updates({"iteration": order.iteration, "workflow_id": order.workflow_id, "order": name}, result)
            done(self.known_by(result))
            self._save()

    def id_of(self, text: str) -> int:
        """The workflow that a file names."""
        if not 0 <= int(text) < len(self.workflows):
            raise ValueError(f"there is no workflow {text}")
        return int(text)

    def read_known(self, saved: dict[str, Any]) -> Known:
        """What a file tells of a training, if its checkpoint lies in the run folder."""
        known = Known.from_json(saved)
        within(self.run.path, known.checkpoint)
        return known

    def close(self) -> None:
        """Let go of logs and workers."""
        self._search_log.close()
        self._training_log.close()
        self.runner.close()

    def _take(self, order: Order, result: TrainedWorkflow, beliefs: tuple[Any, Any, Any]) -> Pick:
        """Learn from a result and log it."""
        name = self.workflows.name(result.workflow_id)
        about: dict[str, Any] = {"iteration": order.iteration, "workflow_id": result.workflow_id, "order": name}
        self._log_updates(about, result)
        self.iteration += 1
        mean, std, ucb = (float(values[result.workflow_id]) for values in beliefs)
        outcome = {"env_reward": result.env_reward, "compliance": result.compliance, "episodes": result.episodes}
        scores = {"ucb": ucb, "gp_mean": mean, "gp_std": std}
        self._search_log.append({"step": self.used, **about, **scores, **outcome, "passed": int(result.passed)})
        self.method.learn(self, result)
        return Pick(order.iteration, result, self.used)

    def _log_updates(self, about: dict[str, Any], result: TrainedWorkflow) -> None:
        for number, row in enumerate(result.rows, start=1):
            step = self.used + number * self.budget.episodes_per_update
            self._training_log.append({"step": step, **about, **row})
        self.used += result.episodes

    def _save(self) -> None:
        """Put the state on disk, after the logs it belongs to."""
        self._search_log.sync()
        self._training_log.sync()
        mean, std, _ = self.method.beliefs()
        known = self.method.known
        observed = {str(k): each.env_reward for k, each in known.items() if each.passed}
        infeasible = [k for k, each in known.items() if not each.passed]
        self.run.write_json(GP, {"mean": mean, "std": std, "observed": observed, "infeasible": infeasible})
        so_far = {"iteration": self.iteration, "used": self.used, "seconds": self.clock.seconds}
        self.run.write_json(SEARCH_STATE, so_far | self.method.snapshot())

    def _restore(self) -> int | None:
        """Go on where the run folder stands; a pick that was under way is trained again, with the same result."""
        if not (self.run.path / SEARCH_STATE).exists():
            for name in (SEARCH_LOG, TRAINING_LOG):  # rows of a first pick that never finished
                (self.run.path / name).unlink(missing_ok=True)
            return None
        state = self.run.read_json(SEARCH_STATE)
        with as_written(self.run.path / SEARCH_STATE):
            self.iteration, self.used = int(state["iteration"]), int(state["used"])
            self.clock = WorkClock(float(state["seconds"]))
            self.method.restore(self, state)
        return self.used
