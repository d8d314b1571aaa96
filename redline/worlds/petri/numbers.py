"""Whole numbers in text that people wrote."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DECIMAL = re.compile(r"-?(?=\.?[0-9])[0-9]{0,18}(\.[0-9]{0,18})?")


def whole_number(text: str) -> int | None:
    """The whole number that a text is; None if it is none, or too long for the simulator's integers."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else None


def is_number(text: str) -> bool:
    """Whether a text is a number, whole or with a decimal point, that the simulator's integers come close to."""
    return _DECIMAL.fullmatch(text) is not None


def at_least(least: int, text: str) -> int | None:
    """The whole number that a text is; None if it is none, or less than `least`."""
    number = whole_number(text)
    return number if number is not None and number >= least else None
