"""How the rows of the time table look: a row has the same colour wherever it is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from redline.report.chart import _tag, _text
from redline.report.page import paint, text_width
from redline.timing.breakdown import UNACCOUNTED
from redline.timing.rows import PARTS

WIDTH = 760
"""Pixels across a chart of rows."""


class Look(NamedTuple):
    """A colour of the palette, and how strongly it is laid on."""

    colour: str
    strength: float = 1.0

    def fill(self, part: float = 1.0) -> dict[str, str | float]:
        """As attributes of a shape."""
        faint: dict[str, str | float] = {"fill_opacity": self.strength * part} if self.strength * part < 1 else {}
        return {"fill": paint(self.colour), **faint}


LOOKS = {
    "env step": Look("blue"),
    "env reset": Look("sky"),
    "policy forward": Look("orange"),
    "action sampling": Look("gold"),
    "buffer writes": Look("pink"),
    "wait / transfer": Look("axis"),
    "the loop itself": Look("orange", 0.5),
    "GAE": Look("pink", 0.5),
    "Buffer operations": Look("gold", 0.5),
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
    square = _tag("rect", x=0, y=0, width=10, height=10, rx=2, **look.fill())
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="18" height="10" viewBox="0 0 18 10">{square}</svg>'


def row_legend(names: Iterable[str], width: float, y: float = 44.0) -> tuple[str, float]:
    """The rows that occur, in the order of the table, and where a chart may begin under them."""
    parts, x = [], 0.0
    for name in in_order(names):
        room = text_width(name, 13) + 36
        if x and x + room > width:
            x, y = 0.0, y + 20
        parts.append(_tag("rect", x=x, y=y - 10, width=11, height=11, rx=2.5, **look_of(name).fill()))
        parts.append(_text(x + 17, y, name, size=13, room=width - 17))
        x += room
    return "".join(parts), y + 20
