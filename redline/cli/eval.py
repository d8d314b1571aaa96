"""`redline eval`: score a policy in the way of its world."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from redline.cli.worlds import first_word, parse_with, say_to, show
from redline.errors import RedlineError
from redline.learn.config import at_least
from redline.runs import BEST, CONFIG, EVAL, SEARCH_STATE, Run
from redline.worlds.naming import with_query
from redline.worlds.registry import all_worlds, default_world, find_world, require_known, shipped_policies, world_of
from redline.worlds.world import Answer, World

if TYPE_CHECKING:
    from redline.learn.evaluate import Subject

ABOUT = """Play fresh episodes with a trained policy, or with a simple player, and print means and standard errors.

How a policy is scored is its world's business: `redline eval TARGET --help` lists what TARGET's takes."""


@dataclass(frozen=True)
class Eval:
    """Who is scored."""

    target: tyro.conf.Positional[str]
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
    world = first_word(arguments, lambda word: _world_named(word, trust)) or default_world()
    from redline.learn.evaluate import scoring_of

    scoring = scoring_of(world)
    parts: dict[str, Any] = {"who": Eval, "how": scoring.options}
    command = parse_with("eval", ABOUT, parts, arguments, "score", world)
    subject = _subject(command.who, world)
    answer = scoring.run(subject, command.how, say_to(command.output))
    _keep(Path(command.who.target), answer)
    return show(answer, command.output)


def _keep(target: Path, answer: Answer) -> None:
    """Leave what was found in the run folder, for its report; a folder that cannot be written to stays as it is."""
    if (target / CONFIG).exists():
        with contextlib.suppress(OSError):
            Run.open(target).write_json(EVAL, answer.data)


def _world_named(word: str, trust: bool = False) -> World | None:
    """The world that a target means: by the name of one of its players or envs, or by a run on one of them."""
    player = next((world for world in all_worlds() if world.is_baseline is not None and world.is_baseline(word)), None)
    if player is not None:
        return player
    path = shipped_policies().get(word, Path(word))
    if path.exists():
        return world_of(_trained_env(path, trust))
    return find_world(with_query(word, {})[0])


def _trained_env(path: Path, trust: bool) -> str:
    """The env that the policy at `path` was trained on."""
    from redline.learn.checkpoint import load, resolve
    from redline.learn.trust import stored_config

    found = load(resolve(_policy_path(path)))
    return stored_config(found.values.get("config"), found.path, trust).env


def _policy_path(path: Path) -> Path:
    if (path / SEARCH_STATE).exists():
        raise RedlineError(f"{path} is a workflow search. Its best policy is {path / BEST}, once the search is done.")
    return path


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
    if not path.exists() and _world_named(name) is not None:
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
