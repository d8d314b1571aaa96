"""Experience: the rollout that an engine hands to the learner, and what passes between actor, env and engine before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium.spaces import Box

if TYPE_CHECKING:
    import gymnasium as gym

    from redline.worlds.play_on import Answers, PlayedColumns


class Decision(NamedTuple):
    """An actor's answer to one batch of observations."""

    actions: np.ndarray  # [N, ...], as they are drawn and learned from
    log_probs: np.ndarray  # float32 [N]
    values: np.ndarray  # float32 [N]
    rows: np.ndarray  # int32 [N], where each observation stands among the rollout's observations
    played: np.ndarray | None = None  # [N, ...] the actions as envs take them, where these differ

    @property
    def for_envs(self) -> np.ndarray:
        """The actions as envs take them."""
        return self.actions if self.played is None else self.played


class Outcome(NamedTuple):
    """An env's answer to actions; arrays [N, ...]."""

    obs: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: dict[str, Any]

    def final_obs(self, mask: np.ndarray) -> np.ndarray:
        """Last observations of the episodes that ended in this step, in the envs of `mask`."""
        final = self.infos["final_obs"][mask]
        return np.stack(list(final)) if final.dtype == object else final


class Acting(Protocol):
    """A policy as an engine sees it. Weights are fixed between `begin` and the end of a collect."""

    @property
    def version(self) -> int:
        """Which weights these are: it grows with every update."""

    def begin(self, num_steps: int) -> None:
        """A collect of `num_steps` starts."""

    def act(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None = None) -> Decision:
        """Draw an action for every env, or for `envs` only. `masks` [n, actions] is true where an action is allowed."""

    def parameters(self) -> ActingParameters:
        """All that is needed to act likewise in another process; can be pickled."""

    def value(self, obs: np.ndarray) -> np.ndarray:
        """State values float32 [n] of observations that need no action."""

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The observations (and their masks) that the decisions' rows point to."""


@runtime_checkable
class Answering(Acting, Protocol):
    """A policy whose answers can be looked up, so that envs may play on without it."""

    streams: np.ndarray  # uint64 [N]  random streams that actions are drawn from, one for each env

    @property
    def looks_up(self) -> bool:
        """Whether they can be looked up in the next collect."""

    def ask(self, obs: np.ndarray, masks: np.ndarray | None) -> None:
        """Have the answers to observations at hand."""

    def answers(self) -> Answers:
        """All answers at hand."""

    def acted(self, num_steps: int) -> None:
        """Count steps that were played by them."""


@runtime_checkable
class Remembering(Protocol):
    """What an actor has beside `Acting`, if it may remember earlier steps of an episode."""

    @property
    def remembers(self) -> bool:
        """Whether it does."""

    def forget(self, envs: np.ndarray) -> None:
        """The episodes of these envs are over; `envs` are numbers, or true where it is so."""

    def first_memories(self) -> np.ndarray:
        """What was remembered of every env as this collect began, float32 [N, memory size]."""

    def value_of(self, obs: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """State values of observations that follow on what is remembered of `envs`."""


def remembering(policy: Acting) -> Remembering | None:
    """The policy, if it remembers."""
    return policy if isinstance(policy, Remembering) and policy.remembers else None


class ActingParameters(Protocol):
    """Travels to another process and acts there."""

    @property
    def version(self) -> int:
        """Which weights these are."""

    def actor(self, num_envs: int, env: object, observation_space: gym.Space, before: Acting | None = None) -> Acting:
        """Acts in `env` and its like. `before` is the actor of older weights, whose random streams go on."""


@dataclass
class Rollout:
    """Experience as a struct of arrays, time first, then env.

    `observations` is a table and `rows` points into it: an observation that occurs many times stands there once.
    `held` tells which cells hold a step, when not all do: columns may differ in length, and lost episodes leave holes.
    A cell that holds none reads as a step of an ended episode, so that no credit crosses it.
    """

    rows: np.ndarray  # int32 [T, N]
    actions: np.ndarray  # [T, N, ...]
    log_probs: np.ndarray  # float32 [T, N]
    values: np.ndarray  # float32 [T, N]
    next_values: np.ndarray  # float32 [T, N]  value of the state the step led to
    rewards: np.ndarray  # float32 [T, N]
    terminated: np.ndarray  # bool [T, N]
    truncated: np.ndarray  # bool [T, N]
    version: np.ndarray  # int64 [N]  which weights wrote each column
    observations: np.ndarray  # [R, ...]
    masks: np.ndarray | None  # bool [R, actions]
    episode_returns: np.ndarray  # float64 [episodes that ended in this rollout]
    episode_lengths: np.ndarray  # int64, likewise
    episode_metrics: dict[str, np.ndarray]  # likewise, by name: all else that the env tells about them
    held: np.ndarray | None = None  # bool [T, N]
    memories: np.ndarray | None = None  # float32 [N, memory size]  what was remembered before the first step

    @classmethod
    def empty(cls, num_steps: int, num_envs: int, version: int = 0, action_space: gym.Space | None = None) -> Rollout:
        """Arrays to write into, for whole numbers as actions if no space is given.

        Floats start as NaN, so that a cell nobody wrote is noticed.
        """
        shape = (num_steps, num_envs)
        action_shape, action_dtype = stored_actions(action_space)
        floats = [np.full(shape, np.nan, np.float32) for _ in range(4)]
        return cls(
            rows=np.full(shape, -1, np.int32),
            actions=np.full((*shape, *action_shape), -1).astype(action_dtype),
            log_probs=floats[0],
            values=floats[1],
            next_values=floats[2],
            rewards=floats[3],
            terminated=np.zeros(shape, np.bool_),
            truncated=np.zeros(shape, np.bool_),
            version=np.full(num_envs, version, np.int64),
            observations=np.empty(0),
            masks=None,
            episode_returns=np.empty(0),
            episode_lengths=np.empty(0, np.int64),
            episode_metrics={},
        )

    @classmethod
    def of_columns(
        cls,
        columns: PlayedColumns,
        version: int,
        observations: np.ndarray,
        masks: np.ndarray | None,
        last_values: np.ndarray,
    ) -> Rollout:
        """What envs played by themselves: columns [N, T], seen as [T, N]. Episodes and cut values are still to be told."""
        next_values = np.empty_like(columns.values)
        next_values[:, :-1] = columns.values[:, 1:]
        next_values[:, -1] = last_values
        return cls(
            rows=columns.rows.T,
            actions=columns.actions.T,
            log_probs=columns.log_probs.T,
            values=columns.values.T,
            next_values=next_values.T,
            rewards=columns.rewards.T,
            terminated=columns.terminated.T,
            truncated=columns.truncated.T,
            version=np.full(len(columns.rows), version, np.int64),
            observations=observations,
            masks=masks,
            episode_returns=np.empty(0),
            episode_lengths=np.empty(0, np.int64),
            episode_metrics={},
        )

    @property
    def num_steps(self) -> int:
        """Env steps in the rollout."""
        return self.rows.size if self.held is None else int(self.held.sum())

    @property
    def num_distinct(self) -> int:
        """Distinct rows that steps point to."""
        kept = self.rows if self.held is None else self.rows[self.held]
        return int(np.count_nonzero(np.bincount(kept.ravel(order="K"))))

    def cells(self) -> np.ndarray:
        """Which cells hold a step, bool [T, N]."""
        return np.ones(self.rows.shape, np.bool_) if self.held is None else self.held

    def flat(self, array: np.ndarray) -> np.ndarray:
        """The values of an array [T, N, ...] in the cells that hold a step, in order of time."""
        return array.reshape(-1, *array.shape[2:]) if self.held is None else array[self.held]

    def forget(self, cells: Iterable[tuple[int, int, int]]) -> None:
        """Take the steps of lost episodes out: env, first and last step of each."""
        if self.held is None:
            self.held = np.ones(self.rows.shape, np.bool_)
        for i, first, last in cells:
            gone = slice(first, last + 1)
            self.held[gone, i] = False
            self.rows[gone, i] = 0
            self.terminated[gone, i] = True
            self.actions[gone, i] = 0
            self.rewards[gone, i] = self.values[gone, i] = self.next_values[gone, i] = self.log_probs[gone, i] = 0.0

    def write(self, t: int, decision: Decision, outcome: Outcome) -> None:
        """Record step `t` of all envs."""
        self.rows[t] = decision.rows
        self.actions[t] = decision.actions
        self.log_probs[t] = decision.log_probs
        self.values[t] = decision.values
        self.rewards[t] = outcome.rewards
        self.terminated[t] = outcome.terminated
        self.truncated[t] = outcome.truncated

    def link_values(self, last_values: np.ndarray) -> None:
        """Give every step the value of the state it led to, except where an episode was cut and that is known already."""
        following = np.concatenate([self.values[1:], last_values[None]])
        np.copyto(self.next_values, following, where=np.isnan(self.next_values))


def stored_actions(space: gym.Space | None) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of the actions that rollouts hold: numbers in a box are drawn as float32, whatever it takes."""
    if space is None or space.dtype is None:
        return (), np.dtype(np.int64)
    return space.shape or (), np.dtype(np.float32) if isinstance(space, Box) else np.dtype(space.dtype)


def join(parts: Sequence[Rollout]) -> Rollout:
    """Rollouts of different envs side by side. Each keeps its own observations: weights that differ are not mixed."""
    longest = max(part.rows.shape[0] for part in parts)
    firsts = np.cumsum([0, *(len(part.observations) for part in parts)])
    offset = [part.rows + np.int32(first) for part, first in zip(parts, firsts, strict=False)]
    rectangular = all(part.held is None and len(part.rows) == longest for part in parts)
    return Rollout(
        rows=_beside(offset, longest, 0),
        actions=_beside([part.actions for part in parts], longest, 0),
        log_probs=_beside([part.log_probs for part in parts], longest, 0.0),
        values=_beside([part.values for part in parts], longest, 0.0),
        next_values=_beside([part.next_values for part in parts], longest, 0.0),
        rewards=_beside([part.rewards for part in parts], longest, 0.0),
        terminated=_beside([part.terminated for part in parts], longest, True),
        truncated=_beside([part.truncated for part in parts], longest, False),
        version=np.concatenate([part.version for part in parts]),
        observations=np.concatenate([part.observations for part in parts]),
        masks=None if parts[0].masks is None else np.concatenate([part.masks for part in parts]),
        episode_returns=np.concatenate([part.episode_returns for part in parts]),
        episode_lengths=np.concatenate([part.episode_lengths for part in parts]),
        episode_metrics=join_metrics([(len(part.episode_returns), part.episode_metrics) for part in parts]),
        held=None if rectangular else _beside([part.cells() for part in parts], longest, False),
    )


def join_metrics(parts: Sequence[tuple[int, Mapping[str, np.ndarray | float]]]) -> dict[str, np.ndarray]:
    """The metrics of episodes one after another, from their number and what was told of them; NaN where nothing was."""
    names = dict.fromkeys(name for _, told in parts for name in told)
    return {
        name: np.concatenate([np.broadcast_to(told.get(name, np.nan), count) for count, told in parts])
        for name in names
    }


def _beside(arrays: list[np.ndarray], longest: int, filling: float) -> np.ndarray:
    """Arrays [T, n, ...] next to each other, the shorter ones filled up."""
    padded = []
    for array in arrays:
        below = [(0, longest - len(array)), *((0, 0) for _ in array.shape[1:])]
        padded.append(np.pad(array, below, constant_values=filling))
    return np.concatenate(padded, axis=1)
