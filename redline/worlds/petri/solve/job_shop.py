"""Job shops for CP-SAT: when each operation begins, and on which machine.

With free buffers a machine is taken for the duration of an operation. Where jobs block machines, one is taken until its
job has moved on, and jobs that move at the same instant take turns: none can move to a machine that is still taken, so
they cannot simply change places. Operations that take no time take turns as well.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.worlds.petri.dispatching import DISPATCHING, Dispatcher, Game
from redline.worlds.petri.job_shop import JobShop, Shop
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.rules.script import Line
from redline.worlds.petri.rules.state import OUTCOMES, logged
from redline.worlds.petri.rules.tables import NONE
from redline.worlds.petri.solve.cp_sat import Problem, Value


class Begin(NamedTuple):
    """An operation of a schedule: when it begins, its turn among those that begin at that instant, and its machine."""

    time: int
    turn: int
    machine: int


Begins = list[list[Begin]]
"""Every operation of every job."""


class ShopProblem(Problem[Begins]):
    """A job shop as a model."""

    def __init__(self, name: str, shop: Shop, options: JobShop, net: Net, turbo: bool = True) -> None:
        if options.non_delay:
            raise RedlineError(
                f"{name} cannot be solved exactly: non_delay=on forbids to wait, which is not modelled. Try non_delay=off."
            )
        self.shop = shop
        self.buffers = options.buffers
        self.turns = sum(len(job) for job in shop.jobs)
        """More moves there cannot be at one instant."""
        first, longest = self._first(net, turbo)
        takes_time = any(duration for job in shop.jobs for choices in job for _, duration in choices)
        super().__init__(name, net, (net.rules.lower_bound or 0) if takes_time else 0, first, longest)
        self.begins = [[self.new_time(f"begin {j} {k}") for k in range(len(job))] for j, job in enumerate(shop.jobs)]
        self.on = [[{m: self.cp.new_bool_var("") for m, _ in choices} for choices in job] for job in shop.jobs]
        for on in (on for job in self.on for on in job):
            self.cp.add_exactly_one(on.values())
        self._follow_jobs()
        instant = any(duration == 0 for job in shop.jobs for choices in job for _, duration in choices)
        self.moves = self._take_turns() if instant or self.buffers != "free" else []
        self._share_machines()
        self._hint()

    # Answers

    def read(self, value: Value) -> Begins:
        """The operations of a solution."""
        found: Begins = []
        for j, job in enumerate(self.shop.jobs):
            found.append([])
            for k, choices in enumerate(job):
                machine = next(machine for machine, _ in choices if value(self.on[j][k][machine]))
                turn = value(self.moves[j][k]) % self.turns if self.moves else 0
                found[j].append(Begin(value(self.begins[j][k]), turn, machine))
        return found

    def script(self, times: Begins) -> np.ndarray:
        """Operations as lines."""
        index = {transition.name: t for t, transition in enumerate(self.net.transitions)}
        lines = []
        for j, job in enumerate(times):
            for k, begin in enumerate(job):
                came_from = None if k == 0 else job[k - 1].machine
                t = next(index[name] for name in _names(j, k, begin.machine, came_from) if name in index)
                lines.append((begin.time, begin.turn, t))
        in_turn = [Line(time, token=NONE, transition=t, step=NONE) for time, _, t in sorted(lines)]
        return np.array(in_turn, np.int32)

    def makespan_of(self, times: Begins) -> int:
        """When the last job is done."""
        lasts = [(job[-1], choices[-1]) for job, choices in zip(times, self.shop.jobs, strict=True)]
        return max(begin.time + dict(choices)[begin.machine] for begin, choices in lasts)

    # A first schedule

    def _first(self, net: Net, turbo: bool) -> tuple[Begins | None, int]:
        """The best that a rule finds, and how long it takes; the horizon if that is shorter."""
        dispatched = [self._dispatched(net, rule, turbo) for rule in DISPATCHING]
        found = [self._one_by_one(), *(begins for begins in dispatched if begins is not None)]
        best = min(found, key=self.makespan_of)
        horizon = net.horizon or self.makespan_of(best)
        return (best, self.makespan_of(best)) if self.makespan_of(best) <= horizon else (None, horizon)

    def _one_by_one(self) -> Begins:
        """One job after the other."""
        begins: Begins = []
        clock = turn = 0
        for j, job in enumerate(self.shop.quickest()):
            clock = max(clock, self._release(j))
            begins.append([])
            for machine, duration in job:
                begins[j].append(Begin(clock, turn, machine))
                clock, turn = clock + duration, turn + 1
        return begins

    def _dispatched(self, net: Net, rule: str, turbo: bool) -> Begins | None:
        """The schedule of a dispatching rule; None if it does not reach the goal."""
        dispatcher, game = Dispatcher(net, rule), Game(net, turbo, log_size=2 * self.turns)
        while game.running:
            game.step(int(dispatcher.act(game.state, game.mask)[0]))
        if OUTCOMES[game.state.envs[0].outcome] != "done":
            return None
        begun = self._begun_by(net)
        mine = [(time, *begun[t]) for time, _, t, _ in logged(game.state, 0).tolist() if t in begun]
        begins: Begins = [[] for _ in self.shop.jobs]
        for turn, (time, j, machine) in enumerate(mine):
            begins[j].append(Begin(time, turn, machine))
        return begins

    def _begun_by(self, net: Net) -> dict[int, tuple[int, int]]:
        """The job that each transition moves, and the machine it moves it to."""
        index = {transition.name: t for t, transition in enumerate(net.transitions)}
        begun: dict[int, tuple[int, int]] = {}
        for j, job in enumerate(self.shop.jobs):
            for k, choices in enumerate(job):
                before = [None] if k == 0 else [machine for machine, _ in job[k - 1]]
                for (machine, _), came_from in product(choices, before):
                    begun |= {index[name]: (j, machine) for name in _names(j, k, machine, came_from) if name in index}
        return begun

    def _hint(self) -> None:
        """Where the search begins."""
        for j, job in enumerate(self.first or []):
            for k, begin in enumerate(job):
                self.cp.add_hint(self.begins[j][k], begin.time)
                if self.moves:
                    self.cp.add_hint(self.moves[j][k], begin.time * self.turns + begin.turn)
                for machine, on in self.on[j][k].items():
                    self.cp.add_hint(on, machine == begin.machine)

    # The model

    def _release(self, j: int) -> int:
        return self.shop.releases[j] if self.shop.releases else 0

    def _duration(self, j: int, k: int) -> Any:
        return sum(duration * self.on[j][k][machine] for machine, duration in self.shop.jobs[j][k])

    def _follow_jobs(self) -> None:
        """Operations of a job come one after the other, without a wait if there must be none."""
        for j, job in enumerate(self.begins):
            self.cp.add(job[0] >= self._release(j))
            for k, begin in enumerate(job):
                end = begin + self._duration(j, k)
                if k + 1 == len(job):
                    self.cp.add(self.makespan >= end)
                elif self.buffers == "no_wait":
                    self.cp.add(job[k + 1] == end)
                else:
                    self.cp.add(job[k + 1] >= end)

    def _take_turns(self) -> list[list[Any]]:
        """The instant of every move, in units so small that all moves of one instant find their turn in it."""
        last = (self.longest + 1) * self.turns
        moves = [[self.cp.new_int_var(0, last, "") for _ in job] for job in self.begins]
        for job, begins in zip(moves, self.begins, strict=True):
            for k, (move, begin) in enumerate(zip(job, begins, strict=True)):
                turn = self.cp.new_int_var(0, self.turns - 1, "")
                self.cp.add(move == self.turns * begin + turn)
                if k:
                    self.cp.add(move > job[k - 1])
        return moves

    def _share_machines(self) -> None:
        """A machine has one job at a time."""
        intervals: dict[int, list[Any]] = {}
        for j, job in enumerate(self.shop.jobs):
            for k, choices in enumerate(job):
                for machine, duration in choices:
                    taken = self._held(j, k, machine, duration) if self.moves else self._worked(j, k, machine, duration)
                    intervals.setdefault(machine, []).append(taken)
        for here in intervals.values():
            self.cp.add_no_overlap(here)

    def _worked(self, j: int, k: int, machine: int, duration: int) -> Any:
        """The time an operation takes its machine, if that is the one."""
        return self.cp.new_optional_fixed_size_interval_var(self.begins[j][k], duration, self.on[j][k][machine], "")

    def _held(self, j: int, k: int, machine: int, duration: int) -> Any:
        """The turns for which a job holds a machine: until it is done, or until after its move to another one."""
        start, on = self.moves[j][k], self.on[j][k][machine]
        end = self.cp.new_int_var(0, (self.longest + 2) * self.turns, "")
        if self.buffers != "free" and k + 1 < len(self.shop.jobs[j]):
            stays = self.on[j][k + 1].get(machine, 0)
            self.cp.add(end == self.moves[j][k + 1] + 1 - stays)
        else:
            self.cp.add(end >= start + 1)
            self.cp.add(end >= self.turns * (self.begins[j][k] + duration)).only_enforce_if(on)
        size = self.cp.new_int_var(1, (self.longest + 2) * self.turns, "")
        return self.cp.new_optional_interval_var(start, size, end, on, "")


def _names(j: int, k: int, machine: int, came_from: int | None) -> tuple[str, str, str]:
    """Possible names of the transition that begins an operation; it names machines only where there is a choice."""
    return f"O{j},{k}", f"O{j},{k},{machine}", f"O{j},{k},{machine},{came_from}"
