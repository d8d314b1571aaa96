"""Redline from Python: `train`, `load` and `evaluate`. docs/python.md shows them at work."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from redline.errors import unknown
from redline.files import warn_on_stderr
from redline.learn import checkpoint
from redline.learn.agent import Agent, describe
from redline.learn.config import Saving, TrainConfig, config_to_json, recipe
from redline.learn.evaluate import Subject, Trained, scoring_of
from redline.learn.prepare import prepared
from redline.learn.restoring import refusing, require_numbers
from redline.learn.session import Session
from redline.learn.settings import sort_settings, with_settings
from redline.learn.train import Trainer, Update, below, make_policy
from redline.learn.trust import require_trusted, stored_config
from redline.runs import Run
from redline.worlds.given import name_of, vector_named
from redline.worlds.naming import with_query
from redline.worlds.options import made_options
from redline.worlds.registry import require_known, shipped_policies, world_of

PathLike = str | os.PathLike[str]


def train(
    env: Any,
    total_steps: float | None = None,
    run_dir: PathLike | None = None,
    *,
    env_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Training:
    """Begin to train on an env. Iterate over what is returned, or call its `finish`.

    `env` is a name or a Gymnasium id, a function that makes a `gymnasium.Env`, a `gymnasium.vector.VectorEnv` or a
    `World`. `settings` are the options of `redline train` (`learning_rate=1e-3`, `engine="shared"`, …) and of the env;
    `env_options` are the env's alone, for those that are called like one of ours. Nothing is written to disk unless
    `run_dir` is given: a new folder for the run, as `redline train --run-dir` makes it.
    """
    if total_steps is not None:
        settings["total_steps"] = total_steps
    name, options = with_query(name_of(env), env_options or {})
    require_known(name)
    sorted_out = sort_settings(name, settings)
    config = with_settings(recipe(name), _with_size(env, sorted_out.training))
    config = dataclasses.replace(config, env_options={**config.env_options, **sorted_out.env_options, **options})
    config = prepared(config, frozenset(sorted_out.training), lambda text: None)
    saving = with_settings(Saving(), sorted_out.saving)
    return Training(config, None if run_dir is None else Path(run_dir), saving, env)


def _with_size(env: object, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, with as many envs as a vector env has."""
    given = vector_named(name_of(env))
    if given is not None:
        settings.setdefault("num_envs", given.num_envs)
    return settings


class Training:
    """A training run from Python: iterate over it, one `Update` at a time, or `finish` it in one call.

    A loop that is left early leaves no process behind; another loop over the same object goes on where it stopped. As a
    context manager it closes at the end of the block.
    """

    def __init__(self, config: TrainConfig, run_dir: Path | None, saving: Saving, env: object = None) -> None:
        self.config, self.run = config, None
        self._env = env  # a vector env lives as long as whoever trains on it
        self._saving = saving
        self._claims = ExitStack()
        self._session: Session | None = None
        self._trainer = Trainer(config)
        self._finalizer = weakref.finalize(self, self._trainer.close)
        self._left: tuple[Any, Any] | None = None  # where a loop that was left had come to
        if run_dir is not None:
            self.run = self._begin_run(run_dir)

    run: Run | None
    """The run folder, if there is one."""

    def _begin_run(self, path: Path) -> Run:
        try:
            run = Run.at(path, config_to_json(self.config))
            self._claims.enter_context(run.locked())
            self._session = Session.begin(run, self._trainer, self._saving, warn_on_stderr)
        except BaseException:
            self._trainer.close()
            raise
        return run

    @property
    def agent(self) -> Agent:
        """The policy as it is now; training that goes on does not change it."""
        trainer = self._trainer
        unit = trainer.ppo.scale.unit / self.config.ppo.reward_scale
        path = None if self.run is None else self.run.path
        return Agent(self.config, trainer.engine.env, trainer.policy.arrays(), step=trainer.step, path=path, unit=unit)

    @property
    def step(self) -> int:
        """Env steps so far."""
        return self._trainer.step

    @property
    def progress(self) -> float:
        """Part of the run that is over, 0 to 1."""
        return self._trainer.progress

    def __repr__(self) -> str:
        """What is trained on, and how far it is."""
        where = "" if self.run is None else f", run {self.run.path}"
        return f"<Training on {self.config.env}: {self.step:,} steps, {self.progress:.0%}{where}>"

    def __iter__(self) -> Iterator[Update]:
        """Train to the end, one update at a time."""
        if self.progress >= 1.0:
            return
        self._go_on()
        try:
            yield from self._session or self._trainer
        finally:
            self.close()

    def finish(self) -> Agent:
        """Train to the end. Returns the agent."""
        for _ in self:
            pass
        return self.agent

    def close(self) -> None:
        """Let go of envs, processes and files. Iterating goes on from here; closing twice is fine."""
        if not self._finalizer.alive:
            return
        if self._session is not None:
            self._session.save()
            self._session.close()
            self._session = None
        elif self.progress < 1.0:
            self._left = self._trainer.snapshot()
        self._finalizer()
        self._claims.close()

    def _go_on(self) -> None:
        """Open again what `close` closed."""
        if self._finalizer.alive:
            return
        if self.run is not None:
            self._claims.enter_context(self.run.locked())
            self._session = Session.resume(self.run.path, self._saving, warn_on_stderr)
            self._trainer = self._session.trainer
        else:
            assert self._left is not None
            self._trainer = Trainer(self.config)
            self._trainer.restore(*self._left)
        self._finalizer = weakref.finalize(self, self._trainer.close)

    def __enter__(self) -> Training:
        """Train within a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close at its end."""
        self.close()


def load(path: PathLike, *, env: Any = None, seed: int = 0, trust: bool = False) -> Agent:
    """The agent of a run folder (its newest checkpoint), of one checkpoint, or a shipped policy by its name.

    `env` is what was trained on, for a run on an env that was given as an object. `seed` is for actions that are drawn.
    A run that this user has not made is refused if it names code, unless `trust` says that this is fine.
    """
    found = checkpoint.load(checkpoint.resolve(find_policy(path)))
    config = _config_in(found, env, trust)
    scale = found.arrays.get("ppo.scale")
    unit = (1.0 if scale is None else float(scale[0])) / config.ppo.reward_scale
    weights = below(found.arrays, "policy")
    with refusing(str(found.path)):
        require_numbers(weights, "policy")
        return Agent(config, describe(config), weights, step=found.step, path=found.path, unit=unit, seed=seed)


def _config_in(found: checkpoint.Checkpoint, env: Any, trust: bool) -> TrainConfig:
    data = found.values.get("config")
    if env is None or not isinstance(data, dict):
        return stored_config(data, found.path, trust)
    require_trusted({**data, "env": None}, found.path, trust)  # its own env is not going to be made
    return dataclasses.replace(stored_config(data, found.path, trust=True), env=name_of(env))


def find_policy(path: PathLike) -> Path:
    """The folder that a path, or the name of a shipped policy, means."""
    place, shipped = Path(path).expanduser(), shipped_policies()
    if place.exists():
        return place
    if str(path) in shipped:
        return shipped[str(path)]
    if shipped and not place.parent.name:
        raise unknown("run, checkpoint or shipped policy", str(path), shipped)
    return place


def evaluate(agent: Agent | PathLike, episodes: int | None = None, *, seed: int = 0, **options: Any) -> dict[str, Any]:
    """How an agent does in fresh episodes, as its env's world scores it: what `redline eval --json` prints.

    `options` are those of `redline eval` for that env, such as `deterministic=True`.
    """
    if not isinstance(agent, Agent):
        agent = load(agent)
    scoring = scoring_of(world_of(agent.config.env))
    if episodes is not None:
        options["episodes"] = episodes
    chosen: Any = made_options(scoring.options, options)
    subject = Subject(agent.config.env, agent.config.env_options, seed, _trained(agent))
    data = scoring.run(subject, chosen, lambda text: None).data
    return {name: value for name, value in data.items() if name != "policy" or agent.path is not None}


def _trained(agent: Agent) -> Trained:
    """The agent's policy as scoring wants it: for observations in the form in which they are stored."""
    policy = make_policy(agent.described, agent.config, 0)
    policy.load(agent.weights)
    return Trained(policy, agent.config, agent.path or Path(), agent.step)
