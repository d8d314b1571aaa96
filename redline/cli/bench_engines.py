"""`redline bench engines` and `redline bench train --engines`: engines side by side, and where their time goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from rich.table import Table

from redline.cli.console import out, print_json, short
from redline.cli.options import Output, combine, parse
from redline.cli.train import changed_options, env_parts
from redline.cli.worlds import say_to
from redline.engines.settings import Collecting
from redline.errors import RedlineError, unknown
from redline.learn.config import TrainConfig, at_least
from redline.worlds.registry import default_world

BAR_WIDTH = 20
GUIDES_NUM_ENVS = 20
"""Envs that `bench train --engines` takes by default, as the guides do: slow envs are what engines are compared on."""


@dataclass(frozen=True)
class Engines:
    """How fast each engine collects from an env, beside Gymnasium's vector envs and Stable-Baselines3's, in one run."""

    env: Annotated[str, "positional"] = field(default_factory=lambda: default_world().name)
    """Env to measure on: a name from `redline envs`, a Gymnasium id, or external:package.module:factory for your own."""
    num_envs: tuple[int, ...] = (20, 50, 200)
    """Envs stepped side by side, one table for each."""
    workers: tuple[int, ...] = ()
    """Worker processes. Several numbers add a table of how engines scale with them; the others then have one per core."""
    engines: tuple[str, ...] = ()
    """Engines to compare. Default: all, and ray only with --ray-address."""
    turns: int = 3
    """Turns of each contestant; the median counts."""
    seconds: float = 1.0
    """Length of a turn at least; it ends with a whole collect."""
    num_steps: int = 0
    """Steps each env plays in a collect. 0: 20 to 100, so many that a serial collect takes about two seconds."""
    peers: bool = True
    """Measure the peers, too: SyncVectorEnv, AsyncVectorEnv with and without shared memory, SubprocVecEnv."""
    ready_fraction: float = 0.1
    """Engine ready: ask the policy as soon as this share of the envs still playing is ready."""
    ray_address: str | None = None
    """Engine ray: a running cluster, as host:port or auto."""
    turbo: bool = True
    """Run our simulators compiled. Off, the same code is interpreted, with the same result."""
    seed: int = 0
    """Seed of envs, policy and actions."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, turns=self.turns, num_envs=min(self.num_envs or (0,)), workers=min(self.workers or (1,)))
        at_least(0, num_steps=self.num_steps, seed=self.seed)
        _check_seconds(self.seconds)

    def collecting(self) -> Collecting:
        """How experience is collected, beside the engine's name and where no other number of workers is due."""
        workers = self.workers[0] if len(self.workers) == 1 else 0
        return Collecting(workers, self.ready_fraction, self.ray_address)


def _check_seconds(seconds: float) -> None:
    if not 0 <= seconds < float("inf"):
        raise RedlineError(f"--seconds {seconds:g} cannot work: it must be 0 or more. Try --seconds 1.")


def _known(engines: Sequence[str]) -> list[str]:
    """The engines, each once, if all of them exist."""
    from redline.engines import ENGINES

    for name in engines:
        if name not in ENGINES:
            raise unknown("engine", name, ENGINES)
    return list(dict.fromkeys(engines))


def _with_turbo(env: str, options: dict[str, Any], turbo: bool) -> dict[str, Any]:
    """The options with the speed of our simulators, where it is one of them."""
    from redline.worlds.registry import is_compiled

    return {**options, "turbo": turbo} if is_compiled(env) else options


def run(arguments: list[str]) -> int:
    """Parse, measure, print."""
    parts: dict[str, type] = {"bench": Engines}
    arguments, name, options = env_parts(arguments, parts)
    command: Any = parse("bench engines", combine(Engines.__doc__ or "", **parts, output=Output), arguments)
    bench: Engines = command.bench
    options = _with_turbo(name, {**options, **changed_options(command)}, bench.turbo)
    collecting, engines = bench.collecting(), _known(bench.engines)
    from redline.bench import engines as measuring
    from redline.bench.measure import describe_machine, machine_line
    from redline.engines import ENGINES, engines_to_try
    from redline.learn.train import warm_up

    engines = engines or engines_to_try(bench.ray_address)
    scaled = [each for each in (bench.engines or measuring.SCALED) if ENGINES[each].has_workers]
    say, machine = say_to(command.output), describe_machine()
    first = measuring.Contest(name, options, 1, 1, bench.turns, bench.seconds, bench.seed, collecting)
    step_seconds = measuring.require_env(first)
    warm_up(TrainConfig(name, options, turbo=bench.turbo))
    tables = []
    for num_envs in dict.fromkeys(bench.num_envs):
        num_steps = bench.num_steps or measuring.affordable_steps(step_seconds, num_envs)
        contest = dataclasses.replace(first, num_envs=num_envs, num_steps=num_steps)
        results = measuring.compete(measuring.contestants(engines, bench.peers), contest, say)
        several = list(dict.fromkeys(bench.workers)) if len(bench.workers) > 1 else []
        entries = measuring.scale(scaled, several, contest, say) if several else []
        table = {
            "num_envs": num_envs,
            "num_steps": num_steps,
            "engines": [measuring.as_row(each, results) for each in results],
            "scaling": [measuring.as_scaling_row(each, entries, results) for each in entries],
            "verdict": measuring.verdict(results),
        }
        tables.append(table)
        if not command.output.json:
            _print_engines(table, name, bench)
    if command.output.json:
        facts = {"env": name, "env_options": options, "seconds": bench.seconds, "seed": bench.seed}
        print_json({**facts, "step_seconds": step_seconds, "tables": tables, "machine": machine})
    else:
        out.print(machine_line(machine), soft_wrap=True)
    return 0


def _print_engines(table: dict[str, Any], env: str, bench: Engines) -> None:
    steps = f"{table['num_steps']} steps a collect"
    out.print(
        _table(
            f"{env}: {table['num_envs']} envs, {steps} (median of {bench.turns}, quartiles)",
            ("engine", "steps/s", "quartiles", "x\nserial", "x\npipes", "sampling :\ntraining", "busy",
             "straggler\nwait", "slowest\nstep", "memory\nMB", "start-up"),
            [_engine_cells(row) for row in table["engines"]],
        )
    )  # fmt: skip
    for row in (row for row in table["engines"] if row["reason"]):
        out.print(f"{row['name']}: {row['reason']}", soft_wrap=True)
    if table["scaling"]:
        out.print(
            _table(
                f"{env}: {table['num_envs']} envs by workers; cold is the first collect with the start of the processes",
                ("engine", "workers", "episodes/s", "steps/s", "speed-up", "efficiency", "busy", "cold start",
                 "cold episodes/s"),
                [_scaling_cells(row) for row in table["scaling"]],
            )
        )  # fmt: skip
        for row in (row for row in table["scaling"] if row["reason"]):
            out.print(f"{row['engine']}, {row['workers']} workers: {row['reason']}", soft_wrap=True)
    out.print(f"[bold]{table['verdict']}[/bold]\n", soft_wrap=True)


def _engine_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        _number(row["steps_per_second"]),
        _quartiles(row),
        _ratio(row["times_serial"]),
        _ratio(row["times_pipes"]),
        _split(row["training_share"]),
        _percent(row["busy_share"]),
        _percent(row["straggler_share"]),
        _seconds(row["slowest_step_seconds"]),
        "–" if row["memory_mb"] is None else f"{row['memory_mb']:,.0f}",
        _seconds(row["start_up_seconds"]),
    ]


def _scaling_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["engine"],
        str(row["workers"]),
        _number(row["episodes_per_second"]),
        _number(row["steps_per_second"]),
        _ratio(row["speed_up"]),
        _percent(row["efficiency"]),
        _percent(row["busy_share"]),
        _seconds(row["cold_seconds"]),
        _number(row["cold_episodes_per_second"]),
    ]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)
    for k, column in enumerate(columns):
        table.add_column(column, justify="right" if k else "left", no_wrap=True, vertical="bottom")
    for row in rows:
        table.add_row(*row)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else short(value)


def _quartiles(row: dict[str, Any]) -> str:
    return "–" if row["low"] is None else f"{short(row['low'])} – {short(row['high'])}"


def _split(training_share: float | None) -> str:
    return "–" if training_share is None else f"{100 - 100 * training_share:.1f} : {100 * training_share:.1f}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


# bench train --engines


def bench_train(arguments: list[str], settings: type) -> int:
    """Parse, train a little with every engine, print the timing tables of the guides."""
    parts: dict[str, Any] = {"training": TrainConfig}
    arguments, name, options = env_parts(arguments, parts)
    parts["training"] = dataclasses.replace(parts["training"], num_envs=GUIDES_NUM_ENVS)
    command: Any = parse(
        "bench train", combine(settings.__doc__ or "", **parts, bench=settings, output=Output), arguments
    )
    options |= changed_options(command)
    config = dataclasses.replace(command.training, env_options=options)
    if config.total_steps or config.total_episodes:
        raise RedlineError("A benchmark has no --total-steps or --total-episodes. Try --turns 9 for a longer one.")
    engines = _known(command.bench.engines)
    if not engines:
        raise RedlineError("--engines names no engine. Try --engines serial,shared,pool.")
    _check_seconds(command.bench.seconds)
    from redline.bench import engine_times as measuring
    from redline.bench.engines import Contest, require_env
    from redline.bench.measure import describe_machine, machine_line

    machine, turns, seconds = describe_machine(), command.bench.turns, command.bench.seconds
    env_options = _with_turbo(name, options, config.turbo)
    require_env(Contest(name, env_options, 1, 1, turns, seconds, config.seed, config.collecting))
    found = measuring.time_engines(config, engines, turns, seconds, say_to(command.output))
    update_steps = config.num_envs * config.num_steps
    rows = [measuring.as_row(each, update_steps) for each in found]
    if command.output.json:
        facts = {"env": name, "env_options": options, "num_envs": config.num_envs, "num_steps": config.num_steps}
        print_json({**facts, "engines": rows, "machine": machine})
        return 0
    _print_times(rows, config, measuring.PARTS)
    from redline.timing.render import table as time_table

    for entry in found:
        if entry.rate:
            out.print(time_table(entry.breakdown, f"Where the time goes, {entry.name}"))
            out.print()
    out.print(machine_line(machine), soft_wrap=True)
    return 0


def _print_times(rows: list[dict[str, Any]], config: TrainConfig, parts: dict[str, tuple[str, ...]]) -> None:
    measured = [row for row in rows if not row["reason"]]
    steps = f"{config.num_envs * config.num_steps:,} steps"
    setting = f"{config.env}: {config.num_envs} envs x {config.num_steps} steps"
    out.print(
        _table(
            f"{setting}; seconds per update of {steps}",
            (
                "engine",
                "sampling",
                "training",
                "total",
                "steps/s",
                "quartiles",
                "sampling : training",
                "sampling share",
            ),
            [_times_cells(row) for row in measured],
        )
    )
    names = [*parts, "other"]
    out.print(
        _table(
            "Sampling, per episode (what workers do is an average over them; wait is what nobody works in)",
            ("engine", *(name.replace("_", " ") for name in names), "total"),
            [_episode_cells(row, names) for row in measured],
        )
    )
    for row in rows:
        if row["reason"]:
            out.print(f"{row['name']}: {row['reason']}", soft_wrap=True)


def _times_cells(row: dict[str, Any]) -> list[str]:
    share = row["sampling_seconds"] / row["total_seconds"]
    return [
        row["name"],
        *(_seconds(row[key]) for key in ("sampling_seconds", "training_seconds", "total_seconds")),
        _number(row["steps_per_second"]),
        _quartiles(row),
        f"{row['sampling_to_training']:,.3g} : 1",
        f"{'█' * round(share * BAR_WIDTH)}{'░' * (BAR_WIDTH - round(share * BAR_WIDTH))} {share:6.1%}",
    ]


def _episode_cells(row: dict[str, Any], names: list[str]) -> list[str]:
    parts = [row["per_episode"][name] for name in names]
    cells = [f"{_seconds(part['seconds'])} ({part['share']:.0%})" if part["share"] else "–" for part in parts]
    known = [part["seconds"] for part in parts]
    return [row["name"], *cells, _seconds(None if None in known else sum(known))]
