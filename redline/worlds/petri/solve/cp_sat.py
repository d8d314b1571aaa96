"""Questions to CP-SAT and its answers: a problem, the search for its shortest schedule, and the schedule found."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from redline.errors import RedlineError, install
from redline.worlds.petri.rules.net import Net

try:
    from ortools.sat.python import cp_model
except ImportError as error:
    raise RedlineError(f"An exact solve needs OR-tools. Try: {install('ortools')}") from error

Times = TypeVar("Times")
"""When everything of a schedule begins, in the form that suits the kind of net."""
Value = Callable[[Any], int]
"""Gives the value of a variable or expression of the model."""
ASK_AGAIN_SECONDS = 0.1


class SolveProgress(NamedTuple):
    """A better schedule, seen while the search goes on."""

    makespan: int
    bound: int
    seconds: float


class Problem(ABC, Generic[Times]):
    """A net as a model whose `makespan` is to be as small as can be, and the way back to what the kernel plays.

    The model counts in ticks, the greatest unit that all times of the net are multiples of: nothing is lost by it.
    """

    def __init__(self, name: str, net: Net, bound: int, first: Times | None, longest: int, tick: int = 1) -> None:
        self.name = name
        self.net = net
        self.bound = bound
        """No schedule is shorter, in the net's own time."""
        self.first = first
        """A schedule that a rule has found, if one has; the search begins there."""
        self.longest = longest
        """No schedule that takes more ticks is looked for."""
        self.tick = tick
        self.cp = cp_model.CpModel()
        self.makespan = self.cp.new_int_var(min(math.ceil(bound / tick), longest), longest, "makespan")
        self.cp.minimize(self.makespan)

    @abstractmethod
    def read(self, value: Value) -> Times:
        """The times of a solution."""

    @abstractmethod
    def script(self, times: Times) -> np.ndarray:
        """Times as a script, which `play_script` plays."""

    @abstractmethod
    def makespan_of(self, times: Times) -> int:
        """When a schedule with these times is done, in the net's own time."""

    def new_time(self, name: str) -> Any:
        """A variable for an instant of the schedule."""
        return self.cp.new_int_var(0, self.longest, name)

    def new_interval(self, start: Any, end: Any, least: int = 1, most: int | None = None) -> Any:
        """The time between two instants, which lasts `least` to `most`."""
        size = self.cp.new_int_var(least, self.longest if most is None else most, "")
        return self.cp.new_interval_var(start, size, end, "")


@dataclass(frozen=True)
class SearchOutcome(Generic[Times]):
    """The outcome of a search."""

    times: Times | None
    """The best schedule it found, None if it found none."""
    bound: int
    """No schedule is shorter."""
    impossible: bool
    """Proven: there is no schedule at all."""
    interrupted: bool


def search(
    problem: Problem[Times], seconds: float, workers: int, seed: int, watch: Callable[[SolveProgress], None]
) -> SearchOutcome[Times]:
    """Look for the shortest schedule until it is proven, the time is up or Ctrl-C is pressed."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    # Proves re-entrant routes ten times as fast, but (OR-tools 9.15) denies solutions where an interval can be empty.
    # Probing with it takes longer than it saves.
    solver.parameters.use_strong_propagation_in_disjunctive = True
    solver.parameters.cp_model_probing_level = 0
    watcher = _Watcher(watch, problem.tick)
    if problem.first is not None:
        watcher.show(SolveProgress(problem.makespan_of(problem.first), problem.bound, 0.0))
    status, interrupted = _run(solver, problem.cp, watcher)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"The model of {problem.name} is invalid: {problem.cp.validate()}")
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bound = _whole(solver.best_objective_bound) * problem.tick if found else 0
    return SearchOutcome(
        problem.read(solver.value) if found else None,
        max(bound, problem.bound),
        status == cp_model.INFEASIBLE,
        interrupted,
    )


class _Watcher(cp_model.CpSolverSolutionCallback):
    def __init__(self, watch: Callable[[SolveProgress], None], tick: int) -> None:
        super().__init__()
        self._watch = watch
        self._tick = tick
        self._best: int | None = None

    def on_solution_callback(self) -> None:
        """Called by CP-SAT for every schedule it finds."""
        makespan, bound = round(self.objective_value), _whole(self.best_objective_bound)
        self.show(SolveProgress(makespan * self._tick, bound * self._tick, self.wall_time))

    def show(self, progress: SolveProgress) -> None:
        """Pass on what is better than all before."""
        if self._best is None or progress.makespan < self._best:
            self._best = progress.makespan
            self._watch(progress)


def _whole(bound: float) -> int:
    """The least whole number that is not below a bound."""
    return math.ceil(bound - 1e-6)


def _run(solver: Any, model: Any, watcher: _Watcher) -> tuple[Any, bool]:
    """Search in a thread, so that this one hears Ctrl-C. Returns the status and whether it was pressed."""
    with ThreadPoolExecutor(1) as thread:
        return status_of(thread.submit(solver.solve, model, watcher), solver.stop_search)


def status_of(searching: Future[Any], stop: Callable[[], None]) -> tuple[Any, bool]:
    """How a search ended, and whether Ctrl-C was pressed meanwhile, which asks it to stop until it does."""
    interrupted = False
    while True:
        try:
            return searching.result(timeout=ASK_AGAIN_SECONDS if interrupted else None), interrupted
        except KeyboardInterrupt:
            interrupted = True
        except TimeoutError:  # a search that has not begun yet does not hear that it is to stop
            pass
        stop()
