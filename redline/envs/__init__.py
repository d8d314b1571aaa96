"""Gymnasium faces of the simulators, looked up by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from redline.envs.cage2 import Cage2Env, Cage2VectorEnv
from redline.envs.cyborg import make_cyborg
from redline.envs.external import make_external
from redline.envs.petri import PREFIX, PetriEnv, PetriVectorEnv
from redline.envs.slow import Slow, SlowEnv
from redline.errors import RedlineError, unknown
from redline.sims.cage2.scenario import Scenario


@dataclass(frozen=True)
class EnvKind:
    """An env Redline ships: how to make one, or many that step by one call, and which options it takes."""

    single: Callable[..., gym.Env]
    batch: Callable[..., VectorEnv] | None
    options: type
    about: str

    @property
    def batched(self) -> bool:
        """Whether many of it step by one call, as our simulators do. Those take `turbo` and `packed`, too."""
        return self.batch is not None


ENVS: dict[str, EnvKind] = {
    "cage2": EnvKind(
        Cage2Env,
        Cage2VectorEnv,
        Scenario,
        "CAGE Challenge 2: defend a network of 13 hosts against Red (52 bits, 145 actions)",
    ),
    "slow": EnvKind(SlowEnv, None, Slow, "A Python env whose steps cost what you choose, to try engines on"),
}
OTHERS = {
    "petri:cluster/J-0": "timed nets: cluster tools, job shops, PNML files; see redline envs petri",
    "CartPole-v1": "any Gymnasium id with discrete actions",
    "external:package.module:factory": "your own env: a function that returns a gymnasium.Env",
    "cyborg:B_lineAgent": "the original CAGE-2 simulator, where it is installed",
}
"""Kinds of names that are not in `ENVS`, by example."""


def make_env(name: str, num_envs: int = 1, **options: Any) -> VectorEnv:
    """`num_envs` copies of an env that step together in this process, as a `gymnasium.vector.VectorEnv`.

    `name` is one of `ENVS`, a net such as `petri:cluster/J-0`, a Gymnasium id, `external:package.module:factory` or
    `cyborg:B_lineAgent`; options may stand behind it, as in `slow?mean_ms=10`. Ended episodes begin again in the same
    step.
    """
    if num_envs < 1:
        raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
    name, options = with_query(name, options)
    kind = ENVS.get(name)
    if kind is not None and kind.batch is not None:
        return _with_options(name, kind.batch, (num_envs,), options)
    if name.startswith(PREFIX):
        return PetriVectorEnv(num_envs, name, **options)
    require_known(name)
    return SyncVectorEnv([lambda: make_single(name, **options)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def make_single(name: str, **options: Any) -> gym.Env:
    """One env, by the names that `make_env` takes."""
    name, options = with_query(name, options)
    require_known(name)
    if name in ENVS:
        return _with_options(name, ENVS[name].single, (), options)
    if name.startswith(PREFIX):
        return PetriEnv(name, **options)
    if name.startswith("external:"):
        return make_external(name, options)
    if name.startswith("cyborg:"):
        return make_cyborg(name.removeprefix("cyborg:"), **options)
    try:
        return gym.make(name, **options)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise RedlineError(f"The env {name!r} cannot be made: {error}") from error


def is_simulator(name: str) -> bool:
    """Whether it is one of our own simulators, of which many step by one compiled call."""
    return name.startswith(PREFIX) or (name in ENVS and ENVS[name].batched)


def require_known(name: str) -> None:
    """Refuse a name that nothing can come of."""
    if name not in ENVS and name not in gym.registry and ":" not in name:
        raise unknown("env", name, [*ENVS, *sorted(gym.registry)] if "-v" in name else [*ENVS, *OTHERS])


def with_query(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Take options that stand behind a name, as in `slow?mean_ms=10&wait=true`, to the others."""
    name, _, query = name.partition("?")
    given = {}
    for part in query.split("&") if query else []:
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise RedlineError(f"{part!r} behind {name!r} is not an option. Write {name}?option=value&other=value.")
        given[key] = parse_value(value)
    return name, {**given, **options}


def parse_value(text: str) -> Any:
    """A value as it is written behind a name: a number, true, false, null, a JSON list, or a word."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _with_options(name: str, make: Callable[..., Any], first: tuple[Any, ...], options: dict[str, Any]) -> Any:
    fields = ENVS[name].options.__dataclass_fields__  # type: ignore[attr-defined]
    also = ("turbo", "packed", "scenario") if ENVS[name].batched else ()
    for option in options:
        if option not in fields and option not in also:
            raise unknown(f"{name} option", option, [*fields, *also[:2]])
    return make(*first, **options)


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
