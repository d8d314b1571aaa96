"""Every engine and its peers on the same envs, under the same policy: who is fastest, and what everybody does meanwhile.

Contestants take turns and never run side by side. For a turn a contestant is brought up, warmed up, measured, and let go:
nobody's idle processes are in anybody's way, and the memory in use is that of one contestant.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redline.bench.measure import Throughput
from redline.bench.vector_peers import VECTOR_PEERS, PeerEngine, VectorPeer
from redline.compiled.rng import actor_seed
from redline.engines import BASELINE, ENGINES, Collecting, Engine, Faults, make_engine
from redline.engines.spec import EnvDescription, Spec
from redline.errors import RedlineError
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig
from redline.learn.policy import Policy
from redline.learn.ppo import PPO
from redline.learn.train import make_policy
from redline.rollout import Rollout
from redline.threads import use_threads
from redline.timing.memory import descendants, tree_memory_mb
from redline.timing.stopwatch import Stopwatch

SCALED = ("pool", "shared")
"""Engines of the scaling table, unless others are asked for."""
PROBE_SECONDS = 0.2
SERIAL_SECONDS = 2.0
FEWEST_STEPS, MOST_STEPS = 20, 100
"""Steps of a collect, when nobody says how many: a serial one should take `SERIAL_SECONDS`."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Contest:
    """The task of every contestant."""

    env: str
    options: dict[str, Any]
    num_envs: int
    num_steps: int
    turns: int
    seconds: float
    seed: int
    collecting: Collecting

    def policy(self, env: EnvDescription) -> Policy:
        """The policy everybody acts with, fresh."""
        return make_policy(env, TrainConfig(self.env, num_envs=self.num_envs, num_steps=self.num_steps), self.seed)


@dataclass(frozen=True)
class Contestant:
    """Somebody who collects."""

    name: str
    make: Callable[[Contest], Engine]
    peer: bool
    in_process: bool  # no worker processes


def engine_contestant(name: str) -> Contestant:
    """One of our engines."""

    def make(contest: Contest) -> Engine:
        return make_engine(name, contest.env, contest.num_envs, contest.seed, contest.options, contest.collecting)

    return Contestant(name, make, peer=False, in_process=not ENGINES[name].has_workers)


def peer_contestant(name: str, peer: VectorPeer) -> Contestant:
    """Somebody else's vector env."""

    def make(contest: Contest) -> PeerEngine:
        return PeerEngine(peer, Spec.of(contest.env, contest.options), contest.num_envs, contest.seed)

    return Contestant(name, make, peer=True, in_process=not peer.processes)


def contestants(engines: Sequence[str], peers: bool) -> list[Contestant]:
    """Our engines by their names, and the peers."""
    others = [peer_contestant(name, peer) for name, peer in VECTOR_PEERS.items()] if peers else []
    return [*(engine_contestant(name) for name in engines), *others]


@dataclass(frozen=True)
class Turn:
    """The measurements of one turn. Shares are of the time of all workers; a None is something nobody can tell."""

    rate: float  # steps per second of collecting
    episodes: int  # finished
    episode_steps: int  # of the finished ones
    training_seconds: float  # of learning, per step collected
    workers: int
    busy_share: float | None
    straggler_share: float | None
    slowest_step_seconds: float | None
    memory_mb: float | None
    start_up_seconds: float  # until it could be asked to collect
    cold_seconds: float  # until its first rollout was there
    cold_rate: float  # steps per second of all that


@dataclass
class ContestResult:
    """A contestant's turns, or why there are none."""

    name: str
    peer: bool = False
    turns: list[Turn] = field(default_factory=list)
    reason: str = ""

    @property
    def rate(self) -> Throughput | None:
        """Steps per second."""
        return Throughput.of([turn.rate for turn in self.turns]) if self.turns and not self.reason else None

    @property
    def median(self) -> float:
        """Median steps per second; 0 without any."""
        rate = self.rate
        return rate.median if rate else 0.0

    def middle(self, name: str) -> float | None:
        """The median of one of a turn's values."""
        values = [getattr(turn, name) for turn in self.turns]
        known = [value for value in values if value is not None]
        return float(statistics.median(known)) if known and not self.reason else None

    @property
    def slowest_step_seconds(self) -> float | None:
        """The slowest of all turns."""
        known = [turn.slowest_step_seconds for turn in self.turns if turn.slowest_step_seconds is not None]
        return max(known) if known and not self.reason else None

    @property
    def training_share(self) -> float | None:
        """Part of an update that is learning, where the rest is collecting."""
        training = self.middle("training_seconds")
        return None if training is None else training / (training + 1 / self.median)


def require_env(contest: Contest) -> float:
    """Seconds that a step of one env costs; refuses an env that nobody could step."""
    stop = dataclasses.replace(contest.collecting, faults=Faults(on_env_error="fail"))
    try:
        engine = make_engine(BASELINE, contest.env, 1, contest.seed, contest.options, stop)
    except RedlineError as error:
        raise RedlineError(_one_line(error)) from error
    try:
        actor = Actor(contest.policy(engine.env), 1, actor_seed(contest.seed))
        engine.collect(actor, 1, Stopwatch())
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < PROBE_SECONDS:
            steps += engine.collect(actor, 1, Stopwatch()).num_steps
        return (time.perf_counter() - began) / steps
    except RedlineError as error:
        raise RedlineError(_one_line(error)) from error
    finally:
        engine.close()


def affordable_steps(step_seconds: float, num_envs: int) -> int:
    """Steps of a collect that keep a serial one short, within reason."""
    return min(MOST_STEPS, max(FEWEST_STEPS, round(SERIAL_SECONDS / (step_seconds * num_envs))))


def compete(entrants: Sequence[Contestant], contest: Contest, say: Say) -> list[ContestResult]:
    """Everybody's turns, one after another, so that noise hits all alike. Who fails is left out from then on."""
    results = [ContestResult(each.name, each.peer) for each in entrants]
    for k in range(contest.turns):
        say(f"{contest.num_envs} envs, turn {k + 1} of {contest.turns}")
        for contestant, result in zip(entrants, results, strict=True):
            if not result.reason:
                _try(contestant, contest, result, first_steps=1)
    return results


def _try(contestant: Contestant, contest: Contest, result: ContestResult, first_steps: int) -> None:
    try:
        result.turns.append(take_turn(contestant, contest, first_steps))
    except Exception as error:  # peers fail in ways of their own, and nobody's failure is to stop the others
        result.reason = _one_line(error)


def _one_line(error: Exception) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    return text if isinstance(error, RedlineError) else f"{type(error).__name__}: {text}".rstrip(": ")


def take_turn(contestant: Contestant, contest: Contest, first_steps: int) -> Turn:
    """Bring a contestant up, let it collect `first_steps` to get warm, measure it, and let it go."""
    gc.collect()  # of whoever was here before
    with_fork_server = not contestant.peer and not contestant.in_process
    older = set[int]() if with_fork_server else descendants()
    began = time.perf_counter()
    engine = contestant.make(contest)
    try:
        start_up_seconds = time.perf_counter() - began
        policy = contest.policy(engine.env)
        first = engine.collect(Actor(policy, contest.num_envs, actor_seed(contest.seed)), first_steps, Stopwatch())
        cold_seconds = time.perf_counter() - began
        return Turn(
            **_measure(engine, policy, contest, contestant.in_process),
            workers=engine.num_workers,
            memory_mb=tree_memory_mb(older) or None,
            start_up_seconds=start_up_seconds,
            cold_seconds=cold_seconds,
            cold_rate=first.num_steps / cold_seconds,
        )
    finally:
        engine.close()


def _measure(engine: Engine, policy: Policy, contest: Contest, in_process: bool) -> dict[str, Any]:
    """Collect for a while, then learn from the last rollout."""
    actor, watch = Actor(policy, contest.num_envs, actor_seed(contest.seed)), Stopwatch()
    engine.times.lap()
    steps, spent, lengths = 0, 0.0, list[int]()
    while True:
        actor.version += 1
        began = time.perf_counter()
        rollout: Rollout = engine.collect(actor, contest.num_steps, watch)
        spent += time.perf_counter() - began
        steps += rollout.num_steps
        lengths += rollout.episode_lengths.tolist()
        if spent >= contest.seconds:
            break
    return {
        "rate": steps / spent,
        "episodes": len(lengths),
        "episode_steps": sum(lengths),
        **_workers(engine, watch, spent, in_process),
        "training_seconds": _training_seconds(policy, rollout) / rollout.num_steps,
    }


def _workers(engine: Engine, watch: Stopwatch, spent: float, in_process: bool) -> dict[str, float | None]:
    """The work of the workers in the time spent collecting."""
    times = engine.times.lap()
    if times.busy_seconds.any():
        return {
            "busy_share": float(times.busy_seconds.sum()) / (engine.num_workers * spent),
            "straggler_share": times.straggler_seconds / spent,
            "slowest_step_seconds": times.slowest_seconds,
        }
    busy = watch.breakdown().seconds.get(("env",), 0.0) / spent if in_process else None
    return {"busy_share": busy, "straggler_share": None, "slowest_step_seconds": None}


def _training_seconds(policy: Policy, rollout: Rollout) -> float:
    threads, _ = use_threads(0)
    learner = PPO(policy, TrainConfig().ppo, threads=threads)
    began = time.perf_counter()
    learner.update(rollout, Stopwatch())
    return time.perf_counter() - began


# Scaling


@dataclass(frozen=True)
class Scaled:
    """An engine with some number of workers."""

    engine: str
    workers: int
    result: ContestResult


def scale(engines: Sequence[str], workers: Sequence[int], contest: Contest, say: Say) -> list[Scaled]:
    """Engines with different numbers of workers, in turns. The first collect of a turn is a whole one: the cold start."""
    entries = [Scaled(name, count, ContestResult(name)) for name in engines for count in workers]
    for k in range(contest.turns):
        say(f"{contest.num_envs} envs, workers {', '.join(map(str, workers))}, turn {k + 1} of {contest.turns}")
        for entry in entries:
            if not entry.result.reason:
                collecting = dataclasses.replace(contest.collecting, workers=entry.workers)
                with_workers = dataclasses.replace(contest, collecting=collecting)
                _try(engine_contestant(entry.engine), with_workers, entry.result, contest.num_steps)
    return entries


# Rows and verdict


def mean_episode_steps(results: Sequence[ContestResult]) -> float | None:
    """Steps of an episode, over all that anybody finished."""
    turns = [turn for result in results for turn in result.turns]
    episodes = sum(turn.episodes for turn in turns)
    return sum(turn.episode_steps for turn in turns) / episodes if episodes else None


def median_of(results: Sequence[ContestResult], name: str) -> float | None:
    """A contestant's median rate, if it has one."""
    return next((result.median for result in results if result.name == name and result.median), None)


def verdict(results: Sequence[ContestResult]) -> str:
    """Who is fastest and by how much, the runners-up, and the best of the peers."""
    ranked = sorted((each for each in results if each.median), key=lambda each: -each.median)
    if not ranked:
        return "Nobody could be measured."
    serial = median_of(results, "serial")

    def how_fast(result: ContestResult) -> str:
        return f"{result.median / serial:.2f} x" if serial else f"{result.median:,.0f} steps/s"

    best, *rest = ranked
    named = rest[:2]
    if not any(each.peer for each in (best, *named)):
        named += [each for each in rest if each.peer][:1]
    others = "".join(f"; {each.name} {how_fast(each)}" for each in named)
    if best.name == "serial":
        return f"serial is fastest{others}."
    return f"{best.name} is fastest: {how_fast(best)}{' serial' * bool(serial)}{others}."


def as_row(result: ContestResult, results: Sequence[ContestResult]) -> dict[str, Any]:
    """Everything about a contestant, as plain data; what could not be measured is None."""
    rate, episode, training = result.rate, mean_episode_steps(results), result.training_share
    serial, pipes = median_of(results, "serial"), median_of(results, "pipes")
    return {
        "name": result.name,
        "kind": "peer" if result.peer else "engine",
        "workers": None if (workers := result.middle("workers")) is None else int(workers),
        "steps_per_second": rate and rate.median,
        "low": rate and rate.low,
        "high": rate and rate.high,
        "turns": len(result.turns),
        "times_serial": rate and serial and rate.median / serial,
        "times_pipes": rate and pipes and rate.median / pipes,
        "episodes_per_second": rate and episode and rate.median / episode,
        "sampling_share": None if training is None else 1 - training,
        "training_share": training,
        "busy_share": result.middle("busy_share"),
        "straggler_share": result.middle("straggler_share"),
        "slowest_step_seconds": result.slowest_step_seconds,
        "memory_mb": result.middle("memory_mb"),
        "start_up_seconds": result.middle("start_up_seconds"),
        "reason": result.reason or None,
    }


def as_scaling_row(entry: Scaled, entries: Sequence[Scaled], results: Sequence[ContestResult]) -> dict[str, Any]:
    """An engine with some workers as plain data. It is compared with serial, or else with its own fewest workers."""
    result, rate = entry.result, entry.result.rate
    episode = mean_episode_steps([*results, *(each.result for each in entries)])
    fewest = min((each for each in entries if each.engine == entry.engine), key=lambda each: each.workers)
    base = median_of(results, "serial") or fewest.result.median / fewest.workers or None
    used = result.middle("workers")  # never more than envs
    speed_up = rate.median / base if rate and base else None
    cold_rate = result.middle("cold_rate")
    return {
        "engine": entry.engine,
        "workers": entry.workers,
        "steps_per_second": rate and rate.median,
        "low": rate and rate.low,
        "high": rate and rate.high,
        "episodes_per_second": rate and episode and rate.median / episode,
        "speed_up": speed_up,
        "efficiency": speed_up / used if speed_up and used else None,
        "busy_share": result.middle("busy_share"),
        "cold_seconds": result.middle("cold_seconds"),
        "cold_steps_per_second": cold_rate,
        "cold_episodes_per_second": cold_rate and episode and cold_rate / episode,
        "reason": result.reason or None,
    }
