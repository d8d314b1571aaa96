"""A net as the kernel wants it: arrays of numbers, shared by all envs and never written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from redline.sims.petri.net import (
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
"""What is noted of a place that is cleaned for idleness or between types: when a token last left (0 before), the type of
the latest token (NONE before), when the latest clean began."""
OPENS, RELEASED, NUM_GATE_NOTES = range(3)
"""What is noted of each type's own gate: when it opens, and how many it let through."""

PLACE = np.dtype(
    [
        ("tokens", np.int32),
        ("capacity", np.int32),
        ("max_stay", np.int32),  # NONE without a limit
        ("deadline", np.int32),  # the same where overstaying fails, else NONE
        ("min_stay", np.int32),
        ("overstay", np.int32),
        ("kind", np.int32),
        ("resource", np.int32),  # of a robot's place: the robot
        ("clean_after", np.int32),  # FAR without cleaning
        ("clean_duration", np.int32),
        ("goal", np.int32),  # tokens wanted here
        ("queue", np.int32),  # where its queue of ready times starts; NONE if tokens are not queued
        ("queue_size", np.int32),
        ("job", np.int32),
        ("operation", np.int32),  # row of `operations` that comes next
        ("scale", np.int32),  # tokens that count as full in the observation
        ("cell", np.int32),  # where its observation starts
        ("targets", np.int32),  # of a robot's place: how many places it can load
        ("idle_after", np.int32),  # FAR without idle cleaning
        ("idle_duration", np.int32),
        ("change_duration", np.int32),  # 0 without cleaning between types
        ("notes", np.int32),  # where the state notes what these two need; NONE if neither is done
    ],
    align=True,
)
TRANSITION = np.dtype(
    [
        ("duration", np.int32),
        ("work", np.int32),
        ("resource", np.int32),
        ("controllable", np.int32),
        ("guards", np.int32),
        ("room_at", np.int32),
        ("source", np.int32),  # first input place and first output place, NONE if there is none
        ("target", np.int32),
        ("in_first", np.int32),
        ("in_last", np.int32),
        ("out_first", np.int32),
        ("out_last", np.int32),
        ("action", np.int32),
        ("hot", np.int32),  # of a load: its position in the robot's one-hot
    ],
    align=True,
)
ARC = np.dtype([("place", np.int32), ("weight", np.int32), ("gain", np.int32)], align=True)
STEP = np.dtype([("stay", np.int32), ("first", np.int32), ("last", np.int32), ("kind", np.int32)], align=True)
OPERATION = np.dtype(
    [("machine", np.int32), ("duration", np.int32), ("work_left", np.int32), ("done", np.int32), ("of", np.int32)],
    align=True,
)
CONSTANTS = np.dtype(
    [
        ("identity", np.int32),
        ("num_groups", np.int32),  # actions that fire; the waits come after them
        ("horizon", np.int32),
        ("max_steps", np.int32),
        ("goal", np.int32),  # tokens wanted in all
        ("urgent_wait", np.int32),
        ("skip_forced_waits", np.int32),
        ("non_delay", np.int32),
        ("clock", np.int32),
        ("scrap_place", np.int32),  # NONE where scrap ends the episode
        ("lenient", np.int32),
        ("wip_limit", np.int32),
        ("reward", np.int32),
        ("lower_bound", np.int32),
        ("layout", np.int32),
        ("observe_clock", np.int32),
        ("gated", np.int32),  # whether a release gate exists
        ("idle_limit", np.int32),
        ("globals_cell", np.int32),  # where the observation of the whole net starts
        ("longest", np.int32),  # operation or duration, scales the observation of job shops
        ("most_work", np.int32),  # of a job, likewise
        # lists
        ("token_rows", np.int32),  # first step of each token's route
        ("token_places", np.int32),
        ("own_pace", np.int32),  # uncontrollable transitions, in the order they are tried
        ("own_pace_end", np.int32),
        ("swaps", np.int32),  # pick and place of each
        ("swaps_end", np.int32),
        ("waits", np.int32),  # 0 for NEXT
        ("waits_end", np.int32),
        ("intervals", np.int32),  # between releases
        ("num_intervals", np.int32),
        ("queued", np.int32),  # places whose tokens are queued
        ("queued_end", np.int32),
        ("cleaned", np.int32),  # places that are cleaned
        ("cleaned_end", np.int32),
        ("noted", np.int32),  # places that are cleaned for idleness or between types
        ("noted_end", np.int32),
        ("token_kinds", np.int32),  # type of each token
        ("type_gates", np.int32),  # start and length of each type's own intervals; NONE where all share a gate
        ("type_gates_end", np.int32),
        ("gate_notes", np.int32),  # where the state notes what each type's gate needs
        ("gate_place", np.int32),  # the place that tokens are released from, NONE without one
    ],
    align=True,
)


class Tables(NamedTuple):
    """Everything the kernel needs to know of a net. Few arrays, because compiling is slow with many."""

    constants: np.recarray  # CONSTANTS [1]
    places: np.recarray  # PLACE [P]
    transitions: np.recarray  # TRANSITION [T]
    arcs: np.recarray  # ARC, inputs and outputs of each transition side by side
    steps: np.recarray  # STEP, all routes one after another, each with an empty step at its end
    operations: np.recarray  # OPERATION, all jobs one after another, each with an empty one at its end
    lists: np.ndarray  # int32, lists of numbers that constants and steps tell the bounds of
    extras: tuple[int, ...]  # (1,) where rules are used that most nets do without, so that those need not pay for them


class Sizes(NamedTuple):
    """How much room one env needs."""

    tokens: int
    places: int
    resources: int
    firings: int
    queues: int
    observation: int
    actions: int


def tabulate(net: Net) -> tuple[Tables, Sizes]:
    """The net as arrays, and how much room an env of it takes."""
    index = {place.name: p for p, place in enumerate(net.places)}
    operations = _operations(net, index)
    arcs, spans = _arcs(net, index)
    transitions = _transitions(net, index, spans)
    places = _places(net, _number_targets(net, transitions))
    cells = _lay_out(net, places)
    lists: list[int] = []
    steps, starts = _routes(net, lists)
    bounds = _lists(net, places, [starts[kind] for kind in net.token_types], lists)
    bounds += _extra_lists(net, places, transitions, lists)
    constants = _records(CONSTANTS, [(*_constants(net, cells, operations), *bounds)])
    tables = Tables(constants, places, transitions, arcs, steps, operations, np.array(lists, np.int32), _extras(net))
    sizes = Sizes(
        len(net.token_types), len(net.places), len(net.resources), _most_firings(net),
        _queue_cells(net, places), observation_size(net, cells), len(net.actions),
    )  # fmt: skip
    return tables, sizes


def _extras(net: Net) -> tuple[int, ...]:
    """How long a tuple is belongs to its type: kernels are compiled for nets with and without extras apart."""
    rules = net.rules
    rare = rules.clock != "event" or rules.scrap_place is not None or bool(net.swaps) or rules.layout == "graph"
    return (1,) if rare or net.remembers_cleans or rules.type_intervals else ()


def _lists(net: Net, places: np.recarray, token_rows: list[int], lists: list[int]) -> list[int]:
    """Append all lists that belong to the whole net; returns their bounds in the order of CONSTANTS."""
    order = sorted(range(len(net.transitions)), key=lambda t: -net.transitions[t].priority)
    starts = [p for p, place in enumerate(net.places) for _ in range(place.tokens if net.routes else 0)]
    bounds = [_append(lists, token_rows)[0], _append(lists, starts)[0]]
    bounds += _append(lists, [t for t in order if not net.transitions[t].controllable])
    names = [transition.name for transition in net.transitions]
    bounds += _append(lists, [names.index(name) for swap in net.swaps for name in (swap.first, swap.second)])
    bounds += _append(lists, net.rules.waits)
    bounds += [_append(lists, net.rules.release_intervals)[0], len(net.rules.release_intervals)]
    bounds += _append(lists, [p for p in range(len(places)) if places[p].queue != NONE])
    bounds += _append(lists, [p for p, place in enumerate(net.places) if place.cleaning or place.idle_cleaning])
    return bounds


def _extra_lists(net: Net, places: np.recarray, transitions: np.recarray, lists: list[int]) -> list[int]:
    """Likewise what only nets with extras look at."""
    bounds = [*_append(lists, [p for p in range(len(places)) if places[p].notes != NONE])]
    bounds += [_append(lists, net.token_types)[0]]
    gates = [(_append(lists, intervals)[0], len(intervals)) for intervals in net.rules.type_intervals]
    bounds += _append(lists, [number for gate in gates for number in gate]) if gates else (NONE, NONE)
    releases = [int(each.source) for each in transitions if each.guards & RELEASE]
    return [*bounds, _gate_notes(places), releases[0] if releases else NONE]


def _gate_notes(places: np.recarray) -> int:
    """Where the notes of gates start: behind all queues and the notes of all places."""
    return int(places.queue_size.sum()) + NUM_NOTES * int((places.notes != NONE).sum())


def _queue_cells(net: Net, places: np.recarray) -> int:
    """Room for the queues and all notes."""
    return _gate_notes(places) + NUM_GATE_NOTES * len(net.rules.type_intervals)


def _append(lists: list[int], numbers: Iterable[int]) -> tuple[int, int]:
    first = len(lists)
    lists += numbers
    return first, len(lists)


def _records(dtype: np.dtype, rows: Sequence[tuple]) -> np.recarray:
    return np.array(list(rows), dtype).view(np.recarray)


def _arcs(net: Net, index: dict[str, int]) -> tuple[np.recarray, list[tuple[int, int, int]]]:
    """Arcs, and for each transition where its inputs start, its outputs start, and its arcs end."""
    rows: list[tuple[int, int, int]] = []
    spans = []
    for transition in net.transitions:
        taken, start = dict(transition.inputs), len(rows)
        rows += [(index[place], weight, 0) for place, weight in transition.inputs]
        middle = len(rows)
        # a token taken from the very place it is put into leaves the room it needs
        rows += [(index[place], weight, weight - taken.get(place, 0)) for place, weight in transition.outputs]
        spans.append((start, middle, len(rows)))
    return _records(ARC, rows), spans


def arc_list(net: Net) -> np.ndarray:
    """All arcs, int32 [E, 3]: transition, place, weight; negative where the transition takes tokens."""
    index = {place.name: p for p, place in enumerate(net.places)}
    rows = []
    for t, transition in enumerate(net.transitions):
        rows += [(t, index[place], -weight) for place, weight in transition.inputs]
        rows += [(t, index[place], weight) for place, weight in transition.outputs]
    return np.array(rows, np.int32).reshape(-1, 3)


def _transitions(net: Net, index: dict[str, int], spans: list[tuple[int, int, int]]) -> np.recarray:
    resources, actions = net.resources, net.actions

    def row(transition: Transition, span: tuple[int, int, int]) -> tuple:
        return (
            transition.duration,
            transition.duration if transition.work is None else transition.work,
            NONE if transition.resource is None else resources.index(transition.resource),
            transition.controllable,
            sum(1 << GUARDS.index(guard) for guard in transition.guards),
            NONE if transition.room_at is None else index[transition.room_at],
            index[transition.inputs[0][0]] if transition.inputs else NONE,
            index[transition.outputs[0][0]] if transition.outputs else NONE,
            span[0], span[1], span[1], span[2],
            actions.index(action) if (action := action_of(transition)) else NONE,
            NONE,
        )  # fmt: skip

    return _records(TRANSITION, [row(*each) for each in zip(net.transitions, spans, strict=True)])


def _number_targets(net: Net, transitions: np.recarray) -> dict[str, int]:
    """Number the loads of each robot for its one-hot; returns how many each has."""
    counts = {}
    for place in net.places:
        if place.kind == "robot":
            loads = [t for t, transition in enumerate(net.transitions) if transition.inputs[0][0] == place.name]
            for hot, t in enumerate(loads):
                transitions[t].hot = hot
            counts[place.name] = len(loads)
    return counts


def _places(net: Net, targets: dict[str, int]) -> np.recarray:
    resources = net.resources
    offsets = [0, *accumulate(len(operations) + 1 for operations in net.operations)]
    queues, rows = 0, []
    most = max(1, max(place.tokens for place in net.places))
    for place in net.places:
        queue = not net.routes and is_queue(place)
        size = _queue_size(place) if queue else 0
        limited = place.max_stay is not None and place.on_overstay != "ignore"
        rows.append((
            place.tokens, UNLIMITED if place.capacity is None else place.capacity,
            place.max_stay if limited else NONE,
            place.max_stay if limited and place.on_overstay == "fail" else NONE,
            place.min_stay, OVERSTAYS.index(place.on_overstay),
            KINDS.index(place.kind),
            resources.index(place.name) if place.kind == "robot" and place.name in resources else NONE,
            place.cleaning.after_wafers if place.cleaning else FAR, place.cleaning.duration if place.cleaning else 0,
            net.goal.get(place.name, 0), queues if queue else NONE, size,
            place.job, offsets[place.job] + place.operation if place.job >= 0 else NONE,
            _work_on(net, place) or place.capacity or most, 0, targets.get(place.name, 0),
            place.idle_cleaning.after if place.idle_cleaning else FAR,
            place.idle_cleaning.duration if place.idle_cleaning else 0,
            place.change_cleaning or 0, NONE,
        ))  # fmt: skip
        queues += size
    places = _records(PLACE, rows)
    noted = [p for p, place in enumerate(net.places) if place.idle_cleaning or place.change_cleaning]
    for n, p in enumerate(noted):
        places[p].notes = queues + n * NUM_NOTES
    return places


def _work_on(net: Net, place: Place) -> int:
    """All the work a machine will get."""
    return sum(op.duration for job in net.operations for op in job if op.machine == place.name)


def _queue_size(place: Place) -> int:
    assert place.capacity is not None
    return place.capacity


def _routes(net: Net, lists: list[int]) -> tuple[np.recarray, list[int]]:
    """All routes' steps, with what they allow appended to `lists`, and where each route starts."""
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    rows: list[tuple[int, int, int, int]] = []
    starts = []
    for kind, route in enumerate(net.routes):
        starts.append(len(rows))
        rows += [(step.stay, *_append(lists, [index[name] for name in step.transitions]), kind) for step in route]
        rows.append((0, 0, 0, kind))
    return _records(STEP, rows), starts


def _operations(net: Net, index: dict[str, int]) -> np.recarray:
    rows: list[tuple[int, int, int, int, int]] = []
    for job in net.operations:
        rows += [(index[op.machine], op.duration, op.work_left, k, len(job)) for k, op in enumerate(job)]
        rows.append((NONE, 0, 0, len(job), len(job)))
    return _records(OPERATION, rows)


def _constants(net: Net, cells: int, operations: np.recarray) -> tuple[int, ...]:
    rules = net.rules
    stays = [step.stay for route in net.routes for step in route]
    durations = [transition.duration for transition in net.transitions]
    goal = sum(net.goal.values())
    return (
        bool(net.routes), len(net.actions) - len(rules.waits),
        FAR if net.horizon is None else net.horizon, FAR if net.max_steps is None else net.max_steps, goal,
        FAR if rules.urgent_wait is None else rules.urgent_wait, rules.skip_forced_waits, rules.non_delay,
        CLOCKS.index(rules.clock), _scrap_place(net), rules.lenient,
        FAR if rules.wip_limit is None else rules.wip_limit, REWARDS.index(rules.reward),
        rules.lower_bound or net.horizon or 1, LAYOUTS.index(rules.layout), rules.observe_clock,
        bool(rules.release_intervals), max([*stays, *durations]) + IDLE_SECONDS, cells,
        max([1, *operations.duration.tolist(), *([] if net.operations else durations)]),
        max([1, *operations.work_left.tolist()]),
    )  # fmt: skip


def _scrap_place(net: Net) -> int:
    names = [place.name for place in net.places]
    return NONE if net.rules.scrap_place is None else names.index(net.rules.scrap_place)


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


PROCESS_CELLS, BUFFER_CELLS, ARM_CELLS, ROBOT_CELLS, SOURCE_CELLS = 9, 5, 4, 2, 2
JOB_CELLS, MACHINE_CELLS, PLAIN_CELLS = 8, 3, 2
NODE_CELLS = 8
GRAPH_CELLS = NODE_CELLS + len(KINDS)


def _lay_out(net: Net, places: np.recarray) -> int:
    """Give every place its cells of the observation; returns where the cells of the whole net start."""
    jobs = len(net.operations)
    cell = jobs * JOB_CELLS if net.rules.layout == "jobs" else 0
    for place in places:
        place.cell = cell
        cell += _cells(net, place)
    return cell


def _cells(net: Net, place: np.record) -> int:
    if net.rules.layout in ("places", "graph"):
        return PLAIN_CELLS if net.rules.layout == "places" else GRAPH_CELLS
    if net.rules.layout == "jobs":
        return MACHINE_CELLS if place.kind == MACHINE else 0
    if place.kind == ROBOT:
        return int(place.capacity * (ARM_CELLS + place.targets)) + ROBOT_CELLS
    return {PROCESS: PROCESS_CELLS, BUFFER: BUFFER_CELLS, SOURCE: SOURCE_CELLS}.get(int(place.kind), 0)


def observation_size(net: Net, cells: int) -> int:
    """Numbers in an observation, given where those of the whole net start."""
    whole = {"tool": 3, "jobs": 1, "places": len(net.transitions) + 1, "graph": 0}[net.rules.layout]
    return cells + whole + net.rules.observe_clock
