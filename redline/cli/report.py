"""`redline report`: a run as a web page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse


@dataclass(frozen=True)
class Report:
    """Write a run's report as one self-contained HTML file into its folder."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    svg: Path | None = None
    """Also write the learning curve as a picture of its own to this path."""
    seed: int = 0
    """Accepted by every command; a report draws nothing at random."""
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse and write."""
    from redline.report.learning import write_learning_svg, write_report
    from redline.runs import Run

    command = parse("report", Report, arguments)
    folder = Run.open(command.run)
    path = write_report(folder)
    if command.svg is not None:
        write_learning_svg(folder, command.svg)
    if command.output.json:
        print_json({"report": str(path)})
    else:
        out.print(str(path), soft_wrap=True)
    return 0
