"""Tries the engines that can run an env for a second or two each, and says which is fastest and why."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redline.engines import BASELINE, ENGINES, Collecting, Engine, engines_to_try, make_engine
from redline.engines.spec import EnvDescription
from redline.errors import RedlineError
from redline.rollout import Acting
from redline.threads import cores
from redline.timing.stopwatch import Stopwatch

TRIAL_SECONDS = 1.5
PROBE_SECONDS = 0.3
AS_GOOD = 0.97  # of the best, for a simpler engine to be taken
MOST_WAITING_WORKERS = 64

PolicyFor = Callable[[EnvDescription, int], Acting]
"""Makes a policy for envs of that description, and a number of them."""


@dataclass(frozen=True)
class Trial:
    """How an engine did, or why it could not."""

    engine: str
    steps_per_second: float  # 0 where it was not measured
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """The engine to take, the workers it should have, and the trials it was chosen by."""

    engine: str
    workers: int
    trials: list[Trial]
    why: str


@dataclass(frozen=True)
class Probe:
    """The cost of one step of one env."""

    seconds: float
    cpu_seconds: float

    @property
    def waits(self) -> bool:
        """Whether the env mostly waits for something outside, so that more workers than cores pay."""
        return self.seconds > 1e-3 and self.cpu_seconds < 0.5 * self.seconds


def choose(
    env: str,
    num_envs: int,
    num_steps: int,
    options: dict[str, Any],
    collecting: Collecting,
    policy_for: PolicyFor,
    say: Callable[[str], None],
    seconds: float = TRIAL_SECONDS,
) -> Choice:
    """The engine that collects fastest here, after trying those that can run this env."""
    probe = _probe(env, options, collecting, policy_for)
    workers = collecting.num_workers(num_envs)
    if probe.waits and not collecting.workers:
        workers = min(num_envs, MOST_WAITING_WORKERS)
    trial = _Trials(
        env, num_envs, num_steps, options, dataclasses.replace(collecting, workers=workers), policy_for, seconds, probe
    )
    trials = []
    for name in ENGINES:
        if name not in engines_to_try(collecting.ray_address):
            trials.append(Trial(name, 0.0, "not tried: it is for other machines (--ray-address)"))
            continue
        say(f"Trying engine {name} …")
        trials.append(trial.run(name))
    best = _best(trials)
    needed = workers if ENGINES[best.engine].has_workers else 0
    return Choice(best.engine, needed, trials, _why(best, trials, probe, workers))


def _best(trials: Sequence[Trial]) -> Trial:
    """The fastest, or a simpler one that is as good."""
    top = max(trials, key=lambda trial: trial.steps_per_second)
    if not top.steps_per_second:
        raise RedlineError(f"No engine can run this env. {trials[0].engine}: {trials[0].note}")
    good = [trial for trial in trials if trial.steps_per_second >= AS_GOOD * top.steps_per_second]
    return min(good, key=lambda trial: ENGINES[trial.engine].rank)


def _why(best: Trial, trials: Sequence[Trial], probe: Probe, workers: int) -> str:
    base = next((trial.steps_per_second for trial in trials if trial.engine == BASELINE), 0.0)
    ratio = f", {best.steps_per_second / base:.1f} x {BASELINE}" if base and best.engine != BASELINE else ""
    cost = f"a step of one env costs {_spelled(probe.seconds)}"
    if probe.waits:
        share = 1 - probe.cpu_seconds / probe.seconds
        cost += f" and waits for {share:.0%} of it, so there are {workers} workers on {cores()} cores"
    return f"Taking {best.engine}: {best.steps_per_second:,.0f} steps/s{ratio}; {cost}."


def _spelled(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _probe(env: str, options: dict[str, Any], collecting: Collecting, policy_for: PolicyFor) -> Probe:
    """Step one env for a moment."""
    patient = dataclasses.replace(collecting, faults=dataclasses.replace(collecting.faults, step_deadline=0.0))
    engine = make_engine(BASELINE, env, 1, 0, options, patient)
    try:
        policy = policy_for(engine.env, 1)
        engine.collect(policy, 1, Stopwatch())
        engine.times.lap()
        started, cpu_before, steps = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - started < PROBE_SECONDS:
            engine.collect(policy, 1, Stopwatch())
            steps += 1
        wall = time.perf_counter() - started
        at_work = float(engine.times.busy_seconds.sum())
        outside = wall - at_work  # our own part computes and never waits
        return Probe(at_work / steps, max(0.0, time.process_time() - cpu_before - outside) / steps)
    finally:
        engine.close()


class _Trials:
    """Engines under the same conditions: as in the run, but small enough that a trial takes a moment."""

    def __init__(
        self, env: str, num_envs: int, num_steps: int, options: dict[str, Any], collecting: Collecting,
        policy_for: PolicyFor, seconds: float, probe: Probe,
    ) -> None:  # fmt: skip
        self._env, self._options, self._collecting = env, options, collecting
        self._policy_for, self._seconds = policy_for, seconds
        lanes = max(1, collecting.workers)
        affordable = max(2 * lanes, int(0.2 * seconds / max(probe.seconds, 1e-9)))
        self.num_envs = min(num_envs, affordable)
        self.num_steps = max(
            1, min(num_steps, int(seconds * min(lanes, cores()) / (self.num_envs * probe.seconds + 1e-9)))
        )

    def run(self, name: str) -> Trial:
        """Measure one engine."""
        try:
            engine = make_engine(name, self._env, self.num_envs, 0, self._options, self._collecting)
        except RedlineError as error:
            return Trial(name, 0.0, str(error).split("\n")[0])
        try:
            return Trial(name, self._rate(engine))
        except RedlineError as error:
            return Trial(name, 0.0, str(error).split("\n")[0])
        finally:
            engine.close()

    def _rate(self, engine: Engine) -> float:
        policy = self._policy_for(engine.env, self.num_envs)
        engine.collect(policy, 1, Stopwatch())
        started, steps = time.perf_counter(), 0
        while True:
            steps += engine.collect(policy, self.num_steps, Stopwatch()).num_steps
            spent = time.perf_counter() - started
            if spent >= self._seconds:
                return steps / spent
