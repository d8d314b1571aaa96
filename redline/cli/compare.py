"""`redline compare`: runs beside each other, and whether they can be told apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich import box
from rich.table import Table
from rich.text import Text

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError
from redline.runs import CONFIG

if TYPE_CHECKING:
    from redline.report.comparison import RunComparison


@dataclass(frozen=True)
class CompareOptions:
    """Compare runs. Those that differ only by seed are one group; a verdict says whether groups differ beyond noise."""

    runs: Annotated[tuple[Path, ...], "positional"]
    """Run folders, or folders of them; two at least."""
    html: Path | None = None
    """Also write the comparison as one page that needs no network."""
    seed: int = 0
    """Accepted by every command; the bootstrap always draws alike."""
    output: Output = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse, compare, print."""
    command = parse("compare", CompareOptions, arguments)
    compared(runs_at(command.runs), command.html, command.output)
    return 0


def compared(paths: Sequence[Path], html: Path | None, output: Output) -> RunComparison:
    """Compare runs and tell."""
    from redline.report.comparison import compare, write_comparison
    from redline.report.groups import read_run

    found = compare([read_run(path) for path in paths])
    written = None if html is None else write_comparison(html, found)
    if output.json:
        print_json({**found.to_json(), "html": None if written is None else str(written)})
    else:
        _print(found)
        if written is not None:
            out.print(f"Written: {written}", soft_wrap=True)
    return found


def runs_at(paths: Sequence[Path]) -> list[Path]:
    """The run folders that paths mean: themselves, or those in them."""
    found: list[Path] = []
    for path in paths:
        if (path / CONFIG).exists():
            found.append(path)
            continue
        inside = sorted(each.parent for each in path.glob(f"*/{CONFIG}"))
        if not inside:
            raise RedlineError(f"{path} is no run folder and holds none. See redline runs.")
        found += inside
    if len(found) < 2:
        raise RedlineError("compare needs two runs at least. Try: redline compare runs/A runs/B, or see redline runs.")
    return found


def _print(found: RunComparison) -> None:
    from redline.report.comparison import HOW, said, score_rows, time_rows

    names = [group.name for group in found.groups]
    _table(["", "seeds", f"mean {found.measure}", "95 % interval"], score_rows(found))
    for words in said(found):
        out.print(words, soft_wrap=True, markup=False)
    if found.differing:
        _table(["what differs", *names], [[name, *values] for name, values in found.differing.items()])
    if found.times:
        _table(["seconds for a million steps", *names], time_rows(found))
    out.print(HOW, soft_wrap=True, markup=False, style="dim")


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k, header in enumerate(headers):
        table.add_column(Text(header), justify="right" if k else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table)
