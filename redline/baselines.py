"""Simple CAGE-2 defenders to compare with. They answer an engine as a trained policy does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from redline.errors import unknown
from redline.rollout import Decision
from redline.sims.cage2.scenario import BLUE_RESTORE, BLUE_SLEEP, NUM_ACTIONS, NUM_HOSTS

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


BASELINES = ("sleep", "random", "react-restore")


def make_baseline(name: str, seed: int) -> Scripted:
    """The baseline called `name`."""
    rules: dict[str, Rule] = {"sleep": sleep, "random": random_rule(seed), "react-restore": react_restore}
    if name not in rules:
        raise unknown("policy", name, BASELINES)
    return Scripted(rules[name])


class Scripted:
    """A rule in the place of a policy."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def begin(self, num_steps: int) -> None:
        """Rules remember nothing."""

    def act(self, obs: np.ndarray, masks: np.ndarray | None) -> Decision:
        """What the rule does."""
        none = np.zeros(len(obs), np.float32)
        return Decision(self._rule(obs), none, none, np.zeros(len(obs), np.int32))

    def value(self, obs: np.ndarray) -> np.ndarray:
        """A rule expects nothing."""
        return np.zeros(len(obs), np.float32)

    def observations(self) -> tuple[np.ndarray, np.ndarray | None]:
        """A rule keeps nothing."""
        return np.empty(0), None
