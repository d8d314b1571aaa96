"""`redline solve`: the shortest schedule of a net, proven."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from redline.cli.console import err, out, print_json
from redline.cli.options import Output, parse
from redline.cli.petri import require_files, write_files
from redline.errors import RedlineError

if TYPE_CHECKING:
    from redline.sims.petri.instances import Instance
    from redline.solve import Progress, Solution


@dataclass(frozen=True)
class Solve:
    """Find the shortest schedule of a cluster tool or a job shop with CP-SAT, and prove that none is shorter.

    Needs OR-tools: pip install 'redline[ortools]'. Whatever it finds is played by Redline's own simulator before it is
    shown. The optimum is over all that is physically possible: options that only advise a policy (lookahead, parallel,
    waits, urgent_wait_cap, actions) do not change it. Ctrl-C ends the search and keeps the best schedule so far.
    """

    net: tyro.conf.Positional[str]
    """Which net, e.g. petri:cluster/J-0?wafers=12 or petri:jobshop/ft06; `redline envs petri` lists them."""
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
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)

    def __post_init__(self) -> None:
        """Refuse what cannot be searched."""
        if not 0 < self.seconds < float("inf"):
            raise RedlineError(f"--seconds {self.seconds:g} leaves no time to search. Try --seconds 60.")
        if self.workers < 1:
            raise RedlineError(f"--workers {self.workers} cannot search. Try --workers 2.")
        if self.seed < 0:
            raise RedlineError(f"--seed {self.seed} cannot be used. Try --seed 0.")


def run(arguments: list[str]) -> int:
    """Parse, solve, print. Exit code 130 when Ctrl-C ended the search."""
    command = parse("solve", Solve, arguments)
    instance = _instance(command)
    from redline.envs.petri import announce_compilation
    from redline.sims.petri import kernel
    from redline.solve import solve

    announce_compilation(kernel.step)
    watch = _stay_silent if command.output.quiet or command.output.json else _say
    solution = solve(instance, command.seconds, command.workers, command.seed, watch)
    if command.output.json:
        print_json(_facts(command, instance, solution))
    else:
        _print(instance, solution)
    write_files(solution.schedule, command.export, command.gantt)
    return 130 if solution.interrupted else 0


def _instance(command: Solve) -> Instance:
    """The net to solve, and all that can be refused before a long search."""
    from redline.sims.petri.instances import EXAMPLES, PREFIX, parse_petri

    if not command.net.startswith(PREFIX):
        raise RedlineError(f"Only nets can be solved, and {command.net!r} is none. Try {EXAMPLES[0]} or {EXAMPLES[1]}.")
    require_files(command.export, command.gantt)
    return parse_petri(command.net)


def _say(progress: Progress) -> None:
    line = f"{progress.seconds:6.1f} s  makespan {progress.makespan}, at least {progress.bound}"
    err.print(line, soft_wrap=True)


def _stay_silent(progress: Progress) -> None:
    pass


def _print(instance: Instance, solution: Solution) -> None:
    claim = "proven optimal" if solution.proven else f"not proven: no schedule is shorter than {solution.bound}"
    out.print(
        f"{instance.name}: makespan {solution.makespan}, {claim} (gap {100 * solution.gap:.1f} %, "
        f"{solution.seconds:.1f} s). Played by the simulator: {len(solution.schedule.log)} firings, every one on time.",
        soft_wrap=True,
        markup=False,
    )
    if solution.interrupted:
        out.print("Interrupted: this is the best schedule found so far.")


def _facts(command: Solve, instance: Instance, solution: Solution) -> dict[str, Any]:
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
        "workers": command.workers,
        "seed": command.seed,
        "schedule": command.export,
    }
