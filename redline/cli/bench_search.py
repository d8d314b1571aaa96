"""`redline bench search`: how soon the workflow search finds a good order, beside random picks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.table import Table

from redline.cli.console import out, print_json
from redline.cli.options import Output, parse
from redline.errors import RedlineError
from redline.learn.config import at_least


@dataclass(frozen=True)
class SearchBench:
    """Judge the workflow search by a run of `redline search --exhaustive`, which trained all workflows alike."""

    run: tyro.conf.Positional[Path]
    """The folder of the exhaustive run."""
    seeds: int = 20
    """Searches to simulate with each method."""
    total_episodes: int = 100_000
    """Budget of a search, in episodes."""
    beta: float = 2.0
    """How much uncertainty counts in a pick."""
    seed: int = 0
    """Accepted by every command; the simulated searches have seeds 0, 1, 2, …"""
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, seeds=self.seeds, total_episodes=self.total_episodes)


def run(arguments: list[str]) -> int:
    """Parse, measure, print."""
    command = parse("bench search", SearchBench, arguments)
    from redline.bench.search import Landscape, bench_search, summarise
    from redline.learn.trust import require_trusted
    from redline.runs import RANKING, Run
    from redline.search import workflows_of

    folder = Run.open(command.run)
    if not (folder.path / RANKING).exists():
        raise RedlineError(
            f"{command.run} has no ranking of workflows. Pass a finished run of: redline search --exhaustive"
        )
    require_trusted(folder.config, folder.path)
    workflows = workflows_of(str(folder.config.get("env")))
    landscape = Landscape.from_ranking(folder.read_json(RANKING), len(workflows))
    if not landscape.complete:
        raise RedlineError(
            f"{command.run} did not train all {len(workflows)} workflows. Pass a run of: redline search --exhaustive"
        )
    budget = max(1, command.total_episodes // landscape.episodes_each)
    courses = bench_search(landscape, workflows.distances, command.seeds, command.beta)
    found = {name: summarise(each, landscape.episodes_each, budget) for name, each in courses.items()}
    if command.output.json:
        facts = {"picks": budget, "episodes_each": landscape.episodes_each, "obeyed": int(landscape.obeyed.sum())}
        print_json({**facts, "methods": found})
        return 0
    table = Table(title=f"Rank of the best order found within {budget} picks, {command.seeds} searches each")
    for column in ("", "median rank", "mean", "worst", "episodes to top 5 (median)", "to the best (median)"):
        table.add_column(column, justify="right" if column else "left")
    for name, each in found.items():
        cells = [f"{each[key]:,.1f}" for key in ("median_rank", "mean_rank", "worst_rank")]
        cells += [f"{each[key]:,.0f}" for key in ("median_episodes_to_top_5", "median_episodes_to_best")]
        table.add_row(name, *cells)
    out.print(table)
    out.print(
        f"{int(landscape.obeyed.sum())} of {len(workflows)} orders were obeyed; "
        f"each pick costs {landscape.episodes_each:,} episodes. "
        f"Best {np.nanmax(np.where(landscape.obeyed, landscape.scores, np.nan)):.2f}, "
        f"median {np.nanmedian(landscape.scores):.2f}, worst {np.nanmin(landscape.scores):.2f}.",
        soft_wrap=True,
    )
    return 0
