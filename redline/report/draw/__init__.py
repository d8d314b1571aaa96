"""The drawing kit: shapes on paper, axes to place them by, and the same drawing as SVG or PNG.

Lengths are pixels, y grows downwards, colours are names of the palette. Later shapes lie on top of earlier ones. A
chart is a function that returns a `Drawing`; pages, .svg files and .png files are all made from it.
"""

from redline.report.draw.axis import HUGE, TINY, Axis, axis_of, drawable, grid_columns, grid_rows
from redline.report.draw.numbers import NOTHING, duration, fixed, percent, short, show, time_unit
from redline.report.draw.palette import HUES, PALETTE, hue, palette_css
from redline.report.draw.pictures import FORMATS, dots_of, write_picture
from redline.report.draw.shapes import (
    Area,
    Box,
    Circle,
    Drawing,
    Group,
    Point,
    Polyline,
    Shape,
    Stroke,
    Text,
    no_data,
)
from redline.report.draw.svg import inline_svg, markup_of, to_svg
from redline.report.draw.text import FONT, escape, fit, text_width

__all__ = [
    "FONT",
    "FORMATS",
    "HUES",
    "HUGE",
    "NOTHING",
    "PALETTE",
    "TINY",
    "Area",
    "Axis",
    "Box",
    "Circle",
    "Drawing",
    "Group",
    "Point",
    "Polyline",
    "Shape",
    "Stroke",
    "Text",
    "axis_of",
    "dots_of",
    "drawable",
    "duration",
    "escape",
    "fit",
    "fixed",
    "grid_columns",
    "grid_rows",
    "hue",
    "inline_svg",
    "markup_of",
    "no_data",
    "palette_css",
    "percent",
    "short",
    "show",
    "text_width",
    "time_unit",
    "to_svg",
    "write_picture",
]
