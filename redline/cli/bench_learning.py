"""`redline bench learning`: does it learn as well as its peers, and how fast?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from redline.cli.console import out, print_json
from redline.cli.options import Output, combine, parse
from redline.cli.worlds import say_to
from redline.errors import RedlineError
from redline.learn.config import at_least

ABOUT = """Train on well-known envs beside Stable-Baselines3: the same steps and seeds, taking turns.

Ours trains with the settings of `redline train ENV`, the peer with those that are usual for it on that env, each on one
thread. Both are then scored on fresh episodes with actions drawn. Cells are kept in a folder: a benchmark that was
stopped goes on."""


@dataclass(frozen=True)
class Learning:
    """What is learned, and how often."""

    envs: tuple[str, ...] = ()
    """Tasks, separated by commas; all seven by default."""
    peers: tuple[str, ...] = ("sb3",)
    """Peers, separated by commas: sb3, and cleanrl, a loop in its style and with its settings (no pictures, no memory)."""
    seeds: int = 3
    """Seeds of each."""
    steps: int | None = None
    """Env steps of each run; by default what suits each env."""
    folder: Path = Path("learning-bench")
    """Where finished cells are kept, and looked for."""
    seed: int = 0
    """Accepted by every command; seeds count from 0 here."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, seeds=self.seeds)
        if self.steps is not None and self.steps < 1:
            raise RedlineError(f"--steps {self.steps} cannot be trained. Try --steps 100000.")
        if not self.peers:
            raise RedlineError("Without a peer there is nothing to compare with. Try --peers sb3.")


def run(arguments: list[str]) -> int:
    """Parse, train in turns, print."""
    kind = combine(ABOUT, measuring=Learning, output=Output)
    command: Any = parse("bench learning", kind, arguments)
    from redline.bench.learning import TASKS, bench_learning, judge
    from redline.bench.measure import describe_machine, machine_line

    asked, machine = command.measuring, describe_machine()
    names = asked.envs or tuple(TASKS)
    cells = bench_learning(names, asked.peers, asked.seeds, asked.steps, asked.folder, say_to(command.output))
    verdicts = judge(cells)
    if command.output.json:
        rows = [
            {**asdict(each), "ratio": each.ratio, "verdict": each.learns, "twice_as_fast": each.is_twice_as_fast}
            for each in verdicts
        ]
        print_json({"verdicts": rows, "cells": [asdict(cell) for cell in cells], "machine": machine})
        return 0
    out.print(_table(verdicts))
    out.print(machine_line(machine), soft_wrap=True)
    return 0


def _table(verdicts: Any) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in (
        "env",
        "peer",
        "steps",
        "seeds",
        "our return",
        "its return",
        "our steps/s",
        "its",
        "ratio",
        "verdict",
    ):
        table.add_column(column, justify="left" if column in ("env", "peer", "verdict") else "right")
    for each in verdicts:
        faster = "faster than 2x" if each.is_twice_as_fast else "not 2x as fast"
        table.add_row(
            each.task, each.peer, f"{each.steps:,}", str(each.seeds),
            f"{each.ours:.1f} ±{each.ours_error:.1f}", f"{each.theirs:.1f} ±{each.theirs_error:.1f}",
            f"{each.ours_rate:,.0f}", f"{each.their_rate:,.0f}", _ratio(each), f"{each.learns}; {faster}",
        )  # fmt: skip
    return table


def _ratio(verdict: Any) -> str:
    """How many times as fast ours is by the wall clock, and by CPU time where that was taken."""
    by_cpu = "" if verdict.cpu_ratio is None else f" (CPU {verdict.cpu_ratio:.1f})"
    return f"{verdict.ratio:.1f}{by_cpu}"
