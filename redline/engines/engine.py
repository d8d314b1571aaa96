"""All that an engine is to those who use it, and all that must be known of one before it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gymnasium.vector import VectorEnv

from redline.engines.faults import Supervisor
from redline.engines.settings import Collecting
from redline.engines.spec import EnvDescription, Snapshot, Spec
from redline.rollout import Acting, Rollout
from redline.timing.stopwatch import Stopwatch
from redline.timing.workers import WorkerTimes


class Engine(Protocol):
    """Turns envs and a policy into rollouts."""

    @property
    def env(self) -> EnvDescription:
        """All that a policy must know about the envs."""

    @property
    def faults(self) -> Supervisor:
        """The account of envs that failed: restarts, lost episodes, and who was dropped."""

    @property
    def times(self) -> WorkerTimes:
        """The account of how long envs, or the workers that hold them, were at work."""

    @property
    def num_workers(self) -> int:
        """Processes that envs are stepped in; 1 where it is this one."""

    @property
    def plan(self) -> str:
        """The work of its workers in words; empty where it has none."""

    def collect(self, policy: Acting, num_steps: int, watch: Stopwatch) -> Rollout:
        """`num_steps` steps of every env; engines that play whole episodes add what is left of the last."""

    def snapshot(self) -> Snapshot | None:
        """Everything needed to go on from here, if the envs can tell."""

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot that an engine of this kind has made."""

    def close(self) -> None:
        """Let go of envs, processes and memory. Closing twice is fine."""


@dataclass(frozen=True)
class EngineSetup:
    """All that an engine is made from."""

    spec: Spec
    num_envs: int
    seed: int | None  # None takes one that nobody has had
    collecting: Collecting
    infos: bool = False  # whether the envs' own infos are wanted
    copy: bool = False  # whether whoever steps the envs may keep the arrays

    @property
    def num_workers(self) -> int:
        """Worker processes, for the engines that have them."""
        return self.collecting.num_workers(self.num_envs)

    @property
    def first_seed(self) -> int:
        """The seed, where there must be one."""
        assert self.seed is not None
        return self.seed

    def supervisor(self) -> Supervisor:
        """Watches over the envs of an engine that steps them itself."""
        return Supervisor(self.collecting.faults, self.num_envs, self.first_seed)


@dataclass(frozen=True)
class EngineKind:
    """A way to collect: how to make an engine of it, and what it is."""

    make: Callable[[EngineSetup], Engine]
    about: str
    rank: int
    """Its place among all engines, simplest first: of engines that are as fast as each other, the simplest is taken."""
    has_workers: bool = False
    """Whether envs live in worker processes; only these can be ended by a deadline."""
    step_together: Callable[[EngineSetup], VectorEnv] | None = None
    """How to make envs that step together, for an engine in lockstep; others have none."""
    needs_address: bool = False
    """Whether it is for other machines: it is then tried unasked only where the address of a cluster is given."""

    @property
    def is_lockstep(self) -> bool:
        """Whether all envs step together, so that equal seeds give equal rollouts."""
        return self.step_together is not None
