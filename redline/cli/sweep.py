"""`redline sweep`: train with several settings and seeds, in parallel, and compare them."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redline.cli.arguments import Argument, arguments_of
from redline.cli.compare import compared
from redline.cli.console import out
from redline.cli.options import Output, combine, parse
from redline.cli.worlds import say_to
from redline.errors import RedlineError
from redline.files import make_folder, warn_on_stderr
from redline.learn.config import TrainConfig, at_least, config_from_json, config_to_json
from redline.learn.trust import require_trusted
from redline.runs import CONFIG, Run, as_written, within
from redline.search.parallel import Runner, make_runner
from redline.signals import exit_code_of
from redline.signature import signed
from redline.threads import cores
from redline.worlds.registry import world_of
from redline.worlds.world import Say

if TYPE_CHECKING:
    from redline.learn.sweeping import Job, Span

SWEEP = "sweep.json"
PAGE = "compare.html"
RANGE, MOST_SEEDS, MOST_CHOICES = "..", 10_000, 10_000


@dataclass(frozen=True)
class Sweep:
    """Train with several settings and seeds and compare them. Every option of train may have several values, such as
    --learning-rate 1e-3,3e-3; words and lists are separated by semicolons, such as --hidden '64,64;128,128'.
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

    axes, arguments = split_axes(arguments)
    parts: dict[str, Any] = {"training": TrainConfig}
    arguments, name, options = env_parts(arguments, parts)
    command = parse("sweep", combine(Sweep.__doc__ or "", **parts, sweep=Sweep, output=Output), arguments)
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


# What to try


def split_axes(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Options that have several values, as they are written, and the arguments without them."""
    axes: dict[str, str] = {}
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("--") or (not equals and (not waiting or waiting[0].startswith("--"))):
            rest.append(word)
            continue
        value = value if equals else waiting.pop(0)
        if _is_several(value):
            axes[name.removeprefix("--").replace("-", "_")] = value
        else:
            rest += [name, value]
    return axes, rest


def _is_several(value: str) -> bool:
    """Whether a value stands for several: numbers with commas or a range, or anything with semicolons."""
    if ";" in value or _is_range(value):
        return True
    parts = value.split(",")
    return len(parts) > 1 and all(map(_is_number, parts))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_range(value: str) -> bool:
    low, dots, high = value.partition(RANGE)
    return bool(dots) and _is_number(low) and _is_number(high)


def _begin(name: str, axes: dict[str, str], command: Any, options: dict[str, Any]) -> Path:
    """A folder with the plan of a sweep."""
    from redline.learn.prepare import prepared
    from redline.learn.sweeping import draw as draw_points
    from redline.learn.sweeping import grid, require_steps, seeds_from

    sweep: Sweep = command.sweep
    whole = {**command.training.env_options, **options, **_changed_options(command)}
    base = dataclasses.replace(command.training, env_options=whole)
    values = {axis: _values(axis, text, command, sweep.random is not None) for axis, text in axes.items()}
    if sweep.random is None:
        _require_few(math.prod(map(len, values.values())))
    chosen = grid(values) if sweep.random is None else draw_points(values, sweep.random, base.seed)
    configs = [prepared(_point(base, settings, command), frozenset(axes), lambda text: None) for settings in chosen]
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


def _changed_options(command: Any) -> dict[str, Any]:
    from redline.cli.train import changed_options

    return changed_options(command)


def _values(axis: str, text: str, command: Any, random: bool) -> Any:
    """The values of an option, each as its type has it."""
    known = {argument.field: argument for part in _parts(command) for argument in arguments_of(type(part), part)}
    if axis not in known:
        raise RedlineError(f"sweep has no option --{axis.replace('_', '-')} to vary. See redline train --help.")
    argument = known[axis]
    if _is_range(text):
        if not random:
            raise RedlineError(
                f"--{axis.replace('_', '-')} {text} is a range, from which --random draws. Add --random 8."
            )
        return _span(argument, text)
    separator = ";" if ";" in text else ","
    found = [_converted(part.strip(), argument) for part in text.split(separator) if part.strip()]
    if not found:
        raise RedlineError(f"{argument.name} {text} holds no value. See redline train --help.")
    return found


def _span(argument: Argument, text: str) -> Span:
    """The numbers of a range."""
    from redline.learn.sweeping import Span

    low, high = (float(part) for part in text.split(RANGE))
    if not (math.isfinite(high - low) and low <= high):
        raise RedlineError(f"{argument.name} {text} is no range: it goes up, from one number to another, as 1..8 does.")
    return Span(low, high, int in argument.kinds)


def _parts(command: Any) -> Iterator[Any]:
    yield command.training
    if hasattr(command, "env_part"):
        yield command.env_part


def _converted(text: str, argument: Argument) -> Any:
    """A value as an option's type has it."""
    for kind in argument.kinds:
        try:
            if kind is int:
                return int(float(text)) if float(text).is_integer() else int(text)
            if kind is float:
                return float(text)
            if kind is bool:
                return {"true": True, "false": False}[text.lower()]
            if kind == tuple[int, ...]:
                return tuple(int(part) for part in text.split(","))
        except (ValueError, KeyError):
            continue
        if kind is str:
            return text
    raise RedlineError(f"{argument.name} {text} cannot be read. See redline train --help.")


def _point(base: TrainConfig, settings: dict[str, Any], command: Any) -> TrainConfig:
    """A choice of settings as a config."""
    config, options = base, dict(base.env_options)
    own = {field.name for field in dataclasses.fields(command.env_part)} if hasattr(command, "env_part") else set()
    ppo = {field.name for field in dataclasses.fields(base.ppo)}
    for name, value in settings.items():
        if name in ppo:
            config = dataclasses.replace(config, ppo=dataclasses.replace(config.ppo, **{name: value}))
        elif name in own:
            options[name] = value
        else:
            config = dataclasses.replace(config, **{name: value})
    return dataclasses.replace(config, env_options=options)


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
