"""Simple teams of defenders to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from redline.compiled.rng import actor_seed
from redline.errors import unknown
from redline.worlds.cage4.env import SLEEPS
from redline.worlds.cage4.rules.observe import ZONE_NUMBERS
from redline.worlds.cage4.rules.remembered import (
    ALERT,
    CREATED_1,
    ENTERED_1,
    REMOVES,
    RESTORES,
    SOURCE_1,
    STALEST,
    WAIT,
    place_since,
)
from redline.worlds.cage4.rules.scenario import (
    ALLOW,
    BLOCK,
    BLUE_TABLE,
    BLUE_ZONES,
    BY_NAME,
    DEPLOY,
    MOST_ACTIONS,
    NUM_BLUE,
    NUM_ZONES,
    REMOVE,
    RESTORE,
    SLOTS,
    EnterpriseOptions,
)
from redline.worlds.team import pick_allowed

Team = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Actions int64 [N, 5] of a team, from observations [N, 5, …], masks [N, 5, actions] and who acts, bool [N, 5]."""

_FIRST = np.array([[int(np.argmax(BLUE_TABLE[b, :, 0] == kind)) for kind in range(8)] for b in range(NUM_BLUE)])
"""The first action of each kind, by agent."""


def sleep(obs: np.ndarray, masks: np.ndarray, acting: np.ndarray) -> np.ndarray:
    """Do nothing."""
    return np.tile(np.array(SLEEPS, np.int64), (len(obs), 1))


def random_team(seed: int) -> Team:
    """Any action that means something, each as likely."""
    random = np.random.default_rng(seed)
    return lambda obs, masks, acting: pick_allowed(masks, random)


def repairing_team(seed: int) -> Team:
    """Remove, Restore or DeployDecoy on any host, each as likely."""
    random = np.random.default_rng(seed)
    repairs = np.isin(BLUE_TABLE[:, :, 0], (REMOVE, RESTORE, DEPLOY))
    return lambda obs, masks, acting: pick_allowed(masks & repairs, random)


def reacting_team(seed: int) -> Team:
    """Restore or Remove where a process or traffic was noticed; else put traffic right, or deploy a decoy."""
    random = np.random.default_rng(seed)

    def act(obs: np.ndarray, masks: np.ndarray, acting: np.ndarray) -> np.ndarray:
        return np.stack([_react(b, obs[:, b], masks[:, b], random) for b in range(NUM_BLUE)], axis=1)

    return act


def _react(b: int, obs: np.ndarray, masks: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """What one agent of every env does, int64 [N]."""
    zones = obs[:, 1 : 1 + ZONE_NUMBERS * len(BLUE_ZONES[b])].reshape(len(obs), -1, ZONE_NUMBERS)
    _, blocked, policy, created, connected = np.split(zones, np.cumsum([NUM_ZONES] * 3 + [SLOTS]), axis=2)
    created, connected = (events.reshape(len(obs), -1) != 0 for events in (created, connected))
    chance, coin = random.random(len(obs)), random.random(len(obs))
    deploys = np.where(BLUE_TABLE[b, :, 0] == DEPLOY, masks, False)
    actions = pick_allowed(deploys[:, None], random)[:, 0]
    wrong, road = _wrong_roads(b, blocked, policy), np.zeros(len(obs), np.int64)
    if wrong.any():
        road = pick_allowed(wrong[:, None], random)[:, 0]
    actions = np.where(wrong.any(axis=1) & (chance < 0.5), road, actions)
    noticed, kind = pick_allowed(connected[:, None], random)[:, 0], np.where(coin < 0.5, REMOVE, RESTORE)
    actions = np.where(connected.any(axis=1) & (random.random(len(obs)) < 0.6), _FIRST[b, kind] + noticed, actions)
    noticed, kind = pick_allowed(created[:, None], random)[:, 0], np.where(coin < 0.7, RESTORE, REMOVE)
    return np.asarray(np.where(created.any(axis=1), _FIRST[b, kind] + noticed, actions))


def _wrong_roads(b: int, blocked: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Actions bool [N, 242] that put traffic right: allow what should not be blocked, block what should be."""
    wrong = np.zeros((len(blocked), MOST_ACTIONS), np.bool_)
    for k, zone in enumerate(BLUE_ZONES[b]):
        others = [rank for rank, other in enumerate(BY_NAME) if other != zone]
        is_blocked, should_be = blocked[:, k, others] != 0, policy[:, k, others] != 0
        for kind, which in ((ALLOW, is_blocked & ~should_be), (BLOCK, ~is_blocked & should_be)):
            first = _FIRST[b, kind] + k * len(others)
            wrong[:, first : first + len(others)] = which
    return wrong


ON_ALERT = np.array([10, 60, 10, 60, 10])
"""Steps that each defender stays on the alert after a break-in: longer in the operational zones, where Red costs most."""
STALE = np.array([20, 100, 20, 100, 20])
"""Steps after which it then restores a host of users again."""


def respond(rows: np.ndarray, masks: np.ndarray, acting: np.ndarray) -> np.ndarray:
    """What a careful defender does that remembers; it sees the stored rows of the face memory.

    Restore the host broken into last, then the one it was done from; Remove where a process began; and for some time after
    a break-in restore one host of users after the other.
    """
    alert, stale = rows[..., ALERT] <= ON_ALERT, place_since(rows, STALEST) > STALE
    wishes = (
        (masks[..., RESTORES + ENTERED_1], RESTORES + ENTERED_1),
        (masks[..., RESTORES + SOURCE_1], RESTORES + SOURCE_1),
        (masks[..., REMOVES + CREATED_1], REMOVES + CREATED_1),
        (alert & stale, RESTORES + STALEST),
    )
    actions = np.select([when for when, _ in wishes], [action for _, action in wishes], WAIT)
    return np.where(acting, actions, WAIT)


BASELINES = ("sleep", "random", "react", "repair", "respond")
FACES_OF = {"respond": "memory"}
"""What a simple team sees, where that is not what the original shows."""


def make_baseline(name: str, seed: int) -> Team:
    """The team of that name, to act in envs that are seeded by `seed`."""
    if name not in BASELINES:
        raise unknown("policy", name, BASELINES)
    makers = {"random": random_team, "react": reacting_team, "repair": repairing_team}
    ready = {"sleep": sleep, "respond": respond}
    return ready[name] if name in ready else makers[name](actor_seed(seed))


def options_for(name: str, options: EnterpriseOptions) -> EnterpriseOptions:
    """The options under which the team of that name plays."""
    return replace(options, face=FACES_OF.get(name, "flat"))
