"""What an engine hands to the learner, and what passes between policy, env and engine on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np


class Decision(NamedTuple):
    """What a policy says about one batch of observations; all arrays [N]."""

    actions: np.ndarray  # int64
    log_probs: np.ndarray  # float32
    values: np.ndarray  # float32
    rows: np.ndarray  # int32, where each observation stands among the rollout's observations


class Outcome(NamedTuple):
    """What an env answers; arrays [N, ...]."""

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
    """The face a policy shows an engine. Weights are fixed between `begin` and the end of a collect."""

    def begin(self, num_steps: int) -> None:
        """A collect of `num_steps` starts."""

    def act(self, obs: np.ndarray, masks: np.ndarray | None) -> Decision:
        """Draw an action for every env. `masks` [N, actions] is true where an action is allowed."""

    def value(self, obs: np.ndarray) -> np.ndarray:
        """State values float32 [n] of observations that need no action."""

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The observations (and their masks) that the decisions' rows point to."""


@dataclass
class Rollout:
    """Experience as a struct of arrays, time first, then env.

    `observations` is a table and `rows` points into it: an observation that occurs many times stands there once.
    """

    rows: np.ndarray  # int32 [T, N]
    actions: np.ndarray  # int64 [T, N]
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
    episode_metrics: dict[str, np.ndarray]  # what else the env has to say about them

    @classmethod
    def empty(cls, num_steps: int, num_envs: int, version: int = 0) -> Rollout:
        """Arrays to write into. Floats start as NaN, so that a cell nobody wrote is noticed."""
        shape = (num_steps, num_envs)
        floats = [np.full(shape, np.nan, np.float32) for _ in range(4)]
        return cls(
            rows=np.full(shape, -1, np.int32),
            actions=np.full(shape, -1, np.int64),
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

    @property
    def num_steps(self) -> int:
        """Env steps in the rollout."""
        return self.rows.size

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
