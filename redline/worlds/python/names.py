"""What the numbers of well-known Gymnasium envs stand for, so that an episode can be read."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium as gym


class SpaceNames(NamedTuple):
    """Names of actions, and of the numbers of an observation; empty where nobody knows them."""

    actions: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()


_COMPASS = ("left", "down", "right", "up")
_LANDER = ("x", "y", "x velocity", "y velocity", "angle", "angular velocity", "left leg touches", "right leg touches")
_JOINTS = ("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "velocity 1", "velocity 2")
KNOWN = {
    "Acrobot": SpaceNames(("torque −1", "no torque", "torque +1"), _JOINTS),
    "Blackjack": SpaceNames(("stick", "hit")),
    "CartPole": SpaceNames(
        ("push left", "push right"), ("cart position", "cart velocity", "pole angle", "pole angular velocity")
    ),
    "CliffWalking": SpaceNames(("up", "right", "down", "left")),
    "FrozenLake": SpaceNames(_COMPASS),
    "FrozenLake8x8": SpaceNames(_COMPASS),
    "LunarLander": SpaceNames(("nothing", "left engine", "main engine", "right engine"), _LANDER),
    "LunarLanderContinuous": SpaceNames((), _LANDER),
    "MountainCar": SpaceNames(("push left", "coast", "push right"), ("position", "velocity")),
    "MountainCarContinuous": SpaceNames((), ("position", "velocity")),
    "Pendulum": SpaceNames((), ("cos angle", "sin angle", "angular velocity")),
    "Taxi": SpaceNames(("south", "north", "east", "west", "pick up", "drop off")),
}


def names_of(env: gym.Env) -> SpaceNames:
    """Names that an env has itself, as `action_names` and `observation_names`; else those that are well known."""
    known = KNOWN.get("" if env.spec is None else env.spec.name, SpaceNames())
    actions = _own(env, "action_names") or _meanings(env) or known.actions
    return SpaceNames(actions, _own(env, "observation_names") or known.observations)


def _own(env: gym.Env, attribute: str) -> tuple[str, ...]:
    """An attribute of the env, or of what its wrappers are wrapped around."""
    return tuple(getattr(env, attribute, ()) or getattr(env.unwrapped, attribute, ()))


def _meanings(env: gym.Env) -> tuple[str, ...]:
    """What Atari games call their actions."""
    tell = getattr(env.unwrapped, "get_action_meanings", None)
    return tuple(str(name).lower() for name in tell()) if callable(tell) else ()
