"""PNG files from dots and dots from PNG files, in Python alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SUB, UP, AVERAGE, PAETH = 1, 2, 3, 4
"""How a row of a PNG file is told by its neighbours."""
CHANNELS = {2: 3, 6: 4}
"""Bytes of a dot, by the PNG file's colour type."""


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


def decode_png(data: bytes) -> np.ndarray:
    """The dots uint8 [height, width, 3] of a PNG file with a byte per colour, not interlaced."""
    width, height, _, kind = struct.unpack(">IIBB", data[16:26])
    channels = CHANNELS[kind]
    packed = b""
    at = len(SIGNATURE)
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        if name == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, -1)
    dots = np.zeros((height + 1, width, channels), np.uint8)  # the row above the first is black
    for y, row in enumerate(rows):
        line = row[1:].reshape(width, channels)
        dots[y + 1] = _unfiltered(int(row[0]), line, dots[y])
    return dots[1:, :, :3]


def _unfiltered(kind: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    if kind == SUB:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if kind == UP:
        return line + above
    if kind in (AVERAGE, PAETH):
        columns = [_predicted(kind, line[:, c], above[:, c]) for c in range(line.shape[1])]
        return np.stack(columns, axis=1)
    return line


def _predicted(kind: int, line: np.ndarray, above: np.ndarray) -> np.ndarray:
    """One colour of a row whose every dot depends on the one before it."""
    found = []
    left = corner = 0
    for value, up in zip(line.tolist(), above.tolist(), strict=True):
        if kind == AVERAGE:
            guess = (left + up) // 2
        elif left == corner:
            guess = up  # what Paeth's rule says, too, but sooner
        else:
            guess = _paeth(left, up, corner)
        left = (value + guess) & 255
        corner = up
        found.append(left)
    return np.array(found, np.uint8)


def _paeth(left: int, up: int, corner: int) -> int:
    """Whichever of the three is nearest to left + up - corner; the first of equals."""
    to_left = abs(up - corner)
    to_up = abs(left - corner)
    to_corner = abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner
