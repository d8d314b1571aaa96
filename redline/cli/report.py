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
    """Also write the learning curve of a training run as a picture of its own to this path."""
    png: bool = False
    """Also write the pictures of a workflow search as PNG files (needs the plot extra)."""
    seed: int = 0
    """Accepted by every command; a report draws nothing at random."""
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse and write."""
    from redline.report.learning import write_learning_svg, write_report
    from redline.report.search import write_search_report
    from redline.report.search_pictures import write_search_pngs
    from redline.runs import Run
    from redline.search import KIND

    command = parse("report", Report, arguments)
    folder = Run.open(command.run)
    if folder.config.get("kind") == KIND:
        path = write_search_report(folder)
        pictures = write_search_pngs(folder) if command.png else []
    else:
        path, pictures = write_report(folder), []
        if command.svg is not None:
            write_learning_svg(folder, command.svg)
    if command.output.json:
        print_json({"report": str(path), "pictures": [str(each) for each in pictures]})
    else:
        for each in (path, *pictures):
            out.print(str(each), soft_wrap=True)
    return 0
