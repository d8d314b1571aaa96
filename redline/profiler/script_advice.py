"""What would make somebody's own training script faster, with an estimate by Amdahl's law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redline.profiler.advise import WORTH_SAYING, amdahl
from redline.profiler.foreign import ScriptProfile
from redline.threads import cores

ENVS_PER_FORWARD = 8
"""Envs that one forward pass should serve: it costs hardly more than for one."""
LEAST_SECONDS = 0.01
"""Of work, imports aside: shares of less than that say nothing about a real run."""


@dataclass(frozen=True)
class ScriptAdvice:
    """A suggestion: what takes the time, what to do about it, and what that should give."""

    share: float
    what: str
    do: str
    estimate: float
    """Times faster, all in all."""

    def __str__(self) -> str:
        return f"{self.what} is {self.share:.0%}: {self.do}: expected {self.estimate:.1f}x"


def advise_script(found: ScriptProfile) -> list[ScriptAdvice]:
    """Suggestions worth making, best first. Imports are no part of the shares: they happen once."""
    if found.working_seconds < LEAST_SECONDS:
        return []
    every = [*_envs(found), *_forward(found)]
    return sorted((each for each in every if each.estimate >= WORTH_SAYING), key=lambda each: -each.estimate)


def share_of(found: ScriptProfile, *names: str) -> float:
    """The share of some spans in the run without its imports."""
    working = found.working_seconds
    return sum(found.breakdown.seconds.get((name,), 0.0) for name in names) / working if working else 0.0


def envs_per_call(found: ScriptProfile) -> float:
    """Envs that one call steps, on average."""
    calls = found.breakdown.calls.get(("env_step",), 0)
    return found.env_steps / calls if calls else 0.0


def _envs(found: ScriptProfile) -> Iterator[ScriptAdvice]:
    share = share_of(found, "env_step", "env_reset")
    if found.env_steps and cores() > 1:
        do = "put your envs on redline.vector(…, 'shared')"
        yield ScriptAdvice(share, "env.step", do, amdahl(share, cores()))


def _forward(found: ScriptProfile) -> Iterator[ScriptAdvice]:
    envs, share = envs_per_call(found), share_of(found, "policy_forward")
    if 0 < envs < ENVS_PER_FORWARD:
        do = f"step {ENVS_PER_FORWARD} envs at once instead of {envs:.0f}, so that one forward serves them all"
        yield ScriptAdvice(share, "the policy's forward pass", do, amdahl(share, ENVS_PER_FORWARD / envs))
