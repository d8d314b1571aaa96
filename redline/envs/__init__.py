"""Gymnasium faces of the simulators, looked up by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from redline.envs.cage2 import Cage2VectorEnv
from redline.envs.petri import PREFIX, PetriVectorEnv
from redline.errors import RedlineError, unknown
from redline.sims.cage2.scenario import Scenario


@dataclass(frozen=True)
class EnvKind:
    """An env Redline ships: how to make it and which options it takes."""

    make: Callable[..., VectorEnv]
    options: type
    about: str


ENVS: dict[str, EnvKind] = {
    "cage2": EnvKind(
        Cage2VectorEnv, Scenario, "CAGE Challenge 2: defend a network of 13 hosts against Red (52 bits, 145 actions)"
    ),
}


def make_env(name: str, num_envs: int = 1, **options: Any) -> VectorEnv:
    """`num_envs` copies of an env that step together, as a `gymnasium.vector.VectorEnv`.

    `name` is one of `ENVS`, a net such as `petri:cluster/J-0?wafers=12`, or a Gymnasium id. Ended episodes begin again
    in the same step.
    """
    if num_envs < 1:
        raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
    if name in ENVS:
        return _with_options(name, num_envs, options)
    if name.startswith(PREFIX):
        return PetriVectorEnv(num_envs, name, **options)
    if name in gym.registry or ":" in name:
        return _gymnasium_env(name, num_envs, options)
    raise unknown("env", name, [*ENVS, *(["CartPole-v1", "Acrobot-v1"] if "-v" in name else [])])


def _with_options(name: str, num_envs: int, options: dict[str, Any]) -> VectorEnv:
    try:
        return ENVS[name].make(num_envs, **options)
    except TypeError as error:
        fields = ENVS[name].options.__dataclass_fields__  # type: ignore[attr-defined]
        wrong = [option for option in options if option not in fields and option not in ("turbo", "packed", "scenario")]
        if wrong:
            raise unknown(f"{name} option", wrong[0], [*fields, "turbo", "packed"]) from error
        raise


def _gymnasium_env(name: str, num_envs: int, options: dict[str, Any]) -> VectorEnv:
    def make() -> gym.Env:
        return gym.make(name, **options)

    try:
        return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise RedlineError(f"The env {name!r} cannot be made: {error}") from error


gym.register(
    "redline/Cage2-v0",
    entry_point="redline.envs.cage2:Cage2Env",
    vector_entry_point="redline.envs.cage2:Cage2VectorEnv",
    # the env ends its own episodes after max_steps, which gym.make would otherwise not know of
)
gym.register(
    "redline/Petri-v0",
    entry_point="redline.envs.petri:PetriEnv",
    vector_entry_point="redline.envs.petri:PetriVectorEnv",
)
