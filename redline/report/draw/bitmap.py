"""Pictures made of dots as PNG files, without help from elsewhere."""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode_png(dots: np.ndarray) -> bytes:
    """A PNG file of dots uint8 [height, width, 3]."""
    height, width, _ = dots.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with its filter, which is none
    rows[:, 1:] = dots.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
