"""A trained policy from Python: observations in as the env gives them, actions out as the env takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike

from redline.compiled.rng import actor_seed
from redline.engines.spec import EnvDescription, Spec
from redline.errors import RedlineError
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig
from redline.learn.train import make_policy
from redline.processes import ends_in_time
from redline.worlds.encoding import Encoding, OneHot
from redline.worlds.given import vector_named
from redline.worlds.observations import flattener
from redline.worlds.registry import make_env, make_single, world_of


class Agent:
    """A policy that plays, with weights that no longer change.

    It takes one observation or a batch of them, in the shape and type in which the env gives them, and answers in kind.
    """

    def __init__(
        self,
        config: TrainConfig,
        env: EnvDescription,
        weights: dict[str, np.ndarray],
        *,
        step: int = 0,
        path: Path | None = None,
        unit: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`weights` are those of a policy for `env`; `unit` is what a state value of 1 is worth in rewards of the env."""
        self.config, self.step, self.path = config, step, path
        self.weights, self.described = weights, env
        self.unit = unit
        self._form: Encoding = env.encoding.decoded
        plain = EnvDescription(env.single_observation_space, env.single_action_space, self._form)
        self.policy = make_policy(plain, config, 0)
        self.policy.load(weights)
        self._flattener = None if env.given is None else flattener(env.given)
        self._actors: dict[tuple[int, bool], Actor] = {}
        self._seed = seed

    def __repr__(self) -> str:
        """What it was trained on, and for how long."""
        return f"<Agent for {self.config.env}, trained for {self.step:,} steps>"

    @property
    def action_space(self) -> gym.Space:
        """The space that its actions are from."""
        return self.described.single_action_space

    @property
    def action_names(self) -> tuple[str, ...]:
        """What each action is called; its number where the env has no names."""
        found = _names_in(self.config)
        if found:
            return tuple(map(str, found))
        space = self._require_discrete("names of actions")
        return tuple(str(number) for number in range(int(space.start), int(space.start) + int(space.n)))

    def act(self, obs: Any, mask: ArrayLike | None = None, deterministic: bool = True) -> Any:
        """The action for an observation, or one for each of a batch: the likeliest, or one that is drawn.

        `mask` is true where an action is allowed. A recurrent policy remembers the calls since `forget`, for each place of a
        batch.
        """
        rows, alone = self._rows(obs)
        masks = self._masks(mask, len(rows), alone)
        actor = self._actor(len(rows), deterministic)
        actor.begin(1)
        actions = actor.act(rows, masks).for_envs
        return actions[0] if alone else actions

    def forget(self, ended: ArrayLike | None = None) -> None:
        """Begin new episodes: a recurrent policy forgets what it saw, of all envs or where `ended` is true."""
        for actor in self._actors.values():
            actor.forget(np.broadcast_to(np.asarray(True if ended is None else ended, np.bool_), len(actor.streams)))

    def probabilities(self, obs: Any, mask: ArrayLike | None = None) -> np.ndarray:
        """The probability of each action, float32 [actions] or [n, actions]."""
        self._require_discrete("probabilities of actions")
        self._require_forgetful("probabilities")
        rows, alone = self._rows(obs)
        table = self.policy.head.empty(len(rows))
        self.policy.infer(rows, self._masks(mask, len(rows), alone), table)
        found = np.exp(table[0])
        return np.asarray(found[0] if alone else found)

    def value(self, obs: Any) -> Any:
        """The discounted return that is expected from an observation on: a float, or float32 [n]."""
        self._require_forgetful("value")
        rows, alone = self._rows(obs)
        found = self.policy.state_values(rows) * np.float32(self.unit)
        return float(found[0]) if alone else found

    def _actor(self, num_envs: int, deterministic: bool) -> Actor:
        """Whoever acts for a batch of that size: equal calls after loading give equal draws."""
        kind = num_envs, deterministic
        if kind not in self._actors:
            self._actors[kind] = Actor(
                self.policy, num_envs, actor_seed(self._seed), dedup=False, deterministic=deterministic
            )
        return self._actors[kind]

    def _require_forgetful(self, what: str) -> None:
        if self.policy.memory_size:
            raise RedlineError(f"The {what} of a recurrent policy depends on what came before. Try agent.act(obs).")

    def _require_discrete(self, what: str) -> gym.spaces.Discrete:
        space = self.action_space
        if not isinstance(space, gym.spaces.Discrete):
            raise RedlineError(f"There are no {what} for {space}: that takes a Discrete space. Try agent.act(obs).")
        return space

    def _rows(self, obs: Any) -> tuple[np.ndarray, bool]:
        """Observations [n, ...], and whether it was a single one. What the env would not give is refused."""
        form = self._form
        given = np.asarray(obs if self._flattener is None else self._flattener.flat_all(obs))
        if given.shape == form.shape:
            alone = True
        elif given.shape[1:] == form.shape and given.ndim == len(form.shape) + 1 and len(given):
            alone = False
        else:
            raise RedlineError(
                f"An observation of shape {given.shape} does not fit {self.config.env}: one has shape {form.shape}, "
                f"a batch {('n', *form.shape)}."
            )
        if not _holds(form, given):
            raise RedlineError(
                f"An observation of type {given.dtype} does not fit {self.config.env}, which gives {form.dtype}. Pass it "
                f"as the env gives it, or obs.astype(np.{form.dtype})."
            )
        if isinstance(form, OneHot) and ((given < form.first) | (given >= form.first + form.count)).any():
            last = form.first + form.count - 1
            raise RedlineError(
                f"{self.config.env} has states {form.first} to {last}; got {given.min()} to {given.max()}."
            )
        return np.ascontiguousarray(given[None] if alone else given, form.dtype), alone

    def _masks(self, mask: ArrayLike | None, count: int, alone: bool) -> np.ndarray | None:
        """Masks bool [n, actions]."""
        if mask is None:
            return None
        if isinstance(self.action_space, gym.spaces.Box):
            raise RedlineError(f"There are no masks for {self.action_space}: no action of it can be ruled out.")
        size = self.policy.head.num_outputs
        given = np.asarray(mask)
        due = (size,) if alone else (count, size)
        if given.shape != due or given.dtype.kind not in "bui":
            raise RedlineError(
                f"A mask of shape {given.shape} and type {given.dtype} does not fit: pass truth values of shape {due}."
            )
        if not given.any(axis=-1).all():
            raise RedlineError("The mask allows no action at all. Pass None where all are allowed.")
        return np.asarray(given[None] if alone else given, np.bool_)


def _holds(form: Encoding, given: np.ndarray) -> bool:
    """Whether a form can hold values of an array's type: other floats are rounded, whole numbers must fit."""
    if isinstance(form, OneHot):
        return given.dtype.kind in "iu"
    if form.dtype.kind == "f" and given.dtype.kind == "f":
        return True
    return np.can_cast(given.dtype, form.dtype)


def describe(config: TrainConfig) -> EnvDescription:
    """All that a policy must know about the env of a config."""
    given = vector_named(config.env)
    if given is not None:
        return EnvDescription.of_vector(given)
    envs = Spec.of(config.env, config.env_options).batch(1)
    try:
        return EnvDescription.of_vector(envs)
    finally:
        ends_in_time(envs.close)


def _names_in(config: TrainConfig) -> Any:
    """The names that an env gives its actions, if it does."""
    given = vector_named(config.env)
    if given is not None or world_of(config.env).compiled:
        envs = given if given is not None else make_env(config.env, 1, **config.env_options)
        return getattr(envs, "action_names", None)
    env = make_single(config.env, **config.env_options)
    try:
        meanings = getattr(env.unwrapped, "get_action_meanings", None)
        return meanings() if callable(meanings) else getattr(env.unwrapped, "action_names", None)
    finally:
        ends_in_time(env.close)
