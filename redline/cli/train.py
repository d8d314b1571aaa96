"""`redline train`: train a policy, score it, write its run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from redline.cli import train_stages as stages
from redline.cli.console import Watcher, out, print_json, short
from redline.cli.options import ENV_PART, HELP, Output, Parser, UnknownArgument, combine, made, read
from redline.cli.worlds import say_to, show
from redline.errors import RedlineError
from redline.files import warn_on_stderr
from redline.learn.ahead import compile_ahead
from redline.learn.config import Saving, TrainConfig, config_to_json
from redline.runs import REPORT, Run
from redline.signals import Interrupt, exit_code_of, held_back
from redline.timing.progress import heard_by
from redline.worlds.naming import with_query
from redline.worlds.registry import default_world, find_world, require_known, shipped_policies
from redline.worlds.world import Answer, Say, World

if TYPE_CHECKING:
    from redline.learn.session import Session
    from redline.timing.breakdown import Breakdown

ABOUT = "Train a policy, score it, and leave a run folder behind. Settings that are not given suit the env."
COMMON = (
    "total_steps", "num_envs", "num_steps", "engine", "workers", "learning_rate", "epochs", "minibatches", "gamma",
    "entropy", "hidden", "seed", "device", "run_dir", "resume", "from_run", "eval_every", "eval_episodes", "json", "quiet",
)  # fmt: skip
"""The options that people need; `--help-all` lists the others, too."""


@dataclass(frozen=True)
class Folder:
    """Where the run goes, and what is done with it at the end."""

    runs: Path = Path("runs")
    """Folder that gets a new folder for each run."""
    run_dir: Path | None = None
    """Use exactly this folder for the run instead."""
    resume: Path | None = None
    """Go on with this run (or from this checkpoint of one), with its own settings; --total-steps goes on past its end."""
    from_run: Annotated[Path | None, "--init-from", "~--from-run", "~--from"] = None
    """Begin with the weights of this run, checkpoint or shipped policy; inputs are matched by name."""
    trust: bool = False
    """Begin with (--from) or go on with (--resume) what a run names, though it was not made by you."""
    eval_episodes: int | None = None
    """Episodes to score the result on at the end; 0 scores nothing. Default: as many as the env's world suggests."""
    seeds: int | None = None
    """Train so many runs that differ by their seed, side by side, and compare them: `redline sweep` with one choice."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.eval_episodes is not None and self.eval_episodes < 0:
            raise RedlineError(f"--eval-episodes {self.eval_episodes} cannot be played. Try 1000, or 0 for none.")


@dataclass(frozen=True)
class Plan:
    """A training plan instead of settings of one's own."""

    preset: str | None = None
    """Train in the stages of this preset of the env's world (`redline envs NAME` lists them); none trains by PPO alone,
    with the settings given. Where nothing is said about the training, the world's first preset is followed, if any."""


@dataclass(frozen=True)
class Resume:
    """Go on with a run where it was stopped, bit for bit."""

    resume: Path
    """The run folder, or one of its checkpoints."""
    trust: bool = False
    """Go on with what the run names, such as an env of its own, though it was not made by you. It counts as yours then."""
    total_steps: Annotated[int | None, "--total-steps", "--total-timesteps"] = None
    """Go on past the end of the run, to this many env steps since its start; schedules are stretched."""
    eval_episodes: int | None = None
    """Episodes to score the result on at the end; 0 scores nothing. Default: as many as the env's world suggests."""


def run(arguments: list[str]) -> int:
    """Parse, train, report."""
    if any(each == "--resume" or each.startswith("--resume=") for each in arguments):
        command: Any = _parse_resume(arguments)
        resume: Resume = command.resume
        if stages.is_plan(resume.resume):
            return stages.resume(command)
        folder = Folder(resume=resume.resume, eval_episodes=resume.eval_episodes, trust=resume.trust)
        return _go(None, frozenset(), folder, command, resume.total_steps)
    if any(each == "--seeds" or each.startswith("--seeds=") for each in arguments):
        from redline.cli import sweep

        return sweep.run(arguments)
    parts: dict[str, Any] = {"training": TrainConfig}
    arguments, name, options = env_parts(arguments, parts)
    kind = combine(ABOUT, **parts, plan=Plan, folder=Folder, saving=Saving, output=Output)
    values = read(Parser("train", kind, common=COMMON), arguments)
    command = made(kind, values)
    given = frozenset(values)
    preset = stages.preset_of(name, command, given, options)
    if preset is not None:
        return stages.begin(preset, name, command, given, options)
    options = {**command.training.env_options, **options, **changed_options(command)}
    config = dataclasses.replace(command.training, env_options=options)
    return _go(config, given, command.folder, command)


def _parse_resume(arguments: list[str]) -> Any:
    """The command that goes on with a run, which takes neither an env nor a training option."""
    kind = combine(Resume.__doc__ or "", resume=Resume, saving=Saving, output=Output)
    parser = Parser("train", kind)
    try:
        return made(kind, read(parser, arguments))
    except UnknownArgument as error:
        options = ", ".join(each.option_strings[0] for each in parser.fields.values() if each.dest != "resume")
        raise RedlineError(
            f"--resume goes on with the run's own settings: leave out {error.argument}. It takes {options}."
        ) from None


def env_parts(arguments: list[str], parts: dict[str, Any]) -> tuple[list[str], str, dict[str, Any]]:
    """The arguments with a bare env name, that name, and the options that stood behind it.

    Adds the options of the env's world to `parts`, and gives the training among them the defaults that suit the env.
    """
    from redline.learn.config import recipe

    is_named = bool(arguments) and not arguments[0].startswith("-")
    word = arguments[0] if is_named else default_world().name
    name, options = with_query(word, {})
    arguments = [name, *arguments[is_named:]]
    asks_help = any(each in HELP for each in arguments)
    if not asks_help:
        require_known(name)
    world = find_world(name)
    if world is not None and world.options is not None and (is_named or not asks_help):
        parts[ENV_PART] = world.options
    if parts.get("training") is TrainConfig:
        parts["training"] = recipe(name)
        options = {**parts["training"].env_options, **options}
    return arguments, name, options


def changed_options(command: Any) -> dict[str, Any]:
    """The env's own options that were given."""
    return _changed(getattr(command, ENV_PART)) if hasattr(command, ENV_PART) else {}


def _changed(options: Any) -> dict[str, Any]:
    """Env options that differ from their defaults: what a config needs to say."""
    return {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != field.default
    }


def _go(
    config: TrainConfig | None, settled: frozenset[str], folder: Folder, command: Any, longer: int | None = None
) -> int:
    from redline.learn.finite import NotFinite

    output: Output = command.output
    say = say_to(output)
    with contextlib.ExitStack() as claims:
        session = _session(config, settled, folder, command.saving, say, claims, longer)
        if session.trainer.progress >= 1.0 and (session.run.path / REPORT).exists():  # which is written last
            return _already_finished(session, output)
        started, step_before = time.monotonic(), session.trainer.step
        with contextlib.ExitStack() as listening:
            interrupt, trouble = train_session(session, output, listening)
            seconds = time.monotonic() - started
            if isinstance(trouble, NotFinite):
                raise spoiled(trouble, session)
            saved = session.save()
            session.close()
        if trouble:
            raise _stopped(trouble, session, saved)
        if interrupt:
            path = shlex.quote(str(session.run.path))
            how = f"Continue with: redline train --resume {path}" if saved else "No checkpoint could be written."
            warn_on_stderr(f"redline: interrupted at step {session.trainer.step}. {how}")
            return interrupt.exit_code
        try:
            summary, graded = _summarise(session, folder, seconds, step_before, output)
        except KeyboardInterrupt as error:
            path = shlex.quote(str(session.run.path))
            warn_on_stderr(
                f"redline: interrupted while scoring. Nothing is lost; score with: redline train --resume {path}"
            )
            return exit_code_of(error)
    if not saved:
        warn_on_stderr(
            f"redline: no checkpoint of step {session.trainer.step:,} could be written: this policy is lost."
        )
    if output.json:
        print_json(summary)
    elif output.quiet:
        print_result(summary, graded)
    else:
        print_times(session.breakdown)
        print_result(summary, graded)
        if saved:
            _print_next(session)
    return 0 if saved and summary["report"] else 1


def _already_finished(session: Session, output: Output) -> int:
    session.close()
    done: dict[str, Any] = {
        "run": str(session.run.path),
        "steps": session.trainer.step,
        "episodes": session.trainer.episodes,
    }
    if output.json:
        print_json({**done, "new_steps": 0, "seconds": 0.0, "steps_per_second": None})
    else:
        out.print(
            f"{done['run']} is finished: {done['steps']:,} steps. There is nothing to go on with. "
            f"To go on past its end: redline train --resume {shlex.quote(done['run'])} --total-steps {2 * done['steps']}",
            soft_wrap=True,
        )
    return 0


def _session(
    config: TrainConfig | None,
    settled: frozenset[str],
    folder: Folder,
    saving: Saving,
    say: Say,
    claims: contextlib.ExitStack,
    longer: int | None,
) -> Session:
    """A new run, or the one to go on with; nobody else may write to it while `claims` are held."""
    if folder.resume is not None:
        return _resumed(folder, saving, say, claims, longer)
    assert config is not None
    compile_ahead(config)
    from redline.learn.prepare import prepared

    return _begun(prepared(config, settled, say), folder, saving, say, claims)


def _resumed(folder: Folder, saving: Saving, say: Say, claims: contextlib.ExitStack, longer: int | None) -> Session:
    from redline.learn.session import Session, find_run

    assert folder.resume is not None
    claims.enter_context(find_run(folder.resume).locked())
    session = Session.resume(folder.resume, saving, warn_on_stderr, folder.trust, longer)
    stretched = "" if longer is None else f" Its schedules are stretched: they end at {longer:,} steps now."
    say(f"Resuming {session.run.path} at step {session.trainer.step:,}.{stretched}")
    return session


def _begun(config: TrainConfig, folder: Folder, saving: Saving, say: Say, claims: contextlib.ExitStack) -> Session:
    from redline.learn.session import Session
    from redline.learn.train import trainer_for, warm_up
    from redline.learn.transfer import adopt_weights

    warm_up(config)
    trainer = trainer_for(config)
    if folder.from_run is not None:
        named = shipped_policies().get(str(folder.from_run), folder.from_run)
        say(adopt_weights(trainer, named, folder.trust))
    data = config_to_json(trainer.config)
    claims.enter_context(held_back())  # from here on there is a run to leave in order
    found = (
        Run.at(folder.run_dir, data) if folder.run_dir else Run.create(folder.runs, config.env.replace("/", "-"), data)
    )
    claims.enter_context(found.locked())
    plan = f" ({trainer.engine.plan})" if trainer.engine.plan else ""
    say(
        f"Training on {config.env}: {config.num_envs} envs x {config.num_steps} steps an update, "
        f"engine {config.engine}{plan}, {trainer.thread_plan}, {trainer.policy.gradient_plan}, "
        f"device {trainer.device}, run {found.path}"
    )
    return Session.begin(found, trainer, saving, warn_on_stderr)


def train_session(
    session: Session, output: Output, listening: contextlib.ExitStack | None = None
) -> tuple[Interrupt, RedlineError | None]:
    """Train to the end, or until a signal or envs that cannot be mended. Returns the signal and the trouble, if any.

    Signals are listened for until `listening` is closed, so that none can cut short what is done at the end.
    """
    from redline.engines.faults import EnvTrouble
    from redline.errors import Abandoned
    from redline.learn.finite import NotFinite

    interrupt, say = Interrupt(may_abandon=lambda: session.trainer.collecting), say_to(output)
    trainer = session.trainer

    def collecting(part: float) -> None:
        of_run = part * trainer.config.num_envs * trainer.config.num_steps / (trainer.config.steps_goal or math.inf)
        watcher.show(min(1.0, trainer.progress + of_run), f"update {trainer.number + 1}: {part:.0%} collected")

    with contextlib.ExitStack() as here, Watcher(output) as watcher, heard_by(collecting):
        (listening or here).enter_context(interrupt.listening())
        try:
            for update in () if interrupt else session:
                rate = update.steps / update.breakdown.total_seconds
                text = (
                    f"{short(update.step)} steps{_doing(update.metrics, session.trainer.world)}  {short(rate)} steps/s"
                )
                watcher.show(update.progress, text)
                for note in update.notes:
                    say(note)
                if interrupt:
                    break
        except Abandoned:
            pass
        except KeyboardInterrupt as error:
            if not trainer.collecting:  # what is half learned is not saved
                raise
            interrupt.take(error)
        except (EnvTrouble, NotFinite) as trouble:
            return interrupt, trouble
    return interrupt, None


def _doing(metrics: dict[str, float], world: World) -> str:
    """How the episodes of an update went, in few words."""
    if "eval_return" in metrics:
        scored = f"  eval {metrics['eval_return']:.2f}"
        return _doing({name: value for name, value in metrics.items() if name != "eval_return"}, world) + scored
    if metrics["return"] != metrics["return"]:
        return ""
    if world.progress is not None:
        return f"  {world.progress(metrics)}"
    return f"  return {metrics['return']:8.2f}"


def _stopped(trouble: RedlineError, session: Session, saved: bool) -> RedlineError:
    """The error that stopped training, with the way to go on."""
    path = shlex.quote(str(session.run.path))
    how = f"Go on with: redline train --resume {path}" if saved else "No checkpoint could be written."
    return type(trouble)(f"{trouble}\nredline: stopped at step {session.trainer.step:,}. {how}")


def spoiled(trouble: RedlineError, session: Session) -> RedlineError:
    """The error that stopped learning, with the last checkpoint from before it."""
    session.save_what_is_good()
    session.close()
    path = session.last_checkpoint
    where = "No checkpoint could be written." if path is None else f"The last good checkpoint is {path}."
    return type(trouble)(f"{trouble} Stopped at step {session.trainer.step:,}. {where}")


def _summarise(
    session: Session, folder: Folder, seconds: float, step_before: int, output: Output
) -> tuple[dict[str, Any], Answer | None]:
    """Score the policy, write scores and report, and gather what to print."""
    from redline.learn.evaluate import Trained, grade_returns

    trainer, run = session.trainer, session.run
    steps = trainer.step - step_before
    summary: dict[str, Any] = {
        "run": str(run.path),
        "steps": trainer.step,
        "new_steps": steps,
        "episodes": trainer.episodes,
        "seconds": seconds,
        "steps_per_second": steps / seconds if seconds else 0.0,
        "breakdown": session.breakdown.to_json(),
    }
    faults = trainer.engine.faults
    summary |= {"restarts": faults.restarts, "lost_episodes": faults.lost_episodes}
    episodes = trainer.world.eval_episodes if folder.eval_episodes is None else folder.eval_episodes
    graded: Answer | None = None
    if episodes:
        trained = Trained(trainer.policy, trainer.config, run.path, trainer.step)
        with Watcher(output, task="scoring") as watcher, heard_by(lambda part: watcher.show(part, "played")):
            graded = (trainer.world.grade or grade_returns)(trained, episodes, trainer.config.seed + 1_000_003)
        summary |= graded.data
        for name, data in graded.files.items():
            session.write_json(name, data)
    summary["report"] = written_report(run)
    return summary, graded


def written_report(run: Run) -> str | None:
    """Where the report of a run is; None where it could not be written, which is told, and takes nothing with it."""
    from redline.report.learning import write_report

    try:
        return str(write_report(run))
    except RedlineError as error:
        warn_on_stderr(f"redline: {error}")
        return None


def print_times(breakdown: Breakdown) -> None:
    """Where the time went."""
    from redline.timing.render import table

    out.print(table(breakdown))
    out.print()


def print_result(summary: dict[str, Any], graded: Answer | None) -> None:
    """Steps, speed and score."""
    since_start = f"{summary['episodes']:,} episodes"
    if summary["new_steps"] != summary["steps"]:
        since_start = f"{summary['steps']:,} steps and {since_start} since the start of the run"
    out.print(
        f"{summary['new_steps']:,} steps in {summary['seconds']:.1f} s ({since_start}): "
        f"[bold]{summary['steps_per_second']:,.0f} steps/s[/bold], learning included.",
        soft_wrap=True,
    )
    if summary["restarts"] or summary["lost_episodes"]:
        out.print(
            f"{summary['restarts']} restarts after failures; {summary['lost_episodes']} episodes were dropped.",
            soft_wrap=True,
        )
    if graded is not None:
        show(graded, Output())
    out.print(f"Run folder: {summary['run']}", soft_wrap=True, markup=False)
    if summary["report"]:
        out.print(f"Report:     {summary['report']}", soft_wrap=True, markup=False)


def _print_next(session: Session) -> None:
    if session.trainer.world.score is not None:
        out.print(f"Next:       redline eval {shlex.quote(str(session.run.path))}", soft_wrap=True, markup=False)
