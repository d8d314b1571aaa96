"""`redline bench search`: how soon the workflow search gives a good answer, beside chance."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from rich.table import Table

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse
from redline.learn.config import at_least


@dataclass(frozen=True)
class SearchBench:
    """Judge the workflow search by a run of `redline search --exhaustive`, which trained all workflows alike."""

    run: Annotated[Path, "positional"]
    """The folder of the exhaustive run, or the file of a table that --table wrote."""
    seeds: int = 20
    """Searches to simulate with each method."""
    episodes: int = 600_000
    """Episodes that a simulated search may use."""
    env: str = ""
    """The world of a table's workflows; by default the first that has any."""
    table: Path | None = None
    """Write the scores of all trainings to this file, small enough to keep."""
    svg: Path | None = None
    """Write what the answer loses, over time, to this picture."""
    seed: int = 0
    """Accepted by every command; the simulated searches have seeds 0, 1, 2, …"""
    output: Output = dataclasses.field(default_factory=Output)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, seeds=self.seeds, episodes=self.episodes)


COLUMNS = (
    "",
    "episodes until the answer stays in the top 5",
    "until it stays among those tied with the best",
    "in the top 5 at the end",
    "regret at the end",
    "episodes used",
)


def _or_never(episodes: float) -> str:
    return f"{episodes:,.0f}" if np.isfinite(episodes) else "never"


def run(arguments: list[str]) -> int:
    """Parse, measure, print."""
    command = parse("bench search", SearchBench, arguments)
    from redline.bench.search import bench_search, read_table, summarise, table_of
    from redline.bench.search_picture import regret_chart
    from redline.learn.trust import require_trusted
    from redline.report.draw import write_picture
    from redline.runs import Run
    from redline.search import workflows_of, worlds_with_workflows

    if command.run.is_file():
        trained = read_table(command.run, workflows_of(command.env or worlds_with_workflows()[0]))
    else:
        folder = Run.open(command.run)
        require_trusted(folder.config, folder.path)
        trained = table_of(folder, workflows_of(str(folder.config.get("env"))))
    if command.table is not None:
        command.table.write_text(json.dumps(trained.to_json()) + "\n")
    courses = bench_search(trained, command.seeds, command.episodes)
    if command.svg is not None:
        write_picture(regret_chart(courses), command.svg, ".svg")
    found = {name: summarise(each) for name, each in courses.items()}
    about = {
        "workflows": len(trained.scores),
        "distinct": len(trained.apart),
        "trainings_each": trained.scores.shape[1],
        "noise": trained.noise,
        "between": float(trained.truth.std()),
        "top": len(trained.top),
        "near": len(trained.near),
        "episodes_each": trained.episodes_each,
        "start_episodes": trained.start_episodes,
    }
    if command.output.json:
        print_json({**about, "methods": found})
        return 0
    shown = Table(title=f"{command.seeds} searches of up to {command.episodes:,} episodes each")
    for column in COLUMNS:
        shown.add_column(column, justify="right" if column else "left")
    for name, each in found.items():
        medians = [_or_never(each[key]) for key in ("median_episodes_to_top_5", "median_episodes_to_near")]
        last = [f"{each['in_top_5_at_the_end']:.0%}", f"{each['mean_regret_at_the_end']:.3f}"]
        shown.add_row(name, *medians, *last, f"{each['median_episodes_used']:,.0f}")
    out.print(shown)
    out.print(
        f"{about['workflows']} orders, {about['distinct']} of them distinct; {about['trainings_each']} trainings each of "
        f"{about['episodes_each']:,} episodes, from starts of {about['start_episodes']:,}. Orders differ by "
        f"{about['between']:.2f} (standard deviation), trainings of one order by {about['noise']:.2f}. "
        f"{about['top']} orders are in the top five, with those that are alike, and {about['near']} are tied with the "
        f"best: the table cannot tell them from it by one standard error.",
        soft_wrap=True,
    )
    return 0
