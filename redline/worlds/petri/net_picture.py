"""A net as a picture: places, transitions and arcs, from left to right as tokens flow, and the tokens on it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.report.draw import Box, Circle, Drawing, Point, Shape, Stroke, Text
from redline.worlds.petri.gantt import hue_of
from redline.worlds.petri.rules.net import Net

MOST_PLACES, MOST_TRANSITIONS = 90, 160
"""Larger nets are not drawn: nobody could read them."""
ROW, TOP = 56, 60
RADIUS = 15
MOST_DOTS = 4
"""Tokens of one place that are drawn; of more, the number is written."""
SHARED = ("machine",)
"""Kinds of places that everything comes back to: they stand in a row below."""


@dataclass(frozen=True)
class NetPicture:
    """Where everything in a net stands."""

    net: Net
    places: Mapping[str, Point]
    transitions: Mapping[str, Point]
    width: float
    height: float
    room: float
    """Pixels that the name of a place may take."""

    def ground(self) -> Drawing:
        """The net without its tokens."""
        shapes: list[Shape] = []
        for transition in self.net.transitions:
            here = self.transitions[transition.name]
            for name, _ in transition.inputs:
                shapes.append(Stroke(*self.places[name], *here, "grid"))
            for name, _ in transition.outputs:
                shapes.append(Stroke(*here, *self.places[name], "grid"))
        for transition in self.net.transitions:
            x, y = self.transitions[transition.name]
            shapes.append(Box(x - 2, y - 6, 4, 12, "axis", tip=f"{transition.name}, {transition.duration} long"))
        for place in self.net.places:
            x, y = self.places[place.name]
            shapes += [Circle(x, y, RADIUS, "surface"), Circle(x, y, RADIUS, "axis", outlined=True, line_width=1.5)]
            shapes.append(Text(x, y + RADIUS + 13, place.name, "muted", 11, "middle", room=self.room))
        return Drawing("The net", self.width, self.height, shapes)

    def tokens(self, where: Mapping[str, Sequence[int | None]]) -> list[Shape]:
        """Tokens in places, and in transitions that are under way; None for tokens that are only counted."""
        shapes: list[Shape] = []
        for name, held in where.items():
            x, y = self.places.get(name) or self.transitions[name]
            if name in self.transitions and held:
                shapes.append(Box(x - 4, y - 9, 8, 18, "orange", radius=2))
            shapes += _dots(x, y, held)
        return shapes


def _dots(x: float, y: float, held: Sequence[int | None]) -> list[Shape]:
    """Tokens around a point."""
    shapes: list[Shape] = []
    for k, token in enumerate(held[:MOST_DOTS]):
        turn = 2 * math.pi * k / min(len(held), MOST_DOTS)
        out = 0.0 if len(held) == 1 else 7.0
        at = x + out * math.cos(turn), y + out * math.sin(turn)
        shapes.append(Circle(*at, 7, "ink" if token is None else hue_of(token)))
        if token is not None:
            shapes.append(Text(at[0], at[1] + 3.5, str(token), "surface", 9.5, "middle", 600, inside=True))
    if len(held) > MOST_DOTS:
        shapes.append(Text(x + RADIUS + 3, y - RADIUS + 4, f"{len(held)}", "ink", 12, weight=600))
    return shapes


def picture_of(net: Net, width: float) -> NetPicture | None:
    """The picture of a net, if it is small enough to be looked at."""
    if len(net.places) > MOST_PLACES or len(net.transitions) > MOST_TRANSITIONS:
        return None
    columns, below = _columns(net)
    tallest = max(map(len, columns))
    places: dict[str, Point] = {}
    for k, column in enumerate(columns):
        x = width * (k + 0.5) / len(columns)
        for row, name in enumerate(column):
            places[name] = x, TOP + ROW * (row + (tallest - len(column)) / 2)
    bottom = TOP + ROW * tallest
    for k, name in enumerate(below):
        places[name] = width * (k + 0.5) / len(below), bottom + 10
    height = bottom + (ROW if below else 0) - 10
    return NetPicture(net, places, _transitions(net, places), width, height, width / max(len(columns), len(below)) - 4)


def _columns(net: Net) -> tuple[list[list[str]], list[str]]:
    """Places by how many firings a token needs to get there; those that everything comes back to stand apart."""
    below = [place.name for place in net.places if place.kind in SHARED]
    depth = {place.name: 0 for place in net.places if place.tokens and place.name not in below}
    frontier = list(depth)
    leads_to: dict[str, list[str]] = defaultdict(list)
    for transition in net.transitions:
        for source, _ in transition.inputs:
            leads_to[source] += [target for target, _ in transition.outputs if target not in below]
    while frontier:
        following = []
        for source in frontier:
            for target in leads_to[source]:
                if target not in depth:
                    depth[target] = depth[source] + 1
                    following.append(target)
        frontier = following
    columns: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=0))]
    for place in net.places:
        if place.name not in below:
            columns[depth.get(place.name, 0)].append(place.name)
    return [column for column in columns if column], below


def _transitions(net: Net, places: Mapping[str, Point]) -> dict[str, Point]:
    """Each transition half-way between what it takes and what it gives; those in each other's way are moved apart."""
    found: dict[str, Point] = {}
    taken: dict[tuple[int, int], int] = defaultdict(int)
    for transition in net.transitions:
        flow = [name for name, _ in (*transition.inputs, *transition.outputs) if not _is_shared(net, name)]
        ends = [places[name] for name in flow or [name for name, _ in transition.inputs]]
        x, y = (fmean(axis) for axis in zip(*ends, strict=True)) if ends else (0.0, 0.0)
        spot = round(x / 8), round(y / 8)
        found[transition.name] = x + 12 * taken[spot], y
        taken[spot] += 1
    return found


def _is_shared(net: Net, name: str) -> bool:
    return next(place.kind for place in net.places if place.name == name) in SHARED
