"""How the rows of the time table look: a row has the same colour wherever it is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from redline.report.draw import Box, Shape, Text, inline_svg, text_width
from redline.timing.breakdown import UNACCOUNTED
from redline.timing.rows import PARTS

WIDTH = 760
"""Pixels across a chart of rows."""


class Look(NamedTuple):
    """A colour of the palette, and how strongly it is laid on."""

    colour: str
    strength: float = 1.0

    def box(self, x: float, y: float, width: float, height: float, tip: str = "", radius: float = 0.0) -> Box:
        """A box of this look."""
        return Box(x, y, width, height, self.colour, self.strength, tip=tip, radius=radius)


LOOKS = {
    "playing on": Look("sky", 0.5),
    "env step": Look("blue"),
    "env reset": Look("sky"),
    "policy forward": Look("orange"),
    "action sampling": Look("gold"),
    "buffer writes": Look("pink"),
    "wait / transfer": Look("axis"),
    "the loop itself": Look("orange", 0.5),
    "GAE": Look("pink", 0.5),
    "Buffer operations": Look("gold", 0.5),
    "loss and backward": Look("red", 0.5),
    "loss": Look("green"),
    "backward": Look("violet"),
    "optimizer step": Look("green", 0.5),
    "imitation": Look("blue", 0.5),
    "gathering and metrics": Look("violet", 0.5),
    "Logging and checkpoints": Look("red"),
    UNACCOUNTED: Look("ink"),
}
ORDER = [name for part in PARTS for name in (part.name, *(each.name for each in part.parts))] + [UNACCOUNTED]
OTHERWISE = Look("muted")
"""Rows that hold other rows, and spans of nobody we know."""


def look_of(row: str) -> Look:
    """The look of a row."""
    return LOOKS.get(row, OTHERWISE)


def in_order(names: Iterable[str]) -> list[str]:
    """Names of rows, each once, in the order of the table; what is no row comes last."""
    given = dict.fromkeys(names)
    return [*(each for each in LOOKS if each in given), *(each for each in given if each not in LOOKS)]


def swatch(look: Look) -> str:
    """A small square, as an image to put before words."""
    return inline_svg([look.box(0, 0, 10, 10, radius=2)], 18, 10)


def row_legend(names: Iterable[str], width: float, y: float = 44.0) -> tuple[list[Shape], float]:
    """The rows that occur, in the order of the table, and where a chart may begin under them."""
    shapes: list[Shape] = []
    x = 0.0
    for name in in_order(names):
        room = text_width(name, 13) + 36
        if x and x + room > width:
            x, y = 0.0, y + 20
        shapes.append(look_of(name).box(x, y - 10, 11, 11, radius=2.5))
        shapes.append(Text(x + 17, y, name, size=13, room=width - 17))
        x += room
    return shapes, y + 20
