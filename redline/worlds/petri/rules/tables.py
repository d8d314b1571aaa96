"""A net as the kernel wants it: arrays of numbers, shared by all envs and never written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from redline.worlds.petri.rules.cells import ObservationMap, loads_of, map_observation
from redline.worlds.petri.rules.net import (
    CLOCKS,
    GUARDS,
    KINDS,
    LAYOUTS,
    OVERSTAYS,
    REWARDS,
    Net,
    Place,
    Transition,
    action_of,
    is_queue,
)
from redline.worlds.petri.rules.traits import Traits

PLAIN, SOURCE, PROCESS, BUFFER, ROBOT, SINK, MACHINE = range(len(KINDS))
IGNORE, PENALTY, FAIL = range(len(OVERSTAYS))
RELEASE, LOOKAHEAD, FREE_SLOT, LEAST_USED, ARM_LOCK = (1 << k for k in range(len(GUARDS)))
MAKESPAN, CT_DENSE = range(len(REWARDS))
PLACES, TOOL, JOBS, GRAPH = range(len(LAYOUTS))
EVENT, SERIAL, LOCKSTEP = range(len(CLOCKS))
FAR = 1 << 30
"""No limit: a time or a count that is never reached."""
NONE = -1
UNLIMITED = (1 << 31) - 1
"""A capacity that no marking reaches, because one above `FAR` ends the episode."""
MAX_FIRINGS = 256
"""Firings that may be under way at once, where capacities do not say."""
IDLE_SECONDS = 30
"""Waiting this much longer than the longest process is idling, says the dense reward."""
LEFT_AT, LATEST_KIND, CLEAN_BEGAN, NUM_NOTES = range(4)
"""Notes of a place that is cleaned for idleness or between types: when a token last left (0 before), the type of
the latest token (NONE before), when the latest clean began."""
OPENS, RELEASED, NUM_GATE_NOTES = range(3)
"""Notes of each type's own gate: when it opens, and how many it let through."""


class PlaceRow(NamedTuple):
    """The constants of a place."""

    tokens: int
    capacity: int
    max_stay: int  # NONE without a limit
    deadline: int  # the same where overstaying fails, else NONE
    min_stay: int
    overstay: int
    kind: int
    resource: int  # of a robot's place: the robot
    clean_after: int  # FAR without cleaning
    clean_duration: int
    goal: int  # tokens wanted here
    queue: int  # where its queue of ready times starts; NONE if tokens are not queued
    queue_size: int
    job: int
    operation: int  # row of `operations` that comes next
    scale: int  # tokens that count as full in the observation
    cell: int  # where its observation starts
    targets: int  # of a robot's place: how many places it can load
    idle_after: int  # FAR without idle cleaning
    idle_duration: int
    change_duration: int  # 0 without cleaning between types
    notes: int  # where the state notes what these two need; NONE if neither is done


class TransitionRow(NamedTuple):
    """The constants of a transition."""

    duration: int
    work: int
    resource: int
    controllable: int
    guards: int
    room_at: int
    source: int  # first input place and first output place, NONE if there is none
    target: int
    in_first: int
    in_last: int
    out_first: int
    out_last: int
    action: int
    hot: int  # of a load: its position in the robot's one-hot


class ArcRow(NamedTuple):
    """An arc: its place, its weight, and for outputs how many tokens the place gains."""

    place: int
    weight: int
    gain: int


class StepRow(NamedTuple):
    """A step of a route; `lists` has the transitions it allows from `first` up to `last`."""

    stay: int
    first: int
    last: int
    kind: int


class OperationRow(NamedTuple):
    """An operation of a job, with how many of the job's come before it and how many there are."""

    machine: int
    duration: int
    work_left: int
    done: int
    of: int


class ConstantsRow(NamedTuple):
    """The constants of the whole net, among them the bounds of its lists within `lists`."""

    num_groups: int  # actions that fire; the waits come after them
    horizon: int
    max_steps: int
    goal: int  # tokens wanted in all
    urgent_wait: int
    skip_forced_waits: int
    non_delay: int
    clock: int
    scrap_place: int  # NONE where scrap ends the episode
    lenient: int
    wip_limit: int
    reward: int
    lower_bound: int
    observe_clock: int
    gated: int  # whether a release gate exists
    idle_limit: int
    globals_cell: int  # where the observation of the whole net starts
    longest: int  # operation or duration, scales the observation of job shops
    most_work: int  # of a job, likewise
    # lists
    token_rows: int  # first step of each token's route
    token_places: int
    own_pace: int  # uncontrollable transitions, in the order they are tried
    own_pace_end: int
    offers: int  # where the transitions of each action begin in the list that follows, and last where they end
    exits: int  # likewise, controllable transitions by the place they take from; last those that take from none
    swaps: int  # pick and place of each
    swaps_end: int
    waits: int  # 0 for NEXT
    waits_end: int
    intervals: int  # between releases
    num_intervals: int
    queued: int  # places whose tokens are queued
    queued_end: int
    cleaned: int  # places that are cleaned
    cleaned_end: int
    noted: int  # places that are cleaned for idleness or between types
    noted_end: int
    token_kinds: int  # type of each token
    type_gates: int  # start and length of each type's own intervals; NONE where all share a gate
    type_gates_end: int
    gate_notes: int  # where the state notes what each type's gate needs
    gate_place: int  # the place that tokens are released from, NONE without one


class NetTables(NamedTuple):
    """Everything the kernel needs to know of a net. Few arrays, because compiling is slow with many."""

    constants: np.record  # ConstantsRow
    places: np.recarray  # PlaceRow [P]
    transitions: np.recarray  # TransitionRow [T]
    arcs: np.recarray  # ArcRow, inputs and outputs of each transition side by side
    steps: np.recarray  # StepRow, all routes one after another, each with an empty step at its end
    operations: np.recarray  # OperationRow, all jobs one after another, each with an empty one at its end
    lists: np.ndarray  # int32, lists of numbers that constants and steps tell the bounds of
    traits: Traits


class Sizes(NamedTuple):
    """How much room one env needs."""

    tokens: int
    places: int
    resources: int
    firings: int
    notes: int
    observation: int
    actions: int


class Lists:
    """Lists of numbers, one after another."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, numbers: Iterable[int]) -> tuple[int, int]:
        """Append a list; returns where it starts and ends."""
        first = len(self.numbers)
        self.numbers += numbers
        return first, len(self.numbers)

    def add_as(self, name: str, numbers: Iterable[int]) -> dict[str, int]:
        """Append a list; returns its bounds as constants of that name."""
        first, last = self.add(numbers)
        return {name: first, f"{name}_end": last}


def tabulate(net: Net) -> tuple[NetTables, Sizes]:
    """The net as arrays, and how much room an env of it takes."""
    index = {place.name: p for p, place in enumerate(net.places)}
    seen = map_observation(net)
    operations = _operations(net, index)
    arcs, spans = _arcs(net, index)
    transitions = _transitions(net, index, spans)
    places = _places(net, seen)
    lists = Lists()
    steps, starts = _routes(net, lists)
    constants = ConstantsRow(
        **_numbers(net, seen, operations),
        **_common_lists(net, places, [starts[kind] for kind in net.token_types], lists),
        **_extra_lists(net, places, transitions, lists),
    )
    tables = NetTables(
        constants=_records(ConstantsRow, [constants])[0],
        places=places,
        transitions=transitions,
        arcs=arcs,
        steps=steps,
        operations=operations,
        lists=np.array(lists.numbers, np.int32),
        traits=_traits(net),
    )
    sizes = Sizes(
        tokens=len(net.token_types),
        places=len(net.places),
        resources=len(net.resources),
        firings=_most_firings(net),
        notes=constants.gate_notes + NUM_GATE_NOTES * len(net.rules.type_intervals),
        observation=len(seen.names),
        actions=len(net.action_names),
    )
    return tables, sizes


def _records(kind: type[NamedTuple], rows: Sequence[tuple]) -> np.recarray:
    """Rows of a kind as an array whose fields are called as theirs."""
    dtype = np.dtype([(name, np.int32) for name in kind._fields], align=True)
    return np.array(list(rows), dtype).view(np.recarray)


# Places and transitions


def _places(net: Net, seen: ObservationMap) -> np.recarray:
    """A row per place. Queues come first in the notes of an env, then what places note of their cleaning."""
    sizes = [(place.capacity or 0) if not net.routes and is_queue(place) else None for place in net.places]
    queues = [0, *accumulate(size or 0 for size in sizes)]
    noted = [p for p, place in enumerate(net.places) if place.idle_cleaning or place.change_cleaning]
    jobs = [0, *accumulate(len(operations) + 1 for operations in net.operations)]
    most = max(1, max(place.tokens for place in net.places))
    rows = [_place(net, place, most) for place in net.places]
    for p, place in enumerate(net.places):
        rows[p] = rows[p]._replace(
            cell=seen.places[p],
            queue=NONE if sizes[p] is None else queues[p],
            queue_size=sizes[p] or 0,
            notes=queues[-1] + noted.index(p) * NUM_NOTES if p in noted else NONE,
            operation=jobs[place.job] + place.operation if place.job >= 0 else NONE,
        )
    return _records(PlaceRow, rows)


def _place(net: Net, place: Place, most: int) -> PlaceRow:
    """A place by itself, its share of other arrays left open; without a capacity, `most` tokens fill it."""
    limit = NONE if place.max_stay is None or place.on_overstay == "ignore" else place.max_stay
    robot = place.kind == "robot"
    return PlaceRow(
        tokens=place.tokens,
        capacity=UNLIMITED if place.capacity is None else place.capacity,
        max_stay=limit,
        deadline=limit if place.on_overstay == "fail" else NONE,
        min_stay=place.min_stay,
        overstay=OVERSTAYS.index(place.on_overstay),
        kind=KINDS.index(place.kind),
        resource=net.resources.index(place.name) if robot and place.name in net.resources else NONE,
        clean_after=place.cleaning.after_wafers if place.cleaning else FAR,
        clean_duration=place.cleaning.duration if place.cleaning else 0,
        goal=net.goal.get(place.name, 0),
        queue=NONE,
        queue_size=0,
        job=place.job,
        operation=NONE,
        scale=_work_on(net, place) or place.capacity or most,
        cell=0,
        targets=len(loads_of(net, place)) if robot else 0,
        idle_after=place.idle_cleaning.after if place.idle_cleaning else FAR,
        idle_duration=place.idle_cleaning.duration if place.idle_cleaning else 0,
        change_duration=place.change_cleaning or 0,
        notes=NONE,
    )


def _work_on(net: Net, place: Place) -> int:
    """All the work a machine will get."""
    return sum(op.duration for job in net.operations for op in job if op.machine == place.name)


def _arcs(net: Net, index: dict[str, int]) -> tuple[np.recarray, list[tuple[int, int, int]]]:
    """Arcs, and for each transition where its inputs start, its outputs start, and its arcs end."""
    rows: list[ArcRow] = []
    spans = []
    for transition in net.transitions:
        taken, start = dict(transition.inputs), len(rows)
        rows += [ArcRow(place=index[place], weight=weight, gain=0) for place, weight in transition.inputs]
        middle = len(rows)
        # a token taken from the very place it is put into leaves the room it needs
        rows += [
            ArcRow(place=index[place], weight=weight, gain=weight - taken.get(place, 0))
            for place, weight in transition.outputs
        ]
        spans.append((start, middle, len(rows)))
    return _records(ArcRow, rows), spans


def arc_list(net: Net) -> np.ndarray:
    """All arcs, int32 [E, 3]: transition, place, weight; negative where the transition takes tokens."""
    index = {place.name: p for p, place in enumerate(net.places)}
    rows = []
    for t, transition in enumerate(net.transitions):
        rows += [(t, index[place], -weight) for place, weight in transition.inputs]
        rows += [(t, index[place], weight) for place, weight in transition.outputs]
    return np.array(rows, np.int32).reshape(-1, 3)


def _transitions(net: Net, index: dict[str, int], spans: list[tuple[int, int, int]]) -> np.recarray:
    resources, actions = net.resources, net.action_names
    robots = [place for place in net.places if place.kind == "robot"]
    hots = {load.name: hot for robot in robots for hot, load in enumerate(loads_of(net, robot))}

    def row(transition: Transition, span: tuple[int, int, int]) -> TransitionRow:
        first, middle, last = span
        return TransitionRow(
            duration=transition.duration,
            work=transition.duration if transition.work is None else transition.work,
            resource=NONE if transition.resource is None else resources.index(transition.resource),
            controllable=transition.controllable,
            guards=sum(1 << GUARDS.index(guard) for guard in transition.guards),
            room_at=NONE if transition.room_at is None else index[transition.room_at],
            source=index[transition.inputs[0][0]] if transition.inputs else NONE,
            target=index[transition.outputs[0][0]] if transition.outputs else NONE,
            in_first=first,
            in_last=middle,
            out_first=middle,
            out_last=last,
            action=actions.index(action) if (action := action_of(transition)) else NONE,
            hot=hots.get(transition.name, NONE),
        )

    return _records(TransitionRow, [row(*each) for each in zip(net.transitions, spans, strict=True)])


def _most_firings(net: Net) -> int:
    """How many firings can be under way at once."""
    if net.routes:
        return len(net.token_types)
    capacity = {place.name: place.capacity for place in net.places}

    def most(transition: Transition) -> int:
        if transition.duration == 0:
            return 0
        limits = [(capacity[name] or MAX_FIRINGS) // weight for name, weight in transition.inputs]
        return min([MAX_FIRINGS if transition.resource is None else 1, *limits])

    return max(1, min(MAX_FIRINGS, sum(most(transition) for transition in net.transitions)))


# Routes and jobs


def _routes(net: Net, lists: Lists) -> tuple[np.recarray, list[int]]:
    """All routes' steps, with what they allow added to `lists`, and where each route starts."""
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    rows: list[StepRow] = []
    starts = []
    for kind, route in enumerate(net.routes):
        starts.append(len(rows))
        for step in route:
            first, last = lists.add([index[name] for name in step.transitions])
            rows.append(StepRow(stay=step.stay, first=first, last=last, kind=kind))
        rows.append(StepRow(stay=0, first=0, last=0, kind=kind))
    return _records(StepRow, rows), starts


def _operations(net: Net, index: dict[str, int]) -> np.recarray:
    rows: list[OperationRow] = []
    for job in net.operations:
        rows += [
            OperationRow(machine=index[op.machine], duration=op.duration, work_left=op.work_left, done=k, of=len(job))
            for k, op in enumerate(job)
        ]
        rows.append(OperationRow(machine=NONE, duration=0, work_left=0, done=len(job), of=len(job)))
    return _records(OperationRow, rows)


# The whole net


def _numbers(net: Net, seen: ObservationMap, operations: np.recarray) -> dict[str, int]:
    """The constants that are not about lists."""
    rules = net.rules
    places = [place.name for place in net.places]
    stays = [step.stay for route in net.routes for step in route]
    durations = [transition.duration for transition in net.transitions]
    return {
        "num_groups": len(net.action_names) - len(rules.waits),
        "horizon": _or_far(net.horizon),
        "max_steps": _or_far(net.max_steps),
        "goal": sum(net.goal.values()),
        "urgent_wait": _or_far(rules.urgent_wait),
        "skip_forced_waits": rules.skip_forced_waits,
        "non_delay": rules.non_delay,
        "clock": CLOCKS.index(rules.clock),
        "scrap_place": NONE if rules.scrap_place is None else places.index(rules.scrap_place),
        "lenient": rules.lenient,
        "wip_limit": _or_far(rules.wip_limit),
        "reward": REWARDS.index(rules.reward),
        "lower_bound": rules.lower_bound or net.horizon or 1,
        "observe_clock": rules.observe_clock,
        "gated": bool(rules.release_intervals),
        "idle_limit": max([*stays, *durations]) + IDLE_SECONDS,
        "globals_cell": seen.whole,
        "longest": max([1, *operations.duration.tolist(), *([] if net.operations else durations)]),
        "most_work": max([1, *operations.work_left.tolist()]),
    }


def _or_far(limit: int | None) -> int:
    return FAR if limit is None else limit


def _common_lists(net: Net, places: np.recarray, token_rows: list[int], lists: Lists) -> dict[str, int]:
    """Add the lists that all nets have; returns their bounds."""
    order = sorted(range(len(net.transitions)), key=lambda t: -net.transitions[t].priority)
    starts = [p for p, place in enumerate(net.places) for _ in range(place.tokens if net.routes else 0)]
    names, actions = [transition.name for transition in net.transitions], net.action_names
    return {
        "token_rows": lists.add(token_rows)[0],
        "token_places": lists.add(starts)[0],
        **lists.add_as("own_pace", [t for t in order if not net.transitions[t].controllable]),
        "offers": _grouped(net, actions[: len(actions) - len(net.rules.waits) - len(net.swaps)], action_of, lists),
        "exits": _grouped(net, [*(place.name for place in net.places), None], _source, lists),
        **lists.add_as("swaps", [names.index(name) for swap in net.swaps for name in (swap.first, swap.second)]),
        **lists.add_as("waits", net.rules.waits),
        "intervals": lists.add(net.rules.release_intervals)[0],
        "num_intervals": len(net.rules.release_intervals),
        **lists.add_as("queued", [p for p in range(len(places)) if places[p].queue != NONE]),
        **lists.add_as("cleaned", [p for p, place in enumerate(net.places) if place.cleaning or place.idle_cleaning]),
    }


def _grouped(net: Net, groups: Iterable[str | None], group_of: Callable[[Transition], str | None], lists: Lists) -> int:
    """Add the controllable transitions of each group, in order; returns where the bounds of these are."""
    found = [
        [t for t, each in enumerate(net.transitions) if each.controllable and group_of(each) == group]
        for group in groups
    ]
    first = len(lists.numbers)
    lists.add(accumulate(map(len, found), initial=first + len(found) + 1))
    lists.add(chain(*found))
    return first


def _source(transition: Transition) -> str | None:
    """The first place that a transition takes from."""
    return transition.inputs[0][0] if transition.inputs else None


def _extra_lists(net: Net, places: np.recarray, transitions: np.recarray, lists: Lists) -> dict[str, int]:
    """Add the lists that only nets with extras look at; returns their bounds."""
    releases = [int(each.source) for each in transitions if each.guards & RELEASE]
    noted = lists.add_as("noted", [p for p in range(len(places)) if places[p].notes != NONE])
    token_kinds = lists.add(net.token_types)[0]
    gates = [(lists.add(intervals)[0], len(intervals)) for intervals in net.rules.type_intervals]
    return {
        **noted,
        "token_kinds": token_kinds,
        **(lists.add_as("type_gates", chain(*gates)) if gates else {"type_gates": NONE, "type_gates_end": NONE}),
        "gate_notes": int(places.queue_size.sum()) + NUM_NOTES * (noted["noted_end"] - noted["noted"]),
        "gate_place": releases[0] if releases else NONE,
    }


def _traits(net: Net) -> Traits:
    """What the net has a use for."""
    rules = net.rules
    rare = rules.clock != "event" or rules.scrap_place is not None or bool(net.swaps) or rules.layout == "graph"
    extras = rare or net.remembers_cleans or bool(rules.type_intervals)
    paced = any(not transition.controllable for transition in net.transitions)
    return Traits(*((1,) * int(length) for length in (extras, bool(net.routes), paced, LAYOUTS.index(rules.layout))))
