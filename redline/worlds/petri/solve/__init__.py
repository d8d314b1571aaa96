"""Shortest schedules of cluster tools and job shops, found and proven by CP-SAT and checked by our own kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.worlds.petri.cluster_tool import ClusterTool
from redline.worlds.petri.instances import Instance
from redline.worlds.petri.job_shop import JobShop, find_shop
from redline.worlds.petri.replay import play_script
from redline.worlds.petri.schedule import Schedule
from redline.worlds.petri.solve.cluster_tool import ToolProblem
from redline.worlds.petri.solve.cp_sat import Problem, SolveProgress, search
from redline.worlds.petri.solve.job_shop import ShopProblem

__all__ = ["ShopProblem", "Solution", "SolveProgress", "ToolProblem", "solve", "solve_problem"]


@dataclass(frozen=True)
class Solution:
    """The best schedule found, and how good it is."""

    schedule: Schedule
    bound: int
    """Proven: no schedule is shorter."""
    seconds: float
    """How long the search took."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search."""

    @property
    def makespan(self) -> int:
        """When the schedule is done."""
        return self.schedule.makespan

    @property
    def proven(self) -> bool:
        """Whether no schedule is shorter than this one."""
        return self.makespan == self.bound

    @property
    def gap(self) -> float:
        """By what share of the bound the schedule might be too long."""
        return 0.0 if self.proven else self.makespan / max(1, self.bound) - 1.0

    @property
    def status(self) -> str:
        """optimal, interrupted or feasible."""
        return "optimal" if self.proven else "interrupted" if self.interrupted else "feasible"


def solve(
    instance: Instance,
    seconds: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    watch: Callable[[SolveProgress], None] = lambda progress: None,
    turbo: bool = True,
) -> Solution:
    """The shortest schedule of a net, or the best that is found in time; `watch` sees every better one.

    It is the optimum over what is physically possible: guards that only advise a policy do not count.
    """
    return solve_problem(pose(instance, turbo), seconds, workers, seed, watch, turbo)


def pose(instance: Instance, turbo: bool = True) -> Problem[Any]:
    """A net as a problem for CP-SAT."""
    if isinstance(instance.options, ClusterTool):
        return ToolProblem(instance.name, instance.plan(), instance.net)
    if isinstance(instance.options, JobShop):
        shop = find_shop(instance.options.instance)
        return ShopProblem(instance.name, shop, instance.options, instance.net, turbo)
    raise RedlineError(
        f"{instance.name} cannot be solved exactly: only cluster tools and job shops can. Try petri:cluster/J-0."
    )


def solve_problem(
    problem: Problem[Any],
    seconds: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    watch: Callable[[SolveProgress], None] = lambda progress: None,
    turbo: bool = True,
) -> Solution:
    """The shortest schedule of a problem of one's own: a route, a device or a shop that has no name."""
    started = time.monotonic()
    answer = search(problem, seconds, workers, seed, watch)
    took = time.monotonic() - started
    times = problem.first if answer.times is None else answer.times
    if answer.impossible and times is not None:
        raise RuntimeError(f"The model of {problem.name} denies a schedule that exists. This is a bug of ours.")
    if answer.impossible:
        raise RedlineError(
            f"{problem.name} has no schedule within its horizon of {problem.net.horizon}. Try horizon=0."
        )
    if times is None:
        raise RedlineError(f"No schedule of {problem.name} was found in {seconds:g} s. Try more seconds, or horizon=0.")
    schedule = _played(problem, times, turbo)
    if schedule.makespan < answer.bound:
        raise RuntimeError(f"{problem.name} is done at {schedule.makespan}, before its lower bound of {answer.bound}.")
    return Solution(schedule, answer.bound, took, answer.interrupted)


def _played(problem: Problem[Any], times: Any, turbo: bool) -> Schedule:
    """The schedule as the kernel plays it. What CP-SAT promises must come true to the second."""
    script, promised = problem.script(times), problem.makespan_of(times)
    played = play_script(problem.net, np.array(script), turbo)
    if (played.outcome, played.lines, played.makespan) != ("done", len(script), promised):
        raise RuntimeError(
            f"The schedule found for {problem.name} should end at {promised}, but the kernel plays {played.lines} of "
            f"{len(script)} lines and ends in {played.outcome!r} at {played.makespan}. This is a bug of ours."
        )
    return Schedule(problem.name, problem.net, played.makespan, played.outcome, played.firings)
