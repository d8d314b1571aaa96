"""`redline bench profiler`: what watching costs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from redline.cli.console import out, print_json
from redline.cli.options import Output, combine, parse
from redline.cli.train import changed_options, env_parts
from redline.cli.worlds import say_to
from redline.learn.config import TrainConfig, at_least, finite


@dataclass(frozen=True)
class Turns:
    """Train with the profiler and without it, in turns, and say what it adds."""

    turns: int = 41
    """Turns of each; the medians count."""
    seconds: float = 0.2
    """Length of a turn at least."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(3, turns=self.turns)
        finite(seconds=self.seconds)


def run(arguments: list[str]) -> int:
    """Parse, measure, print."""
    parts: dict[str, Any] = {"measuring": Turns, "training": TrainConfig}
    arguments, _, options = env_parts(arguments, parts)
    command: Any = parse("bench profiler", combine(Turns.__doc__ or "", **parts, output=Output), arguments)
    options |= changed_options(command)
    config = dataclasses.replace(command.training, env_options=options, total_steps=10**15, total_episodes=None)
    from redline.bench.measure import describe_machine, machine_line
    from redline.bench.profiler import bench_profiler
    from redline.learn.train import warm_up

    warm_up(config)
    found = bench_profiler(config, command.measuring.turns, command.measuring.seconds, say_to(command.output))
    ratio, machine = found.ratio, describe_machine()
    if command.output.json:
        facts = {"overhead": found.share, "low": ratio.low - 1, "high": ratio.high - 1}
        counted = {
            "spans_per_update": found.spans,
            "span_seconds": found.span_seconds,
            "overhead_by_count": found.by_count,
        }
        facts |= {"within_noise": ratio.within_noise, **counted}
        seconds = {"watched_seconds": found.watched.tolist(), "unwatched_seconds": found.unwatched.tolist()}
        print_json({"env": config.env, "engine": config.engine, **facts, **seconds, "machine": machine})
        return 0
    noise = ", which is within noise" if ratio.within_noise else ""
    out.print(
        f"The profiler adds {found.share:+.2%} (95 % interval {ratio.low - 1:+.2%} to {ratio.high - 1:+.2%}){noise}: "
        f"{config.env}, engine {config.engine}, {command.measuring.turns} turns.",
        soft_wrap=True,
    )
    each = f"{found.spans:,.0f} spans in an update at {found.span_seconds * 1e6:.2f} µs each"
    out.print(f"By count: {each} are {found.by_count:.2%} of it.", soft_wrap=True)
    out.print(machine_line(machine), soft_wrap=True)
    return 0
