"""Simple CAGE-2 defenders to compare with. They answer an engine as a trained policy does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from redline.errors import unknown
from redline.rollout import Decision
from redline.worlds.cage2.env import Cage2VectorEnv
from redline.worlds.cage2.rules.scenario import (
    BLUE_RESTORE,
    BLUE_SLEEP,
    FOOTHOLD,
    NUM_ACTIONS,
    NUM_HOSTS,
    TYPE_OF,
    parse_order,
)

Rule = Callable[[np.ndarray], np.ndarray]
"""Actions int64 [N] for tables [N, 52]."""


def sleep(tables: np.ndarray) -> np.ndarray:
    """Do nothing."""
    return np.full(len(tables), BLUE_SLEEP, np.int64)


def react_restore(tables: np.ndarray) -> np.ndarray:
    """Restore the first host that looks compromised; nothing otherwise."""
    cells = tables[:, : 4 * NUM_HOSTS].reshape(len(tables), NUM_HOSTS, 4)
    suspect = np.any(cells[:, :, 2:], axis=2)
    return np.where(suspect.any(axis=1), BLUE_RESTORE + suspect.argmax(axis=1), BLUE_SLEEP)


def random_rule(seed: int) -> Rule:
    """Any action, each as likely."""
    rng = np.random.default_rng(seed)
    return lambda tables: rng.integers(0, NUM_ACTIONS, len(tables))


def greedy_rule(order: str, env: Cage2VectorEnv) -> Rule:
    """Restore the first host of the highest-priority compromised type, as the true state has it; nothing otherwise.

    Red's foothold on User0 cannot be repaired and does not count.
    """
    types = parse_order(order)

    def rule(tables: np.ndarray) -> np.ndarray:
        held = env.true_state().access > 0
        held[:, FOOTHOLD] = False
        actions = np.full(len(tables), BLUE_SLEEP, np.int64)
        for kind in reversed(types):  # the most important last, so that it has the last word
            hosts = held & (kind == TYPE_OF)
            chosen = hosts.any(axis=1)
            actions[chosen] = BLUE_RESTORE + hosts[chosen].argmax(axis=1)
        return actions

    return rule


BASELINES = ("sleep", "random", "react-restore", "greedy:ORDER")
GREEDY = "greedy:"


def is_baseline(name: str) -> bool:
    """Whether this names a baseline rather than a file."""
    return name in BASELINES or name.startswith(GREEDY)


def make_baseline(name: str, seed: int, env: Cage2VectorEnv) -> BaselineActor:
    """The baseline called `name`, for the envs it is going to play in."""
    if name.startswith(GREEDY):
        return BaselineActor(greedy_rule(name.removeprefix(GREEDY), env))
    rules: dict[str, Rule] = {"sleep": sleep, "random": random_rule(seed), "react-restore": react_restore}
    if name not in rules:
        raise unknown("policy", name, BASELINES)
    return BaselineActor(rules[name])


class BaselineActor:
    """A rule in the place of a policy."""

    version = 0

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def begin(self, num_steps: int) -> None:
        """Rules remember nothing."""

    def act(self, obs: np.ndarray, masks: np.ndarray | None, envs: np.ndarray | None = None) -> Decision:
        """The rule's actions."""
        none = np.zeros(len(obs), np.float32)
        return Decision(self._rule(obs), none, none, np.zeros(len(obs), np.int32))

    def value(self, obs: np.ndarray) -> np.ndarray:
        """A rule expects nothing."""
        return np.zeros(len(obs), np.float32)

    def parameters(self) -> BaselineActor:
        """A rule is at home everywhere."""
        return self

    def actor(self, num_envs: int, env: object, observation_space: object, before: object = None) -> BaselineActor:
        """The rule itself."""
        return self

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        """A rule keeps nothing."""
        return np.empty(0), None
