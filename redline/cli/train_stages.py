"""`redline train` with a preset: a plan in stages, unattended, that can be stopped and gone on with."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redline.cli.console import out, print_json, short
from redline.cli.options import Output
from redline.cli.worlds import say_to
from redline.errors import RedlineError, unknown
from redline.files import warn_on_stderr
from redline.learn.ahead import compile_ahead
from redline.runs import CONFIG, REPORT, Run
from redline.signals import Interrupt, exit_code_of
from redline.worlds.registry import world_of
from redline.worlds.world import Answer, Preset

if TYPE_CHECKING:
    from redline.learn.stages import Chain, PlanStage

OPEN = frozenset({"env", "seed", "threads", "device"})
"""Settings of the training that every preset leaves open."""
SIZES = ("num_envs", "num_steps")
"""Settings that replace those of every stage where they are given beside a preset."""


def preset_of(name: str, command: Any, given: frozenset[str], query: dict[str, Any]) -> Preset | None:
    """The plan to follow: the one that is named, or the world's first where nothing is said about the training.

    `given` are the fields of the command that its arguments name, `query` the options behind the env's name.
    """
    presets = world_of(name).presets
    if command.plan.preset is not None:
        if not presets:
            raise RedlineError(f"{name} has no presets. Leave out --preset {command.plan.preset}.")
        if command.plan.preset not in presets:
            raise unknown("preset", command.plan.preset, list(presets))
        preset = presets[command.plan.preset]
        _refuse(preset, command, given, query)
        return preset
    first = next(iter(presets.values()), None)
    if first is None or "preset" in given or _training_given(command, given) - OPEN:
        return None
    return first if {*_options(command, given, query)} <= {*first.unasked} else None


def _refuse(preset: Preset, command: Any, given: frozenset[str], query: dict[str, Any]) -> None:
    """Refuse settings that a preset makes itself."""
    own = _training_given(command, given) - OPEN - {*SIZES, "total_steps"}
    own |= {*_options(command, given, query)} - {*preset.takes}
    for name in sorted(own):
        option = f"--{name.replace('_', '-')}"
        raise RedlineError(
            f"The preset {command.plan.preset} has its own {option}. Leave that out, or train by PPO alone with "
            "--preset none."
        )


def _fields(part: Any) -> set[str]:
    """The names of all options of a part of a command, those of parts of it included."""
    if not dataclasses.is_dataclass(part):
        return set()
    found = set()
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        found |= _fields(value) if dataclasses.is_dataclass(value) else {field.name}
    return found


def _training_given(command: Any, given: frozenset[str]) -> frozenset[str]:
    return given & _fields(command.training)


def _options(command: Any, given: frozenset[str], query: dict[str, Any]) -> dict[str, Any]:
    """The options of the env that were given, defaults among them."""
    part = getattr(command, "env_part", None)
    return {**query, **{name: getattr(part, name) for name in given & _fields(part)}}


def begin(preset: Preset, name: str, command: Any, given: frozenset[str], query: dict[str, Any]) -> int:
    """Follow a plan from its beginning."""
    say = say_to(command.output)
    compile_ahead(command.training)
    from redline.learn.stages import Chain, plan_config, smaller
    from redline.learn.train import warm_up

    asked = dataclasses.replace(command.training, total_steps=None, env_options=_options(command, given, query))
    stages = preset.stages(asked)
    sizes = {size: getattr(command.training, size) for size in SIZES if size in given}
    stages = [dataclasses.replace(each, config=dataclasses.replace(each.config, **sizes)) for each in stages]
    if command.training.total_steps is not None:
        stages = smaller(stages, command.training.total_steps)
    warm_up(stages[0].config)  # refuses what cannot be trained before there is a run folder
    called = next(key for key, each in world_of(name).presets.items() if each is preset)
    data = plan_config(called, stages)
    folder = command.folder
    run = Run.at(folder.run_dir, data) if folder.run_dir else Run.create(folder.runs, f"{name}-{called}", data)
    options = ", ".join(f"{key} {value}" for key, value in stages[-1].config.env_options.items())
    say(f"Preset {called}: {preset.about}. {len(stages)} stages on {name} ({options}), run {run.path}")
    if command.plan.preset is None:
        say("Nothing was said about the training, so this preset is followed; --preset none trains by PPO alone.")
    chain = Chain(run, command.saving, warn_on_stderr, say, trust=True)
    return _follow(chain, folder.eval_episodes, command.output)


def is_plan(path: Path) -> bool:
    """Whether a path is a run in stages."""
    return (path / CONFIG).exists() and "stages" in Run.open(path).config


def resume(command: Any) -> int:
    """Go on with a plan."""
    say = say_to(command.output)
    from redline.learn.stages import Chain
    from redline.learn.train import warm_up

    chain = Chain(Run.open(command.resume.resume), command.saving, warn_on_stderr, say, command.resume.trust)
    if any(chain.left()):
        warm_up(chain.config)
    return _follow(chain, command.resume.eval_episodes, command.output)


def _follow(chain: Chain, eval_episodes: int | None, output: Output) -> int:
    """Do the stages that are left, then score and report."""
    say, started, before = say_to(output), time.monotonic(), chain.step
    with chain.run.locked():
        left = list(chain.left())
        if not left and (chain.run.path / REPORT).exists():  # which is written last
            return _finished(chain, output)
        try:
            for number, stage in left:
                say(f"Stage {number + 1} of {len(chain.stages)}, {stage.name}: {_describe(stage)}")
                code = _do(chain, number, stage, output)
                if code:
                    return code
                say(f"  {_outcome(chain.done[-1])}")
        except KeyboardInterrupt as error:  # between two stages
            return _interrupted(chain, exit_code_of(error))
        try:
            return _tell(chain, eval_episodes, time.monotonic() - started, before, output)
        except KeyboardInterrupt as error:
            warn_on_stderr(f"redline: interrupted while scoring. Nothing is lost. {_how_to_go_on(chain, saved=True)}")
            return exit_code_of(error)


def _describe(stage: PlanStage) -> str:
    if stage.improve is not None:
        how = stage.improve
        if stage.back_to:
            return (
                f"back to stage {stage.back_to}, with what the policy of now does better in up to {how.states} states"
            )
        return f"improvement by rollouts of up to {how.states} states, {how.horizon} steps each"
    return f"PPO, {short(stage.steps)} steps"


def _outcome(done: dict[str, Any]) -> str:
    score = f", score {done['before']:.2f} → {done['after']:.2f} ± {done['stderr']:.2f}" if "before" in done else ""
    kept = "" if done["kept"] else "; no better than before, so that goes on"
    return f"{done['seconds']:.1f} s{score}{kept}"


def _do(chain: Chain, number: int, stage: PlanStage, output: Output) -> int:
    """One stage. Returns the exit code of a signal that stopped it, 0 otherwise."""
    if stage.improve is not None:
        return _improve(chain, number)
    from redline.cli.train import spoiled, train_session
    from redline.learn.finite import NotFinite

    session, started = chain.session(number), time.monotonic()
    with contextlib.ExitStack() as listening:
        interrupt, trouble = train_session(session, output, listening)
        if isinstance(trouble, NotFinite):
            raise spoiled(trouble, session)
        saved = session.save()
        session.close()
    if trouble:
        raise type(trouble)(f"{trouble}\nredline: stopped in stage {number + 1}. {_how_to_go_on(chain, saved)}")
    if interrupt:
        return _interrupted(chain, interrupt.exit_code, saved)
    chain.finish(number, session, time.monotonic() - started)
    return 0


def _improve(chain: Chain, number: int) -> int:
    from redline.errors import Abandoned

    interrupt = Interrupt(may_abandon=lambda: True)
    with interrupt.listening(), contextlib.suppress(Abandoned):
        chain.improve(number)
    return _interrupted(chain, interrupt.exit_code) if interrupt else 0


def _interrupted(chain: Chain, code: int, saved: bool = True) -> int:
    where = f"in stage {len(chain.done) + 1}" if any(chain.left()) else "before scoring"
    warn_on_stderr(f"redline: interrupted {where}. {_how_to_go_on(chain, saved)}")
    return code


def _how_to_go_on(chain: Chain, saved: bool) -> str:
    path = shlex.quote(str(chain.run.path))
    return f"Continue with: redline train --resume {path}" if saved else "No checkpoint could be written."


def _finished(chain: Chain, output: Output) -> int:
    done = {"run": str(chain.run.path), "steps": chain.step, "new_steps": 0, "seconds": 0.0, "steps_per_second": None}
    if output.json:
        print_json(done)
    else:
        out.print(
            f"{chain.run.path} is finished: all {len(chain.stages)} stages. There is nothing to go on with.",
            soft_wrap=True,
        )
    return 0


def _tell(chain: Chain, eval_episodes: int | None, seconds: float, before: int, output: Output) -> int:
    """Score the result, write scores and report, and print. Returns the exit code."""
    from redline.cli.train import print_result, print_times, written_report
    from redline.runs import BREAKDOWN
    from redline.timing.breakdown import Breakdown

    breakdown = chain.run.read_json(BREAKDOWN)
    summary: dict[str, Any] = {
        "run": str(chain.run.path), "preset": chain.preset, "stages": chain.done, "steps": chain.step,
        "new_steps": chain.step - before, "episodes": sum(each["episodes"] for each in chain.done),
        "seconds": seconds, "steps_per_second": (chain.step - before) / seconds, "breakdown": breakdown,
        "restarts": 0, "lost_episodes": 0,
    }  # fmt: skip
    graded = _graded(chain, eval_episodes)
    summary |= {} if graded is None else graded.data
    summary["report"] = written_report(chain.run)
    code = 0 if summary["report"] else 1
    if output.json:
        print_json(summary)
        return code
    if not output.quiet:
        print_times(Breakdown.from_json(breakdown))
    print_result(summary, graded)
    if not output.quiet:
        out.print(f"Next:       redline eval {shlex.quote(str(chain.run.path))} --deterministic", soft_wrap=True)
    return code


def _graded(chain: Chain, eval_episodes: int | None) -> Answer | None:
    from redline.learn.evaluate import grade_returns

    trained = dataclasses.replace(chain.result(), path=chain.run.path)
    world = world_of(trained.config.env)
    episodes = world.eval_episodes if eval_episodes is None else eval_episodes
    if not episodes:
        return None
    preset = world.presets.get(chain.preset)
    grade = (preset.grade if preset is not None else None) or world.grade or grade_returns
    graded = grade(trained, episodes, trained.config.seed + 1_000_003)
    for name, data in graded.files.items():
        chain.run.write_json(name, data)
    return graded
