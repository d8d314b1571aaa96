"""`redline sweep`: train with several settings and seeds, in parallel, and compare them."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redline.cli.compare import compared
from redline.cli.console import out, print_json
from redline.cli.options import ENV_PART, Output, Parser, Range, combine, made, parse, read
from redline.cli.worlds import say_to
from redline.engines.faults import Faults
from redline.engines.settings import Collecting
from redline.errors import RedlineError
from redline.files import make_folder, warn_on_stderr
from redline.learn.config import PPOConfig, TrainConfig, at_least, config_from_json, config_to_json
from redline.learn.trust import require_trusted
from redline.runs import CONFIG, Run, as_written, within
from redline.search.parallel import Runner, make_runner
from redline.signals import exit_code_of
from redline.signature import signed
from redline.threads import cores
from redline.worlds.registry import world_of
from redline.worlds.world import Say

if TYPE_CHECKING:
    from redline.learn.sweeping import Job

SWEEP = "sweep.json"
PAGE = "compare.html"
MOST_SEEDS = 10_000
MOST_CHOICES = 10_000


@dataclass(frozen=True)
class Sweep:
    """Train with several settings and seeds and compare them. Every option of train may have several values, such as
    --learning-rate 1e-3 3e-3 or --hidden 64,64 128,128.
    """

    seeds: int = 3
    """Runs for each choice of settings, which differ by their seed."""
    random: int | None = None
    """Draw so many choices instead of trying every combination; then --learning-rate 1e-4..1e-2 is any number between."""
    halving: bool = True
    """Where there are more than three choices: stop the worse half after part of the steps, again and again."""
    parallel: int | None = None
    """Runs at the same time, each on one thread; default: one for each core."""
    ray: str | None = None
    """Train on Ray instead of in processes: local, auto, or host:port of a cluster that sees the folder of the runs."""
    folder: Path | None = None
    """Folder of the sweep; default: a new one in runs."""
    resume: Path | None = None
    """Go on with the sweep in this folder; takes no other option but --parallel and --ray."""
    eval_episodes: int | None = None
    """Episodes to score every run on that has all its steps; 0 scores none. Default: as the env's world suggests."""

    def __post_init__(self) -> None:
        """Refuse what cannot be done."""
        at_least(1, seeds=self.seeds)
        if self.seeds > MOST_SEEDS:
            raise RedlineError(f"{self.seeds} seeds are more than {MOST_SEEDS:,}. Try --seeds 10.")
        for name in ("random", "parallel"):
            if getattr(self, name) is not None:
                at_least(1, **{name: getattr(self, name)})
        if self.random is not None:
            _require_few(self.random)


def _require_few(choices: int) -> None:
    """Refuse more choices of settings than anybody could try."""
    if choices > MOST_CHOICES:
        raise RedlineError(
            f"{choices:,} choices of settings are more than {MOST_CHOICES:,}. Try fewer values, or --random 8."
        )


def run(arguments: list[str]) -> int:
    """Parse, train, compare."""
    if any(each == "--resume" or each.startswith("--resume=") for each in arguments):
        command: Any = parse("sweep", combine(Sweep.__doc__ or "", sweep=Sweep, output=Output), arguments)
        return _go_on(command.sweep.resume, command.sweep, command.output)
    from redline.cli.train import env_parts

    parts: dict[str, Any] = {"training": TrainConfig}
    arguments, name, options = env_parts(arguments, parts)
    kinds = [TrainConfig, PPOConfig, Collecting, Faults]
    if ENV_PART in parts:
        kinds.append(parts[ENV_PART])
    kind = combine(Sweep.__doc__ or "", **parts, sweep=Sweep, output=Output)
    given = read(Parser("sweep", kind, many=kinds), arguments)
    varied = {field.name for each in kinds for field in dataclasses.fields(each)} - {"env"}
    axes, single = _axes(given, varied)
    command = made(kind, single)
    own = {field.name for field in dataclasses.fields(parts[ENV_PART])} if ENV_PART in parts else set()
    options |= {name: value for name, value in single.items() if name in own}
    folder = _begin(name, axes, command, options)
    return _go_on(folder, command.sweep, command.output)


def _go_on(folder: Path, options: Sweep, output: Output) -> int:
    """Do what is left of a sweep, and compare."""
    if not (folder / SWEEP).exists():
        raise RedlineError(f"{folder} holds no sweep: it has no {SWEEP}. Pass the folder that redline sweep printed.")
    plan = read_plan(folder)
    say = say_to(output)
    say(f"Sweep of {len(plan['points'])} choices x {len(plan['seeds'])} seeds in {folder}")
    address = None if options.ray == "local" else options.ray
    runner = make_runner("processes" if options.ray is None else "ray", options.parallel or cores(), address)
    try:
        left = _climb(folder, plan, runner, say)
    except KeyboardInterrupt as error:
        warn_on_stderr(f"redline: interrupted. Go on with: redline sweep --resume {shlex.quote(str(folder))}")
        return exit_code_of(error)
    finally:
        runner.close()
    runs = [folder / f"{point}-s{seed}" for point in left for seed in plan["seeds"]]
    if len(runs) < 2:
        if output.json:
            print_json({"runs": [str(each) for each in runs]})
        else:
            out.print(f"One run: {runs[0]}. Nothing to compare.", soft_wrap=True)
        return 0
    compared(runs, folder / PAGE, output)
    return 0


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan of a sweep."""
    plan = Run(folder, {}).read_json(SWEEP)
    if not isinstance(plan, dict) or not {"points", "seeds", "halving", "chosen", "eval_episodes"} <= set(plan):
        raise RedlineError(f"{folder / SWEEP} is no plan of a sweep. Begin another: redline sweep ENV --seeds 3")
    with as_written(folder / SWEEP):
        for point, config in plan["points"].items():
            require_trusted(config, folder)
            config_from_json(config)
            within(folder, point)
            dict(plan["chosen"][point])
        if not (plan["points"] and plan["seeds"] and all(type(seed) is int for seed in plan["seeds"])):
            raise ValueError("a sweep has points and seeds")
        if not (plan["eval_episodes"] is None or type(plan["eval_episodes"]) is int):
            raise ValueError("eval_episodes is a number, or null")
    return plan


def _begin(name: str, axes: dict[str, list[Any]], command: Any, options: dict[str, Any]) -> Path:
    """A folder with the plan of a sweep."""
    from redline.learn.prepare import prepared
    from redline.learn.sweeping import draw as draw_points
    from redline.learn.sweeping import grid, require_steps, seeds_from

    sweep: Sweep = command.sweep
    whole = {**command.training.env_options, **options}
    base = dataclasses.replace(command.training, env_options=whole)
    flat = _flat(base)
    values = {}
    for axis, given in axes.items():
        is_whole = isinstance(flat.get(axis), int | None)
        values[axis] = _values(axis, given, is_whole, sweep.random is not None)
    if sweep.random is None:
        _require_few(math.prod(map(len, values.values())))
    chosen = grid(values) if sweep.random is None else draw_points(values, sweep.random, base.seed)
    configs = [prepared(_point(base, settings), frozenset(axes), lambda text: None) for settings in chosen]
    for config in configs:
        require_steps(config)
    points = [f"p{k:02d}" for k in range(len(configs))]
    plan = {
        "points": {point: signed(config_to_json(config)) for point, config in zip(points, configs, strict=True)},
        "chosen": dict(zip(points, chosen, strict=True)),
        "seeds": seeds_from(base.seed, sweep.seeds),
        "halving": sweep.halving,
        "eval_episodes": sweep.eval_episodes,
    }
    folder = sweep.folder or _new_folder(name)
    if (folder / SWEEP).exists():
        raise RedlineError(f"{folder} holds a sweep already. Go on with it: redline sweep --resume {folder}")
    make_folder(folder)
    Run(folder, {}).write_json(SWEEP, plan)
    return folder


def _new_folder(name: str) -> Path:
    """A folder for a sweep on that env, beside the runs."""
    run = Run.create(Path("runs"), f"sweep-{name.replace('/', '-')}", {})
    (run.path / CONFIG).unlink()  # it is no run itself
    return run.path


def _flat(config: Any) -> dict[str, Any]:
    """All settings of a config by name, nested ones too, and the env's options."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        found |= _flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def _axes(given: dict[str, Any], varied: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that have several values or a range, and the values of all others."""
    axes = {}
    single = {}
    for name, values in given.items():
        if name not in varied or not isinstance(values, list):
            single[name] = values
        elif len(values) > 1 or isinstance(values[0], Range):
            axes[name] = values
        else:
            single[name] = values[0]
    return axes, single


def _values(axis: str, values: list[Any], is_whole: bool, random: bool) -> Any:
    """The values of an option: a list, or a range to draw from."""
    from redline.learn.sweeping import Span

    option = f"--{axis.replace('_', '-')}"
    if not isinstance(values[0], Range):
        return values
    low, high, text = values[0]
    if not random:
        raise RedlineError(f"{option} {text} is a range, from which --random draws. Add --random 8.")
    if not (math.isfinite(high - low) and low <= high):
        raise RedlineError(f"{option} must be a range that goes up, such as 1..8 (got {text}).")
    return Span(low, high, is_whole)


def _point(base: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    """A choice of settings as a config."""
    from redline.learn.settings import setting_names, with_settings

    known = setting_names(TrainConfig)
    training = {name: value for name, value in settings.items() if name in known}
    options = {name: value for name, value in settings.items() if name not in known}
    config = with_settings(base, training)
    return dataclasses.replace(config, env_options={**base.env_options, **options})


# Doing it


def _climb(folder: Path, plan: dict[str, Any], runner: Runner, say: Say) -> list[str]:
    """Train rung by rung; returns the choices that have all their steps."""
    from redline.learn.sweeping import is_done, late_return, rungs, survivors, train_until

    left, seeds = list(plan["points"]), plan["seeds"]
    for share in rungs(len(left), plan["halving"]):
        jobs = [job for point in left for job in _jobs(folder, plan, point, share)]
        waiting = [job for job in jobs if not is_done(job)]
        say(f"{len(waiting)} runs up to {share:.0%} of their steps …")
        runner.run(train_until, waiting)
        means = {p: sum(late_return(folder / f"{p}-s{seed}") for seed in seeds) / len(seeds) for p in left}
        for point, mean in means.items():
            say(f"  {point}: {_told(plan, point)}: mean return {mean:.2f}")
        if share < 1.0:
            kept = sorted(left, key=lambda point: -means[point])[: survivors(len(left))]
            say(f"{len(kept)} of {len(left)} choices go on: {', '.join(sorted(kept))}")
            left = [point for point in left if point in kept]
    return left


def _jobs(folder: Path, plan: dict[str, Any], point: str, share: float) -> Iterator[Job]:
    """The runs of a choice of settings, up to a share of their steps."""
    from redline.learn.sweeping import Job, require_steps, with_seed

    config = config_from_json(plan["points"][point])
    given = plan["eval_episodes"]
    episodes = world_of(config.env).eval_episodes if given is None else given
    for seed in plan["seeds"]:
        until = round(share * require_steps(config))
        yield Job(str(folder / f"{point}-s{seed}"), config_to_json(with_seed(config, seed)), until, episodes)


def _told(plan: dict[str, Any], point: str) -> str:
    """A choice of settings in words."""
    chosen = plan["chosen"][point]
    return ", ".join(f"{name} {value}" for name, value in chosen.items()) or "the usual settings"
