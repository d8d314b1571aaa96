"""A drawing as SVG: a string for a page, or a picture of its own.

Colours are CSS variables, so a drawing follows the light or dark mode of the page around it. A picture of its own
brings its colours and background along, and can be shown in a README.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redline.report.draw.palette import PALETTE, palette_css
from redline.report.draw.shapes import Area, Box, Circle, Dash, Drawing, Group, Point, Polyline, Shape, Stroke, Text
from redline.report.draw.text import FONT, escape, fit

XMLNS = 'xmlns="http://www.w3.org/2000/svg"'
MARGIN = 20
"""Pixels around a picture of its own."""
Attributes = dict[str, str | float]
"""Of a tag; an underscore stands for a hyphen."""


def to_svg(drawing: Drawing, standalone: bool = False, layers: Mapping[str, Sequence[Shape]] | None = None) -> str:
    """The drawing for a page, or with its own colours and background as a picture of its own.

    Layers lie on top, each in a group that a script finds by `data-layer`.
    """
    margin = MARGIN if standalone else 0
    x, y, width, height = -margin, -margin, drawing.width + 2 * margin, drawing.height + 2 * margin
    own_look = f"<style>{palette_css()}</style>" if standalone else ""
    if standalone:
        own_look += _box(Box(x, y, width, height, "surface", radius=8))
    moving = "".join(f'<g data-layer="{escape(name)}">{markup_of(each)}</g>' for name, each in (layers or {}).items())
    return (
        f'<svg {XMLNS} class="chart" role="img" aria-label="{escape(drawing.title)}"'
        f' viewBox="{x} {y} {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        f' font-family="{FONT}">{own_look}{markup_of([drawing.heading, *drawing.shapes])}{moving}</svg>'
    )


def inline_svg(shapes: Sequence[Shape], width: float, height: float, stretched: bool = False) -> str:
    """A few shapes to stand between words; `stretched` ones fill the width they are given."""
    size = f'viewBox="0 0 {width:g} {height:g}"'
    size += f' width="100%" height="{height:g}"' if stretched else f' width="{width:g}" height="{height:g}"'
    how = ' style="display:block;min-width:6rem" preserveAspectRatio="none"' if stretched else ""
    return f"<svg {XMLNS} {size}{how}>{markup_of(shapes)}</svg>"


def markup_of(shapes: Sequence[Shape]) -> str:
    """Shapes as the content of an SVG."""
    return "".join(map(_markup, shapes))


def _markup(shape: Shape) -> str:
    match shape:
        case Box():
            return _box(shape)
        case Circle():
            return _circle(shape)
        case Stroke():
            return _stroke(shape)
        case Polyline():
            return _polyline(shape)
        case Area():
            return _area(shape)
        case Text():
            return _text(shape)
        case Group():
            return _group(shape)


def _box(box: Box) -> str:
    place: Attributes = {"x": box.x, "y": box.y, "width": box.width, "height": box.height}
    corners: Attributes = {"rx": box.radius} if box.radius else {}
    look = _outline(box.colour, box.line_width, box.opacity) if box.outlined else _fill(box.colour, box.opacity)
    return _tag("rect", _hover(box.tip), **place, **corners, **look)


def _circle(circle: Circle) -> str:
    look = _outline(circle.colour, circle.line_width) if circle.outlined else _fill(circle.colour)
    return _tag("circle", cx=circle.x, cy=circle.y, r=circle.radius, **look)


def _stroke(stroke: Stroke) -> str:
    ends: Attributes = {"x1": stroke.x1, "y1": stroke.y1, "x2": stroke.x2, "y2": stroke.y2}
    return _tag("line", **ends, **_pen(stroke.colour, stroke.width), **_dashes(stroke.dash))


def _polyline(line: Polyline) -> str:
    look = _outline(line.colour, line.width, line.opacity) | _dashes(line.dash)
    ends: Attributes = {"stroke_linecap": "round"} if line.round_ends else {}
    return _tag("path", d="".join(map(_path, line.runs)), **look, stroke_linejoin="round", **ends)


def _area(area: Area) -> str:
    return _tag("path", d="".join(f"{_path(run)}Z" for run in area.runs), **_fill(area.colour, area.opacity))


def _text(text: Text) -> str:
    shown = fit(text.words, text.room, text.size)
    cut = _hover(text.words) if shown != text.words else ""
    place: Attributes = {"x": text.x, "y": text.y, "font_size": text.size}
    style: Attributes = {} if text.anchor == "start" else {"text_anchor": text.anchor}
    if text.weight != 400:
        style["font_weight"] = text.weight
    if text.inside:
        style["pointer_events"] = "none"
    return _tag("text", escape(shown) + cut, **place, **_fill(text.colour), **style)


def _group(group: Group) -> str:
    look: Attributes = {"shape_rendering": "crispEdges"} if group.crisp else {}
    if group.opacity < 1:
        look["opacity"] = group.opacity
    if group.shift != (0.0, 0.0):
        look["transform"] = "translate({:g} {:g})".format(*group.shift)
    return _tag("g", _hover(group.tip) + markup_of(group.shapes), **look)


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _paint(colour: str) -> str:
    """A name of the palette as a CSS colour that changes with the mode; anything else as it is."""
    return f"var(--{colour}, {PALETTE[colour][0]})" if colour in PALETTE else colour


def _fill(colour: str, opacity: float = 1.0) -> Attributes:
    return {"fill": _paint(colour)} | ({"fill_opacity": opacity} if opacity < 1 else {})


def _pen(colour: str, width: float, opacity: float = 1.0) -> Attributes:
    look: Attributes = {"stroke": _paint(colour)}
    if width != 1:
        look["stroke_width"] = width
    return look | ({"stroke_opacity": opacity} if opacity < 1 else {})


def _outline(colour: str, width: float, opacity: float = 1.0) -> Attributes:
    return {"fill": "none"} | _pen(colour, width, opacity)


def _dashes(dash: Dash | None) -> Attributes:
    return {"stroke_dasharray": f"{dash[0]:g} {dash[1]:g}"} if dash else {}


def _hover(words: str) -> str:
    """The words that pointing at a shape shows."""
    return _tag("title", escape(words)) if words else ""


def _tag(name: str, content_svg: str = "", /, **attributes: str | float) -> str:
    given = "".join([
        f' {key.replace("_", "-")}="{escape(value) if isinstance(value, str) else f"{round(float(value), 2):g}"}"'
        for key, value in attributes.items()
    ])  # fmt: skip
    return f"<{name}{given}>{content_svg}</{name}>" if content_svg else f"<{name}{given}/>"
