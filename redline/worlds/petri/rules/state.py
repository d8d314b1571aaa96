"""The state of a net, over all envs.

Four tables of records, so that everything about one token, place or firing lies side by side in memory. All integers:
two engines can be compared bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.rng import seed_streams
from redline.worlds.petri.rules.tables import Sizes

RUNNING, DONE, SCRAPPED, DEADLOCKED, OUT_OF_TIME, OUT_OF_STEPS, LIVELOCKED, OVERFLOWED = range(8)
OUTCOMES = ("running", "done", "scrap", "deadlock", "time limit", "step limit", "livelock", "overflow")

ENV = np.dtype(
    [
        ("rng", np.uint64),  # for policies that draw; a net itself draws nothing
        ("score", np.float64),  # rewards since reset
        ("clock", np.int32),
        ("outcome", np.int32),
        ("steps", np.int32),  # decisions since reset
        ("finished", np.int32),  # tokens that reached the goal
        ("fired", np.int32),  # firings begun
        ("underway", np.int32),  # firings begun and not ended: the first so many of `firings`
        ("released", np.int32),
        ("gate_opens", np.int32),
        ("next_event", np.int32),  # what a wait goes to, as of the latest offer
        ("idle", np.int32),  # time waited since the latest firing
        ("scrapped", np.int32),  # the token that overstayed (its place where tokens are counted), NONE before
        ("gone", np.int32),  # tokens scrapped so far, where the episode goes on without them
        ("freed", np.int32),  # those of them that had been released
        ("margin_min", np.int32),  # how close to its limit a token was taken
        ("margin_sum", np.int32),
        ("margins", np.int32),
        # this step
        ("elapsed", np.int32),
        ("processing", np.int32),  # seconds, summed over tokens
        ("overstaying", np.int32),
        ("holding", np.int32),
        ("arrived", np.int32),
        ("idled", np.int32),
        ("lost", np.int32),  # tokens scrapped
        ("late", np.int32),  # seconds past deadlines, summed over tokens
    ],
    align=True,
)
TOKEN = np.dtype(
    [
        ("place", np.int32),
        ("next", np.int32),  # the token that arrived next in the same place
        ("row", np.int32),  # of the route table: what moves it next
        ("entered", np.int32),
        ("ready", np.int32),
        ("moving", np.int32),
    ],
    align=True,
)
PLACE_STATE = np.dtype(
    [
        ("marking", np.int32),
        ("moving", np.int32),  # tokens that a firing has taken but not moved yet
        ("reserved", np.int32),  # room that unfinished firings will need
        ("head", np.int32),  # the token that arrived first, and last
        ("tail", np.int32),
        ("queue_first", np.int32),  # where the queue of ready times has its oldest entry
        ("entered", np.int32),  # when the latest token arrived
        ("uses", np.int32),
        ("left", np.int32),  # tokens that left since the latest cleaning
        ("clean_until", np.int32),
        ("seconds", np.int32),  # spent processing
    ],
    align=True,
)
RESOURCE_STATE = np.dtype(
    [
        ("until", np.int32),
        ("seconds", np.int32),
        ("booked", np.int32),  # the transition it fires next, without being asked; NONE mostly
    ],
    align=True,
)
FIRING = np.dtype([("transition", np.int32), ("token", np.int32), ("ends", np.int32)], align=True)


LOGGED = np.dtype([(name, np.int32) for name in ("start", "end", "transition", "token")], align=True)


class NetState(NamedTuple):
    """All envs at once; axis 0 is the env."""

    envs: np.recarray  # ENV [N]
    tokens: np.recarray  # TOKEN [N, tokens]
    places: np.recarray  # PLACE_STATE [N, P]
    resources: np.recarray  # RESOURCE_STATE [N, R]
    firings: np.recarray  # FIRING [N, most]
    notes: np.ndarray  # int32 [N, notes]  ready times of queued tokens, a ring per place; then of cleans and gates
    log: np.recarray  # LOGGED [N, L]  the firings, while there is room


class EnvState(NamedTuple):
    """One of them, as rules see it, with the parts in the same order."""

    env: np.record  # ENV
    tokens: np.recarray  # TOKEN [tokens]
    places: np.recarray  # PLACE_STATE [P]
    resources: np.recarray  # RESOURCE_STATE [R]
    firings: np.recarray  # FIRING [most]
    notes: np.ndarray  # int32 [notes]
    log: np.recarray  # LOGGED [L]


def new_state(num_envs: int, sizes: Sizes, seed: int, log_size: int = 0) -> NetState:
    """The state of `num_envs` envs, seeded but not reset."""

    def records(dtype: np.dtype, *shape: int) -> np.recarray:
        return np.zeros((num_envs, *shape), dtype).view(np.recarray)

    state = NetState(
        envs=records(ENV),
        tokens=records(TOKEN, sizes.tokens),
        places=records(PLACE_STATE, sizes.places),
        resources=records(RESOURCE_STATE, sizes.resources),
        firings=records(FIRING, sizes.firings),
        notes=np.zeros((num_envs, sizes.notes), np.int32),
        log=records(LOGGED, log_size),
    )
    state.envs.rng = seed_streams(seed, num_envs)
    return state


def logged(state: NetState, i: int) -> np.ndarray:
    """The firings of env `i` that there was room for, int32 [firings, 4]: start, end, transition, token."""
    count = min(int(state.envs.fired[i]), state.log.shape[1])
    return np.array(state.log[i, :count].tolist(), np.int32).reshape(count, len(LOGGED.names or ()))


FINAL = np.dtype(
    [(name, ENV[name]) for name in (
        "outcome", "clock", "finished", "steps", "margin_min", "margin_sum", "margins", "scrapped", "gone",
    )],
    align=True,
)  # fmt: skip


class Finals(NamedTuple):
    """The results of the latest ended episode of each env."""

    score: np.ndarray  # float64 [N]
    counts: np.recarray  # FINAL [N]
    resource_seconds: np.ndarray  # int32 [N, R]
    place_seconds: np.ndarray  # int32 [N, P]


def new_finals(num_envs: int, sizes: Sizes) -> Finals:
    """Room for the results of `num_envs` envs."""
    return Finals(
        score=np.zeros(num_envs),
        counts=np.zeros(num_envs, FINAL).view(np.recarray),
        resource_seconds=np.zeros((num_envs, sizes.resources), np.int32),
        place_seconds=np.zeros((num_envs, sizes.places), np.int32),
    )


def no_finals() -> Finals:
    """Room for no results: for who only begins episodes."""
    return Finals(np.zeros(0), np.zeros(0, FINAL).view(np.recarray), *np.zeros((2, 0, 0), np.int32))
