"""How fast training is, end to end: ours deduplicated and plain, the peers, and what the arithmetic alone would allow."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from redline.bench.measure import Throughput, peak_memory_mb, take_turns
from redline.bench.peers import PEERS, Contestant, peer_at
from redline.errors import RedlineError
from redline.learn.autograd import PART_SIZE
from redline.learn.config import TrainConfig
from redline.learn.train import Trainer
from redline.threads import use_threads
from redline.timing.breakdown import Breakdown, merge

FIRST_UPDATES = 10
SETTLING_UPDATES = 200
LOCKSTEP = "deduplicated, in lockstep"
"""The same run going on without envs that play on by themselves."""


@dataclass
class TrainResult:
    """The findings of a training benchmark."""

    settled: Throughput
    first_updates: Throughput
    rates: dict[str, Throughput]
    shares: dict[str, Breakdown]
    memory_mb: float
    distinct: int
    returns: float
    missing: list[str] = field(default_factory=list)


def bench_train(
    config: TrainConfig,
    turns: int,
    peers: bool,
    say: Callable[[str], None],
    peer: str = "",
) -> TrainResult:
    """Measure, every contestant in turn with the others."""
    entries = dict(PEERS) if peers else {}
    if peer:
        entries[peer] = peer_at(peer)
    threads, _ = use_threads(config.threads)
    config = dataclasses.replace(config, total_steps=10**12, total_episodes=None)
    say("warming up")
    _first_updates(config, 1)
    say(f"first {FIRST_UPDATES} updates of {turns} fresh runs")
    first = [_first_updates(dataclasses.replace(config, seed=config.seed + k), FIRST_UPDATES) for k in range(turns)]
    say(f"settling a policy over {SETTLING_UPDATES} updates")
    trainer, settled = _settle(config)
    together = _in_lockstep(trainer)
    plain = Trainer(dataclasses.replace(config, dedup=False))
    laps: dict[str, list[Breakdown]] = {"deduplicated": [], LOCKSTEP: [], "plain": []}
    contestants: dict[str, Contestant] = {
        "deduplicated": lambda: _update(trainer, laps["deduplicated"], 20),
        LOCKSTEP: lambda: _update(together, laps[LOCKSTEP], 10),
        "plain": lambda: _update(plain, laps["plain"], 1),
        f"matrix products alone, {threads} thread{'s' * (threads > 1)}": products(config, plain, threads),
        "matrix products alone, 1 thread": products(config, plain, 1),
    }
    _update(plain, [], 1)
    memory = peak_memory_mb()
    missing = _enter_peers(contestants, entries, config, threads)
    say(f"{len(contestants)} contestants, {turns} turns each")
    rates = take_turns(contestants, turns)
    return TrainResult(
        settled=rates["deduplicated"],
        first_updates=Throughput.of(first),
        rates=rates,
        shares={name: merge(each) for name, each in laps.items()},
        memory_mb=memory,
        distinct=int(settled["distinct"]),
        returns=settled["return"],
        missing=missing,
    )


def _first_updates(config: TrainConfig, count: int) -> float:
    """Steps per second over the first updates of a fresh run."""
    trainer = Trainer(config)
    started = time.perf_counter()
    steps = sum(trainer.update().steps for _ in range(count))
    return steps / (time.perf_counter() - started)


def _settle(config: TrainConfig) -> tuple[Trainer, dict[str, float]]:
    trainer = Trainer(config)
    metrics: dict[str, float] = {}
    for _ in range(SETTLING_UPDATES):
        metrics = trainer.update().metrics
    return trainer, metrics


def _in_lockstep(trainer: Trainer) -> Trainer:
    """A run that goes on from where another is, with all envs stepping together."""
    collecting = dataclasses.replace(trainer.config.collecting, play_on=False)
    other = Trainer(dataclasses.replace(trainer.config, collecting=collecting))
    other.restore(*trainer.snapshot())
    return other


def _update(trainer: Trainer, laps: list[Breakdown], count: int) -> int:
    trainer.watch.lap()
    steps = 0
    for _ in range(count):
        update = trainer.update()
        laps.append(update.breakdown)
        steps += update.steps
    return steps


def _enter_peers(
    contestants: dict[str, Contestant],
    peers: dict[str, Callable[[TrainConfig], Contestant]],
    config: TrainConfig,
    threads: int,
) -> list[str]:
    missing = []
    for name, make in peers.items():
        try:
            contestants[name] = _with_torch_threads(make(config), threads)
        except RedlineError as error:
            missing.append(str(error))
    return missing


def _with_torch_threads(update: Contestant, threads: int) -> Contestant:
    """Peers use torch's own threads, all there are; ours go back to one afterwards."""

    def run() -> int:
        torch.set_num_threads(threads)
        try:
            return update()
        finally:
            torch.set_num_threads(1)

    return run


def products(config: TrainConfig, trainer: Trainer, threads: int) -> Contestant:
    """Only the matrix products of a plain update: acting once, then forward and backward in every epoch."""
    layers = trainer.policy.layers()
    weights = [
        torch.from_numpy(layer.weight)
        for layer in (*layers.trunk, *(layers.critic_trunk or ()), layers.actor, layers.critic)
    ]
    first_layers = {0} if layers.critic_trunk is None else {0, len(layers.trunk)}
    steps = config.num_envs * config.num_steps
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def forward(rows: int) -> None:
        for weight in weights:
            torch.mm(_matrix(rows, weight.shape[1]), weight.t(), out=_matrix(rows, weight.shape[0]))

    def backward(rows: int) -> None:
        for k, weight in enumerate(weights):
            gradient, inputs = _matrix(rows, weight.shape[0]), _matrix(rows, weight.shape[1])
            torch.mm(gradient.t(), inputs)
            if k not in first_layers:
                torch.mm(gradient, weight)

    def part(_: int) -> None:
        with torch.no_grad():
            forward(PART_SIZE)
            backward(PART_SIZE)

    def run() -> int:
        with torch.no_grad():
            for _ in range(config.num_steps):
                forward(config.num_envs)
        list(pool.map(part, range(config.ppo.epochs * steps // PART_SIZE)))
        return steps

    return run


_matrices: dict[tuple[int, int], Any] = {}


def _matrix(rows: int, columns: int) -> torch.Tensor:
    if (rows, columns) not in _matrices:
        _matrices[rows, columns] = torch.randn(rows, columns)
    return _matrices[rows, columns]
