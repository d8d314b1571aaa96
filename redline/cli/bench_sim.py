"""`redline bench sim`: how fast a simulator steps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.table import Table

from redline.cli.console import out, print_json, short
from redline.cli.options import Output, parse
from redline.errors import unknown
from redline.learn.config import at_least


@dataclass(frozen=True)
class Sim:
    """Steps per second of the simulator with random Blue actions: compiled and interpreted, by threads and batch size."""

    env: tyro.conf.Positional[str] = "cage2"
    """Simulator to measure: cage2, or a net such as petri:cluster/J-0."""
    batch_sizes: tuple[int, ...] = (1, 16, 256, 1024, 4096, 16384)
    """Envs stepped by one call."""
    threads: tuple[int, ...] = (1, 2)
    """Threads, each with its own share of the envs."""
    red_agent: str = "B_lineAgent"
    """Red agent to play against."""
    seconds: float = 0.2
    """Length of one turn."""
    turns: int = 7
    """Turns of each contestant; the median counts."""
    seed: int = 0
    """Seed of envs and actions."""
    output: Annotated[Output, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Output)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, turns=self.turns, batch_sizes=min(self.batch_sizes or (0,)), threads=min(self.threads or (0,)))


def run(arguments: list[str]) -> int:
    """Parse, measure, print."""
    command = parse("bench sim", Sim, arguments)
    if command.env.startswith("petri:"):
        from redline.cli.petri import bench_net_command

        return bench_net_command(command)
    if command.env != "cage2":
        raise unknown("simulator", command.env, ["cage2", "petri:cluster/J-0"])
    from redline.bench.measure import describe_machine, machine_line, peak_memory_mb
    from redline.bench.sim import CYBORG_STEPS_PER_SECOND, bench_sim, start_up_seconds
    from redline.sims.cage2.scenario import Scenario

    machine = describe_machine()
    scenario = Scenario(red_agent=command.red_agent)
    rates = bench_sim(scenario, command.batch_sizes, command.threads, command.seconds, command.turns, command.seed)
    start_up = start_up_seconds()
    one_thread = [rate.median for (speed, threads, _), rate in rates.items() if speed == "compiled" and threads == 1]
    best = max(one_thread or [rate.median for rate in rates.values()])
    if command.output.json:
        rows = [{"speed": s, "threads": t, "batch": b, **rate.to_json()} for (s, t, b), rate in rates.items()]
        facts = {"steps_per_second": best, "times_cyborg": best / CYBORG_STEPS_PER_SECOND, **start_up}
        print_json({**facts, "peak_memory_mb": peak_memory_mb(), "rates": rows, "machine": machine})
        return 0
    table = Table(
        title=f"cage2 against {command.red_agent}, random Blue: steps/s (median of {command.turns}, quartiles)"
    )
    for column in ("speed", "threads", "batch", "steps/s", "quartiles", "x CybORG (370/s)"):
        table.add_column(column, justify="left" if column == "speed" else "right")
    for (speed, threads, batch), rate in rates.items():
        spread = f"{short(rate.low)} – {short(rate.high)}"
        ratio = f"{rate.median / CYBORG_STEPS_PER_SECOND:,.0f}"
        table.add_row(speed, str(threads), f"{batch:,}", short(rate.median), spread, ratio)
    out.print(table)
    out.print(
        f"First step after {start_up['first_step_seconds']:.2f} s (compiled kernel on disk), "
        f"{start_up['cold_compile_seconds']:.1f} s without it. Peak memory {peak_memory_mb():.0f} MB.",
        soft_wrap=True,
    )
    out.print(machine_line(machine), soft_wrap=True)
    return 0
