"""A breakdown as a table with bars."""

from __future__ import annotations

from rich.table import Table

from redline.timing.breakdown import Breakdown
from redline.timing.rows import Row, rows

BAR_WIDTH = 28


def table(breakdown: Breakdown, title: str = "Where the time went", details: bool = True) -> Table:
    """The breakdown for a terminal."""
    result = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    result.add_column("")
    result.add_column("seconds", justify="right")
    result.add_column("share", justify="right")
    result.add_column("")
    number = 0
    for row in rows(breakdown, details):
        number += row.depth == 0
        result.add_row(
            label(row, number), f"{row.seconds:.2f}", f"{row.share:6.1%}", bar(row.share),
            style="bold" if row.depth == 0 else None,
        )  # fmt: skip
    result.add_row("total", f"{breakdown.total_seconds:.2f}", "100.0%", "", style="bold")
    return result


def label(row: Row, number: int) -> str:
    """A row's name as it stands in the table: the five parts are numbered."""
    if row.depth:
        return f"   – {row.name}"
    return f"{number}. {row.name}" if number <= 5 else row.name


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A share as a bar of characters."""
    return "█" * round(share * width) or ("▏" if share > 0.002 else "")
