"""The envs that a process holds: all that can be done with them, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from redline.engines.faults import Failure
from redline.engines.spec import Snapshot, Spaces
from redline.engines.workers.step_buffers import StepBuffers


class StepTimes(NamedTuple):
    """Nanoseconds a group of envs was at work."""

    step: int
    reset: int
    slowest: int  # of the single steps and resets
    began: int = 0  # on the clock that all processes share

    def plus(self, other: StepTimes) -> StepTimes:
        """Both together, which began at no one time."""
        return StepTimes(self.step + other.step, self.reset + other.reset, max(self.slowest, other.slowest))


Info = dict[str, Any]  # Gymnasium's: whatever an env wants to say


class EnvInfo(NamedTuple):
    """The infos of one env, of the present step and of the last step of an episode that has just ended."""

    env: int
    info: Info
    final: Info


class StepReport(NamedTuple):
    """The outcome of a step or a reset, besides what stands in the buffers."""

    times: StepTimes
    failures: list[Failure]
    metrics: dict[str, np.ndarray]  # [envs of the group], of episodes that ended, where envs tell any
    infos: list[EnvInfo]


class HeldEnvs(Protocol):
    """Envs in one process. A `place` is an env's number in the group, `ids` are their numbers in the engine."""

    ids: list[int]

    @property
    def buffers(self) -> StepBuffers:
        """The arrays in use."""

    def make(self, seed: int | None, place: int = 0) -> Spaces:
        """The spaces of the envs, after making the one at `place`."""

    def use(self, buffers: StepBuffers, spaces: Spaces) -> None:
        """From now on write into these arrays."""

    def reset(self, places: Sequence[int], seeds: Sequence[int | None], options: Info | None = None) -> StepReport:
        """Begin new episodes in some of the envs."""

    def step(self, places: Sequence[int]) -> StepReport:
        """Play one step in some of the envs, with the actions of the buffers. Ended episodes begin again at once."""

    def snapshot(self) -> Snapshot | None:
        """The state of the envs, if they can tell."""

    def restore(self, snapshot: Snapshot) -> np.ndarray:
        """Put the envs into a state they were in; returns the observations of then."""

    def close(self) -> None:
        """Close all envs."""
