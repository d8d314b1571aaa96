"""Whole numbers in text that people wrote."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def whole_number(text: str) -> int | None:
    """The whole number that a text is; None if it is none, or too long for the simulator's integers."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else None


def at_least(least: int, text: str) -> int | None:
    """The whole number that a text is; None if it is none, or less than `least`."""
    number = whole_number(text)
    return number if number is not None and number >= least else None
