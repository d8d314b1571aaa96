"""`redline train`: train a policy, score it, write its run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.cli.console import Watcher, err, out, print_json, short
from redline.cli.options import Output, combine, parse
from redline.errors import RedlineError
from redline.files import warn_on_stderr
from redline.learn.config import Saving, TrainConfig, config_to_json


@dataclass(frozen=True)
class Folder:
    """Where the run goes, and what is done with it at the end."""

    runs: Path = Path("runs")
    """Folder that gets a new folder for each run."""
    run_dir: Path | None = None
    """Use exactly this folder for the run instead."""
    resume: Path | None = None
    """Go on with this run (or from this checkpoint of one), with its own settings; takes no other training option."""
    eval_episodes: int | None = None
    """Episodes to score the result on at the end; 0 scores nothing. Default: 1000 on cage2, 64 on timed nets, else 100."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.eval_episodes is not None and self.eval_episodes < 0:
            raise RedlineError(f"--eval-episodes {self.eval_episodes} cannot be played. Try 1000, or 0 for none.")


@dataclass(frozen=True)
class Resume:
    """Go on with a run where it was stopped, bit for bit."""

    resume: Path
    """The run folder, or one of its checkpoints."""
    eval_episodes: int | None = None
    """Episodes to score the result on at the end; 0 scores nothing. Default: 1000 on cage2, 64 on timed nets, else 100."""


def run(arguments: list[str]) -> int:
    """Parse, train, report."""
    if any(each == "--resume" or each.startswith("--resume=") for each in arguments):
        kind = combine_required("Train", resume=Resume, saving=Saving, output=Output)
        try:
            command: Any = parse("train", kind, [each for each in arguments if each != "cage2"])
        except RedlineError as error:
            if "Unrecognized" not in str(error):
                raise
            raise RedlineError(
                f"--resume goes on with the run's own settings, so leave out the rest. {error}"
            ) from error
        return _go(None, {}, Folder(resume=command.resume.resume, eval_episodes=command.resume.eval_episodes), command)
    parts: dict[str, Any] = {"training": TrainConfig}
    arguments, name, options = env_parts(arguments, parts)
    command = parse("train", combine("Train", **parts, folder=Folder, saving=Saving, output=Output), arguments)
    options |= changed_options(command, name)
    return _go(command.training, options, command.folder, command)


def env_parts(arguments: list[str], parts: dict[str, Any]) -> tuple[list[str], str, dict[str, Any]]:
    """The arguments with a bare env name, that name, and the options that stood behind it.

    Adds the env's own to `parts`, and gives the training among them the defaults that suit the env.
    """
    from redline.envs import ENVS, require_known, with_query
    from redline.learn.recipes import recipe

    given = arguments[0] if arguments and not arguments[0].startswith("-") else "cage2"
    name, options = with_query(given, {})
    arguments = [name, *arguments[1:]] if arguments and arguments[0] == given else arguments
    if name in ENVS:
        parts[name] = ENVS[name].options
    elif not any(each in ("-h", "--help") for each in arguments):
        require_known(name)
    if parts.get("training") is TrainConfig:
        parts["training"] = recipe(name)
        options = {**parts["training"].env_options, **options}
    return arguments, name, options


def changed_options(command: Any, name: str) -> dict[str, Any]:
    """The env's own options that were given."""
    return _changed(getattr(command, name)) if hasattr(command, name) else {}


def combine_required(name: str, **parts: type) -> type:
    """Like `combine`, for parts that have no default."""
    return dataclasses.make_dataclass(name, list(parts.items()), frozen=True)


def _changed(options: Any) -> dict[str, Any]:
    """Env options that differ from their defaults: what a config needs to say."""
    return {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != field.default
    }


def _go(config: TrainConfig | None, env_options: dict[str, Any], folder: Folder, command: Any) -> int:
    output: Output = command.output
    say = (lambda text: None) if output.quiet or output.json else (lambda text: err.print(text, soft_wrap=True))
    with contextlib.ExitStack() as claims:
        session = _session(config, env_options, folder, command.saving, say, claims)
        if session.trainer.progress >= 1.0:
            return _already_finished(session, output)
        started, step_before = time.monotonic(), session.trainer.step
        interrupt, trouble = _train(session, output)
        seconds = time.monotonic() - started
        saved = session.save()
        session.close()
        if trouble:
            raise _stopped(trouble, session, saved)
        if interrupt:
            path = shlex.quote(str(session.run.path))
            how = f"Continue with: redline train --resume {path}" if saved else "No checkpoint could be written."
            warn_on_stderr(f"redline: interrupted at step {session.trainer.step}. {how}")
            return int(interrupt.exit_code)
        summary = _summarise(session, folder, seconds, step_before)
    if output.json:
        print_json(summary)
    else:
        _print_summary(session, summary)
    return 0


def _already_finished(session: Any, output: Output) -> int:
    session.close()
    done = {"run": str(session.run.path), "steps": session.trainer.step, "episodes": session.trainer.episodes}
    if output.json:
        print_json({**done, "new_steps": 0, "seconds": 0.0, "steps_per_second": None})
    else:
        out.print(
            f"{done['run']} is finished: {done['steps']:,} steps. There is nothing to go on with.", soft_wrap=True
        )
    return 0


def _session(
    config: TrainConfig | None,
    env_options: dict[str, Any],
    folder: Folder,
    saving: Saving,
    say: Any,
    claims: contextlib.ExitStack,
) -> Any:
    if folder.resume is None:  # refuse a bad folder before the slow part
        assert config is not None
        config = dataclasses.replace(config, env_options={**config.env_options, **env_options})
    say("Loading torch …")
    from redline.learn.session import Session, find_run
    from redline.learn.train import Trainer, warm_up
    from redline.runs import Run

    if folder.resume is not None:
        claims.enter_context(find_run(folder.resume).locked())
        session = Session.resume(folder.resume, saving, warn_on_stderr)
        say(f"Resuming {session.run.path} at step {session.trainer.step:,}.")
        return session
    assert config is not None
    config = _with_engine(config, say)
    warm_up(config)
    trainer = Trainer(config)
    data = config_to_json(config)
    found = (
        Run.at(folder.run_dir, data) if folder.run_dir else Run.create(folder.runs, config.env.replace("/", "-"), data)
    )
    claims.enter_context(found.locked())
    plan = f" ({trainer.engine.plan})" if trainer.engine.plan else ""
    say(
        f"Training on {config.env}: {config.num_envs} envs x {config.num_steps} steps an update, "
        f"engine {config.engine}{plan}, {trainer.thread_plan}, device {trainer.device}, run {found.path}"
    )
    return Session.begin(found, trainer, saving, warn_on_stderr)


def _with_engine(config: TrainConfig, say: Any) -> TrainConfig:
    """The config with an engine: the one asked for, or the fastest."""
    from redline.engines import AUTO, ENGINES
    from redline.errors import unknown
    from redline.learn.train import choose_engine, warm_up

    if config.engine != AUTO:
        if config.engine not in ENGINES:
            raise unknown("engine", config.engine, [*ENGINES, AUTO])
        if config.collecting.ray_address is not None and config.engine != "ray":
            raise RedlineError(f"--ray-address is for engine ray, not for {config.engine}. Try --engine ray.")
        return config
    warm_up(config)
    config, choice = choose_engine(config, say)
    for trial in choice.trials:
        rate = f"{trial.steps_per_second:>12,.0f} steps/s" if trial.steps_per_second else f"  {trial.note}"
        say(f"  {trial.engine:<8}{rate}")
    say(choice.why)
    return config


def _train(session: Any, output: Output) -> tuple[Any, RedlineError | None]:
    """Train to the end, or until a signal or envs that cannot be mended. Returns what stopped it."""
    from redline.engines.faults import EnvTrouble
    from redline.learn.session import Abandoned, Interrupt

    interrupt = Interrupt(may_abandon=lambda: session.trainer.collecting)
    with interrupt.listening(), Watcher(output) as watcher:
        try:
            for update in session:
                rate = update.steps / update.breakdown.total_seconds
                text = f"{short(update.step)} steps{_doing(update.metrics)}  {short(rate)} steps/s"
                watcher.show(update.progress, text)
                if interrupt:
                    break
        except Abandoned:
            pass
        except EnvTrouble as trouble:
            return interrupt, trouble
    return interrupt, None


def _doing(metrics: dict[str, float]) -> str:
    """How the episodes of an update went, in few words."""
    mean = metrics["return"]
    if mean != mean:
        return ""
    if "makespan" in metrics:  # a timed net: when episodes end says more than what they pay
        times = f"  makespan {metrics['makespan']:7.0f}, best {metrics['makespan_min']:.0f}"
        return f"  done {metrics['completed']:4.0%}" + (times if metrics["completed"] else "")
    return f"  return {mean:8.2f}"


def _stopped(trouble: RedlineError, session: Any, saved: bool) -> RedlineError:
    """The error that stopped training, with the way to go on."""
    path = shlex.quote(str(session.run.path))
    how = f"Go on with: redline train --resume {path}" if saved else "No checkpoint could be written."
    return type(trouble)(f"{trouble}\nredline: stopped at step {session.trainer.step:,}. {how}")


def _summarise(session: Any, folder: Folder, seconds: float, step_before: int) -> dict[str, Any]:
    """Score the policy, write scores and report, and gather what to print."""
    from redline.evaluate import Trained, as_json, evaluate_cage2, evaluate_env, scenario_of, score
    from redline.report.learning import SCORES, write_report

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
    supervisor = trainer.engine.supervisor
    summary |= {"restarts": supervisor.restarts, "lost_episodes": supervisor.lost_episodes}
    episodes = _eval_episodes(folder, trainer.config.env)
    if episodes and trainer.config.env.startswith("petri:"):
        summary |= _play_net(session, episodes)
    elif episodes:
        trained = Trained(trainer.policy, trainer.config, run.path, trainer.step)
        if trainer.config.env == "cage2":
            scenario = scenario_of(trainer.config)
            scores = evaluate_cage2(
                trained.policy,
                scenario,
                episodes=episodes,
                lengths=[scenario.max_steps or 100],
                red_agents=[scenario.red_agent],
                rule_sets=[scenario.rules],
                seed=trainer.config.seed + 1_000_003,
            )
        else:
            returns = evaluate_env(trained, episodes, trainer.config.seed + 1_000_003, False)
            scores = [score(returns, "", "", 0)]
        summary |= {"eval_length": scores[0].length} if trainer.config.env == "cage2" else {}
        summary |= {"mean": scores[0].mean, "stderr": scores[0].stderr, "eval_episodes": scores[0].episodes}
        session.write_json(SCORES, {"scores": as_json(scores)})
    summary["report"] = str(write_report(run))
    return summary


def _play_net(session: Any, samples: int) -> dict[str, Any]:
    """Play a timed net with the trained policy and the rules; leaves the best schedule in the run folder."""
    from redline.evaluate.petri import best_of, play_policy, play_rules
    from redline.report.learning import SCHEDULE, SCORES
    from redline.sims.petri.instances import parse_petri

    config = session.trainer.config
    instance = parse_petri(config.env, **config.env_options)
    ours, drawn = play_policy(session.trainer.policy, instance, samples, config.seed + 1_000_003)
    results = [each.to_json(instance) for each in (*ours, *play_rules(instance))]
    best = best_of(ours)
    facts = {"lower_bound": instance.lower_bound, "optimum": instance.optimum, "best": best.to_json(instance)}
    found = {**facts, "samples": drawn.to_json(), "results": results}
    session.write_json(SCHEDULE, best.schedule.to_json())
    session.write_json(SCORES, found)
    return {"makespan": best.makespan, **found}


def _eval_episodes(folder: Folder, env: str) -> int:
    from redline.envs import is_simulator

    if folder.eval_episodes is not None:
        return folder.eval_episodes
    if env.startswith("petri:"):
        return 64
    return 1000 if is_simulator(env) else 100


def _print_summary(session: Any, summary: dict[str, Any]) -> None:
    from redline.timing.render import table

    out.print(table(session.breakdown))
    since_start = f"{summary['episodes']:,} episodes"
    if summary["new_steps"] != summary["steps"]:
        since_start = f"{summary['steps']:,} steps and {since_start} since the start of the run"
    out.print(
        f"\n{summary['new_steps']:,} steps in {summary['seconds']:.1f} s ({since_start}): "
        f"[bold]{summary['steps_per_second']:,.0f} steps/s[/bold], learning included.",
        soft_wrap=True,
    )
    if summary["restarts"] or summary["lost_episodes"]:
        out.print(
            f"{summary['restarts']} restarts after failures; {summary['lost_episodes']} episodes were dropped.",
            soft_wrap=True,
        )
    if "results" in summary:
        _print_net(session, summary)
    if "mean" in summary:
        length = f" of {summary['eval_length']} steps" if "eval_length" in summary else ""
        out.print(
            f"Score: [bold]{summary['mean']:.2f} ± {summary['stderr']:.2f}[/bold] "
            f"(mean return of {summary['eval_episodes']:,} fresh episodes{length} ± standard error)",
            soft_wrap=True,
        )
    out.print(f"Run folder: {summary['run']}\nReport:     {summary['report']}", soft_wrap=True)
    if session.trainer.config.env == "cage2" or "results" in summary:
        out.print(f"Next:       redline eval {shlex.quote(summary['run'])}", soft_wrap=True)


def _print_net(session: Any, summary: dict[str, Any]) -> None:
    from redline.cli.eval_petri import print_results
    from redline.sims.petri.instances import parse_petri

    config = session.trainer.config
    print_results(parse_petri(config.env, **config.env_options), summary["results"], summary["samples"])
