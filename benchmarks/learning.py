"""Whether PPO learns as well as elsewhere, and how fast: the same envs, steps and seeds, contestants taking turns.

Ours trains as `redline train ENV` does where nothing is said. Peers train with the settings that RL Baselines3 Zoo has tuned
for them on that env, because with their own defaults they do not solve all of them; where it has none, with those of the
nearest that it has. Everybody learns on one thread, which for networks so small is also the fastest way for the peers.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError, unknown
from redline.files import encode_json, make_folder, replace_file
from redline.worlds.registry import make_single
from redline.worlds.world import Say

HERE = "external:benchmarks.learning_envs"
EPISODES = 50
"""Fresh episodes that a trained policy is scored on, with actions drawn."""
SURE = 2.0
"""Standard errors beyond which a difference is none of chance."""
OURS, SB3, CLEANRL = "redline", "sb3", "cleanrl"


@dataclass(frozen=True)
class LearningTask:
    """An env to learn, and how everybody goes about it."""

    env: str
    """As `redline train` knows it."""
    steps: int
    peer: dict[str, Any]
    """The peer's settings; `num_envs` and `normalise` are for its envs."""
    ours: dict[str, Any] = field(default_factory=dict)
    """What must be asked for, because it is the point of the task."""
    policy: str = "MlpPolicy"
    recurrent: bool = False


CARTPOLE = {
    "num_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
    "learning_rate": "falling 1e-3", "clip_range": "falling 0.2",
}  # fmt: skip
TASKS = {
    "CartPole-v1": LearningTask("CartPole-v1", 50_000, CARTPOLE),
    "Acrobot-v1": LearningTask(
        "Acrobot-v1", 100_000,
        {"num_envs": 16, "normalise": True, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4},
    ),
    "LunarLander-v3": LearningTask(
        "LunarLander-v3", 200_000,
        {"num_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
         "ent_coef": 0.01},
    ),
    "Pendulum-v1": LearningTask(
        "Pendulum-v1", 100_000,
        {"num_envs": 4, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "learning_rate": 1e-3,
         "use_sde": True, "sde_sample_freq": 4},
    ),
    "Hopper-v5": LearningTask(  # as for Hopper-v4
        "Hopper-v5", 100_000,
        {"num_envs": 1, "normalise": True, "n_steps": 512, "batch_size": 32, "gamma": 0.999, "learning_rate": 9.80828e-5,
         "ent_coef": 0.00229519, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671,
         "policy_kwargs": {"log_std_init": -2, "ortho_init": False, "net_arch": [256, 256], "activation_fn": "relu"}},
    ),
    "Breakout": LearningTask(  # as for Atari
        f"{HERE}:breakout", 100_000,
        {"num_envs": 8, "n_steps": 128, "n_epochs": 4, "batch_size": 256, "learning_rate": "falling 2.5e-4",
         "clip_range": "falling 0.1", "ent_coef": 0.01},
        policy="CnnPolicy",
    ),
    "CartPole-places": LearningTask(  # as for CartPoleNoVel-v1
        f"{HERE}:cartpole_without_velocities", 50_000,
        {**CARTPOLE, "normalise": True,
         "policy_kwargs": {"ortho_init": False, "activation_fn": "relu", "lstm_hidden_size": 64,
                           "enable_critic_lstm": True, "net_arch": {"pi": [64], "vf": [64]}}},
        ours={"recurrent": "gru"}, policy="MlpLstmPolicy", recurrent=True,
    ),
}  # fmt: skip
"""By the names that the benchmark knows them by."""


@dataclass(frozen=True)
class Cell:
    """What one contestant made of one task with one seed."""

    task: str
    contestant: str
    seed: int
    steps: int
    seconds: float
    returns: list[float]
    cpu_seconds: float | None = None
    """What of the seconds it was at work; less on a busy machine."""

    @property
    def steps_per_second(self) -> float:
        """Env steps per second of training, learning included."""
        return self.steps / self.seconds

    @property
    def mean(self) -> float:
        """Mean return of the fresh episodes."""
        return float(np.mean(self.returns))


Contestant = Callable[[str, int, int], Cell]


class Clock:
    """Seconds since it was made: of the wall, and of this process at work."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def train_ours(name: str, steps: int, seed: int) -> Cell:
    """Redline's PPO, with the settings that it has by itself."""
    from redline.learn.api import train
    from redline.learn.evaluate import Trained, evaluate_env
    from redline.learn.train import make_policy

    task = TASKS[name]
    settings = {**task.ours, "seed": seed, "threads": 1}
    with train(task.env, 1, **settings) as tiny:
        tiny.finish()  # pays for what is compiled once on a machine
    clock = Clock()
    with train(task.env, steps, **settings) as training:
        agent = training.finish()
        (seconds, cpu_seconds), done = clock.read(), training.step
    policy = make_policy(agent.described, agent.config, 0)
    policy.load(agent.weights)
    found = evaluate_env(Trained(policy, agent.config, Path(), done), EPISODES, seed + 1_000_003, deterministic=False)
    return Cell(name, OURS, seed, done, seconds, found.tolist(), cpu_seconds)


def train_sb3(name: str, steps: int, seed: int) -> Cell:
    """Stable-Baselines3's PPO, or the recurrent one of sb3-contrib."""
    task = TASKS[name]
    try:
        import torch
        from sb3_contrib import RecurrentPPO
        from stable_baselines3 import PPO
        from stable_baselines3.common.evaluation import evaluate_policy
    except ImportError as error:
        raise RedlineError(
            "Stable-Baselines3 and sb3-contrib are not installed. Try: pip install 'redline[peers,learning-bench]', "
            "or in a clone: pip install -e '.[peers,learning-bench]'"
        ) from error
    settings = dict(task.peer)
    num_envs, normalise = settings.pop("num_envs"), settings.pop("normalise", False)
    chosen = {key: _scheduled(value) for key, value in settings.items()}
    chosen["policy_kwargs"] = _network(task, settings.get("policy_kwargs", {}))
    kind = RecurrentPPO if task.recurrent else PPO
    torch.set_num_threads(1)
    clock = Clock()
    env = _sb3_envs(task, num_envs, normalise)
    model = kind(task.policy, env, seed=seed, device="cpu", **chosen)
    model.learn(steps)
    (seconds, cpu_seconds), done = clock.read(), int(model.num_timesteps)
    fresh = _sb3_envs(task, 8, normalise)
    fresh.seed(seed + 1_000_003)
    if normalise:
        fresh.obs_rms, fresh.training, fresh.norm_reward = env.obs_rms, False, False
    found, _ = evaluate_policy(model, fresh, EPISODES, deterministic=False, return_episode_rewards=True, warn=False)
    env.close()
    fresh.close()
    return Cell(name, SB3, seed, done, seconds, np.asarray(found, float).tolist(), cpu_seconds)


def _sb3_envs(task: LearningTask, count: int, normalise: bool) -> Any:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = DummyVecEnv([lambda: Monitor(make_single(task.env)) for _ in range(count)])
    return VecNormalize(envs, gamma=task.peer["gamma"]) if normalise else envs


def _scheduled(value: Any) -> Any:
    """`falling X` falls from X to nothing in the course of the run."""
    if isinstance(value, str) and value.startswith("falling "):
        first = float(value.removeprefix("falling "))
        return lambda left: first * left
    return value


def _network(task: LearningTask, given: dict[str, Any]) -> dict[str, Any]:
    """The peer's network; pictures of ten by ten are too small for its usual one."""
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    if given.get("activation_fn") == "relu":
        given = {**given, "activation_fn": nn.ReLU}
    if task.policy != "CnnPolicy":
        return given

    class Small(BaseFeaturesExtractor):
        """One convolution, as Young and Tian (2019) have it."""

        def __init__(self, space: Any) -> None:
            channels, rows, columns = space.shape
            super().__init__(space, 128)
            size = 16 * (rows - 2) * (columns - 2)
            self.layers = nn.Sequential(
                nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(size, 128), nn.ReLU()
            )

        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            """What is seen in pictures."""
            return self.layers(pictures)

    return {**given, "features_extractor_class": Small}


def train_cleanrl(name: str, steps: int, seed: int) -> Cell:
    """A single loop as CleanRL writes it, with its settings."""
    import torch

    from benchmarks.cleanrl import Loop

    torch.set_num_threads(1)
    clock = Clock()
    loop = Loop(TASKS[name].env, steps, seed)
    done = loop.train()
    seconds, cpu_seconds = clock.read()
    returns = loop.play(EPISODES, seed + 1_000_003)
    loop.envs.close()
    return Cell(name, CLEANRL, seed, done, seconds, returns, cpu_seconds)


CONTESTANTS: dict[str, Contestant] = {OURS: train_ours, SB3: train_sb3, CLEANRL: train_cleanrl}


def plays(contestant: str, name: str) -> bool:
    """Whether a contestant has a way to learn a task: the single loop sees no pictures and remembers nothing."""
    return contestant != CLEANRL or TASKS[name].policy == "MlpPolicy"


def bench_learning(
    names: Sequence[str], peers: Sequence[str], seeds: int, steps: int | None, folder: Path, say: Say
) -> list[Cell]:
    """All cells, those that `folder` holds already and those that are played now; each is kept as soon as it is there."""
    if seeds < 1:
        raise RedlineError(f"--seeds must be at least 1 (got {seeds})")
    if steps is not None and steps < 1:
        raise RedlineError(f"--steps must be at least 1 (got {steps})")
    for name in names:
        if name not in TASKS:
            raise unknown("task", name, TASKS)
    for peer in peers:
        if peer not in CONTESTANTS or peer == OURS:
            raise unknown("peer", peer, [each for each in CONTESTANTS if each != OURS])
    make_folder(folder)
    turns = [
        (name, seed, each) for name in names for seed in range(seeds) for each in (OURS, *peers) if plays(each, name)
    ]
    return [_cell(folder, name, each, seed, steps or TASKS[name].steps, say) for name, seed, each in turns]


def _cell(folder: Path, name: str, contestant: str, seed: int, steps: int, say: Say) -> Cell:
    path = folder / f"{name}-{steps}-{contestant}-{seed}.json"
    if path.exists():
        return Cell(**json.loads(path.read_bytes()))
    cell = CONTESTANTS[contestant](name, steps, seed)
    replace_file(path, encode_json(asdict(cell)))
    say(f"{name}, seed {seed}, {contestant}: return {cell.mean:.1f}, {cell.steps_per_second:,.0f} steps/s")
    return cell


@dataclass(frozen=True)
class PeerVerdict:
    """Ours beside a peer on one task."""

    task: str
    peer: str
    steps: int
    seeds: int
    ours: float
    ours_error: float
    theirs: float
    theirs_error: float
    ours_rate: float
    their_rate: float
    cpu_ratio: float | None = None
    """How many times as fast ours is by the time that each was at work, where that was taken."""

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.ours_rate / self.their_rate

    @property
    def learns(self) -> str:
        """Whether ours ends worse, as well or better, in words."""
        apart, error = self.ours - self.theirs, math.hypot(self.ours_error, self.theirs_error)
        if abs(apart) <= SURE * error:
            return "not worse within noise"
        return "better" if apart > 0 else "worse"

    @property
    def is_twice_as_fast(self) -> bool:
        """Whether it takes at most half the time."""
        return self.ratio >= 2.0


def judge(cells: Sequence[Cell]) -> list[PeerVerdict]:
    """A verdict for each task and peer."""
    verdicts = []
    for task in dict.fromkeys(cell.task for cell in cells):
        ours = [cell for cell in cells if cell.task == task and cell.contestant == OURS]
        for peer in dict.fromkeys(cell.contestant for cell in cells if cell.task == task):
            theirs = [cell for cell in cells if cell.task == task and cell.contestant == peer]
            if peer != OURS:
                rates = [float(np.median([cell.steps_per_second for cell in each])) for each in (ours, theirs)]
                numbers = (*_mean(ours), *_mean(theirs), *rates)
                verdict = PeerVerdict(task, peer, ours[0].steps, len(ours), *numbers)
                verdicts.append(replace(verdict, cpu_ratio=_cpu_ratio(ours, theirs)))
    return verdicts


def _cpu_ratio(ours: Sequence[Cell], theirs: Sequence[Cell]) -> float | None:
    """Median steps per second at work of ours, divided by those of theirs."""
    rates = [[cell.steps / cell.cpu_seconds for cell in each if cell.cpu_seconds] for each in (ours, theirs)]
    return float(np.median(rates[0]) / np.median(rates[1])) if all(rates) else None


def _mean(cells: Sequence[Cell]) -> tuple[float, float]:
    """The mean over seeds and its standard error: from how seeds differ, or of one seed how its episodes do."""
    means = np.array([cell.mean for cell in cells]) if len(cells) > 1 else np.array(cells[0].returns)
    return float(means.mean()), float(means.std(ddof=1) / len(means) ** 0.5)


def main(arguments: list[str] | None = None) -> int:
    """Parse, train in turns, print."""
    from redline.bench.measure import describe_machine

    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("--envs", default=",".join(TASKS), help="tasks, separated by commas")
    parser.add_argument("--peers", default=SB3, help=f"{SB3}, {CLEANRL} or both")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each")
    parser.add_argument("--steps", type=int, help="env steps of each run; by default what suits each env")
    parser.add_argument("--folder", type=Path, default=Path("learning-bench"), help="keeps finished cells")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args(arguments)
    names = asked.envs.split(",")
    peers = asked.peers.split(",")
    try:
        cells = bench_learning(names, peers, asked.seeds, asked.steps, asked.folder, _say)
    except RedlineError as error:
        print(error, file=sys.stderr)
        return 2
    verdicts = judge(cells)
    if asked.json:
        rows = [_verdict_json(each) for each in verdicts]
        plain = [asdict(cell) for cell in cells]
        print(json.dumps({"verdicts": rows, "cells": plain, "machine": describe_machine()}))
    else:
        for each in verdicts:
            print(_verdict_line(each))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _verdict_json(verdict: PeerVerdict) -> dict[str, Any]:
    return {
        **asdict(verdict),
        "ratio": verdict.ratio,
        "verdict": verdict.learns,
        "twice_as_fast": verdict.is_twice_as_fast,
    }


def _verdict_line(verdict: PeerVerdict) -> str:
    ours = f"{verdict.ours:.1f} ±{verdict.ours_error:.1f}"
    theirs = f"{verdict.theirs:.1f} ±{verdict.theirs_error:.1f}"
    faster = f"{verdict.ratio:.1f}x as fast"
    if verdict.cpu_ratio is not None:
        faster += f" ({verdict.cpu_ratio:.1f}x by CPU time)"
    enough = "2x as fast" if verdict.is_twice_as_fast else "not 2x as fast"
    start = f"{verdict.task}, {verdict.steps:,} steps, {verdict.seeds} seeds"
    return f"{start}: ours {ours}, {verdict.peer} {theirs}, {faster}; {verdict.learns}; {enough}"


if __name__ == "__main__":
    sys.exit(main())
