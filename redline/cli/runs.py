"""`redline runs`: the runs there are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich import box
from rich.table import Table
from rich.text import Text

from redline.cli.console import out, print_json, short
from redline.cli.options import Output, parse
from redline.errors import RedlineError

if TYPE_CHECKING:
    from redline.report.groups import RunFacts


RUNS = Path("runs")
"""Where runs go if nothing is said; it may not be there yet."""


@dataclass(frozen=True)
class RunsOptions:
    """List the runs in a folder: env, settings that differ from the default, steps, score, state."""

    folder: Annotated[Path, "positional"] = RUNS
    """Where the runs are."""
    seed: int = 0
    """Accepted by every command; a list draws nothing at random."""
    output: Output = dataclasses.field(default_factory=Output)


def run(arguments: list[str]) -> int:
    """Parse and list."""
    command = parse("runs", RunsOptions, arguments)
    if not command.folder.is_dir() and command.folder != RUNS:
        raise RedlineError(f"There is no folder {command.folder}. Pass one that holds runs, such as runs.")
    from redline.report.groups import find_runs

    found = find_runs(command.folder)
    if command.output.json:
        print_json({"folder": str(command.folder), "runs": [_facts(each) for each in found]})
        return 0
    if not found:
        out.print(f"No runs in {command.folder} yet. Try: redline train", soft_wrap=True)
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("run", "env", "differs", "seed", "steps", "score", "state"):
        justify: Any = "right" if column in ("seed", "steps", "score") else "left"
        table.add_column(
            column, justify=justify, overflow="fold", no_wrap=column == "run"
        )  # a name is there to be copied
    for each in found:
        table.add_row(*map(Text, _cells(each, command.folder)))
    out.print(table)
    return 0


def _cells(run: RunFacts, folder: Path) -> list[str]:
    from redline.report.groups import NOT_SETTINGS

    shown = {name: value for name, value in run.changed.items() if name not in NOT_SETTINGS}
    differs = ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in shown.items())
    spread = f" ± {run.stderr:.2f}" if run.stderr is not None else ""
    score = "" if run.score is None else f"{run.score:.2f}{spread}"
    if run.score is not None and run.measure != "return":
        score = f"{run.measure} {-run.score:g}"
    return [str(run.path.relative_to(folder)), run.env, differs, str(run.seed), short(run.steps), score, run.state]


def _facts(run: RunFacts) -> dict[str, Any]:
    return {
        "run": str(run.path), "env": run.env, "differs": run.changed, "seed": run.seed, "steps": run.steps,
        "goal": run.goal, "score": run.score, "stderr": run.stderr, "measure": run.measure, "state": run.state,
    }  # fmt: skip
