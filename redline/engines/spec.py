"""How envs are made in any process, and what a policy must know about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from redline.worlds.batch import encoding_of
from redline.worlds.encoding import Encoding
from redline.worlds.given import parcel, receive, vector_named
from redline.worlds.naming import with_query
from redline.worlds.observations import stored_space
from redline.worlds.registry import is_compiled, make_env, make_single, require_known


@dataclass(frozen=True)
class Spec:
    """How to make an env, in any process."""

    name: str
    options: dict[str, Any]

    @classmethod
    def of(cls, name: str, options: dict[str, Any]) -> Spec:
        """The env of that name; compiled worlds hand out observations as they are stored."""
        plain = cls.plain(name, options)
        return cls(plain.name, {**plain.options, "encoded": True}) if plain.native else plain

    @classmethod
    def plain(cls, name: str, options: dict[str, Any]) -> Spec:
        """The env of that name; all worlds hand out observations as plain numbers."""
        name, options = with_query(name, options)
        require_known(name)
        return cls(name, options)

    @property
    def native(self) -> bool:
        """Whether its world is compiled, so that batches are stepped by one call."""
        return is_compiled(self.name)

    @property
    def vector(self) -> VectorEnv | None:
        """The vector env itself, where one was given as an object."""
        return vector_named(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Take along what another process does not know the name of."""
        return _received, (self.name, self.options, parcel(self.name))

    def single(self) -> gym.Env:
        """One env."""
        return make_single(self.name, **self.options)

    def batch(self, num_envs: int) -> VectorEnv:
        """Envs that step together."""
        return make_env(self.name, num_envs, **self.options)


def _received(name: str, options: dict[str, Any], sent: bytes | None) -> Spec:
    receive(sent)
    return Spec(name, options)


class Spaces(NamedTuple):
    """Observations and actions of envs, and whether they say which actions are allowed."""

    observation: gym.Space  # as they are stored
    action: gym.Space
    masked: bool
    given: gym.Space | None = None  # as the env gives them, where that is another


@dataclass(frozen=True)
class EnvDescription:
    """All that a policy must know about the envs of an engine: spaces, and how observations are encoded."""

    single_observation_space: gym.Space
    single_action_space: gym.Space
    encoding: Encoding
    given: gym.Space | None = None
    """Observations as the env gives them, where these are laid flat to be stored."""

    @classmethod
    def of(cls, spec: Spec, spaces: Spaces) -> EnvDescription:
        """For envs in whichever process that have these spaces."""
        encoding = encoding_of(spec.batch(1) if spec.native else None, spaces.observation)
        return cls(spaces.observation, spaces.action, encoding, spaces.given)

    @classmethod
    def of_vector(cls, envs: VectorEnv) -> EnvDescription:
        """For envs in this process that step together."""
        space = envs.single_observation_space
        stored = stored_space(space) if getattr(envs, "encoding", None) is None else space
        given = None if stored is space else space
        return cls(stored, envs.single_action_space, encoding_of(envs), given)


Snapshot = dict[str, np.ndarray]
"""The state of envs, or of whoever steps them, as arrays by name."""


@runtime_checkable
class Savable(Protocol):
    """Vector envs that can tell their state, as compiled worlds can."""

    def snapshot(self) -> Snapshot | None:
        """Everything needed to go on from here, or None if that cannot be had just now."""

    def restore(self, snapshot: Snapshot) -> np.ndarray:
        """Go on from a snapshot; returns the observations it stopped at."""
