"""A timed net: places, transitions, arcs, routes, a goal, and the rules it is played by.

Time is an integer clock and enters in two ways: a firing lasts `duration`, and a token is ready `min_stay` after it
arrived. Tokens are counted per place, unless the net has `routes`: then each token has an identity, a type and a route
that says which transitions may move it next and how long it then has to stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from redline.errors import RedlineError, unknown

KINDS = ("plain", "source", "process", "buffer", "robot", "sink", "machine")
"""Kinds of places. Only observations, the dense reward and the guards care about them."""
OVERSTAYS = ("ignore", "penalty", "fail")
GUARDS = ("release", "lookahead", "free_slot", "least_used", "arm_lock")
REWARDS = ("makespan", "ct_dense")
LAYOUTS = ("places", "tool", "jobs", "graph")
CLOCKS = ("event", "serial", "lockstep")
NEXT = 0
"""The wait that lasts until the next event."""
MAX_TOKENS = 1 << 30
MAX_WEIGHT = 1 << 20
MAX_NUMBER = (1 << 30) - 1
"""Times and counts up to here add up to what 32 bits hold."""


@dataclass(frozen=True)
class Cleaning:
    """A chamber cannot be used for `duration` after every `after_wafers` tokens that left it."""

    after_wafers: int
    duration: int


@dataclass(frozen=True)
class IdleCleaning:
    """A chamber that nothing was in or on its way into for `after` is cleaned for `duration`, beginning that instant."""

    after: int
    duration: int


@dataclass(frozen=True)
class Place:
    """Where tokens stay."""

    name: str
    tokens: int = 0
    capacity: int | None = None
    min_stay: int = 0
    """A token is ready this long after its arrival; a route may say otherwise."""
    max_stay: int | None = None
    """A token should be taken no later than this after it became ready."""
    on_overstay: str = "fail"
    kind: str = "plain"
    cleaning: Cleaning | None = None
    job: int = -1
    """Job shops: whose token this place holds, and which operation comes next."""
    operation: int = -1
    idle_cleaning: IdleCleaning | None = None
    change_cleaning: int | None = None
    """A token of another type than the latest one may be put here only this long after that one left."""


@dataclass(frozen=True)
class Transition:
    """A way to move tokens. A firing takes `duration`; its resource is busy for as long."""

    name: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    duration: int = 0
    resource: str | None = None
    controllable: bool = True
    """Uncontrollable ones fire by themselves as soon as they can, highest priority first."""
    priority: int = 0
    guards: tuple[str, ...] = ()
    room_at: str | None = None
    """One more guard: this place must have room."""
    work: int | None = None
    """Time for which it keeps a machine at work: its duration, unless the work is done after it."""
    action: str | None = None
    """Transitions with the same action share it: the first enabled one fires. By default each has its own, or none if
    it is uncontrollable; one that is named stays among the actions, where it is never legal."""


@dataclass(frozen=True)
class Swap:
    """An action that books two firings: when `first` ends, `second` begins at once, if it still can."""

    name: str
    first: str
    second: str


@dataclass(frozen=True)
class Step:
    """One step of a route: the transitions that may move the token next, and its stay where it then arrives."""

    transitions: tuple[str, ...]
    stay: int


@dataclass(frozen=True)
class Operation:
    """An operation of a job, as observations tell it."""

    machine: str
    duration: int
    work_left: int
    """Of its job, this operation included."""


@dataclass(frozen=True)
class NetRules:
    """How a net is played: what may be waited for, what is forbidden, what it pays."""

    waits: tuple[int, ...] = (NEXT,)
    urgent_wait: int | None = None
    """Longest wait allowed while a finished token waits in a chamber or a robot holds one."""
    skip_forced_waits: bool = True
    non_delay: bool = False
    """No waiting while something can be fired."""
    clock: str = "event"
    """event (firings overlap as they like), serial (each ends before anything else begins) or lockstep (those that begin
    together are a round, and a wait ends it: all of them end before anything else begins)."""
    scrap_place: str | None = None
    """Where a token goes that overstays; without such a place the episode ends."""
    lenient: bool = False
    """A token that overstays stays and costs by the second; the episode goes on, but counts as scrapped at its end."""
    wip_limit: int | None = None
    release_intervals: tuple[int, ...] = ()
    type_intervals: tuple[tuple[int, ...], ...] = ()
    """Release intervals for each type of token by itself; empty if all types share one gate."""
    reward: str = "makespan"
    lower_bound: int | None = None
    layout: str = "places"
    observe_clock: bool = False


@dataclass(frozen=True)
class Net:
    """A timed net, checked when it is made."""

    name: str
    places: tuple[Place, ...]
    transitions: tuple[Transition, ...]
    goal: Mapping[str, int] = field(default_factory=dict)
    """Tokens wanted in each place named."""
    horizon: int | None = None
    max_steps: int | None = None
    routes: tuple[tuple[Step, ...], ...] = ()
    token_types: tuple[int, ...] = ()
    """Which route each token follows, in the order of the places they start in."""
    operations: tuple[tuple[Operation, ...], ...] = ()
    swaps: tuple[Swap, ...] = ()
    rules: NetRules = field(default_factory=NetRules)

    def __post_init__(self) -> None:
        """Refuse what cannot be played, saying why."""
        check_names(self)
        for place in self.places:
            check_place(self, place)
        for transition in self.transitions:
            check_transition(self, transition)
        check_end(self)
        check_rules(self)
        check_sizes(self)
        check_swaps(self)
        if self.routes:
            check_routes(self)
        else:
            check_stays(self)
            check_deadlines(self)

    @property
    def remembers_cleans(self) -> bool:
        """Whether some place is cleaned for idleness or a change of type, so that its past counts."""
        return any(place.idle_cleaning or place.change_cleaning for place in self.places)

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of all resources, in the order they are first used."""
        return tuple(dict.fromkeys(t.resource for t in self.transitions if t.resource is not None))

    @property
    def observation_names(self) -> tuple[str, ...]:
        """A name for every number that a policy sees, such as `PM1.progress`."""
        from redline.worlds.petri.rules.cells import map_observation  # cells read nets

        return map_observation(self).names

    @property
    def action_names(self) -> tuple[str, ...]:
        """The actions to choose from: transitions (or groups of them), then swaps, then waits."""
        groups = dict.fromkeys(action_of(transition) for transition in self.transitions)
        waits = ("wait" if wait == NEXT else f"wait {wait}" for wait in self.rules.waits)
        return (*filter(None, groups), *(swap.name for swap in self.swaps), *waits)


def action_of(transition: Transition) -> str | None:
    """The action that fires a transition, if there is one."""
    return transition.action or (transition.name if transition.controllable else None)


def check_names(net: Net) -> None:
    """Names must exist, once each."""
    if not net.transitions:
        raise RedlineError(f"The net {net.name!r} has no transitions, so nothing can ever happen in it.")
    for what, nodes in (("place", net.places), ("transition", net.transitions)):
        names = [node.name for node in nodes]
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise RedlineError(f"The net {net.name!r} has two {what}s named {twice!r}. Give each its own name.")


def check_place(net: Net, place: Place) -> None:
    """Numbers of a place that make sense."""
    where = f"Place {place.name!r}"
    if place.tokens < 0 or place.tokens > MAX_TOKENS:
        raise RedlineError(f"{where} cannot start with {place.tokens} tokens. Give it 0 to {MAX_TOKENS}.")
    if place.capacity is not None and place.capacity < max(1, place.tokens):
        raise RedlineError(
            f"{where} has capacity {place.capacity} but starts with {place.tokens} tokens. "
            f"Try a capacity of {max(1, place.tokens)}."
        )
    if place.min_stay < 0:
        raise RedlineError(f"{where} cannot hold a token for {place.min_stay} time units. Give it 0 or more.")
    if place.max_stay is not None and place.max_stay < 0:
        raise RedlineError(
            f"{where} has an infeasible residency limit: a token would have to leave {-place.max_stay} time units "
            "before it is ready. Try a limit of 0 or more."
        )
    check_known("kind of place", place.kind, KINDS)
    check_known("answer to overstaying", place.on_overstay, OVERSTAYS)
    if place.cleaning is not None and (place.cleaning.after_wafers < 1 or place.cleaning.duration < 0):
        raise RedlineError(
            f"{where} cannot be cleaned as {place.cleaning}: clean after 1 wafer or more, for 0 or more."
        )
    check_cleans(net, place)


def check_cleans(net: Net, place: Place) -> None:
    """Cleaning for idleness or a change of type: of tokens with an identity, and never in zero time."""
    idle, change = place.idle_cleaning, place.change_cleaning
    if (idle is not None or change is not None) and not net.routes:
        raise RedlineError(f"Place {place.name!r} cannot be cleaned so: the net {net.name!r} only counts its tokens.")
    if idle is not None and (idle.after < 1 or idle.duration < 1):
        raise RedlineError(f"Place {place.name!r} cannot be cleaned as {idle}: clean after 1 or more, for 1 or more.")
    if change is not None and change < 1:
        raise RedlineError(f"Place {place.name!r} cannot be cleaned for {change} between types. Give it 1 or more.")


def check_transition(net: Net, transition: Transition) -> None:
    """Arcs that lead somewhere with a weight of at least one."""
    names = [place.name for place in net.places]
    for place, weight in (*transition.inputs, *transition.outputs):
        if place not in names:
            raise unknown(f"place for an arc of transition {transition.name!r}:", place, names)
        if not 1 <= weight <= MAX_WEIGHT:
            raise RedlineError(
                f"The arc between {place!r} and {transition.name!r} weighs {weight}. Give it 1 to {MAX_WEIGHT}."
            )
    for side in (transition.inputs, transition.outputs):
        if len({place for place, _ in side}) < len(side):
            raise RedlineError(f"Transition {transition.name!r} has two arcs to one place. Add their weights up.")
    if transition.duration < 0:
        raise RedlineError(f"Transition {transition.name!r} cannot last {transition.duration}. Give it 0 or more.")
    if transition.room_at is not None:
        check_known("place", transition.room_at, names)
    for guard in transition.guards:
        check_known("guard", guard, GUARDS)


def check_end(net: Net) -> None:
    """An episode must be able to end."""
    for place, count in net.goal.items():
        check_known("place in the goal:", place, [each.name for each in net.places])
        if count < 1:
            raise RedlineError(f"The goal asks for {count} tokens in {place!r}. Ask for 1 or more.")
    if not net.goal and net.horizon is None and net.max_steps is None:
        raise RedlineError(
            f"The net {net.name!r} has no goal and no horizon, so an episode would never end. "
            "Give it a goal, a horizon or max_steps."
        )
    for what, limit in (("horizon", net.horizon), ("step limit", net.max_steps)):
        if limit is not None and limit < 1:
            raise RedlineError(f"A {what} of {limit} ends an episode before it begins. Give it 1 or more.")


def check_rules(net: Net) -> None:
    """Known presets, waits that wait, limits that let something through."""
    rules = net.rules
    check_known("reward", rules.reward, REWARDS)
    check_known("observation layout", rules.layout, LAYOUTS)
    check_known("clock", rules.clock, CLOCKS)
    if rules.scrap_place is not None:
        check_known("place for scrap:", rules.scrap_place, [place.name for place in net.places])
        if not net.routes:
            raise RedlineError(f"The net {net.name!r} only counts its tokens, so none can be scrapped alone.")
    check_lenient(net)
    if rules.layout == "graph" and rules.observe_clock:
        raise RedlineError("A graph has numbers for places only, not for the clock. Leave observe_clock off.")
    if any(wait < 0 for wait in rules.waits):
        raise RedlineError(f"Waits of {min(rules.waits)} time units cannot be waited. Give 1 or more, or 0 for NEXT.")
    if rules.wip_limit is not None and rules.wip_limit < 1:
        raise RedlineError(f"A WIP limit of {rules.wip_limit} lets no token in. Give it 1 or more.")
    if any(interval < 0 for interval in rules.release_intervals):
        raise RedlineError(f"A release interval of {min(rules.release_intervals)} is in the past. Give 0 or more.")
    check_type_intervals(net)
    if rules.lower_bound is not None and rules.lower_bound < 1:
        raise RedlineError(f"A lower bound of {rules.lower_bound} cannot scale a reward. Give it 1 or more.")


def check_sizes(net: Net) -> None:
    """No number larger than the kernel can count with."""
    rules = net.rules
    stays = [stay for place in net.places for stay in (place.min_stay, place.max_stay)]
    numbers: dict[str, Iterable[int | None]] = {
        "horizon": [net.horizon],
        "step limit": [net.max_steps],
        "goal": net.goal.values(),
        "duration": [each for t in net.transitions for each in (t.duration, t.work)],
        "stay": [*stays, *(step.stay for route in net.routes for step in route)],
        "wait": rules.waits,
        "WIP limit": [rules.wip_limit],
        "release interval": [*rules.release_intervals, *chain(*rules.type_intervals)],
        "lower bound": [rules.lower_bound],
    }
    for what, given in numbers.items():
        largest = max((number for number in given if number is not None), default=0)
        if largest > MAX_NUMBER:
            raise RedlineError(
                f"A {what} of {largest} is too large for the net {net.name!r}. Give {MAX_NUMBER} at most."
            )


def check_lenient(net: Net) -> None:
    """Lateness is priced token by token."""
    rules = net.rules
    if not rules.lenient:
        return
    if not net.routes:
        raise RedlineError(f"The net {net.name!r} only counts its tokens, so it cannot be lenient with one of them.")
    if rules.scrap_place is not None:
        raise RedlineError("A wafer that overstays is either scrapped or late. Try stop_on_scrap=off with lenient=off.")


def check_type_intervals(net: Net) -> None:
    """One list of release intervals for each type of token, if any."""
    lists = net.rules.type_intervals
    if not lists:
        return
    if net.rules.release_intervals:
        raise RedlineError(f"The net {net.name!r} has release intervals for all types and for each. Give one of them.")
    if len(lists) != len(net.routes) or not all(lists):
        raise RedlineError(
            f"{len(lists)} lists of release intervals were given for {len(net.routes)} types. Give each type one, of 1 "
            "interval or more."
        )
    soonest = min(min(intervals) for intervals in lists)
    if soonest < 0:
        raise RedlineError(f"A release interval of {soonest} is in the past. Give 0 or more.")


def check_routes(net: Net) -> None:
    """Tokens with an identity move one at a time, along routes of known transitions."""
    for transition in net.transitions:
        arcs = (*transition.inputs, *transition.outputs)
        if len(transition.inputs) != 1 or len(transition.outputs) != 1 or any(weight != 1 for _, weight in arcs):
            raise RedlineError(
                f"Transition {transition.name!r} must move one token from one place to one: it has routes."
            )
    names = [transition.name for transition in net.transitions]
    for route in net.routes:
        for step in route:
            for name in step.transitions:
                check_known("transition on a route:", name, names)
            if not step.transitions or step.stay < 0:
                raise RedlineError(f"A route's step needs transitions and a stay of 0 or more; got {step}.")
    count = sum(place.tokens for place in net.places)
    if len(net.token_types) != count:
        raise RedlineError(f"{len(net.token_types)} token types were given for {count} tokens. Give one each.")
    if any(not 0 <= kind < len(net.routes) for kind in net.token_types):
        raise RedlineError(f"Token types must be 0 to {len(net.routes) - 1}, one for each route.")


def check_swaps(net: Net) -> None:
    """A swap picks from and places into one chamber, by one robot that holds the token to place."""
    transitions = {transition.name: transition for transition in net.transitions}
    for swap in net.swaps:
        for name in (swap.first, swap.second):
            check_known(f"transition for {swap.name!r}:", name, transitions)
        first, second = transitions[swap.first], transitions[swap.second]
        if not net.routes or first.inputs != second.outputs or first.outputs != second.inputs or not first.resource:
            raise RedlineError(
                f"{swap.name!r} needs a pick and a place by one robot at one chamber, of a net with routes."
            )


def check_stays(net: Net) -> None:
    """Counted tokens with a stay are kept as a queue, which needs an end."""
    for place in net.places:
        if is_queue(place) and place.capacity is None:
            raise RedlineError(
                f"Place {place.name!r} has a stay time but no capacity. Give it one, e.g. {place.tokens + 1}."
            )


def is_queue(place: Place) -> bool:
    """Whether the arrival of each counted token matters."""
    return place.min_stay > 0 or (place.max_stay is not None and place.on_overstay == "fail")


def check_deadlines(net: Net) -> None:
    """Say so when a token that is there from the start must fail: nothing can take it in time, whatever is played."""
    first = earliest_times(net)
    for place in net.places:
        if not place.tokens or place.max_stay is None or place.on_overstay != "fail":
            continue
        deadline = place.min_stay + place.max_stay
        takers = [t for t in net.transitions if any(name == place.name for name, _ in t.inputs)]
        soonest = min((first[t.name] for t in takers), default=None)
        if soonest is None or soonest > deadline:
            when = "nothing ever takes it" if soonest is None or soonest >= NEVER else f"nothing can before {soonest}"
            raise RedlineError(
                f"Place {place.name!r} has an infeasible residency limit: its first token must be taken by {deadline}, "
                f"but {when}. Raise max_stay."
            )


NEVER = 1 << 60


def earliest_times(net: Net) -> dict[str, int]:
    """A time before which each transition cannot fire, even if tokens were never used up."""
    first = {place.name: place.min_stay if place.tokens else NEVER for place in net.places}
    stay = {place.name: place.min_stay for place in net.places}
    starts = {transition.name: NEVER for transition in net.transitions}
    changed = True
    while changed:
        changed = False
        for transition in net.transitions:
            start = max((first[name] for name, _ in transition.inputs), default=0)
            if start < starts[transition.name]:
                starts[transition.name] = start
                changed = True
                for name, _ in transition.outputs:
                    first[name] = min(first[name], start + transition.duration + stay[name])
    return starts


def check_known(what: str, given: str, known: Iterable[str]) -> None:
    """Refuse a name that is none of the known ones, saying which it may have meant."""
    names = list(known)
    if given not in names:
        raise unknown(what, given, names)
