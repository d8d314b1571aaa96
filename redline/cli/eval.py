"""`redline eval`: score a policy in the way of its world."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from redline.cli.console import Watcher
from redline.cli.worlds import first_word, parse_with, say_to, show, world_named
from redline.errors import RedlineError
from redline.learn.config import at_least
from redline.runs import CHECKPOINTS, SCORES
from redline.timing.progress import heard_by
from redline.worlds.naming import with_query
from redline.worlds.registry import default_world, require_known, shipped_policies
from redline.worlds.world import Answer, Say, World

if TYPE_CHECKING:
    from redline.learn.evaluate import Subject, Trained

ABOUT = """Play fresh episodes with a trained policy, or with a simple player, and print means and standard errors.

How a policy is scored is its world's business: `redline eval TARGET --help` lists what TARGET's takes."""


@dataclass(frozen=True)
class Eval:
    """Who is scored."""

    target: Annotated[str, "positional"]
    """A run folder, one of its checkpoints, a policy that comes with the package (redline envs lists them), a simple
    player such as react-restore, or an env, whose players are scored."""
    policy: str | None = None
    """A simple player of the env that is named, in place of a trained policy: the world's own page lists them."""
    trust: bool = False
    """Use what the run names, such as an env of its own, though it was not made by you."""
    seed: int = 0
    """Seed of the episodes."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        at_least(0, seed=self.seed)


def run(arguments: list[str]) -> int:
    """Parse, play, print."""
    trust = "--trust" in arguments
    world = first_word(arguments, lambda word: world_named(word, trust)) or default_world()
    from redline.learn.evaluate import scoring_of

    scoring = scoring_of(world)
    parts: dict[str, Any] = {"who": Eval, "how": scoring.options}
    command = parse_with("eval", ABOUT, parts, arguments, "score", world)
    subject = _subject(command.who, world)
    with Watcher(command.output, task="scoring") as watcher, heard_by(lambda part: watcher.show(part, "played")):
        answer = scoring.run(subject, command.how, say_to(command.output))
    if subject.trained is not None:
        _store(subject.trained, answer, say_to(command.output))
    return show(answer, command.output)


def _store(trained: Trained, answer: Answer, say: Say) -> None:
    """Leave the findings in the run folder, if it is the run's newest policy that was scored: page and file then agree."""
    from redline.learn.checkpoint import latest
    from redline.learn.session import find_run
    from redline.report.learning import write_report

    files = answer.files or (
        {SCORES: {"step": trained.step, "scores": answer.data["scores"]}} if "scores" in answer.data else {}
    )
    if trained.path.parent.name != CHECKPOINTS or not files:
        return
    try:
        run = find_run(trained.path)
        if latest(run.checkpoints) != trained.path:
            return
        with run.locked():
            for name, data in files.items():
                run.write_json(name, data)
            say(f"Written: {run.path / SCORES}, {write_report(run)}")
    except (RedlineError, OSError) as error:  # the score itself is good all the same
        say(f"Not written to the run folder: {error}")


def _subject(who: Eval, world: World) -> Subject:
    """Who is to play, and where."""
    from redline.learn.evaluate import Subject, load_policy

    name = who.target
    if world.is_baseline is not None and world.is_baseline(name):
        return Subject(world.name, {}, who.seed, player=name)
    path = shipped_policies().get(name, Path(name))
    if path.exists() and who.policy is None:
        trained = load_policy(path, who.trust)
        called = name if name in shipped_policies() else ""
        return Subject(trained.config.env, trained.config.env_options, who.seed, trained, name=called)
    if not path.exists() and world_named(name) is not None:
        env, options = with_query(name, {})
        require_known(env)
        return Subject(env, options, who.seed, player=who.policy)
    if who.policy is not None:
        raise RedlineError(
            f"--policy {who.policy} is scored in an env, not in {name}. Try: redline eval {default_world().name} …"
        )
    raise RedlineError(
        f"There is no run or checkpoint {name}, and no player or env of that name. Pass a run folder, or see redline envs."
    )
