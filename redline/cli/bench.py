"""`redline bench`: measure the simulator, the engines, the training and the search."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.table import Table

from redline.cli.console import err, out, print_json, short
from redline.cli.options import Output, combine, parse
from redline.cli.train import changed_options, env_parts
from redline.errors import RedlineError, unknown
from redline.learn.config import TrainConfig, at_least

KINDS = {
    "sim": "how fast the simulator steps",
    "engines": "how fast each engine collects from an env, beside its peers",
    "train": "how fast training is, end to end, beside its peers",
    "profiler": "what watching a training run costs",
    "search": "how soon the workflow search finds a good order, beside random picks",
}


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


@dataclass(frozen=True)
class Train:
    """How to measure."""

    turns: int = 5
    """Turns of each contestant; the median counts."""
    peers: bool = True
    """Measure the peers, too: a CleanRL-style loop, and Stable-Baselines3 where it is installed."""
    engines: tuple[str, ...] = ()
    """Compare these engines instead, on any env: where sampling and training spend their time (20 envs unless said)."""
    seconds: float = 1.0
    """Length of a turn at least, with --engines."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, turns=self.turns)


@dataclass(frozen=True)
class SearchBench:
    """Judge the workflow search by a run of `redline search --exhaustive`, which trained all 120 workflows alike."""

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
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = "\n".join(f"  redline bench {name:<8} {about}" for name, about in KINDS.items())
        print(f"usage: redline bench KIND ENV [options]\n\n{lines}\n\n  redline bench KIND --help   every option")
        return 0
    kind, *rest = arguments
    if kind not in KINDS:
        raise unknown("benchmark", kind, KINDS)
    if kind == "engines" or (kind == "train" and any(each.partition("=")[0] == "--engines" for each in rest)):
        from redline.cli import bench_engines

        return bench_engines.bench_engines(rest) if kind == "engines" else bench_engines.bench_train(rest, Train)
    if kind == "profiler":
        from redline.cli import bench_profiler

        return bench_profiler.run(rest)
    return {"sim": _bench_sim, "train": _bench_train, "search": _bench_search}[kind](rest)


def _bench_sim(arguments: list[str]) -> int:
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


def _bench_train(arguments: list[str]) -> int:
    parts: dict[str, Any] = {"training": TrainConfig}
    arguments, name, options = env_parts(arguments, parts)
    command: Any = parse("bench train", combine("Bench", **parts, bench=Train, output=Output), arguments)
    config = dataclasses.replace(command.training, env_options={**options, **changed_options(command, name)})
    if config.total_steps or config.total_episodes:
        raise RedlineError("A benchmark has no --total-steps or --total-episodes. Try --turns 9 for a longer one.")
    from redline.bench.measure import describe_machine
    from redline.bench.train import bench_train

    silent = command.output.json or command.output.quiet
    machine = describe_machine()
    result = bench_train(
        config, command.bench.turns, command.bench.peers, lambda text: None if silent else err.print(text)
    )
    if command.output.json:
        print_json(_train_json(result, machine))
    else:
        _print_train(result, machine, config)
    return 0


def _train_json(result: Any, machine: dict[str, Any]) -> dict[str, Any]:
    return {
        "steps_per_second": result.settled.median,
        "first_updates_steps_per_second": result.first_updates.median,
        "plain_steps_per_second": result.rates["plain"].median,
        "plain_times_best_peer": _times_best_peer(result),
        "peak_memory_mb": result.memory_mb,
        "distinct_observations": result.distinct,
        "return": result.returns,
        "rates": {name: rate.to_json() for name, rate in result.rates.items()},
        "shares": {name: breakdown.to_json() for name, breakdown in result.shares.items()},
        "missing": result.missing,
        "machine": machine,
    }


def _times_best_peer(result: Any) -> float | None:
    from redline.bench.peers import PEERS

    peers = [result.rates[name].median for name in PEERS if name in result.rates]
    return result.rates["plain"].median / max(peers) if peers else None


def _print_train(result: Any, machine: dict[str, Any], config: TrainConfig) -> None:
    from redline.bench.measure import machine_line
    from redline.timing.render import table as time_table

    settings = f"{config.num_envs} envs x {config.num_steps} steps, {config.ppo.epochs} epochs"
    table = Table(title=f"PPO on {config.env}, learning included: {settings}, MLP {'x'.join(map(str, config.hidden))}")
    for column in ("", "steps/s", "quartiles", "x plain"):
        table.add_column(column, justify="right" if column else "left")
    plain = result.rates["plain"].median
    named = {"deduplicated, settled": result.settled, "deduplicated, first 10 updates": result.first_updates}
    named |= {name: rate for name, rate in result.rates.items() if name != "deduplicated"}
    for name, rate in named.items():
        table.add_row(name, short(rate.median), f"{short(rate.low)} – {short(rate.high)}", f"{rate.median / plain:.2f}")
    out.print(table)
    for name, breakdown in result.shares.items():
        out.print(time_table(breakdown, f"Where the time goes, {name}"))
        out.print()
    ratio = _times_best_peer(result)
    versus = "" if ratio is None else f"The plain path is {ratio:.1f} times the best peer. "
    out.print(
        f"{versus}Settled policy: return {result.returns:.1f}, {result.distinct:,} distinct observations in an update. "
        f"Peak memory of our own paths {result.memory_mb:.0f} MB.",
        soft_wrap=True,
    )
    for text in result.missing:
        out.print(text, soft_wrap=True, markup=False)
    out.print(machine_line(machine), soft_wrap=True)


def _bench_search(arguments: list[str]) -> int:
    command = parse("bench search", SearchBench, arguments)
    from redline.bench.search import Landscape, bench_search, summarise
    from redline.runs import Run

    folder = Run.open(command.run)
    if not (folder.path / "ranking.json").exists():
        raise RedlineError(
            f"{command.run} has no ranking of workflows. Pass a finished run of: redline search --exhaustive"
        )
    landscape = Landscape.from_ranking(folder.read_json("ranking.json"))
    if not landscape.complete:
        raise RedlineError(f"{command.run} did not train all 120 workflows. Pass a run of: redline search --exhaustive")
    budget = max(1, command.total_episodes // landscape.episodes_each)
    courses = bench_search(landscape, command.seeds, 120, command.beta)
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
        f"{int(landscape.obeyed.sum())} of 120 orders were obeyed; each pick costs {landscape.episodes_each:,} episodes. "
        f"Best {np.nanmax(np.where(landscape.obeyed, landscape.scores, np.nan)):.2f}, "
        f"median {np.nanmedian(landscape.scores):.2f}, worst {np.nanmin(landscape.scores):.2f}.",
        soft_wrap=True,
    )
    return 0
