"""How experience is collected, beside the engine's name."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from redline.engines.faults import Faults
from redline.errors import RedlineError
from redline.threads import cores


@dataclass(frozen=True)
class Collecting:
    """How experience is collected, beside the engine's name."""

    workers: Annotated[int, "--num-workers", "~--workers"] = 0
    """Worker processes of the engines that have them; 0 takes one per core, and never more than envs."""
    ready_fraction: float = 0.1
    """Engine ready: ask the policy as soon as this share of the envs still playing is ready."""
    ray_address: str | None = None
    """Engine ray: a running cluster, as host:port or auto; none starts one on this machine."""
    faults: Faults = field(default_factory=Faults)
    """How failures of envs are dealt with."""
    play_on: bool = True
    """Engine vector: let envs of a compiled world go on by themselves until they see something new. The results are the
    same without it, later."""
    play_threads: int = 0
    """Engine vector: threads that let envs play on, each its own; 0 takes as many as learn."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.workers < 0:
            raise RedlineError(f"--workers {self.workers} cannot work: it must be at least 0. Try --workers {cores()}.")
        if self.play_threads < 0:
            raise RedlineError(f"--play-threads {self.play_threads} cannot work: it must be at least 0. Try 1.")
        if not 0 < self.ready_fraction <= 1:
            raise RedlineError(
                f"--ready-fraction {self.ready_fraction:g} cannot work: it must be above 0 and at most 1. Try 0.1."
            )

    def num_workers(self, num_envs: int) -> int:
        """Workers for that many envs."""
        return min(self.workers or cores(), num_envs)


def split(ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """Consecutive parts, as even as can be."""
    edges = [round(k * len(ids) / count) for k in range(count + 1)]
    return [ids[first:last] for first, last in itertools.pairwise(edges)]


def worker_plan(num_workers: int, num_envs: int) -> str:
    """The work of the workers in words, with a warning where they would get in each other's way."""
    each = -(-num_envs // num_workers)
    count = f"{num_workers} worker{'s' * (num_workers > 1)} of one thread"
    line = f"{count} with {'up to ' * (num_envs % num_workers > 0)}{each} env{'s' * (each > 1)} each"
    if num_workers > cores():
        line += (
            f", more than the {cores()} cores: that helps envs that wait, and slows down envs that compute "
            f"(try --workers {cores()})"
        )
    return line
