"""All markings that a net can reach when time does not matter, found by the kernel's own enabling and firing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.rows import light, one_of
from redline.compiled.speed import at_speed, inlined, kernel
from redline.errors import RedlineError
from redline.worlds.petri.rules.enabling import enabled
from redline.worlds.petri.rules.firing import fire
from redline.worlds.petri.rules.kernel import begin
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.rules.state import RUNNING, EnvState, new_state
from redline.worlds.petri.rules.tables import NONE, tabulate

FIRST_ROOM = 1 << 10
"""Markings that there is room for at first."""
MOST_BYTES = 4 << 30
"""Memory that markings may take, unless told how many there may be."""
FACTOR, LOW_BITS, SPREAD, SHIFT = 1_000_003, (1 << 31) - 1, 2_654_435_769, 22


class Reachable(NamedTuple):
    """Size of a reachability graph."""

    states: int
    edges: int
    dead: int
    """Markings in which nothing can fire."""


@inlined
def put(net, state, markings, row):
    """Make row `row` of the markings the state, whose clock never moves. No count runs over, however many firings follow."""
    state.env.fired = 0
    for p in range(len(net.places)):
        state.places[p].marking = markings[row, p]


@inlined
def look_up(markings, slots, row):
    """The slot of row `row` of the markings: the one that has the same marking, or the free one where it belongs."""
    key = 0
    for p in range(markings.shape[1]):
        key = (key * FACTOR + int(markings[row, p])) & LOW_BITS
    last = slots.shape[0] - 1
    slot = (key * SPREAD >> SHIFT) & last
    while slots[slot] != NONE and not same(markings, slots[slot], row):
        slot = (slot + 1) & last
    return slot


@inlined
def same(markings, row, other):
    """Whether two rows are one marking."""
    for p in range(markings.shape[1]):
        if markings[row, p] != markings[other, p]:
            return False
    return True


@kernel
def enter(markings, slots, count):
    """Give each of the first `count` markings its slot."""
    for row in range(count):
        slots[look_up(markings, slots, row)] = row


@kernel
def expand(tables, states, markings, slots, totals):
    """Follow up markings in the order they were found, as long as there is room for what they may lead to.

    `totals` int64 [5]: markings found, those followed up, edges, dead ends, and whether a marking was too large.
    """
    net, state = light(tables), one_of(states, 0, EnvState)
    begin(net, state)
    count, row, edges, dead = totals[0], totals[1], totals[2], totals[3]
    while row < count and count + len(net.transitions) < markings.shape[0]:
        before = edges
        put(net, state, markings, row)
        for t in range(len(net.transitions)):
            if enabled(net, state, t):
                fire(net, state, t)
                for p in range(len(net.places)):
                    markings[count, p] = state.places[p].marking
                slot = look_up(markings, slots, count)
                if slots[slot] == NONE:
                    slots[slot] = count
                    count += 1
                edges += 1
                put(net, state, markings, row)
        dead += edges == before
        row += 1
    totals[0], totals[1], totals[2], totals[3] = count, row, edges, dead
    totals[4] = state.env.outcome != RUNNING


def explore(net: Net, most: int | None = None, turbo: bool = True) -> Reachable:
    """How many markings can be reached, by how many firings, and how many of them are dead.

    Refuses to go on after `most` markings; by default after as many as fit into `MOST_BYTES`.
    """
    require_no_time(net)
    tables, sizes = tabulate(net)
    state = new_state(1, sizes, 0)
    enter_all, expand_all = at_speed(enter, turbo), at_speed(expand, turbo)
    most = most or MOST_BYTES // (4 * len(net.places) + 8)
    markings = np.array([[place.tokens for place in net.places]], np.int32)
    totals = np.array([1, 0, 0, 0, 0])  # as `expand` has them
    while totals[1] < totals[0]:
        count = int(totals[0])
        room = max(FIRST_ROOM, 2 * count) + len(net.transitions)
        markings = _with_room(markings[:count], room)
        slots = np.full(1 << room.bit_length(), NONE, np.int32)  # at most half of them are taken
        enter_all(markings, slots, count)
        expand_all(tables, state, markings, slots, totals)
        if totals[0] > most:
            raise RedlineError(f"{net.name!r} reaches more than {most:,} markings. If there is room, raise --most.")
        if totals[4]:
            raise RedlineError(f"{net.name!r} reaches markings of more tokens than can be counted.")
    return Reachable(int(totals[0]), int(totals[2]), int(totals[3]))


def require_no_time(net: Net) -> None:
    """Refuse a net whose markings do not say all there is to say."""
    stays = any(place.min_stay or place.cleaning for place in net.places)
    if net.routes or stays or any(transition.duration for transition in net.transitions):
        raise RedlineError(f"{net.name!r} has times or routes: only nets without have a plain marking graph.")


def _with_room(markings: np.ndarray, room: int) -> np.ndarray:
    larger = np.empty((room, markings.shape[1]), np.int32)
    larger[: len(markings)] = markings
    return larger
