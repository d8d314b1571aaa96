"""One episode, looked at closely: what was seen, chosen and paid at every step, and how likely each choice was."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from redline.engines.workers.masks import mask_of
from redline.errors import RedlineError
from redline.learn.acting import Actor
from redline.learn.heads.categorical import Categorical
from redline.learn.policy import Policy
from redline.worlds.batch import encoding_of
from redline.worlds.encoding import Encoding
from redline.worlds.observations import MASK, Flattener, flattener
from redline.worlds.python.names import names_of

LIKELIEST = 5
"""Actions that are told of every decision."""
MOST_STEPS = 5000
"""Steps after which an episode that does not end is left."""


class Move(NamedTuple):
    """A player's answer to one observation."""

    action: Any
    """As the env takes it."""
    likeliest: tuple[tuple[int, float], ...] = ()
    """The actions it was most likely to take, counted from 0, and their probabilities."""
    value: float | None = None
    """The return that it expects from here on, discounted and scaled as in training."""
    number: int | None = None
    """Where only some actions are there to choose from: which of them, counted from 0."""


class Player(Protocol):
    """Whoever plays: a policy, or something simple."""

    def __call__(self, observation: np.ndarray, mask: np.ndarray | None) -> Move:
        """The choice for one observation, as the env hands it out."""


class WatchedStep(NamedTuple):
    """One step of an episode."""

    observation: np.ndarray
    """The numbers that were seen before it, in a row."""
    choice: Move
    reward: float
    note: Any
    """What the world wants to remember of the env after it."""


@dataclass(frozen=True)
class WatchedEpisode:
    """An episode that was played to its end."""

    env: str
    seed: int
    player: str
    action_names: tuple[str, ...]
    observation_names: tuple[str, ...]
    start: Any
    """What the world remembers of the env before the first step."""
    steps: tuple[WatchedStep, ...]
    terminated: bool
    options: dict[str, Any] = field(default_factory=dict)
    last: np.ndarray | None = None
    """The numbers that were seen at the end."""
    picture: tuple[int, ...] = ()
    """Channels, rows and columns, where an observation is a picture."""
    unseen: str = ""
    """Why the env makes no pictures of itself, though it says that it can."""

    @property
    def total(self) -> float:
        """Its return."""
        return float(sum(step.reward for step in self.steps))

    def name_of(self, move: Move) -> str:
        """The action of a move in words, as far as it has a name."""
        return self.action_name(move.action if move.number is None else move.number)

    def action_name(self, action: Any) -> str:
        """An action in words, as far as it has a name; the first one is 0."""
        if isinstance(action, int | np.integer) and 0 <= action < len(self.action_names):
            return self.action_names[int(action)]
        if isinstance(action, np.ndarray) and action.ndim:
            return ", ".join(f"{number:.3g}" for number in action.reshape(-1)[:8])
        return f"action {action}"


class PolicyPlayer:
    """A trained policy as a player. Seeded alike, it makes the choices that it makes in `redline eval`."""

    def __init__(self, policy: Policy, seed: int, deterministic: bool = False) -> None:
        self._policy, self._actor = policy, Actor(policy, 1, seed, False, deterministic)
        self._table = policy.head.empty(1)

    def __call__(self, observation: np.ndarray, mask: np.ndarray | None) -> Move:
        """Draw an action, and tell how likely the likeliest ones were."""
        row, masks = np.asarray(observation, self._policy.encoding.dtype)[None], None if mask is None else mask[None]
        self._actor.begin(1)
        decision = self._actor.act(row, masks)
        self._policy.infer(row, masks, self._table, self._actor.first_memories())
        number = int(decision.actions[0]) if isinstance(self._policy.head, Categorical) else None
        return Move(decision.for_envs[0], self._likeliest(), float(decision.values[0]), number)

    def _likeliest(self) -> tuple[tuple[int, float], ...]:
        if not isinstance(self._policy.head, Categorical):
            return ()
        chances = np.exp(self._table[0][0].astype(np.float64))
        order = np.argsort(-chances, kind="stable")[:LIKELIEST]
        return tuple((int(action), float(chances[action])) for action in order if chances[action] > 0)


def _stored(flat: Flattener | None, obs: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An observation as it is stored, and the info with the mask that came in it."""
    if flat is None:
        return obs, info
    mask = obs.get(MASK) if isinstance(obs, dict) else None
    return flat.flat(obs), info if mask is None else {**info, MASK: np.asarray(mask, np.bool_)}


def watch(
    env: gym.Env,
    name: str,
    player: Player,
    seed: int,
    *,
    who: str = "",
    note: Callable[[gym.Env], Any] = lambda env: None,
    options: dict[str, Any] | None = None,
    until: float = math.inf,
) -> WatchedEpisode:
    """Play one episode. `note` says what to remember of the env at its beginning and after every step.

    One that has not ended `until` a reading of the monotonic clock is given up.
    """
    encoding = encoding_of(env, env.observation_space)
    flat = flattener(env.observation_space)
    obs, info = _stored(flat, *env.reset(seed=seed))
    start, steps = note(env), []
    numbers = seen(encoding, obs)
    while True:
        choice = player(obs, mask_of(env, info))
        given, reward, terminated, truncated, told = env.step(choice.action)
        obs, info = _stored(flat, given, told)
        steps.append(WatchedStep(numbers, choice, float(reward), note(env)))
        numbers = seen(encoding, obs)
        if terminated or truncated:
            break
        if len(steps) == MOST_STEPS or time.monotonic() > until:
            raise RedlineError(
                f"{name} has not ended after {len(steps):,} steps. Give it an end, such as a gymnasium TimeLimit."
            )
    known = names_of(env)
    names = tuple(getattr(encoding, "names", ())) or known.observations
    return WatchedEpisode(
        name, seed, who, known.actions, names if len(names) == len(numbers) else (), start, tuple(steps), terminated,
        dict(options or {}), numbers, getattr(encoding, "picture", ()),
    )  # fmt: skip


def seen(encoding: Encoding, observation: Any) -> np.ndarray:
    """The numbers of one observation, in a row."""
    return encoding.decode(np.asarray(observation, encoding.dtype)[None])[0]
