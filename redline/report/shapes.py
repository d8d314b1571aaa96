"""A drawing as plain shapes, put on paper as SVG or, by matplotlib, as PNG. Both look the same.

Lengths are pixels, y grows downwards, colours are names of the palette. Later shapes lie on top of earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from redline.errors import RedlineError
from redline.files import reason
from redline.report.chart import _hover, _line, _svg, _tag, _text
from redline.report.page import PALETTE, paint

PNG_DPI = 200
PIXELS_PER_INCH = 100
POINTS = 72 / PIXELS_PER_INCH
"""Points in a pixel."""


class Box(NamedTuple):
    """A rectangle, filled or only outlined. `tip` is what pointing at it says."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    opacity: float = 1.0
    outlined: bool = False
    tip: str = ""


class Words(NamedTuple):
    """Text on a baseline; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    colour: str = "ink"
    size: float = 12.0
    anchor: str = "start"
    weight: int = 400
    inside: bool = False
    """Whether it lies on a box, whose tip it then lets through."""


class Stroke(NamedTuple):
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    dashed: bool = False


Shape = Box | Words | Stroke


@dataclass(frozen=True)
class Drawing:
    """Shapes under a title."""

    title: str
    width: float
    height: float
    shapes: Sequence[Shape]


def to_svg(drawing: Drawing, standalone: bool = False) -> str:
    """The drawing for a page, or with its own colours and background as a picture of its own."""
    parts = [_SVG[type(shape)](shape) for shape in drawing.shapes]
    return _svg(parts, drawing.title, drawing.width, drawing.height, standalone)


def _svg_box(box: Box) -> str:
    place = {"x": box.x, "y": box.y, "width": box.width, "height": box.height}
    look: dict[str, Any] = (
        {"fill": "none", "stroke": paint(box.colour)} if box.outlined else {"fill": paint(box.colour)}
    )
    if box.opacity < 1:
        look["opacity"] = box.opacity
    return _tag("rect", _hover(box.tip) if box.tip else "", **place, **look)


def _svg_words(words: Words) -> str:
    style: dict[str, Any] = {} if words.anchor == "start" else {"text_anchor": words.anchor}
    if words.weight != 400:
        style["font_weight"] = words.weight
    if words.inside:
        style["pointer_events"] = "none"
    return _text(words.x, words.y, words.text, words.colour, words.size, **style)


def _svg_stroke(stroke: Stroke) -> str:
    style: dict[str, Any] = {} if stroke.width == 1 else {"stroke_width": stroke.width}
    if stroke.dashed:
        style["stroke_dasharray"] = "5 4"
    return _line(stroke.x1, stroke.y1, stroke.x2, stroke.y2, stroke.colour, **style)


_SVG: dict[type, Any] = {Box: _svg_box, Words: _svg_words, Stroke: _svg_stroke}


def write_png(drawing: Drawing, path: Path, margin: float = 20) -> None:
    """The drawing in light colours as a PNG file. Needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RedlineError("PNG files need matplotlib: pip install 'redline[plot]'.") from error
    size = (drawing.width + 2 * margin) / PIXELS_PER_INCH, (drawing.height + 2 * margin) / PIXELS_PER_INCH
    fig = Figure(figsize=size, facecolor=_light("surface"))
    axes = fig.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-margin, drawing.width + margin)
    axes.set_ylim(drawing.height + margin, -margin)
    heading = Words(0, 17, drawing.title, size=15, weight=600)
    for layer, (kind, shapes) in enumerate(groupby([*drawing.shapes, heading], key=type)):
        _PNG[kind](axes, list(shapes), layer)
    try:
        fig.savefig(path, dpi=PNG_DPI, format="png")
    except OSError as error:
        raise RedlineError(f"The picture cannot be written to {path}: {reason(error)}.") from error


def _png_boxes(axes: Any, boxes: Sequence[Box], layer: int) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    patches = [Rectangle((box.x, box.y), box.width, box.height) for box in boxes]
    colours = [to_rgba(_light(box.colour), box.opacity) for box in boxes]
    clear = (0.0, 0.0, 0.0, 0.0)
    fills = [clear if box.outlined else colour for box, colour in zip(boxes, colours, strict=True)]
    edges = [colour if box.outlined else clear for box, colour in zip(boxes, colours, strict=True)]
    axes.add_collection(
        PatchCollection(patches, facecolors=fills, edgecolors=edges, linewidths=POINTS, zorder=layer), autolim=False
    )


def _png_words(axes: Any, several: Sequence[Words], layer: int) -> None:
    align = {"start": "left", "middle": "center", "end": "right"}
    for words in several:
        axes.text(
            words.x, words.y, words.text.replace("$", r"\$"), color=_light(words.colour), fontsize=words.size * POINTS,
            fontweight="bold" if words.weight > 400 else "normal", ha=align[words.anchor], va="baseline", zorder=layer,
        )  # fmt: skip


def _png_strokes(axes: Any, strokes: Sequence[Stroke], layer: int) -> None:
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(
            [((stroke.x1, stroke.y1), (stroke.x2, stroke.y2)) for stroke in strokes],
            colors=[_light(stroke.colour) for stroke in strokes],
            linewidths=[stroke.width * POINTS for stroke in strokes],
            linestyles=[(0, (5, 4)) if stroke.dashed else "solid" for stroke in strokes],
            zorder=layer,
        ),
        autolim=False,
    )


_PNG: dict[type, Any] = {Box: _png_boxes, Words: _png_words, Stroke: _png_strokes}


def _light(colour: str) -> str:
    return PALETTE[colour][0]
