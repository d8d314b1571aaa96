"""`redline bench train`: how fast training is, end to end, beside its peers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redline.cli.console import out, print_json, short
from redline.cli.options import Output, combine, parse
from redline.cli.train import changed_options, env_parts
from redline.cli.worlds import say_to
from redline.errors import RedlineError
from redline.learn.config import TrainConfig, at_least, finite

if TYPE_CHECKING:
    from redline.bench.train import TrainResult


@dataclass(frozen=True)
class Train:
    """PPO steps per second, learning included: ours, ours without each of its savings, and the peers, in turns."""

    turns: int = 5
    """Turns of each contestant; the median counts."""
    peers: bool = True
    """Measure the peers, too: a CleanRL-style loop, and Stable-Baselines3 where it is installed."""
    peer: str = ""
    """One more peer, as MODULE:FUNCTION; the function takes a TrainConfig and returns what runs an update."""
    engines: tuple[str, ...] = ()
    """Compare these engines instead, on any env: where sampling and training spend their time (20 envs unless said)."""
    seconds: float = 1.0
    """Length of a turn at least, with --engines."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, turns=self.turns)
        finite(seconds=self.seconds)


def run(arguments: list[str]) -> int:
    """Parse, measure, print."""
    if any(each.partition("=")[0] == "--engines" for each in arguments):
        from redline.cli.bench_engines import bench_train as bench_engines

        return bench_engines(arguments, Train)
    parts: dict[str, Any] = {"training": TrainConfig}
    arguments, _, options = env_parts(arguments, parts)
    command: Any = parse("bench train", combine(Train.__doc__ or "", **parts, bench=Train, output=Output), arguments)
    config = dataclasses.replace(command.training, env_options={**options, **changed_options(command)})
    if config.total_steps or config.total_episodes:
        raise RedlineError("A benchmark has no --total-steps or --total-episodes. Try --turns 9 for a longer one.")
    from redline.bench.measure import describe_machine
    from redline.bench.train import bench_train

    machine = describe_machine()
    result = bench_train(config, command.bench.turns, command.bench.peers, say_to(command.output), command.bench.peer)
    if command.output.json:
        print_json(_train_json(result, machine))
    else:
        _print_train(result, machine, config)
    return 0


def _train_json(result: TrainResult, machine: dict[str, Any]) -> dict[str, Any]:
    from redline.bench.train import LOCKSTEP

    return {
        "steps_per_second": result.settled.median,
        "first_updates_steps_per_second": result.first_updates.median,
        "plain_steps_per_second": result.rates["plain"].median,
        "lockstep_steps_per_second": result.rates[LOCKSTEP].median,
        "plain_times_best_peer": _times_best_peer(result),
        "peak_memory_mb": result.memory_mb,
        "distinct_observations": result.distinct,
        "return": result.returns,
        "rates": {name: rate.to_json() for name, rate in result.rates.items()},
        "shares": {name: breakdown.to_json() for name, breakdown in result.shares.items()},
        "missing": result.missing,
        "machine": machine,
    }


def _times_best_peer(result: TrainResult) -> float | None:
    from redline.bench.peers import PEERS

    peers = [result.rates[name].median for name in PEERS if name in result.rates]
    return result.rates["plain"].median / max(peers) if peers else None


def _print_train(result: TrainResult, machine: dict[str, Any], config: TrainConfig) -> None:
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
