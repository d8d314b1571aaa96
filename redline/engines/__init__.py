"""Ways to collect experience, looked up by name."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

from redline.engines.engine import Engine, EngineKind, EngineSetup
from redline.engines.faults import Faults
from redline.engines.fused import fused_or_lockstep
from redline.engines.lockstep import in_one_call, in_workers, lockstep_kind, one_after_another
from redline.engines.pool import make_pool
from redline.engines.ray import make_ray
from redline.engines.ready import Ready
from redline.engines.settings import Collecting
from redline.engines.spec import Spec
from redline.errors import RedlineError, unknown
from redline.worlds.registry import world_of

__all__ = [
    "AUTO",
    "BASELINE",
    "ENGINES",
    "Collecting",
    "Engine",
    "EngineKind",
    "EngineSetup",
    "Faults",
    "engines_to_try",
    "make_engine",
    "require_engine",
    "vector",
]

ENGINES: dict[str, EngineKind] = {
    "serial": lockstep_kind(
        one_after_another, "envs stepped one after another in this process: the honest baseline", rank=1
    ),
    "vector": EngineKind(
        fused_or_lockstep,
        "all envs in this process; compiled worlds play on, or step by one call",
        rank=0,
        step_together=in_one_call,
    ),
    "pipes": lockstep_kind(
        in_workers("pipes"), "worker processes in lockstep, arrays through pipes", rank=3, has_workers=True
    ),
    "shared": lockstep_kind(
        in_workers("shared"), "worker processes in lockstep, arrays in shared memory", rank=2, has_workers=True
    ),
    "ready": EngineKind(
        Ready, "acts for whichever envs have finished; nobody waits for the slowest", rank=5, has_workers=True
    ),
    "pool": EngineKind(make_pool, "processes that play whole episodes by themselves", rank=4, has_workers=True),
    "ray": EngineKind(
        make_ray, "the same as Ray actors, on this machine or a cluster", rank=6, has_workers=True, needs_address=True
    ),
}
BASELINE = "serial"
"""The engine that the others are compared with."""
AUTO = "auto"
"""Asks for the engine that is fastest here."""


def require_engine(name: str) -> EngineKind:
    """The engine of that name."""
    if name not in ENGINES:
        raise unknown("engine", name, [*ENGINES, AUTO])
    return ENGINES[name]


def engines_to_try(address: str | None) -> list[str]:
    """The engines worth trying when nobody names any: those for other machines only where an address is given."""
    return [name for name, kind in ENGINES.items() if address is not None or not kind.needs_address]


def make_engine(
    name: str,
    env: str,
    num_envs: int,
    seed: int,
    options: dict[str, Any] | None = None,
    collecting: Collecting | None = None,
) -> Engine:
    """The engine called `name`, over `num_envs` copies of `env`."""
    kind = require_engine(name)
    if num_envs < 1:
        raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
    if agents := world_of(env).agents:
        raise RedlineError(
            f"{env} is played by a team of {len(agents)}, and engines step envs of one. Try another env."
        )
    if collecting is not None and collecting.faults.step_deadline and not kind.has_workers:
        raise RedlineError(
            f"--step-deadline cannot be kept by engine {name}: an env that hangs in this process hangs all of it. "
            "Try --engine shared."
        )
    return kind.make(EngineSetup(Spec.of(env, options or {}), num_envs, seed, collecting or Collecting()))


def vector(
    env: str,
    num_envs: int,
    engine: str = "shared",
    *,
    workers: int = 0,
    seed: int | None = None,
    faults: Faults | None = None,
    infos: bool = True,
    **options: Any,
) -> VectorEnv:
    """Envs as a plain `gymnasium.vector.VectorEnv` for any learner: `engine` is serial, vector, pipes or shared.

    Ended episodes begin again in the same step (AutoresetMode.SAME_STEP). An env that fails is restarted as `faults`
    says, and shows as a truncated episode in `infos["lost"]`. With `infos=False` the envs' own infos stay where they are.
    """
    if num_envs < 1:
        raise RedlineError(f"{num_envs} envs cannot be stepped. Try 8.")
    collecting = Collecting(workers=workers, faults=faults or Faults())
    setup = EngineSetup(Spec.plain(env, options), num_envs, seed, collecting, infos, copy=True)
    if engine not in ENGINES:
        raise unknown("engine", engine, [name for name, kind in ENGINES.items() if kind.is_lockstep])
    step_together = ENGINES[engine].step_together
    if step_together is None:
        raise RedlineError(
            f"The engine {engine!r} does not step its envs together, so it is no vector env. Try engine='shared'."
        )
    return step_together(setup)
