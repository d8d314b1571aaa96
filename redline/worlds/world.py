"""`World`: what a simulator tells the rest of Redline.

Generic code asks the world of an env and never knows one by name. A user's own world is made in the same way as ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import gymnasium as gym
    import numpy as np
    from rich.console import RenderableType

    from redline.learn.config import TrainConfig
    from redline.learn.elite import Episode
    from redline.learn.evaluate import Trained
    from redline.learn.stages import PlanStage
    from redline.report.film import Play
    from redline.report.page import Section
    from redline.runs import Run
    from redline.worlds.batch import BatchEnv
    from redline.worlds.workflows import Workflows

T = TypeVar("T")


def reaches_nothing(name: str, options: dict[str, Any]) -> str | None:
    """For worlds whose envs need nothing but the world itself, whatever their names and options."""


Say = Callable[[str], None]
"""Tells the person at the terminal something on the way; silent where nobody wants to hear it."""


@dataclass(frozen=True)
class Named(Generic[T]):
    """Something that is imported when it is asked for, by where it stands: `package.module:name`."""

    path: str

    def load(self) -> T:
        """The thing itself."""
        module, _, name = self.path.partition(":")
        found: T = getattr(importlib.import_module(module), name)
        return found

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call it."""
        function: Any = self.load()
        return function(*args, **options)


@dataclass(frozen=True)
class Answer:
    """The findings of a world's own part of a command: as data, and for a terminal."""

    data: dict[str, Any]
    lines: Sequence[RenderableType] = ()
    """Sentences and tables, printed one below the other."""
    exit_code: int = 0
    files: Mapping[str, Any] = field(default_factory=dict)
    """JSON to leave in the run folder, by file name."""


@dataclass(frozen=True)
class Command:
    """A world's own part of a command: the options it adds, and what it does with them."""

    options: type
    """A frozen dataclass; each field becomes an option, and the text below it becomes its help."""
    run: Callable[..., Answer]


@dataclass(frozen=True)
class Original:
    """The simulator that a world replaces, to measure ourselves by."""

    name: str
    steps_per_second: Callable[[str, dict[str, Any], float], float | None]
    """Steps per second of one core, from an env's name and options and the seconds to measure; None where it is missing."""


@dataclass(frozen=True)
class Preset:
    """A training plan of a world: several stages, each going on from what the one before it has learned."""

    about: str
    """One line that says what comes of it."""
    stages: Callable[[TrainConfig], list[PlanStage]]
    """The stages, from what was asked for: the env with the options that were given, a seed, threads."""
    takes: tuple[str, ...] = ()
    """Options of the env that it leaves open."""
    unasked: tuple[str, ...] = ()
    """Those of them beside which a world's first preset is followed where none is named."""
    grade: Callable[[Trained, int, int], Answer] | None = None
    """The score at its end, where that is another than the world's."""


class GymnasiumId(NamedTuple):
    """The id under which `gymnasium.make` knows the envs of a world, and their classes as `package.module:name`."""

    id: str
    env: str
    vector_env: str


@dataclass(frozen=True)
class World:
    """A simulator with everything that is peculiar to it."""

    name: str
    about: str
    """One line that says what it is."""
    single: Callable[..., gym.Env]
    """One env: `single(name, **options)`."""
    batch: Callable[..., BatchEnv] | None = None
    """Many envs that step by one compiled call: `batch(num_envs, name, turbo=…, encoded=…, **options)`."""
    agents: tuple[str, ...] = ()
    """Names of those who act together, where there are several: its batches are `TeamEnv`s."""
    options: type | None = None
    """A frozen dataclass of the options that follow a name; None leaves it to `single` to check them."""
    prefix: str = ""
    """How names of this world begin, such as `net:`; without one, its own name is the only one."""
    matches: Callable[[str], bool] | None = None
    """Whether a bare name is one of this world's, where neither name nor prefix tells."""
    require: Callable[[str], None] | None = None
    """Refuses a name that nothing can come of, before anything is made."""
    reaches: Callable[[str, dict[str, Any]], str | None] | None = None
    """All that an env of that name with these options would run or open and that did not come with the world, in words
    such as `call os.system`; None for nothing. A world that does not tell is taken to run code of its own."""
    gymnasium: GymnasiumId | None = None
    """The id that `gymnasium.make` knows its envs by."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Names that work, each with a line about it."""
    chance: bool | None = None
    """Whether chance plays a part in its episodes, so that a good one may be a lucky one; None where nobody knows."""
    steps: Callable[[str], int] = lambda name: 1_000_000
    """How many env steps to train for where nothing is said."""
    recipe: Callable[[str], TrainConfig] | None = None
    """The settings to train with where nothing is said."""
    fit: Callable[[TrainConfig, frozenset[str], Say], TrainConfig] | None = None
    """Fits these settings to the env and the steps asked for, once the env has been looked at; those named stay."""
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """Training plans by name. The first is followed where nothing is said about the training at all."""
    summarise: Callable[[dict[str, np.ndarray]], dict[str, float]] | None = None
    """More numbers about the episodes that ended in an update, from what the env said about each of them."""
    unbeatable: Callable[[TrainConfig, dict[str, np.ndarray]], str | None] | None = None
    """A sentence if an episode that ended in an update is as good as any can be, from what the env said about each of
    them. A run that keeps its best episodes then ends, and its policy plays that one."""
    progress: Callable[[dict[str, float]], str] | None = None
    """A few words about an update for the progress line, in place of its mean return."""
    demonstrate: Callable[[TrainConfig], Episode | None] | None = None
    """An episode to begin with, as `--warm-start` asks for it."""
    eval_episodes: int = 100
    """Episodes to score the result of a training run on."""
    grade: Callable[[Trained, int, int], Answer] | None = None
    """The score at the end of training, from a policy, a number of episodes and a seed."""
    policies: Callable[[], Mapping[str, Path]] | None = None
    """Trained policies that come with it: folders of checkpoints, by the names that `redline.load` knows them by."""
    is_baseline: Callable[[str], bool] | None = None
    """Whether a name means a simple player of this world."""
    score: Named[Command] | Command | None = None
    """`redline eval`: run(subject, options, say)."""
    sections: Callable[[Run], list[Section]] | None = None
    """Sections of this world's own in the report of a run."""
    play: Named[Play] | Play | None = None
    """`redline play` and the episodes in a report: what there is to see; without it, what any env shows."""
    verify: Named[Command] | Command | None = None
    """`redline verify`: run(name, options, say)."""
    solve: Named[Command] | Command | None = None
    """`redline solve`: run(name, options, say)."""
    show: Named[Command] | Command | None = None
    """`redline envs NAME`: run(name, options, say)."""
    workflows: Named[Workflows] | Workflows | None = None
    """`redline search`: the workflows to choose from."""
    original: Original | None = None
    """The simulator that `redline bench sim` compares with."""

    @property
    def compiled(self) -> bool:
        """Whether many of its envs step by one call. Those take `turbo` and `encoded`, too."""
        return self.batch is not None

    def owns(self, name: str) -> bool:
        """Whether a bare name, without options, is one of this world's."""
        if self.matches is not None:
            return self.matches(name)
        return name.startswith(self.prefix) if self.prefix else name == self.name

    def command(self, name: str) -> Command | None:
        """Its own part of the command whose field is called `name`."""
        return loaded(getattr(self, name))


def loaded(found: Named[T] | T | None) -> T | None:
    """A thing that may be named only."""
    return found.load() if isinstance(found, Named) else found
