"""A breakdown as a table with bars."""

from __future__ import annotations

from rich.table import Table

from redline.timing.breakdown import UNACCOUNTED, Breakdown, Path

BAR_WIDTH = 28
LABELS = {
    ("collect",): "Data collection",
    ("collect", "policy"): "policy (lookup, network, draw)",
    ("collect", "env"): "env step",
    ("collect", "wait"): "waiting for workers",
    ("collect", "send"): "weights to workers",
    ("collect", "record"): "buffer writes",
    ("learn",): "Learning",
    ("learn", "gae"): "advantages",
    ("learn", "batch"): "batches (distinct rows and pairs)",
    ("learn", "gradient"): "loss and gradient",
    ("learn", "loss"): "loss",
    ("learn", "backward"): "backward",
    ("learn", "optimizer"): "optimizer step",
    ("learn", "metrics"): "metrics",
    ("log",): "Logging and checkpoints",
}


def label(path: Path) -> str:
    """What a span is called in a report."""
    return LABELS.get(path, path[-1])


def rows(breakdown: Breakdown) -> list[tuple[int, str, float, float]]:
    """(depth, label, seconds, share) of every span, parents before children, and of what no span accounts for."""
    found: list[tuple[int, str, float, float]] = []

    def visit(path: Path) -> None:
        found.append((len(path) - 1, label(path), breakdown.seconds[path], breakdown.share(*path)))
        for child in breakdown.children(path):
            visit(child)

    for top in breakdown.children():
        visit(top)
    total = breakdown.total_seconds or 1.0
    return [*found, (0, UNACCOUNTED, breakdown.unaccounted_seconds, breakdown.unaccounted_seconds / total)]


def table(breakdown: Breakdown, title: str = "Where the time went") -> Table:
    """The breakdown for a terminal."""
    result = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    result.add_column("")
    result.add_column("seconds", justify="right")
    result.add_column("share", justify="right")
    result.add_column("")
    for depth, name, seconds, share in rows(breakdown):
        bar = "█" * round(share * BAR_WIDTH) or ("▏" if share > 0.002 else "")
        style = "bold" if depth == 0 else None
        result.add_row(
            "  " * depth + ("– " if depth else "") + name, f"{seconds:.2f}", f"{share:6.1%}", bar, style=style
        )
    result.add_row("total", f"{breakdown.total_seconds:.2f}", "100.0%", "", style="bold")
    return result
