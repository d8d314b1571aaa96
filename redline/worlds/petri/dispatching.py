"""Policies without learning: dispatching rules for job shops, and for cluster tools a rule that never waits.

They are baselines, and warm starts for a policy that would otherwise see only failures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redline.compiled.speed import at_speed
from redline.errors import RedlineError, unknown
from redline.worlds.petri.bounds import carriers
from redline.worlds.petri.cluster_tool import ClusterTool, Stage, ToolPlan
from redline.worlds.petri.instances import Instance
from redline.worlds.petri.replay import SPARE, Hops, Played, account, script_of
from redline.worlds.petri.rules import kernel
from redline.worlds.petri.rules.net import NEXT, Net
from redline.worlds.petri.rules.script import Line
from redline.worlds.petri.rules.state import RUNNING, NetState, new_finals, new_state
from redline.worlds.petri.rules.tables import FAR, NONE, tabulate

DISPATCHING = ("SPT", "MWR", "MOR", "FIFO")
"""Shortest operation, most work remaining, most operations remaining, first come first served."""
INSERTION = "insertion"


# Job shops


class Dispatcher:
    """A dispatching rule for all envs of a job shop at once. Never waits while something can begin."""

    def __init__(self, net: Net, rule: str) -> None:
        if rule not in DISPATCHING:
            raise unknown("dispatching rule", rule, DISPATCHING)
        if not net.operations:
            raise RedlineError(f"{rule} orders the jobs of a job shop, and {net.name!r} is none.")
        self.rule = rule
        self._tables, _ = tabulate(net)
        self._num_groups = len(net.action_names) - len(net.rules.waits)
        mine = [t for t, each in enumerate(self._tables.transitions) if each.controllable and each.source != NONE]
        self._source = self._tables.transitions.source[mine]
        self._action = self._tables.transitions.action[mine]
        self._cost = np.array([self._static_cost(t) for t in mine], float)

    def act(self, state: NetState, mask: np.ndarray) -> np.ndarray:
        """Actions int64 [N]: the legal one that the rule likes best, ties to the lowest; a wait where only that is."""
        here = (state.places.marking[:, self._source] > 0) & mask[:, self._action]  # [N, transitions]
        cost = state.places.entered[:, self._source] if self.rule == "FIFO" else self._cost
        costs = np.full(mask.shape, np.inf)
        rows = np.arange(len(mask))[:, None]
        np.minimum.at(costs, (rows, self._action[None, :]), np.where(here, cost, np.inf))
        waits = mask.copy()
        waits[:, : self._num_groups] = False
        costs[waits] = FAR * 2.0
        return np.argmin(costs, axis=1)

    def _static_cost(self, t: int) -> int:
        """The rule's cost of firing `t`, as far as that never changes."""
        transition = self._tables.transitions[t]
        operation = self._tables.operations[self._tables.places[transition.source].operation]
        return {
            "SPT": max(transition.duration, transition.work),
            "MWR": -operation.work_left,
            "MOR": operation.done - operation.of,
            "FIFO": 0,
        }[self.rule]


class Game:
    """One env of a net, played by hand: `mask` says what is legal, `step` plays it."""

    def __init__(self, net: Net, turbo: bool = True, log_size: int = 0) -> None:
        self.net = net
        self.tables, sizes = tabulate(net)
        self.state = new_state(1, sizes, 0, log_size)
        self.obs, self.mask = np.zeros((1, sizes.observation), np.float32), np.zeros((1, sizes.actions), np.bool_)
        self.finals, self._flags = new_finals(1, sizes), np.zeros((2, 1), np.bool_)
        self._step = at_speed(kernel.step, turbo)
        kernel.reset(self.tables, self.state, 0, 1, self.obs, self.mask, True, turbo)

    def step(self, action: int) -> float:
        """Play one action; returns its reward."""
        rewards = np.zeros(1)
        self._step(
            self.tables, self.state, 0, 1, kernel.STEP, np.array([action]), self.obs, self.mask, rewards,
            self._flags[0], self._flags[1], self.obs, self.finals,
        )  # fmt: skip
        return float(rewards[0])

    @property
    def running(self) -> bool:
        """Whether the episode goes on."""
        return bool(self.state.envs[0].outcome == RUNNING)

    @property
    def clock(self) -> int:
        """Time since reset."""
        return int(self.state.envs[0].clock)


# Cluster tools


def insert_without_waiting(plan: ToolPlan) -> tuple[tuple[tuple[int, int], ...], ...]:
    """(pick, place) of every hop of every wafer: each is released at the first time it can run through unhindered.

    Always feasible, because no wafer ever waits. It plans for one arm, whatever the robots have, and for chambers that
    are clean unless they change from one type of wafer to another.
    """
    taken: dict[str, list[tuple[int, int]]] = {}
    hops: list[tuple[tuple[int, int], ...]] = []
    release = 0
    for kind in plan.wafer_types:
        demands, delay = _demands(plan, plan.types[kind], taken, release)
        while delay:
            release += delay
            demands, delay = _demands(plan, plan.types[kind], taken, release)
        for name, start, end in demands:
            taken.setdefault(name, []).append((start, end))
        hops.append(tuple(_hops(plan, plan.types[kind], release)))
    return tuple(hops)


def _hops(plan: ToolPlan, stages: Sequence[Stage], release: int) -> list[tuple[int, int]]:
    hops, clock = [], release
    for robot, stage in zip(carriers(plan, stages), stages[1:], strict=True):
        hops.append((clock, clock + robot.pick + robot.travel))
        clock += robot.hop + stage.process_time
    return hops


def _demands(
    plan: ToolPlan, stages: Sequence[Stage], taken: dict[str, list[tuple[int, int]]], release: int
) -> tuple[list[tuple[str, int, int]], int]:
    """What a wafer released now would occupy and when; and how long it has to wait at least, if some of that is taken."""
    robots, hops = carriers(plan, stages), _hops(plan, stages, release)
    demands = []
    for robot, (pick, place) in zip(robots, hops, strict=True):
        delay = _delay(taken.get(robot.name, []), pick, place + robot.place, 1)
        if delay:
            return [], delay
        demands.append((robot.name, pick, place + robot.place))
    for k, stage in enumerate(stages[1:-1]):
        start, end = hops[k][1], hops[k + 1][0] + robots[k + 1].pick
        slots = {name: plan.device.stations[name].capacity or 1 for name in stage.at}
        ends = {name: end + _cleaned_for(plan, name) for name in stage.at}
        delays = {name: _delay(taken.get(name, []), start, ends[name], slots[name]) for name in stage.at}
        best = min(stage.at, key=lambda name: delays[name])
        if delays[best]:
            return [], delays[best]
        demands.append((best, start, ends[best]))
    return demands, 0


def _cleaned_for(plan: ToolPlan, station: str) -> int:
    """How long a station may be closed after a wafer left, in case the next one is of another type.

    It must be clean when the next is picked already, which is a while before that is put down.
    """
    seconds = plan.change_seconds(station)
    return 0 if seconds is None else seconds + max(robot.pick + robot.travel for robot in plan.device.robots.values())


def _delay(times: Sequence[tuple[int, int]], start: int, end: int, slots: int) -> int:
    """0 if one of the slots is free from `start` to `end`; else how much later one could be at the earliest."""
    over = [(first, last) for first, last in times if first < end and start < last]
    instants = {start, *(max(first, start) for first, _ in over)}
    if all(sum(first <= t < last for first, last in over) < slots for t in instants):
        return 0
    return min(last for _, last in over) - start


# Rules by name


def rules_for(instance: Instance) -> tuple[str, ...]:
    """The rules that can play a net."""
    if instance.net.operations:
        return DISPATCHING
    return (INSERTION,) if isinstance(instance.options, ClusterTool) else ()


def rule_actions(instance: Instance, rule: str, turbo: bool = True) -> list[int]:
    """The actions of a rule on a net, from the first decision to the last."""
    known = rules_for(instance)
    if not known:
        raise RedlineError(f"No rule plays {instance.name}: rules are for cluster tools and job shops.")
    if rule not in known:
        raise unknown("rule", rule, known)
    if rule == INSERTION:
        plan = instance.plan()
        if plan.options.idle_rule is not None:
            raise RedlineError(
                f"The rule {INSERTION!r} does not reckon with idle_cleaning={plan.options.idle_cleaning}. "
                "Try idle_cleaning=off, or train a policy."
            )
        return actions_for(instance.net, script_of(Hops(plan, 0, insert_without_waiting(plan)), instance.net), turbo)
    dispatcher, game, actions = Dispatcher(instance.net, rule), Game(instance.net, turbo), []
    while game.running:
        actions.append(int(dispatcher.act(game.state, game.mask)[0]))
        game.step(actions[-1])
    return actions


# Actions and schedules


def play_actions(net: Net, actions: Sequence[int], turbo: bool = True) -> Played:
    """The episode that actions lead to, with every firing noted."""
    game = Game(net, turbo, log_size=SPARE + len(actions))
    for action in actions:
        game.step(action)
    return account(net, game.state, len(actions))


def actions_for(net: Net, script: np.ndarray, turbo: bool = True) -> list[int]:
    """The actions that play a script: what a policy would have chosen.

    Refuses a script that the guards, the waits on offer or the order of tokens in a place do not allow.
    """
    game = Game(net, turbo)
    actions: list[int] = []
    for line in (Line(*numbers) for numbers in script.tolist()):
        while game.running and game.clock < line.time:
            actions.append(_wait_for(game, line.time))
            game.step(actions[-1])
        t = _meant(game, line)
        if not game.running or game.clock != line.time or t is None:
            raise RedlineError(
                f"What token {line.token} does at {line.time} is not on offer then (the clock shows {game.clock})."
            )
        actions.append(int(game.tables.transitions[t].action))
        game.step(actions[-1])
    return actions


def _wait_for(game: Game, time: int) -> int:
    """The longest legal wait that does not go past `time`."""
    net, left = game.net, time - game.clock
    first = len(net.action_names) - len(net.rules.waits)
    legal = [(wait, first + k) for k, wait in enumerate(net.rules.waits) if game.mask[0, first + k]]
    fitting = [(wait, action) for wait, action in legal if wait != NEXT and wait <= left]
    if fitting:
        return max(fitting)[1]
    raise RedlineError(f"No wait on offer leads from {game.clock} to {time}.")


def _meant(game: Game, line: Line) -> int | None:
    """The legal transition that a line of a script means."""
    if line.transition != NONE:
        return line.transition if game.mask[0, game.tables.transitions[line.transition].action] else None
    record = game.state.tokens[0, line.token]
    step = game.tables.steps[record.row]
    for t in game.tables.lists[step.first : step.last]:
        transition = game.tables.transitions[t]
        if transition.source == record.place and game.mask[0, transition.action]:
            return int(t)
    return None
