"""A table of coloured cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from redline.report.draw import Box, Drawing, Group, Shape, Text, no_data, show, text_width

ABOVE, BELOW = "blue", "orange"
STRONGEST = 0.75
"""Opacity of the cell farthest from the centre. Ink stays readable on it, on light and on dark."""


def heat_map(
    values: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    x_label: str,
    centre: float | None = None,
    least: float = 0.0,
    width: int = 760,
) -> Drawing:
    """A table of coloured cells: blue above the centre, orange below it, the stronger the farther.

    `values` is [rows, columns]; the centre is their mean unless given. A cell has the full colour that is farthest from
    it, and `least` away or more. A value that is not finite shows a dash.
    """
    cells = np.asarray(values, dtype=float)
    known = cells[np.isfinite(cells)]
    row_height, top = 44, 70
    bottom = top + row_height * len(rows)
    if not known.size:
        return no_data(title, width, max(bottom, 140))
    strengths = shades(cells, float(known.mean()) if centre is None else centre, least)
    label_room = min(max(text_width(name, 13) for name in rows), width * 0.3)
    left = label_room + 12
    cell_width = (width - left) / len(columns)
    shapes: list[Shape] = [Text((left + width) / 2, 42, x_label, "muted", anchor="middle", room=width - left)]
    for c, name in enumerate(columns):
        middle = left + cell_width * (c + 0.5)
        shapes.append(Text(middle, top - 8, name, size=13, anchor="middle", room=cell_width - 4))
    for r, name in enumerate(rows):
        y = top + row_height * r
        shapes.append(Text(label_room, y + 27, name, size=13, anchor="end", room=label_room))
        for c, column in enumerate(columns):
            x, words = left + cell_width * c, show(float(cells[r, c]))
            cell = _cell(x, y, cell_width, row_height, float(strengths[r, c]), words)
            shapes.append(Group(cell, f"{name}, {column}: {words}"))
    return Drawing(title, width, bottom + 4, shapes)


def shades(cells: np.ndarray, centre: float, least: float = 0.0) -> np.ndarray:
    """How far each cell is from the centre, from -1 to 1 at `least` or beyond; 0 where there is nothing to say."""
    away = np.where(np.isfinite(cells), cells - centre, 0.0)
    farthest = np.abs(away).max(initial=least)
    return away / farthest if farthest > 1e-12 * max(1.0, abs(centre)) else np.zeros_like(away)


def _cell(x: float, y: float, width: float, height: float, strength: float, words: str) -> list[Shape]:
    plain = Box(x + 1.5, y + 1.5, width - 3, height - 3, "soft", radius=4)
    tint = plain._replace(colour=ABOVE if strength > 0 else BELOW, opacity=STRONGEST * abs(strength))
    size = 14 if text_width(words, 14) < width - 8 else 11
    return [plain, tint, Text(x + width / 2, y + height / 2 + 5, words, size=size, anchor="middle")]
