"""A drawing as PNG, in light colours. Needs Pillow, whose edges are not smooth: so we draw large and shrink."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from redline.report.draw.palette import PALETTE
from redline.report.draw.shapes import Area, Box, Circle, Dash, Drawing, Group, Point, Polyline, Shape, Stroke, Text
from redline.report.draw.svg import MARGIN
from redline.report.draw.text import fit, one_line

SCALE = 2
"""Pixels of the file for each of the drawing, across and down."""
SMOOTH = 4
"""Dots for each pixel of the file, across and down; the pixel is their mean."""
ZOOM = SCALE * SMOOTH
BAND = 160
"""Rows of the file that are drawn at a time: a tall drawing must not need much memory."""

REGULAR = {"DejaVuSans.ttf": 0.9, "LiberationSans-Regular.ttf": 1.0, "Arial.ttf": 1.0}
BOLD = {"DejaVuSans-Bold.ttf": 0.84, "LiberationSans-Bold.ttf": 0.95, "Arial Bold.ttf": 0.95}
"""Fonts, and at how much of the size asked for their words take the room that a chart leaves for them.

The first that the machine has is used; without any, the letters that Pillow brings.
"""
SPELLED = str.maketrans({"−": "-", "–": "-", "→": ">", "µ": "u", "×": "x", "≈": "~", "≤": "<", "≥": ">"})
"""Signs that the letters of Pillow lack."""

Place = Callable[[Point], tuple[int, int]]
"""Where a point of the drawing lies on the paper."""
Ink = str | int
"""A colour; on a mask, how much of one."""


def to_png(drawing: Drawing) -> bytes:
    """The content of a PNG file."""
    file = io.BytesIO()
    to_image(drawing).save(file, "PNG")
    return file.getvalue()


def to_image(drawing: Drawing) -> Image.Image:
    """The drawing with a margin around it, made band by band."""
    width, height = (math.ceil((size + 2 * MARGIN) * SCALE) for size in (drawing.width, drawing.height))
    image = Image.new("RGB", (width, height))
    stamps = [stamp for shape in (drawing.heading, *drawing.shapes) for stamp in _stamps(shape)]
    for top in range(0, height, BAND):
        band = _Band(width, min(BAND, height - top), top)
        for stamp in stamps:
            band.lay_on(stamp)
        image.paste(band.image.reduce(SMOOTH), (0, top))
    return image


class _Stamp(NamedTuple):
    """A shape, ready to be drawn wherever a band shows part of it."""

    bounds: tuple[Point, Point]
    """Top left and bottom right of all that is drawn."""
    colour: str
    opacity: float
    draw: Callable[[ImageDraw.ImageDraw, Place, Ink], None]


class _Band:
    """Some rows of the picture, in dots."""

    def __init__(self, width: int, height: int, top: int) -> None:
        self.image = Image.new("RGB", (width * SMOOTH, height * SMOOTH), _light("surface"))
        self._pen = ImageDraw.Draw(self.image)
        self._top = top * SMOOTH

    def lay_on(self, stamp: _Stamp) -> None:
        """Draw the stamp, as far as it is in the band."""
        (left, top), (right, bottom) = map(self._place, stamp.bounds)
        left, top = max(0, left), max(0, top)
        right, bottom = min(self.image.width, right), min(self.image.height, bottom)
        if left >= right or top >= bottom:
            return
        if stamp.opacity < 1:
            self._lay_on_faintly(stamp, left, top, right, bottom)
        else:
            stamp.draw(self._pen, self._place, _light(stamp.colour))

    def _lay_on_faintly(self, stamp: _Stamp, left: int, top: int, right: int, bottom: int) -> None:
        """By way of a mask, so that a shape is no darker where it crosses itself."""
        mask = Image.new("L", (right - left, bottom - top))
        strength = round(255 * stamp.opacity)
        stamp.draw(ImageDraw.Draw(mask), lambda point: _moved(self._place(point), -left, -top), strength)
        self.image.paste(_light(stamp.colour), (left, top), mask)

    def _place(self, point: Point) -> tuple[int, int]:
        """Rounded before it is moved: a shape must look the same from every band that shows a part of it."""
        return round((point[0] + MARGIN) * ZOOM), round((point[1] + MARGIN) * ZOOM) - self._top


def _moved(dot: tuple[int, int], x: int, y: int) -> tuple[int, int]:
    return dot[0] + x, dot[1] + y


def _light(colour: str) -> str:
    return PALETTE[colour][0] if colour in PALETTE else colour


# One function a shape


def _stamps(shape: Shape) -> Iterator[_Stamp]:
    match shape:
        case Box():
            yield _box(shape)
        case Circle():
            yield _circle(shape)
        case Stroke(x1, y1, x2, y2):
            yield _line([(x1, y1), (x2, y2)], Polyline([], shape.colour, shape.width, dash=shape.dash))
        case Polyline():
            yield from (_line(run, shape) for run in shape.runs)
        case Area():
            yield from (_area(run, shape) for run in shape.runs)
        case Text():
            yield _text(shape)
        case Group():
            for stamp in chain.from_iterable(map(_stamps, shape.shapes)):
                yield _shifted(stamp, shape.shift)._replace(opacity=stamp.opacity * shape.opacity)


def _shifted(stamp: _Stamp, by: Point) -> _Stamp:
    """A stamp that is set elsewhere."""
    right, down = by
    (left, top), (end, bottom) = stamp.bounds

    def draw(pen: ImageDraw.ImageDraw, place: Place, ink: Ink) -> None:
        stamp.draw(pen, lambda point: place((point[0] + right, point[1] + down)), ink)

    corners = (left + right, top + down), (end + right, bottom + down)
    return stamp._replace(bounds=corners, draw=draw)


def _box(box: Box) -> _Stamp:
    edge = box.line_width / 2 if box.outlined else 0.0
    corners = (box.x - edge, box.y - edge), (box.x + box.width + edge, box.y + box.height + edge)

    def draw(pen: ImageDraw.ImageDraw, place: Place, ink: Ink) -> None:
        frame = _frame(corners, place)
        if box.outlined:
            pen.rounded_rectangle(frame, (box.radius + edge) * ZOOM, outline=ink, width=_dots(box.line_width))
        else:
            pen.rounded_rectangle(frame, box.radius * ZOOM, fill=ink)

    return _Stamp(corners, box.colour, box.opacity, draw)


def _circle(circle: Circle) -> _Stamp:
    reach = circle.radius + (circle.line_width / 2 if circle.outlined else 0.0)
    corners = (circle.x - reach, circle.y - reach), (circle.x + reach, circle.y + reach)

    def draw(pen: ImageDraw.ImageDraw, place: Place, ink: Ink) -> None:
        frame = _frame(corners, place)
        if circle.outlined:
            pen.ellipse(frame, outline=ink, width=_dots(circle.line_width))
        else:
            pen.ellipse(frame, fill=ink)

    return _Stamp(corners, circle.colour, 1.0, draw)


def _line(run: Sequence[Point], look: Polyline) -> _Stamp:
    def draw(pen: ImageDraw.ImageDraw, place: Place, ink: Ink) -> None:
        for piece in _pieces(run, look.dash):
            points = list(map(place, piece))
            pen.line(points, ink, _dots(look.width), joint="curve")
            if look.round_ends:
                for point in (points[0], points[-1]):
                    pen.circle(point, look.width * ZOOM / 2, ink)

    return _Stamp(_bounds(run, look.width), look.colour, look.opacity, draw)


def _area(run: Sequence[Point], look: Area) -> _Stamp:
    def draw(pen: ImageDraw.ImageDraw, place: Place, ink: Ink) -> None:
        pen.polygon(list(map(place, run)), ink)

    return _Stamp(_bounds(run, 1), look.colour, look.opacity, draw)


def _text(text: Text) -> _Stamp:
    words, font = _set(fit(one_line(text.words), text.room, text.size), text.size, text.weight > 400)
    length = font.getlength(words) / ZOOM
    left = text.x - {"start": 0.0, "middle": length / 2, "end": length}[text.anchor]
    corners = (left - 1, text.y - 1.2 * text.size), (left + length + 1, text.y + 0.5 * text.size)

    def draw(pen: ImageDraw.ImageDraw, place: Place, ink: Ink) -> None:
        pen.text(place((left, text.y)), words, ink, font, anchor="ls")

    return _Stamp(corners, text.colour, 1.0, draw)


def _frame(corners: tuple[Point, Point], place: Place) -> tuple[int, int, int, int]:
    """First and last dots across and down: Pillow draws the last ones, too."""
    (left, top), (right, bottom) = map(place, corners)
    return left, top, max(left, right - 1), max(top, bottom - 1)


def _dots(pixels: float) -> int:
    return max(1, round(pixels * ZOOM))


def _bounds(points: Sequence[Point], around: float) -> tuple[Point, Point]:
    (left, right), (top, bottom) = ((min(each), max(each)) for each in zip(*points, strict=True))
    return (left - around, top - around), (right + around, bottom + around)


def _pieces(run: Sequence[Point], dash: Dash | None) -> Iterator[Sequence[Point]]:
    """The run itself, or the parts of it that a dashed line shows."""
    if dash is None:
        yield run
        return
    drawn, left, piece = True, dash[0], [run[0]]
    for (x, y), (end_x, end_y) in pairwise(run):
        length, done = math.hypot(end_x - x, end_y - y), 0.0
        while length - done > left:
            done += left
            corner = x + (end_x - x) * done / length, y + (end_y - y) * done / length
            if drawn:
                yield [*piece, corner]
            drawn, piece = not drawn, [corner]
            left = dash[0] if drawn else dash[1]
        left -= length - done
        piece.append((end_x, end_y))
    if drawn and len(piece) > 1:
        yield piece


def _set(words: str, size: float, bold: bool) -> tuple[str, ImageFont.FreeTypeFont]:
    """Words and the letters to set them in."""
    for name, part in (BOLD if bold else REGULAR).items():
        font = _font(name, size * part * ZOOM)
        if font is not None:
            return words, font
    builtin = ImageFont.load_default(size * ZOOM)
    assert isinstance(builtin, ImageFont.FreeTypeFont)  # it is one wherever a size is given
    return words.translate(SPELLED), builtin


@cache
def _font(name: str, size: float) -> ImageFont.FreeTypeFont | None:
    """A font of this machine, if it has it."""
    try:
        return ImageFont.truetype(name, size, layout_engine=ImageFont.Layout.BASIC)
    except OSError:
        return None
