"""Tries the engines that can run an env for a second or two each, in turns, and says which is fastest and why."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redline.engines import BASELINE, ENGINES, Collecting, Engine, engines_to_try, make_engine
from redline.engines.spec import EnvDescription
from redline.errors import RedlineError
from redline.processes import TimeUp, time_limit
from redline.rollout import Acting
from redline.threads import cores
from redline.timing.stopwatch import Stopwatch

TRIAL_SECONDS = 1.5
TRIAL_LIMIT = 10.0
"""Seconds after which an engine that has shown nothing is given up."""
PROBE_SECONDS, PROBE_LIMIT = 0.3, 5.0
AS_GOOD = 0.97  # of the best, for a simpler engine to be taken
MOST_WAITING_WORKERS = 64
TOO_LATE = f"came to no end within {TRIAL_LIMIT:g} s"

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
    rates = _in_turns(trial, [name for name in ENGINES if name in engines_to_try(collecting.ray_address)], say)
    other = "not tried: it is for other machines (--ray-address)"
    trials = [rates.get(name, Trial(name, 0.0, other)) for name in ENGINES]
    best = _best(trials)
    needed = workers if ENGINES[best.engine].has_workers else 0
    return Choice(best.engine, needed, trials, _why(best, trials, probe, needed))


def _in_turns(trials: _Trials, names: Sequence[str], say: Callable[[str], None]) -> dict[str, Trial]:
    """The better of two trials of every engine, once there and once back: who was disturbed once is not the slower one."""
    found: dict[str, Trial] = {}
    for name in names:
        say(f"Trying engine {name} …")
        found[name] = trials.run(name)
    for name in reversed(names):
        if found[name].steps_per_second:
            found[name] = max(found[name], trials.run(name), key=lambda trial: trial.steps_per_second)
    return found


def _best(trials: Sequence[Trial]) -> Trial:
    """The fastest, or a simpler one that is as good."""
    top = max(trials, key=lambda trial: trial.steps_per_second)
    if not top.steps_per_second:
        late = next((trial for trial in trials if trial.note == TOO_LATE and ENGINES[trial.engine].has_workers), None)
        if late is not None:  # a step takes seconds: whoever takes several at once is the one to have
            return late
        raise RedlineError(f"No engine can run this env. {trials[0].engine}: {trials[0].note}")
    good = [trial for trial in trials if trial.steps_per_second >= AS_GOOD * top.steps_per_second]
    return min(good, key=lambda trial: ENGINES[trial.engine].rank)


def _why(best: Trial, trials: Sequence[Trial], probe: Probe, workers: int) -> str:
    base = next((trial.steps_per_second for trial in trials if trial.engine == BASELINE), 0.0)
    ratio = f", {best.steps_per_second / base:.1f} x {BASELINE}" if base and best.engine != BASELINE else ""
    cost = f"a step of one env costs {spelled(probe.seconds)}"
    if probe.waits:
        cost += f" and waits for {1 - probe.cpu_seconds / probe.seconds:.0%} of it"
        if workers:
            cost += f", so there are {workers} workers on {cores()} cores"
    if not best.steps_per_second:
        late = f"no engine came to an end within {TRIAL_LIMIT:g} s"
        return f"Taking {best.engine}: {late}, and its workers step at the same time."
    return f"Taking {best.engine}: {best.steps_per_second:,.0f} steps/s{ratio}; {cost}."


def spelled(seconds: float) -> str:
    """A short time in words."""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _probe(env: str, options: dict[str, Any], collecting: Collecting, policy_for: PolicyFor) -> Probe:
    """Step one env for a moment."""
    patient = dataclasses.replace(collecting, faults=dataclasses.replace(collecting.faults, step_deadline=0.0))
    engine: Engine | None = None
    try:
        with time_limit(PROBE_LIMIT):
            engine = make_engine(BASELINE, env, 1, 0, options, patient)
            return _stepped(engine, policy_for(engine.env, 1))
    except TimeUp:
        return Probe(PROBE_LIMIT, PROBE_LIMIT)
    finally:
        if engine is not None:
            engine.close()


def _stepped(engine: Engine, policy: Acting) -> Probe:
    engine.collect(policy, 1, Stopwatch())
    engine.times.lap()
    started = time.perf_counter()
    cpu_before = time.process_time()
    steps = 0
    while time.perf_counter() - started < PROBE_SECONDS:
        engine.collect(policy, 1, Stopwatch())
        steps += 1
    wall = time.perf_counter() - started
    cpu = time.process_time() - cpu_before
    waited = max(0.0, wall - cpu)  # in the env: our own part never waits
    computed = cpu * float(engine.times.busy_seconds.sum()) / wall
    return Probe((waited + computed) / steps, computed / steps)


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
        """Measure one engine, within a time limit."""
        engine: Engine | None = None
        try:
            with time_limit(TRIAL_LIMIT):
                engine = make_engine(name, self._env, self.num_envs, 0, self._options, self._collecting)
                return Trial(name, self._rate(engine))
        except TimeUp:
            return Trial(name, 0.0, TOO_LATE)
        except RedlineError as error:
            return Trial(name, 0.0, str(error).split("\n")[0])
        finally:
            if engine is not None:
                engine.close()

    def _rate(self, engine: Engine) -> float:
        policy = self._policy_for(engine.env, self.num_envs)
        engine.collect(policy, 1, Stopwatch())
        started, steps = time.perf_counter(), 0
        while True:
            steps += engine.collect(policy, self.num_steps, Stopwatch()).num_steps
            spent = time.perf_counter() - started
            if spent >= self._seconds / 2:  # there are two turns
                return steps / spent
