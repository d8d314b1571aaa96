"""Ways to collect experience, looked up by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium.vector import VectorEnv

from redline.engines.episodes import Episodes
from redline.engines.faults import Faults, Supervisor
from redline.engines.lockstep import Lockstep
from redline.engines.pool import Processes
from redline.engines.ready import Ready
from redline.engines.settings import Collecting, worker_plan
from redline.engines.slots import Face, Spec
from redline.engines.vectors import SerialVectorEnv, WorkerVectorEnv
from redline.errors import RedlineError, unknown
from redline.rollout import Acting, Rollout
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes

__all__ = ["ENGINES", "Collecting", "Engine", "Faults", "make_engine", "vector"]


class Engine(Protocol):
    """Turns envs and a policy into rollouts."""

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env; engines that play whole episodes add what is left of the last."""

    def snapshot(self) -> dict[str, Any] | None:
        """Everything needed to go on from here, if the envs can tell."""

    def close(self) -> None:
        """Let go of envs, processes and memory."""


@dataclass(frozen=True)
class Plan:
    """What an engine is made from."""

    spec: Spec
    num_envs: int
    seed: int
    collecting: Collecting

    @property
    def num_workers(self) -> int:
        """Worker processes, for the engines that have them."""
        return self.collecting.num_workers(self.num_envs)

    def supervisor(self) -> Supervisor:
        """Watches over the envs of an engine that steps them itself."""
        return Supervisor(self.collecting.faults, self.num_envs, self.seed)


@dataclass(frozen=True)
class EngineKind:
    """A way to collect: how to make it, and what it is."""

    make: Callable[[Plan], Any]
    about: str
    workers: bool = False  # whether it has worker processes


def _serial(plan: Plan) -> Lockstep:
    return Lockstep(_serial_env(plan), plan.seed)


def _serial_env(plan: Plan) -> SerialVectorEnv:
    faults = plan.collecting.faults
    return SerialVectorEnv(plan.spec, plan.num_envs, faults=faults, seed=plan.seed, infos=False, copy=False)


def _vector(plan: Plan) -> Lockstep:
    env = plan.spec.batch(plan.num_envs) if plan.spec.native else _serial_env(plan)
    return Lockstep(env, plan.seed)


def _workers(transport: str) -> Callable[[Plan], Lockstep]:
    def make(plan: Plan) -> Lockstep:
        env = WorkerVectorEnv(
            plan.spec, plan.num_envs, workers=plan.num_workers, transport=transport,
            faults=plan.collecting.faults, seed=plan.seed, infos=False, copy=False,
        )  # fmt: skip
        return _or_close(env, lambda: Lockstep(env, plan.seed))

    return make


def _ready(plan: Plan) -> Ready:
    fraction = plan.collecting.ready_fraction
    return Ready(plan.spec, plan.num_envs, plan.num_workers, plan.supervisor(), fraction)


def _pool(plan: Plan) -> Episodes:
    supervisor = plan.supervisor()
    return Episodes(Processes(plan.spec, plan.num_workers, supervisor), plan.num_envs, supervisor)


def _ray(plan: Plan) -> Episodes:
    on_ray = importlib.import_module("redline.engines.ray")
    supervisor = plan.supervisor()
    actors = on_ray.Actors(plan.spec, plan.num_workers, supervisor, plan.collecting.ray_address)
    return Episodes(actors, plan.num_envs, supervisor)


ENGINES: dict[str, EngineKind] = {
    "serial": EngineKind(_serial, "envs stepped one after another in this process: the honest baseline"),
    "vector": EngineKind(_vector, "all envs in this process; our own simulators step by one compiled call"),
    "pipes": EngineKind(_workers("pipes"), "worker processes in lockstep, arrays through pipes", True),
    "shared": EngineKind(_workers("shared"), "worker processes in lockstep, arrays in shared memory", True),
    "ready": EngineKind(_ready, "acts for whichever envs have finished; nobody waits for the slowest", True),
    "pool": EngineKind(_pool, "processes that play whole episodes by themselves", True),
    "ray": EngineKind(_ray, "the same as Ray actors, on this machine or a cluster", True),
}
AUTO = "auto"


def make_engine(
    name: str,
    env: str,
    num_envs: int,
    seed: int,
    options: dict[str, Any] | None = None,
    collecting: Collecting | None = None,
) -> Any:
    """The engine called `name`, over `num_envs` copies of `env`. Its `face` is what a policy must know of the envs."""
    if name not in ENGINES:
        raise unknown("engine", name, [*ENGINES, AUTO])
    if num_envs < 1:
        raise RedlineError(f"{num_envs} envs cannot be stepped. Try --num-envs 512.")
    if collecting is not None and collecting.faults.step_deadline and not ENGINES[name].workers:
        raise RedlineError(
            f"--step-deadline cannot be kept by engine {name}: an env that hangs in this process hangs all of it. "
            "Try --engine shared."
        )
    plan = Plan(Spec.of(env, options or {}), num_envs, seed, collecting or Collecting())
    engine = ENGINES[name].make(plan)
    return _or_close(engine, lambda: _introduce(engine, name, plan))


def _introduce(engine: Any, name: str, plan: Plan) -> Any:
    """Give an engine what every engine has besides `collect`: a face, a plan in words, an account of its workers."""
    env = getattr(engine, "env", None)
    if plan.spec.native and name == "vector":
        engine.face, engine.supervisor, engine.times = env, plan.supervisor(), WorkerTimes(1)
    else:
        holder = engine if env is None else env
        engine.face = Face(plan.spec, holder.spaces)
        engine.supervisor, engine.times = holder.supervisor, holder.times
    engine.plan = worker_plan(plan.num_workers, plan.num_envs) if ENGINES[name].workers else ""
    engine.num_workers = plan.num_workers if ENGINES[name].workers else 1
    return engine


def _or_close(thing: Any, work: Callable[[], Any]) -> Any:
    """What `work` returns; if it fails, `thing` is closed first."""
    try:
        return work()
    except BaseException:
        thing.close()
        raise


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
    spec = Spec.of(env, options)
    spec = Spec(spec.name, {name: value for name, value in spec.options.items() if name != "packed" or name in options})
    faults = faults or Faults()
    if engine == "serial" or (engine == "vector" and not spec.native):
        return SerialVectorEnv(spec, num_envs, faults=faults, seed=seed, infos=infos)
    if engine == "vector":
        return spec.batch(num_envs)
    if engine in ("pipes", "shared"):
        count = Collecting(workers=workers).num_workers(num_envs)
        return WorkerVectorEnv(spec, num_envs, workers=count, transport=engine, faults=faults, seed=seed, infos=infos)
    if engine in ENGINES:
        raise RedlineError(
            f"The engine {engine!r} does not step its envs together, so it is no vector env. Try engine='shared'."
        )
    raise unknown("engine", engine, ["serial", "vector", "pipes", "shared"])
