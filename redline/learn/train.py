"""The training loop: collect, learn, again. Everything else (logs, checkpoints, progress) iterates over it."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from redline.engines import make_engine
from redline.envs import ENVS
from redline.errors import RedlineError
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig
from redline.learn.policy import Policy
from redline.learn.ppo import PPO
from redline.rollout import Rollout
from redline.threads import use_threads
from redline.timing.breakdown import Breakdown
from redline.timing.stopwatch import Stopwatch


@dataclass(frozen=True)
class Update:
    """What one round of collecting and learning did."""

    number: int  # updates since the start of the run
    step: int  # env steps since the start of the run
    episodes: int  # episodes finished since the start of the run
    steps: int  # env steps of this update
    progress: float  # part of the run that is over, 0 to 1
    metrics: dict[str, float]
    breakdown: Breakdown


class Trainer:
    """A training run in progress: iterate over it to train, one `Update` at a time.

    Between two updates `snapshot` holds everything the rest of the run depends on, and `restore` goes on from there as if
    nothing had happened.
    """

    def __init__(self, config: TrainConfig, watch: Stopwatch | None = None) -> None:
        self.config = config
        self.watch = watch or Stopwatch()
        self.device = pick_device(config.device)
        self.threads, self.thread_plan = use_threads(config.threads)
        env_seed, policy_seed, action_seed, order_seed = spread_seed(config.seed, 4)
        options = {**config.env_options, **({"turbo": config.turbo} if config.env in ENVS else {})}
        self.engine = make_engine(config.engine, config.env, config.num_envs, env_seed, options)
        self.policy = make_policy(self.engine.env, config, policy_seed).to(self.device)
        self.actor = Actor(self.policy, config.num_envs, action_seed, config.dedup)
        self.ppo = PPO(
            self.policy, config.ppo, order_seed, config.dedup, self.threads, False if config.compile else None
        )
        if config.compile:
            self.policy.compile(dynamic=True)
        self.step = self.episodes = self.number = 0
        self._earlier: deque[Rollout] = deque(maxlen=config.reuse)

    @property
    def progress(self) -> float:
        """Part of the run that is over."""
        config = self.config
        if config.total_episodes is not None:
            return min(1.0, self.episodes / config.total_episodes)
        assert config.steps_goal is not None
        return min(1.0, self.step / config.steps_goal)

    def __iter__(self) -> Iterator[Update]:
        """Train until the goal, yielding after every update."""
        while self.progress < 1.0:
            yield self.update()

    def update(self) -> Update:
        """Collect once and learn from it."""
        watch, config = self.watch, self.config
        with watch.span("collect"):
            rollout = self.engine.collect(self.actor, config.num_steps, watch)
        with watch.span("learn"):
            metrics = self.ppo.update(rollout, watch, self.progress, tuple(self._earlier))
        if config.reuse:
            self._earlier.append(rollout)
        self.number += 1
        self.step += rollout.num_steps
        self.episodes += len(rollout.episode_returns)
        metrics = {**_episode_metrics(rollout), **metrics}
        return Update(self.number, self.step, self.episodes, rollout.num_steps, self.progress, metrics, watch.lap())

    def snapshot(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which `restore` continues bit for bit."""
        arrays = {f"policy.{name}": tensor for name, tensor in self.policy_arrays().items()}
        arrays |= {f"ppo.{name}": array for name, array in self.ppo.snapshot_arrays().items()}
        arrays |= {f"actor.{name}": array for name, array in self.actor.snapshot().items()}
        arrays |= {f"engine.{name}": array for name, array in (self.engine.snapshot() or {}).items()}
        for k, rollout in enumerate(self._earlier):
            kept = {name: value for name, value in vars(rollout).items() if isinstance(value, np.ndarray)}
            arrays |= {f"earlier.{k}.{name}": array for name, array in kept.items()}
        values = {"step": self.step, "episodes": self.episodes, "number": self.number, "order": self.ppo.order_state()}
        return arrays, values

    def restore(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> bool:
        """Go on from a snapshot. Returns whether the envs go on too (those that cannot be saved begin new episodes)."""
        self.policy.load_state_dict({name: torch.from_numpy(a) for name, a in below(arrays, "policy").items()})
        self.ppo.restore(below(arrays, "ppo"), values["order"])
        self.actor.restore(below(arrays, "actor"))
        self._earlier.clear()
        for k in range(self.config.reuse):
            if saved := below(arrays, f"earlier.{k}"):
                self._earlier.append(Rollout(**{"masks": None, "episode_metrics": {}, **saved}))  # type: ignore[arg-type]
        self.step, self.episodes, self.number = values["step"], values["episodes"], values["number"]
        saved_envs = below(arrays, "engine")
        if saved_envs:
            self.engine.restore(saved_envs)
        return bool(saved_envs)

    def policy_arrays(self) -> dict[str, np.ndarray]:
        """The policy's weights."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.policy.state_dict().items()}

    def close(self) -> None:
        """Let go of the envs."""
        self.engine.close()


def train(config: TrainConfig) -> Iterator[Update]:
    """Train a policy, yielding after every update."""
    trainer = Trainer(config)
    try:
        yield from trainer
    finally:
        trainer.close()


def warm_up(config: TrainConfig) -> None:
    """Have everything compiled that a run needs, by a tiny run of the same kind, so that no update has to wait for it."""
    if config.env in ENVS:
        tiny = dataclasses.replace(config, num_envs=2, num_steps=4, ppo=dataclasses.replace(config.ppo, minibatches=1))
        trainer = Trainer(tiny)
        trainer.update()
        trainer.close()


def below(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix.`, without it."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(prefix + ".")}


def spread_seed(seed: int, count: int) -> list[int]:
    """Independent seeds that follow from one."""
    return [int(part) for part in np.random.SeedSequence(seed).generate_state(count, np.uint32)]


def pick_device(name: str) -> torch.device:
    """The device called `name`; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise RedlineError(f"There is no device {name!r}. Try --device auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise RedlineError("--device cuda was asked for, but torch finds no CUDA device here. Try --device auto.")
    return torch.device(name)


def make_policy(env: Any, config: TrainConfig, seed: int) -> Policy:
    """A fresh policy that fits the env."""
    space, actions = env.single_observation_space, env.single_action_space
    if not hasattr(actions, "n"):
        raise RedlineError(f"{config.env} has actions {actions}; Redline's PPO needs a Discrete action space.")
    discrete = isinstance(space, gym.spaces.Discrete)
    if not space.shape and not discrete:
        raise RedlineError(f"{config.env} has observations {space}; Redline's PPO needs an array of numbers.")
    unpack, size = None, int(np.prod(space.shape))
    if getattr(env, "packed", False):
        unpack, size = env.unpack, len(env.layout)
    elif discrete:
        unpack, size = _one_hot(space), int(space.n)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(size, int(actions.n), config.hidden, config.shared, unpack)


def _one_hot(space: gym.spaces.Discrete) -> Callable[[np.ndarray], np.ndarray]:
    """Turns states that are numbers into rows with a single 1."""
    rows = np.eye(int(space.n), dtype=np.float32)
    return lambda states: rows[states.reshape(-1) - int(space.start)]


def _episode_metrics(rollout: Rollout) -> dict[str, float]:
    returns, lengths = rollout.episode_returns, rollout.episode_lengths
    if not len(returns):
        return dict.fromkeys(("return", "return_std", "return_min", "return_max", "length"), float("nan"))
    return {
        "return": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "length": float(lengths.mean()),
        **{name: float(values.mean()) for name, values in rollout.episode_metrics.items()},
    }
