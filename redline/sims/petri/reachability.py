"""All markings that a net can reach when time does not matter, found by the kernel's own enabling and firing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.sims.petri.enabling import enabled
from redline.sims.petri.firing import fire
from redline.sims.petri.kernel import begin
from redline.sims.petri.net import Net
from redline.sims.petri.state import new_state
from redline.sims.petri.tables import tabulate
from redline.sims.speed import at_speed, inlined, kernel


class Reachable(NamedTuple):
    """Size of a reachability graph."""

    states: int
    edges: int
    dead: int
    """Markings in which nothing can fire."""


@inlined
def put(net, state, markings, row):
    """Make row `row` of the markings the state of env 0."""
    begin(net, state, 0)
    for p in range(net.places.shape[0]):
        state.places[0, p].marking = markings[row, p]


@kernel
def expand(net, state, markings, first, last, successors):
    """Write the successors of markings `first` up to `last`. Returns how many there are, and how many have none."""
    count = 0
    dead = 0
    for row in range(first, last):
        before = count
        put(net, state, markings, row)
        for t in range(net.transitions.shape[0]):
            if enabled(net, state, 0, t):
                fire(net, state, 0, t)
                for p in range(net.places.shape[0]):
                    successors[count, p] = state.places[0, p].marking
                count += 1
                put(net, state, markings, row)
        if count == before:
            dead += 1
    return count, dead


def explore(net: Net, most: int = 1_000_000, turbo: bool = True) -> Reachable:
    """How many markings can be reached, by how many firings, and how many of them are dead."""
    if net.routes or any(transition.duration for transition in net.transitions):
        raise RedlineError(f"{net.name!r} has durations or routes: only nets without time have a plain marking graph.")
    tables, sizes = tabulate(net)
    state, run = new_state(1, sizes, 0), at_speed(expand, turbo)
    frontier = np.array([[place.tokens for place in net.places]], np.int32)
    seen = {frontier[0].tobytes()}
    edges = dead = 0
    while len(frontier):
        successors = np.zeros((len(frontier) * len(net.transitions), len(net.places)), np.int32)
        count, ends = run(tables, state, frontier, 0, len(frontier), successors)
        edges, dead = edges + count, dead + ends
        fresh = [row for row in np.unique(successors[:count], axis=0) if row.tobytes() not in seen]
        seen.update(row.tobytes() for row in fresh)
        if len(seen) > most:
            raise RedlineError(f"{net.name!r} reaches more than {most:,} markings. Raise the limit if there is room.")
        frontier = np.array(fresh, np.int32).reshape(-1, len(net.places))
    return Reachable(len(seen), int(edges), int(dead))
