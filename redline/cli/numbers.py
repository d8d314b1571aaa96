"""Whole numbers as people write them: `1000000`, `1_000_000`, `1e6`, `100k`, `5M`."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation

SUFFIXES = {"k": 3, "m": 6, "g": 9, "b": 9}
MOST_DIGITS = 1000
"""Whoever writes 1e999999999 would have us work on it for days."""
_EXACT = Context(prec=4 * MOST_DIGITS)


def whole(text: str) -> int:
    """The whole number that a text means, exactly; ValueError where it means none."""
    digits, power = text.strip().replace("_", ""), 0
    if digits[-1:].lower() in SUFFIXES:
        digits, power = digits[:-1], SUFFIXES[digits[-1].lower()]
    try:
        number = Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number") from None
    if number.is_finite() and abs(number.adjusted()) > MOST_DIGITS:
        raise ValueError(f"{text!r} has more than {MOST_DIGITS} digits")
    number = number.scaleb(power, _EXACT)
    if not number.is_finite() or number != number.to_integral_value():
        raise ValueError(f"{text!r} is no whole number")
    return int(number)
