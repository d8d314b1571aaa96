"""`redline report`: a run as a web page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse


@dataclass(frozen=True)
class ReportOptions:
    """Write a run's report as one self-contained HTML file into its folder."""

    run: Annotated[Path, "positional"]
    """The run folder."""
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
        path = search.write_search_report(folder)
    else:
        path = learning.write_report(folder, command.trust)
    if command.output.json:
        print_json({"report": str(path)})
    else:
        out.print(str(path), soft_wrap=True)
    return 0
