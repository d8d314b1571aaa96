"""`redline solve`: the shortest schedule of a net, proven."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from redline.compiled.announce import announce_compilation
from redline.errors import RedlineError
from redline.worlds.petri.files import require_files, write_files
from redline.worlds.petri.instances import Instance, parse_petri
from redline.worlds.petri.rules import kernel
from redline.worlds.petri.solve import Solution, SolveProgress, solve
from redline.worlds.world import Answer, Command, Say


@dataclass(frozen=True)
class SolveOptions:
    """How long to search, and what to write.

    Needs OR-tools: pip install 'redline[ortools]'. Whatever it finds is played by Redline's own simulator before it is
    shown. The optimum is over all that is physically possible: options that only advise a policy (lookahead, parallel,
    waits, urgent_wait_cap, actions) do not change it. Ctrl-C ends the search and keeps the best schedule so far.
    """

    seconds: float = 60.0
    """Time limit of the search. When it is up, the best schedule so far is the answer."""
    workers: int = 2
    """Threads that search, each in its own way."""
    seed: int = 0
    """Seed of the search; with one worker a search that is not cut short repeats exactly."""
    export: Path | None = None
    """Write the schedule to this file, as .json (which `redline verify petri --schedule` plays again) or .csv."""
    gantt: Path | None = None
    """Draw the schedule as .png (needs the plot extra), as .svg, or as a page in .html."""

    def __post_init__(self) -> None:
        """Refuse what cannot be searched."""
        if not 0 < self.seconds < float("inf"):
            raise RedlineError(f"--seconds {self.seconds:g} leaves no time to search. Try --seconds 60.")
        if self.workers < 1:
            raise RedlineError(f"--workers {self.workers} cannot search. Try --workers 2.")
        if self.seed < 0:
            raise RedlineError(f"--seed {self.seed} cannot be used. Try --seed 0.")


def run(name: str, options: SolveOptions, say: Say) -> Answer:
    """Solve and tell. Exit code 130 when Ctrl-C ended the search."""
    require_files(options.export, options.gantt)
    instance = parse_petri(name)
    announce_compilation(kernel.step, "Petri net kernel", 20)

    def tell(progress: SolveProgress) -> None:
        say(f"{progress.seconds:6.1f} s  makespan {progress.makespan}, at least {progress.bound}")

    solution = solve(instance, options.seconds, options.workers, options.seed, tell)
    written = write_files(solution.schedule, options.export, options.gantt)
    lines = [*_lines(instance, solution), *(escape(f"Written: {path}") for path in written)]
    return Answer(_facts(options, instance, solution), lines, exit_code=130 if solution.interrupted else 0)


SOLVE = Command(SolveOptions, run)


def _lines(instance: Instance, solution: Solution) -> list[str]:
    claim = "proven optimal" if solution.proven else f"not proven: no schedule is shorter than {solution.bound}"
    found = (
        f"{instance.name}: makespan {solution.makespan}, {claim} (gap {100 * solution.gap:.1f} %, "
        f"{solution.seconds:.1f} s). Played by the simulator: {len(solution.schedule.log)} firings, every one on time."
    )
    cut_short = ["Interrupted: this is the best schedule found so far."] if solution.interrupted else []
    return [escape(found), *cut_short]


def _facts(options: SolveOptions, instance: Instance, solution: Solution) -> dict[str, Any]:
    return {
        "net": instance.name,
        "makespan": solution.makespan,
        "proven": solution.proven,
        "bound": solution.bound,
        "gap_percent": 100 * solution.gap,
        "status": solution.status,
        "interrupted": solution.interrupted,
        "seconds": solution.seconds,
        "firings": len(solution.schedule.log),
        "workers": options.workers,
        "seed": options.seed,
        "schedule": options.export,
    }
