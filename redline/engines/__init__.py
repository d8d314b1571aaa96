"""Ways to collect experience, looked up by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from redline.engines.lockstep import Lockstep
from redline.envs import ENVS, make_env
from redline.errors import RedlineError, unknown
from redline.rollout import Acting, Rollout
from redline.timing.stopwatch import Stopwatch


class Engine(Protocol):
    """Turns envs and a policy into rollouts."""

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env."""

    def close(self) -> None:
        """Let go of envs, processes and memory."""


def _vector(env: str, num_envs: int, seed: int, options: dict[str, Any]) -> Lockstep:
    """Lockstep over all envs in this process; for our own simulators that is one kernel call a step."""
    packed = {"packed": True} if env in ENVS else {}
    return Lockstep(make_env(env, num_envs, **options, **packed), seed)


ENGINES: dict[str, Callable[[str, int, int, dict[str, Any]], Lockstep]] = {"vector": _vector}


def make_engine(name: str, env: str, num_envs: int, seed: int, options: dict[str, Any]) -> Lockstep:
    """The engine called `name`, over `num_envs` copies of `env`."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if num_envs < 1:
        raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
    return ENGINES[name](env, num_envs, seed, options)
