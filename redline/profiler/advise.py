"""Suggestions that would make it faster, tied to rows of the table, with an estimate by Amdahl's law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from redline.engines import ENGINES
from redline.profiler.record import Profile
from redline.threads import cores
from redline.timing.rows import rows
from redline.worlds.registry import is_compiled

WORTH_SAYING = 1.05
"""Estimated speed-up below which nothing is suggested."""
COMPILED = 500.0
"""How much faster a compiled kernel is than the interpreted one, roughly; `redline bench sim` measures it."""
REPEATS = 5.0
"""How often an observation occurs in a rollout where looking them up pays, cautiously."""


@dataclass(frozen=True)
class Advice:
    """A suggestion: the row it is about, what to change, and what that should give."""

    row: str
    share: float
    options: str  # as on the command line
    settings: dict[str, Any]  # as in a config
    why: str
    estimate: float  # times faster, all in all

    def __str__(self) -> str:
        return (
            f"{self.row} is {self.share:.0%} of the run{self.why}: try {self.options}, estimated {self.estimate:.1f}x"
        )


def amdahl(share: float, factor: float) -> float:
    """Speed-up of the whole when `share` of it becomes `factor` times faster."""
    return 1.0 / (1.0 - share + share / factor)


def advise(profile: Profile) -> list[Advice]:
    """Suggestions worth making, best first."""
    shares = {row.name: row.share for row in rows(profile.breakdown)}
    found = [advice for rule in RULES for advice in rule(profile, lambda name: shares.get(name, 0.0))]
    return sorted((each for each in found if each.estimate >= WORTH_SAYING), key=lambda each: -each.estimate)


Share = Callable[[str], float]


def _turbo(profile: Profile, share: Share) -> Iterator[Advice]:
    config = profile.config
    if is_compiled(config.env) and not config.turbo:
        part = share("env step")
        yield Advice("env step", part, "--turbo", {"turbo": True}, " and runs interpreted", amdahl(part, COMPILED))


def _native_in_one_process(profile: Profile, share: Share) -> Iterator[Advice]:
    config = profile.config
    if is_compiled(config.env) and config.turbo and config.engine != "vector":
        part = share("env step") + share("wait / transfer") + share("env reset")
        why = " with the kernel called env by env" if config.engine == "serial" else " and the kernel needs no workers"
        yield Advice("env step", part, "--engine vector", {"engine": "vector"}, why, amdahl(part, 20.0))


def _workers(profile: Profile, share: Share) -> Iterator[Advice]:
    config = profile.config
    native = is_compiled(config.env) and config.turbo
    lanes = min(cores(), config.num_envs)
    if not native and not ENGINES[config.engine].has_workers and lanes > 1:
        part = share("env step") + share("env reset")
        why = f" and runs on one of {cores()} cores"
        yield Advice("env step", part, "--engine pool", {"engine": "pool"}, why, amdahl(part, lanes))


def _stragglers(profile: Profile, share: Share) -> Iterator[Advice]:
    lost = profile.straggler_share
    if ENGINES[profile.config.engine].is_lockstep and lost is not None and lost > 0.05:
        part = share("Data collection") * lost
        why = f", workers are {profile.busy_share or 0:.0%} busy and wait for the slowest in {lost:.0%} of the time"
        row_share = share("wait / transfer")
        yield Advice("wait / transfer", row_share, "--engine ready", {"engine": "ready"}, why, amdahl(part, 10.0))


def _pipes(profile: Profile, share: Share) -> Iterator[Advice]:
    if profile.config.engine == "pipes":
        part = max(0.0, share("wait / transfer") - share("Data collection") * (profile.straggler_share or 0.0))
        yield Advice("wait / transfer", part, "--engine shared", {"engine": "shared"}, "", amdahl(part, 2.0))


def _more_workers(profile: Profile, share: Share) -> Iterator[Advice]:
    config = profile.config
    wanted = min(cores(), config.num_envs)
    if ENGINES[config.engine].has_workers and profile.num_workers < wanted:
        part = share("env step") + share("env reset")
        factor = wanted / profile.num_workers
        why = f" on {profile.num_workers} of {cores()} cores"
        yield Advice("env step", part, f"--workers {wanted}", {"workers": wanted}, why, amdahl(part, factor))


def _dedup(profile: Profile, share: Share) -> Iterator[Advice]:
    config = profile.config
    if not config.dedup and is_compiled(config.env):
        part = share("policy forward") + share("loss") + share("backward")
        row_share = share("policy forward")
        why = f" and the training loop {share('Training loop'):.0%}, on observations that repeat"
        yield Advice("policy forward", row_share, "--dedup", {"dedup": True}, why, amdahl(part, REPEATS))


def _minibatches(profile: Profile, share: Share) -> Iterator[Advice]:
    config = profile.config
    if config.dedup and config.ppo.minibatches > 1:
        part = share("Buffer operations") + share("Training loop")
        why = f", where {config.ppo.minibatches} minibatches hide that observations repeat"
        factor = min(4.0, float(config.ppo.minibatches))
        yield Advice("Training loop", part, "--minibatches 1", {"minibatches": 1}, why, amdahl(part, factor))


def _threads(profile: Profile, share: Share) -> Iterator[Advice]:
    config = profile.config
    if config.threads == 1 and cores() > 1:
        part = share("loss") + share("backward")
        yield Advice(
            "Training loop", part, "--threads 0", {"threads": 0}, " on one thread", amdahl(part, 0.85 * cores())
        )


RULES = (
    _turbo, _native_in_one_process, _workers, _stragglers, _pipes, _more_workers, _dedup, _minibatches, _threads,
)  # fmt: skip
