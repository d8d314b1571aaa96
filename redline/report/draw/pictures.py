"""Drawings as files."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError, install
from redline.files import reason, replace_file
from redline.report.draw.shapes import Drawing
from redline.report.draw.svg import to_svg

FORMATS = (".svg", ".png")


def write_picture(drawing: Drawing, path: Path, kind: str | None = None) -> None:
    """Write a drawing as .svg or, with Pillow, as .png: what its path ends with, unless `kind` says otherwise."""
    data = _encode(drawing, path, kind or path.suffix)
    try:
        replace_file(path, data)
    except OSError as error:
        raise RedlineError(f"The picture cannot be written to {path}: {reason(error)}.") from error


def _encode(drawing: Drawing, path: Path, kind: str) -> bytes:
    if kind not in FORMATS:
        raise RedlineError(
            f"A picture is written as {' or '.join(FORMATS)}, not as {path.name!r}. Try {path.stem}{FORMATS[0]}."
        )
    return to_svg(drawing, standalone=True).encode() if kind == ".svg" else _png(drawing)


def dots_of(drawing: Drawing) -> np.ndarray:
    """A drawing as dots uint8 [height, width, 3]."""
    return np.asarray(_painter().to_image(drawing))


def _png(drawing: Drawing) -> bytes:
    data: bytes = _painter().to_png(drawing)
    return data


def _painter() -> Any:
    try:
        return importlib.import_module("redline.report.draw.png")
    except ImportError as error:
        raise RedlineError(f"PNG files need Pillow: {install('plot')}.") from error
