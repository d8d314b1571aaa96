"""`redline bench sim`: how fast a simulator steps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from redline.cli.console import out, print_json, short
from redline.cli.options import Output, combine, parse
from redline.cli.train import changed_options, env_parts
from redline.cli.worlds import compiled_names
from redline.errors import RedlineError, unknown
from redline.learn.config import at_least, finite
from redline.worlds.registry import world_of

if TYPE_CHECKING:
    from redline.bench.measure import Throughput

Rates = dict[tuple[str, int, int], "Throughput"]


@dataclass(frozen=True)
class Sim:
    """Steps per second of a compiled world with random actions: compiled and interpreted, by threads and batch size."""

    env: Annotated[str, "positional"] = ""
    """Env to measure; redline envs lists them."""
    batch_sizes: tuple[int, ...] = (1, 16, 256, 1024, 4096, 16384)
    """Envs stepped by one call."""
    threads: tuple[int, ...] = (1, 2)
    """Threads, each with its own share of the envs."""
    seconds: float = 0.2
    """Length of one turn."""
    turns: int = 7
    """Turns of each contestant; the median counts."""
    start_up: bool = True
    """Measure also how long the first step takes, with and without machine code on disk."""
    seed: int = 0
    """Seed of envs and actions."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, turns=self.turns, batch_sizes=min(self.batch_sizes or (0,)), threads=min(self.threads or (0,)))
        at_least(1, batch_sizes=max(self.batch_sizes))
        finite(seconds=self.seconds)
        if min(self.threads) > max(self.batch_sizes):
            raise RedlineError(
                f"--threads {min(self.threads)} have no work in a batch of {max(self.batch_sizes)} envs, as each steps "
                f"envs of its own. Try --threads {max(self.batch_sizes)}."
            )


def run(arguments: list[str]) -> int:
    """Parse, measure, print."""
    parts: dict[str, Any] = {"bench": Sim}
    arguments, name, options = env_parts(arguments, parts)
    command: Any = parse("bench sim", combine(Sim.__doc__ or "", **parts, output=Output), arguments)
    world = world_of(name)
    if not world.compiled:
        raise unknown("simulator", name, compiled_names())
    options = {**options, **changed_options(command)}
    from redline.bench.measure import describe_machine, machine_line, peak_memory_mb
    from redline.bench.sim import bench_sim, start_up_seconds
    from redline.bench.stepping import pairings

    machine, how = describe_machine(), command.bench
    rates = bench_sim(name, options, how.batch_sizes, how.threads, how.seconds, how.turns, how.seed)
    original = None if world.original is None else world.original.steps_per_second(name, options, how.seconds)
    versus = None if world.original is None or original is None else (world.original.name, original)
    start_up = start_up_seconds(name, json.dumps(options)) if how.start_up else {}
    left_out = pairings(how.batch_sizes, how.threads)[1]
    if command.output.json:
        facts = {**_facts(name, rates, versus), "left_out": [{"threads": t, "batch": b} for t, b in left_out]}
        print_json({**facts, **start_up, "peak_memory_mb": peak_memory_mb(), "machine": machine})
        return 0
    out.print(_table(f"{name}, random actions: steps/s (median of {how.turns}, quartiles)", rates, versus))
    if left_out:
        which = ", ".join(f"{threads} threads x {batch:,}" for threads, batch in left_out)
        out.print(f"Left out, as every thread needs an env of its own: {which}.", soft_wrap=True)
    if start_up:
        out.print(
            f"First step after {start_up['first_step_seconds']:.2f} s (compiled kernel on disk), "
            f"{start_up['cold_compile_seconds']:.1f} s without it.",
            soft_wrap=True,
        )
    out.print(f"Peak memory {peak_memory_mb():.0f} MB.", soft_wrap=True)
    out.print(machine_line(machine), soft_wrap=True)
    return 0


def _facts(name: str, rates: Rates, original: tuple[str, float] | None) -> dict[str, Any]:
    rows = [{"speed": s, "threads": t, "batch": b, **rate.to_json()} for (s, t, b), rate in rates.items()]
    best, slow = _best(rates), _interpreted(rates)
    versus = {}
    if original is not None:
        times = best / original[1]
        versus = {
            "original_steps_per_second": original[1],
            "times_original": times,
            f"times_{original[0].lower()}": times,
        }
    return {"env": name, "steps_per_second": best, "times_interpreted": best / slow, **versus, "rates": rows}


def _best(rates: Rates) -> float:
    """The fastest on one thread, or on several where one was not measured."""
    alone = [rate.median for (speed, threads, _), rate in rates.items() if speed == "compiled" and threads == 1]
    return max(alone or [rate.median for rate in rates.values()])


def _interpreted(rates: Rates) -> float:
    return next(rate.median for (speed, *_), rate in rates.items() if speed == "interpreted")


def _table(title: str, rates: Rates, original: tuple[str, float] | None) -> Table:
    table = Table(title=title)
    name, base = original or ("interpreted", _interpreted(rates))
    versus = f"x {name} ({short(base)}/s)"
    for column in ("speed", "threads", "batch", "steps/s", "quartiles", versus):
        table.add_column(column, justify="left" if column == "speed" else "right")
    for (speed, threads, batch), rate in rates.items():
        spread = f"{short(rate.low)} – {short(rate.high)}"
        table.add_row(speed, str(threads), f"{batch:,}", short(rate.median), spread, f"{rate.median / base:,.1f}")
    return table
