"""What changes in a net, over all envs.

Four tables of records, so that everything about one token, place or firing lies side by side in memory. All integers:
two engines can be compared bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.sims.petri.tables import Sizes
from redline.sims.rng import seed_streams

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


class State(NamedTuple):
    """All envs at once; axis 0 is the env."""

    envs: np.recarray  # ENV [N]
    tokens: np.recarray  # TOKEN [N, tokens]
    places: np.recarray  # PLACE_STATE [N, P]
    resources: np.recarray  # RESOURCE_STATE [N, R]
    firings: np.recarray  # FIRING [N, most]
    queues: np.ndarray  # int32 [N, queues]  ready times of queued tokens, a ring per place; behind them notes of extras
    log: np.ndarray  # int32 [N, L, 4]  start, end, transition, token of each firing, while there is room


def new_state(num_envs: int, sizes: Sizes, seed: int, log_size: int = 0) -> State:
    """State of `num_envs` envs, seeded but not reset."""

    def records(dtype: np.dtype, *shape: int) -> np.recarray:
        return np.zeros((num_envs, *shape), dtype).view(np.recarray)

    state = State(
        records(ENV), records(TOKEN, sizes.tokens), records(PLACE_STATE, sizes.places),
        records(RESOURCE_STATE, sizes.resources), records(FIRING, sizes.firings),
        np.zeros((num_envs, sizes.queues), np.int32), np.zeros((num_envs, log_size, 4), np.int32),
    )  # fmt: skip
    state.envs.rng = seed_streams(seed, num_envs)
    return state


class Finals(NamedTuple):
    """What the latest ended episode of each env came to."""

    score: np.ndarray  # float64 [N]
    counts: np.ndarray  # int32 [N, 9]  outcome, clock, finished, steps, smallest/summed/counted margins, scrapped, gone
    resource_seconds: np.ndarray  # int32 [N, R]
    place_seconds: np.ndarray  # int32 [N, P]


def new_finals(num_envs: int, sizes: Sizes) -> Finals:
    """Room for the results of `num_envs` envs."""
    return Finals(
        np.zeros(num_envs), np.zeros((num_envs, 9), np.int32),
        np.zeros((num_envs, sizes.resources), np.int32), np.zeros((num_envs, sizes.places), np.int32),
    )  # fmt: skip
