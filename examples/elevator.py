"""The same elevator as a compiled world: a record, five rules, and the world they make."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import redline
from redline import put, rule, uniform

FLOORS, CROWD, UP, DOWN, OPEN = 5, 6, 0, 1, 2
RECORD = np.dtype([
    ("rng", np.uint64),  # the env's own random stream
    ("floor", np.int8),
    ("riding", np.int8, FLOORS),  # how many want to go to each floor
    ("waiting", np.int8, (FLOORS, FLOORS)),  # how many wait on each floor, by where they want to go
    ("origin", np.int8), ("target", np.int8),  # who comes next: what chance decides
])  # fmt: skip
SEEN = redline.packed({"floor": FLOORS - 1} | {f"{what} {k}": 1 for what in ("call", "button") for k in range(FLOORS)})
PLACES = SEEN.places


class Settings(NamedTuple):
    rate: float


@rule
def begin(env, settings):
    env.floor, env.riding[:], env.waiting[:] = 0, 0, 0


@rule
def chance(env, settings):
    env.origin, env.target = -1, 0
    if uniform(env) < settings.rate:
        upstairs = 1 + int(uniform(env) * (FLOORS - 1))
        env.origin, env.target = (0, upstairs) if uniform(env) < 0.5 else (upstairs, 0)


@rule
def play(env, action, settings):
    if action == OPEN:
        env.riding[env.floor] = 0
        for target in range(FLOORS):
            env.riding[target] += env.waiting[env.floor, target]
            env.waiting[env.floor, target] = 0
    else:
        env.floor += 1 if action == UP else -1
    if env.origin >= 0:
        env.waiting[env.origin, env.target] += 1
    overcrowded = env.origin >= 0 and env.waiting[env.origin].sum() > CROWD
    return -(env.waiting.sum() + env.riding.sum() + (500 if overcrowded else 0)) / 10, overcrowded


@rule
def observe(env, settings, obs, i):
    put(obs, i, PLACES, 0, env.floor)
    for floor in range(FLOORS):
        put(obs, i, PLACES, 1 + floor, env.waiting[floor].sum() > 0)
        put(obs, i, PLACES, 1 + FLOORS + floor, env.riding[floor] > 0)


@rule
def allow(env, settings, mask, i):
    mask[i, UP], mask[i, DOWN] = env.floor < FLOORS - 1, env.floor > 0
    mask[i, OPEN] = env.riding[env.floor] > 0 or env.waiting[env.floor].sum() > 0


@dataclass(frozen=True)
class Options:
    rate: float = 0.3
    """How likely somebody comes in a step."""
    max_steps: int = 200
    """Steps of an episode."""


def rules(options):
    return redline.Rules(
        RECORD, 3, SEEN, begin, play, observe, allow, chance, Settings(options.rate), options.max_steps,
        action_names=("up", "down", "open"),
    )  # fmt: skip


WORLD = redline.rules_world("elevator", "One car, five floors: move, or open the doors", rules, Options)
