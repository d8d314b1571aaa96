"""`redline report`: a run as a web page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse


@dataclass(frozen=True)
class ReportOptions:
    """Write a run's report as one self-contained HTML file into its folder."""

    run: Annotated[Path, "positional"]
    """The run folder."""
    svg: Path | None = None
    """Also write the learning curve, of a workflow search those of all workflows, as a picture to this path."""
    png: bool = False
    """Also write the main pictures as PNG files into the run folder (needs the plot extra)."""
    trust: bool = False
    """Use what the run names, such as a world of its own, though it was not made by you."""
    seed: int = 0
    """Accepted by every command; the episodes of a report have seeds of their own."""
    output: Output = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse and write."""
    from redline.learn.trust import require_trusted
    from redline.report import learning, search
    from redline.runs import Run
    from redline.search import KIND

    command = parse("report", ReportOptions, arguments)
    folder = Run.open(command.run)
    require_trusted(folder.config, folder.path, command.trust)
    if folder.config.get("kind") == KIND:
        write_page, write_svg, write_pngs = (
            search.write_search_report,
            search.write_search_svg,
            search.write_search_pngs,
        )
    else:
        write_page, write_svg, write_pngs = (
            partial(learning.write_report, trust=command.trust),
            learning.write_learning_svg,
            learning.write_learning_pngs,
        )
    path, pictures = write_page(folder), []
    if command.svg is not None:
        pictures.append(write_svg(folder, command.svg))
    if command.png:
        pictures += write_pngs(folder)
    if command.output.json:
        print_json({"report": str(path), "pictures": [str(each) for each in pictures]})
    else:
        for each in (path, *pictures):
            out.print(str(each), soft_wrap=True)
    return 0
