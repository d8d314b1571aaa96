"""`redline play`: watch an episode, in the terminal or as a page."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from redline.cli.console import out, print_json
from redline.cli.options import ENV_PART, Output, Parser, combine, made, read
from redline.cli.worlds import first_word, say_to, world_named
from redline.errors import RedlineError
from redline.learn.config import at_least
from redline.worlds.naming import with_query
from redline.worlds.registry import default_world, find_world, shipped_policies, world_of

if TYPE_CHECKING:
    from redline.learn.watching import WatchedEpisode
    from redline.report.film import Film, Play


@dataclass(frozen=True)
class PlayOptions:
    """Watch an episode: print every step, from --step on, or write a page that plays it (--html)."""

    target: Annotated[str, "positional"]
    """A run folder, one of its checkpoints, a policy that comes with Redline, or an env, together with --policy."""
    policy: str | None = None
    """A simple player instead of a trained policy, for an env that has some: leave it out to see their names."""
    env: str | None = None
    """Play in this env instead of the one trained on; options may follow its name, as in NAME?option=value."""
    seed: int = 0
    """Seed of the episode: you see the first one that redline eval plays with this seed."""
    deterministic: bool = False
    """Take the greedy action instead of sampling one."""
    trust: bool = False
    """Use code that the run names, such as an env of its own, though somebody else made the run."""
    step: int = 0
    """Start at this step."""
    html: Path | None = None
    """Write the episode as one page that needs no network, instead of printing it."""
    svg: Path | None = None
    """Write a picture of the step that --step names, where the world draws one."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        at_least(0, seed=self.seed, step=self.step)


def run(arguments: list[str]) -> int:
    """Parse, play, show."""
    command, changed = _parse(arguments)
    options: PlayOptions = command.options
    say_to(command.output)("Playing an episode …")
    play, episode = _watched(options, changed)
    film = play.film(episode)
    written = _written(options, film)
    if film.legend and film.legend == episode.unseen:
        say_to(command.output)(film.legend)
    if command.output.json:
        print_json(_facts(episode, film, written))
    elif written:
        out.print(film.title, soft_wrap=True, markup=False)
        for path in written:
            out.print(f"Written: {path}", soft_wrap=True, markup=False)
    elif command.output.quiet:
        out.print(film.title, soft_wrap=True, markup=False)
    else:
        _print_frames(film, options.step)
    return 0


def _parse(arguments: list[str]) -> tuple[Any, dict[str, Any]]:
    """The command, and those of the env's options that were given."""
    trust = "--trust" in arguments
    world = first_word(arguments, lambda word: world_named(word, trust))
    own = None if world is None else world.options
    parts: dict[str, Any] = {} if own is None else {ENV_PART: own}
    kind = combine(PlayOptions.__doc__ or "", options=PlayOptions, **parts, output=Output)
    given = read(Parser("play", kind), arguments)
    command: Any = made(kind, given)
    fields = [] if own is None else [field.name for field in dataclasses.fields(own)]
    return command, {name: getattr(getattr(command, ENV_PART), name) for name in fields if name in given}


def _watched(command: PlayOptions, changed: dict[str, Any]) -> tuple[Play, WatchedEpisode]:
    from redline.learn.api import find_policy
    from redline.learn.evaluate import load_policy
    from redline.report.episodes import watch_player, watch_trained

    target = command.target
    if Path(target).exists() or target in shipped_policies():
        if command.policy is not None:
            raise RedlineError(
                f"--policy {command.policy} plays in an env, not in {target}. Try: redline play {default_world().name} …"
            )
        trained = load_policy(find_policy(target), command.trust)
        who = "" if Path(target).exists() else target
        decided = command.deterministic or trained.decided
        return watch_trained(trained, command.seed, decided, command.env, who, changed)
    if find_world(with_query(target, {})[0]) is None:
        raise RedlineError(
            f"There is no run or checkpoint {target}, and no env of that name. Pass a run folder, or see redline envs."
        )
    if command.policy is None:
        raise RedlineError(f"{target} is an env: who is to play? {_players_of(target)}")
    return watch_player(target, command.policy, command.seed, changed)


def _players_of(env: str) -> str:
    """What can be played there."""
    from redline.report.film import play_of

    known = play_of(world_of(with_query(env, {})[0])).players(env)
    if not known:
        return "Pass the folder of a run on it: redline play runs/NAME."
    return f"Pass the folder of a run on it, or one of its simple players: --policy {', '.join(known)}."


def _written(command: PlayOptions, film: Film) -> list[Path]:
    from redline.report.draw import write_picture
    from redline.report.film_page import write_film

    written = []
    if command.html is not None:
        written.append(write_film(command.html, film))
    if command.svg is not None:
        if not film.scenes:
            raise RedlineError("This world draws no picture of its steps. Try --html play.html.")
        write_picture(film.still(min(command.step, len(film.frames) - 1)), command.svg, ".svg")
        written.append(command.svg)
    return written


def _print_frames(film: Film, first: int) -> None:
    """Frames as text, one below the other; a terminal shows them in its pager."""
    from redline.report.film_text import frame_lines

    last = len(film.frames) - 1
    returns = film.returns()
    with out.pager() if sys.stdout.isatty() and sys.stdin.isatty() else nullcontext():
        out.print(film.title, soft_wrap=True, markup=False)
        for t in range(min(first, last), last + 1):
            out.print()
            for line in frame_lines(film.frames[t], returns[t], last):
                out.print(line, soft_wrap=True)


def _facts(episode: WatchedEpisode, film: Film, written: list[Path]) -> dict[str, Any]:
    return {
        "env": episode.env,
        "seed": episode.seed,
        "policy": episode.player,
        "return": episode.total,
        "length": len(episode.steps),
        "terminated": episode.terminated,
        "moments": [{"step": moment.frame, "what": moment.words} for moment in film.moments],
        "steps": [
            {
                "action": episode.name_of(step.choice),
                "reward": step.reward,
                "value": step.choice.value,
                "likeliest": [
                    {"action": episode.action_name(action), "chance": chance}
                    for action, chance in step.choice.likeliest
                ],
                "facts": dict(frame.facts),
            }
            for step, frame in zip(episode.steps, film.frames[1:], strict=False)
        ],
        "written": [str(path) for path in written],
    }
