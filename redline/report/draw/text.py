"""Text: how much room they take, and how they are made safe to put into a page."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from unicodedata import east_asian_width

FONT = "-apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNSAFE = re.compile(f"[&<>\"']|{NOT_XML.pattern}")


def escape(words: object) -> str:
    """Text that is safe inside HTML and SVG, attributes included."""
    text = str(words)
    return html.escape(NOT_XML.sub("\ufffd", text)) if _UNSAFE.search(text) else text


def text_width(words: str, size: float = 12) -> float:
    """Roughly how many pixels the words take. A little too many is better than too few."""
    return size * _letters_width(words)


@lru_cache(4096)
def _letters_width(words: str) -> float:
    narrow, wide = "ijltfrI.,:;'|!()[]/ ", "mwMW%@…"
    return sum(
        0.33 if letter in narrow else 0.95 if letter in wide or east_asian_width(letter) in "WF" else 0.57
        for letter in words
    )


def fit(words: str, room: float, size: float = 12) -> str:
    """The words, with the end cut off where they would take more than `room` pixels."""
    while words and text_width(words, size) > room:
        words = words[:-2] + "…" if len(words) > 2 else ""
    return words
