"""Drawings as files: SVG by ourselves, PNG by resvg."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np

from redline.errors import RedlineError, install
from redline.files import reason, replace_file
from redline.report.draw.bitmap import decode_png
from redline.report.draw.shapes import Drawing
from redline.report.draw.svg import to_svg

FORMATS = (".svg", ".png")
SCALE = 2
"""Pixels of a PNG file for each of the drawing, across and down."""
VARIABLE = re.compile(r"var\(--\w+, ([^)]+)\)")
"""A colour as SVG has it for a page; resvg knows only the colour inside."""


def write_picture(drawing: Drawing, path: Path, kind: str | None = None) -> None:
    """Write a drawing as .svg or .png: what its path ends with, unless `kind` says otherwise."""
    data = _encode(drawing, path, kind or path.suffix)
    try:
        replace_file(path, data)
    except OSError as error:
        raise RedlineError(f"The picture cannot be written to {path}: {reason(error)}.") from error


def _encode(drawing: Drawing, path: Path, kind: str) -> bytes:
    if kind == ".svg":
        return to_svg(drawing, standalone=True).encode()
    if kind == ".png":
        return to_png(drawing)
    known = " or ".join(FORMATS)
    raise RedlineError(f"A picture is written as {known}, not as {path.name!r}. Try {path.stem}{FORMATS[0]}.")


def dots_of(drawing: Drawing) -> np.ndarray:
    """A drawing as dots uint8 [height, width, 3]."""
    return decode_png(to_png(drawing))


def to_png(drawing: Drawing) -> bytes:
    """The content of a PNG file, in light colours. A machine without fonts gets no text."""
    try:
        resvg = importlib.import_module("resvg_py")
    except ImportError as error:
        raise RedlineError(f"PNG files need resvg-py: {install('plot')}.") from error
    svg = VARIABLE.sub(r"\1", to_svg(drawing, standalone=True))
    data = resvg.svg_to_bytes(
        svg_string=svg,
        zoom=SCALE,
        background="white",
        sans_serif_family="DejaVu Sans",
    )
    return bytes(data)
