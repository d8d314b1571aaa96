"""Numbers in few characters, as charts and tables show them."""

from __future__ import annotations

import math
from numbers import Integral, Real

NOTHING = "–"
"""Stands where there is no value."""


def short(value: float, digits: int = 3) -> str:
    """A number in few characters: −18.2, 3,100, 10 k, 2.5 M."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else NOTHING
    mantissa, exponent = f"{abs(value):.{digits - 1}e}".split("e")  # rounded here: 999,999 is 1 M and not 1000 k
    power = int(exponent) // 3 if int(exponent) >= 4 else 0
    if power > 4 or int(exponent) < -4:
        number = f"{_trim(mantissa)}e{int(exponent)}"
    else:
        decimals = max(0, digits - 1 - int(exponent) + 3 * power)
        number = _trim(f"{float(f'{mantissa}e{exponent}') / 1000**power:,.{decimals}f}")
        number += ("", " k", " M", " G", " T")[power]
    return f"−{number}" if value < 0 else number


def fixed(value: float) -> str:
    """A number with two decimals, a dash for none."""
    return f"{value:.2f}".replace("-", "−") if math.isfinite(value) else NOTHING


def percent(share: float) -> str:
    """A share of 1 as a percentage, with a decimal where it is small."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share:.0%}".replace("%", " %") if share >= 0.0995 else f"{share:.1%}".replace("%", " %")


def duration(seconds: float) -> str:
    """A time in the unit that suits it: 1.25 s, 12.3 ms, 79 µs."""
    scale, unit = time_unit(seconds)
    return f"{short(seconds * scale)} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit that suits a time, after how many of it make a second."""
    size = abs(seconds)
    return (1.0, "s") if size >= 0.9995 or not size else (1e3, "ms") if size >= 0.9995e-3 else (1e6, "µs")


def show(value: object) -> str:
    """Any value as a cell of a table: numbers with thousands separators and at most two decimals."""
    if value is None:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    if isinstance(value, Integral):
        return f"{int(value):,}".replace("-", "−")
    number = float(value)
    if not math.isfinite(number) or 0 < abs(number) < 0.01:
        return short(number)
    return (f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.2f}").replace("-", "−")


def _trim(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number
