"""`redline profile`: where the time of a training run goes, and what would make it faster."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from redline.cli.console import out, print_json, short
from redline.cli.options import Output, combine, parse
from redline.cli.train import changed_options, env_parts
from redline.cli.worlds import say_to
from redline.errors import RedlineError
from redline.learn.config import TrainConfig, at_least
from redline.worlds.world import Say

if TYPE_CHECKING:
    from redline.profiler.advise import Advice
    from redline.profiler.modes import ModeComparison, RowComparison
    from redline.profiler.record import Profile
    from redline.timing.trace import Trace

SCRIPT = "--script"


@dataclass(frozen=True)
class Profiling:
    """Watch a real training run for some batches and say where its time goes.

    `redline profile --script train.py ARGUMENTS…` watches a training script of your own instead: SB3, CleanRL, anything
    on torch and Gymnasium. Options of ours stand before --script.
    """

    batches: int = 5
    """Updates to watch. One more comes first, the warm-up (compilation, first touch), and has a row of its own."""
    breakdown: bool = False
    """Show what data collection and the training loop consist of."""
    compare: str | None = None
    """Run modes in turns and compare them: turbo (also when nothing is named), engines, dedup, or modes of your own,
    as in A=engine:shared,B=engine:pool+workers:4."""
    detailed: bool = False
    """Write cProfile's reports too, a file per mode: the 50 functions that take longest, with calls and time per call."""
    trace: Path | None = None
    """Write all spans to this file, a track per worker; open it in ui.perfetto.dev."""
    html: Path | None = None
    """Write the profile as a web page."""
    run: Path | None = None
    """Show what this finished run recorded about itself, instead of watching a new one."""
    trust: bool = False
    """Use what the run names, such as an env of its own, though it was not made by you."""
    apply: bool = False
    """Try the best suggestion, and say what it really gave."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        at_least(1, batches=self.batches)


def run(arguments: list[str]) -> int:
    """Parse, watch, print."""
    if SCRIPT in arguments:
        from redline.cli.profile_script import run_script

        place = arguments.index(SCRIPT)
        return run_script(arguments[:place], arguments[place + 1 :])
    arguments = _with_turbo_as_default(arguments)
    parts: dict[str, Any] = {"profiling": Profiling, "training": TrainConfig}
    arguments, _, options = env_parts(arguments, parts)
    command: Any = parse("profile", combine(Profiling.__doc__ or "", **parts, output=Output), arguments)
    options |= changed_options(command)
    config = dataclasses.replace(command.training, env_options=options, total_steps=10**15, total_episodes=None)
    _require_files(command.profiling)
    if command.profiling.run is not None:
        return _show_run(command.profiling, command.output)
    return _profile(config, command.profiling, command.output, say_to(command.output))


def _with_turbo_as_default(arguments: list[str]) -> list[str]:
    """`--compare` alone means `--compare turbo`."""
    found = []
    for k, each in enumerate(arguments):
        found.append(each)
        if each == "--compare" and (k + 1 == len(arguments) or arguments[k + 1].startswith("-")):
            found.append("turbo")
    return found


def _require_files(profiling: Profiling) -> None:
    from redline.timing.trace import require_writable

    for option, file in (("--trace", profiling.trace), ("--html", profiling.html)):
        if file is not None:
            require_writable(file, option)


def _profile(config: TrainConfig, profiling: Profiling, output: Output, say: Say) -> int:
    from redline.learn.train import choose_engine, warm_up
    from redline.profiler.advise import advise
    from redline.profiler.modes import changed, modes_of, record_in_turns
    from redline.timing.trace import Trace

    _require_engine(config.engine)
    modes = {config.engine: config} if profiling.compare is None else modes_of(profiling.compare, config)
    warm_up(config)
    if config.engine == "auto" and profiling.compare != "engines":
        config, choice = choose_engine(config, say)
        say(choice.why)
        modes = {config.engine: config} if profiling.compare is None else modes_of(profiling.compare, config)
    trace = Trace() if profiling.trace or profiling.html else None
    comparison = record_in_turns(modes, profiling.batches, say, trace)
    if profiling.compare is None and comparison.failed:
        raise RedlineError(next(iter(comparison.failed.values())))
    advice = advise(comparison.profiles[0])
    applied = None
    if profiling.apply and advice:
        say(f"Trying {advice[0].options} …")
        tried = changed(comparison.profiles[0].config, advice[0].settings)
        applied = record_in_turns(
            {"as it was": comparison.profiles[0].config, advice[0].options: tried}, max(3, profiling.batches), say
        )
    files = _write_files(comparison, advice, applied, trace, profiling, modes, say)
    if output.json:
        print_json(_as_json(comparison, advice, applied, files))
    else:
        _print(comparison, advice, applied, profiling, files)
    return 0


def _require_engine(name: str) -> None:
    from redline.engines import AUTO, require_engine

    if name != AUTO:
        require_engine(name)


def _write_files(
    comparison: ModeComparison,
    advice: list[Advice],
    applied: ModeComparison | None,
    trace: Trace | None,
    profiling: Profiling,
    modes: dict[str, TrainConfig],
    say: Say,
) -> list[str]:
    """Everything that was asked for as a file. Returns their names."""
    files = []
    if profiling.trace is not None and trace is not None:
        trace.write(profiling.trace)
        files.append(str(profiling.trace))
    if profiling.html is not None:
        from redline.report.profile import write_profile

        write_profile(profiling.html, comparison, advice, applied, trace)
        files.append(str(profiling.html))
    if profiling.detailed:
        from redline.profiler.detailed import write_detailed

        for mode, config in modes.items():
            if mode not in comparison.failed:
                say(f"cProfile: {mode} …")
                files.append(str(write_detailed(mode, config, profiling.batches, Path())))
    return files


def _as_json(
    comparison: ModeComparison, advice: list[Advice], applied: ModeComparison | None, files: list[str]
) -> dict[str, Any]:
    first = comparison.profiles[0]
    return {
        **first.to_json(),
        "profiles": [profile.to_json() for profile in comparison.profiles],
        "failed": comparison.failed,
        "comparison": [_compared(comparison, other) for other in comparison.profiles[1:]],
        "advice": [dataclasses.asdict(each) for each in advice],
        "applied": _applied(applied, advice),
        "files": files,
    }


def _applied(applied: ModeComparison | None, advice: list[Advice]) -> dict[str, Any] | None:
    if applied is None or applied.failed:
        return None
    return {**_compared(applied, applied.profiles[1]), "estimate": advice[0].estimate}


def _compared(comparison: ModeComparison, other: Profile) -> dict[str, Any]:
    total = comparison.total(other)
    return {
        "mode": other.mode,
        "against": comparison.profiles[0].mode,
        "speed_up": total.ratio,
        "low": total.low,
        "high": total.high,
        "within_noise": total.within_noise,
        "rows": [
            {
                "name": row.name,
                "depth": row.depth,
                "microseconds_per_step": [row.before.median, row.after.median],
                "quartiles": [[row.before.low, row.before.high], [row.after.low, row.after.high]],
                "speed_up": row.speed_up.ratio,
                "low": row.speed_up.low,
                "high": row.speed_up.high,
                "within_noise": row.speed_up.within_noise,
            }
            for row in comparison.against_first(other)
        ],
    }


def _print(
    comparison: ModeComparison,
    advice: list[Advice],
    applied: ModeComparison | None,
    profiling: Profiling,
    files: list[str],
) -> None:
    for profile in comparison.profiles:
        _print_profile(profile, profiling)
    for mode, why in comparison.failed.items():
        out.print(f"{mode}: cannot run here: {why}", soft_wrap=True, markup=False)
    for other in comparison.profiles[1:]:
        _print_comparison(comparison, other)
    if advice:
        out.print("[bold]What would make it faster[/bold]")
    for each in advice:
        out.print(f"  {each}", soft_wrap=True, markup=False)
    if not advice and len(comparison.profiles) == 1:
        out.print("Nothing stands out that another setting would make faster.")
    if applied is not None and applied.failed:
        out.print(f"{advice[0].options} cannot run here: {next(iter(applied.failed.values()))}", soft_wrap=True)
    elif applied is not None:
        gave = applied.total(applied.profiles[1])
        out.print(
            f"Applied {advice[0].options}: estimated {advice[0].estimate:.1f}x, measured {gave}.",
            soft_wrap=True, markup=False,
        )  # fmt: skip
    for file in files:
        out.print(f"Written: {file}", soft_wrap=True, markup=False)


def _print_profile(profile: Profile, profiling: Profiling) -> None:
    from redline.timing.render import table

    config = profile.config
    title = (
        f"{profile.mode}: {len(profile.batches)} batches of {config.num_envs} envs x {config.num_steps} steps, "
        f"{config.env}, engine {config.engine}"
    )
    out.print(table(profile.breakdown, title, details=profiling.breakdown))
    if profile.warm_up is not None:
        out.print(
            f"Warm-up batch, not in the table: {profile.warm_up.breakdown.total_seconds:.2f} s; "
            f"start-up {profile.start_up_seconds:.2f} s."
        )
    memory = f", memory {profile.memory_mb:,.0f} MB" if profile.memory_mb else ""
    out.print(
        f"{profile.steps_per_second:,.0f} steps/s, {profile.episodes_per_second:,.1f} episodes/s, "
        f"sampling : training = {profile.sampling_to_training:.1f} : 1{memory}",
        soft_wrap=True,
    )
    if profile.workers is not None:
        slowest = profile.workers.slowest_seconds
        straggling = f", {profile.straggler_share:.1%} lost to the slowest" if profile.workers.straggler_seconds else ""
        out.print(
            f"{profile.num_workers} workers {profile.busy_share:.0%} busy{straggling}, slowest step {slowest * 1e3:.3g} ms",
            soft_wrap=True,
        )
    out.print()


def _print_comparison(comparison: ModeComparison, other: Profile) -> None:
    first = comparison.profiles[0]
    result = Table(title=f"{other.mode} against {first.mode}: µs per env step", title_justify="left", box=None)
    for column in ("", first.mode, "quartiles", other.mode, "quartiles", "speed-up"):
        result.add_column(column, justify="right" if column else "left")
    for row in comparison.against_first(other):
        result.add_row(
            f"{'  – ' if row.depth else ''}{row.name}",
            f"{row.before.median:.3g}", f"{row.before.low:.3g} – {row.before.high:.3g}",
            f"{row.after.median:.3g}", f"{row.after.low:.3g} – {row.after.high:.3g}",
            _said(row, first.mode, other.mode),
            style="bold" if row.name == "total" else None,
        )  # fmt: skip
    out.print(result)
    out.print()


def _said(row: RowComparison, first: str, other: str) -> str:
    if not row.before.median and not row.after.median:
        return ""
    if not row.before.median or not row.after.median:
        return f"only in {first if row.before.median else other}"
    return str(row.speed_up)


def _show_run(profiling: Profiling, output: Output) -> int:
    from redline.profiler.advise import advise
    from redline.profiler.finished import profile_of_run
    from redline.timing.render import table

    assert profiling.run is not None
    profile = profile_of_run(profiling.run, profiling.trust)
    advice = advise(profile)
    if output.json:
        print_json({**profile.to_json(), "advice": [dataclasses.asdict(each) for each in advice]})
        return 0
    out.print(table(profile.breakdown, f"{profiling.run}: {short(profile.steps)} steps", details=profiling.breakdown))
    out.print(f"{profile.steps_per_second:,.0f} steps/s, sampling : training = {profile.sampling_to_training:.1f} : 1")
    for each in advice:
        out.print(f"  {each}", soft_wrap=True, markup=False)
    return 0
