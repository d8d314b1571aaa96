"""The training loop: collect, learn, again. Everything else (logs, checkpoints, progress) iterates over it."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from redline.engines import make_engine
from redline.errors import RedlineError
from redline.learn.acting import Actor
from redline.learn.policy import Policy
from redline.learn.ppo import PPO, PPOConfig
from redline.rollout import Rollout
from redline.threads import use_threads
from redline.timing.breakdown import Breakdown
from redline.timing.stopwatch import Stopwatch


@dataclass(frozen=True)
class TrainConfig:
    """What to train on, for how long, and how."""

    env: str = "cage2"
    """Env to train on: a name from `redline envs`, or a Gymnasium id."""
    env_options: dict[str, Any] = field(default_factory=dict)
    """The env's own options."""
    total_steps: int | None = None
    """Stop after this many env steps (rounded up to whole updates). Default: 50 million for cage2, else 1 million."""
    total_episodes: int | None = None
    """Stop after this many episodes instead."""
    num_envs: int = 512
    """Episodes played side by side."""
    num_steps: int = 100
    """Steps each of them plays between two updates."""
    engine: str = "vector"
    """How to collect; see `redline envs` for what can run where."""
    seed: int = 0
    """All randomness follows from it: same seed, same machine, same result."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the network's hidden layers."""
    shared: bool = False
    """One trunk for actor and critic instead of one each."""
    dedup: bool = True
    """Send each distinct observation through the network once. The gradient is the same, only sooner."""
    turbo: bool = True
    """Run our simulators compiled. Off, the same code is interpreted, with the same result."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    threads: int = 0
    """Torch threads; 0 lets Redline plan them."""
    compile: bool = False
    """Compile the network with torch.compile: some 20 seconds at the start, worth it for large networks."""
    reuse: int = 0
    """Learn again from this many earlier rollouts, with truncated importance weights (V-trace)."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """How PPO learns from a rollout."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, saying what would."""
        at_least(1, num_envs=self.num_envs, num_steps=self.num_steps, epochs=self.ppo.epochs)
        at_least(1, minibatches=self.ppo.minibatches)
        at_least(0, threads=self.threads, reuse=self.reuse, seed=self.seed)
        for name in ("total_steps", "total_episodes"):
            if getattr(self, name) is not None:
                at_least(1, **{name: getattr(self, name)})
        if self.total_steps is not None and self.total_episodes is not None:
            raise RedlineError("Both --total-steps and --total-episodes were given. Pass one of them.")
        if any(width < 1 for width in self.hidden):
            raise RedlineError(f"A layer cannot have {min(self.hidden)} units. Try --hidden 64,64.")
        batch = self.num_envs * self.num_steps
        if batch % self.ppo.minibatches:
            raise RedlineError(
                f"{batch} steps ({self.num_envs} envs x {self.num_steps}) cannot be cut into {self.ppo.minibatches} "
                f"equal minibatches. Try --minibatches {_nearest_divisor(batch, self.ppo.minibatches)}."
            )
        _check_ranges(self.ppo)

    @property
    def steps_goal(self) -> int | None:
        """Env steps to train for, if that is how the end is set."""
        if self.total_steps is None and self.total_episodes is None:
            return 50_000_000 if self.env == "cage2" else 1_000_000
        return self.total_steps


def at_least(minimum: int, **values: int) -> None:
    """Refuse a count that is too small."""
    for name, value in values.items():
        if value < minimum:
            option = name.replace("_", "-")
            raise RedlineError(f"--{option} {value} cannot work: it must be at least {minimum}. Try --{option} {max(minimum, 1)}.")


def _nearest_divisor(size: int, wanted: int) -> int:
    return min((d for d in range(1, min(size, 4 * wanted) + 1) if size % d == 0), key=lambda d: abs(d - wanted))


def _check_ranges(ppo: PPOConfig) -> None:
    for name, value, low, high in (
        ("learning-rate", ppo.learning_rate, 0.0, 1.0),
        ("gamma", ppo.gamma, 0.0, 1.0),
        ("gae-lambda", ppo.gae_lambda, 0.0, 1.0),
        ("clip", ppo.clip, 0.0, 10.0),
        ("max-grad-norm", ppo.max_grad_norm, 0.0, float("inf")),
        ("entropy", ppo.entropy, 0.0, float("inf")),
        ("value", ppo.value, 0.0, float("inf")),
    ):
        if not low <= value <= high:
            default = PPOConfig.__dataclass_fields__[name.replace("-", "_")].default
            raise RedlineError(f"--{name} {value:g} cannot work: it must be {low:g} to {high:g}. Try --{name} {default:g}.")


@dataclass(frozen=True)
class Update:
    """What one round of collecting and learning did."""

    number: int  # updates since the start of the run
    step: int  # env steps since the start of the run
    episodes: int  # episodes finished since the start of the run
    progress: float  # part of the run that is over, 0 to 1
    metrics: dict[str, float]
    breakdown: Breakdown
    episode_returns: np.ndarray


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
        options = {**config.env_options, **({} if config.turbo else {"turbo": False})}
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
        return Update(
            self.number, self.step, self.episodes, self.progress, metrics, watch.lap(), rollout.episode_returns
        )

    def snapshot(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which `restore` continues bit for bit."""
        arrays = {f"policy.{name}": tensor for name, tensor in self.policy_arrays().items()}
        arrays |= {f"ppo.{name}": array for name, array in self.ppo.snapshot_arrays().items()}
        arrays |= {f"actor.{name}": array for name, array in self.actor.snapshot().items()}
        arrays |= {f"engine.{name}": array for name, array in (self.engine.snapshot() or {}).items()}
        for k, rollout in enumerate(self._earlier):
            arrays |= {f"earlier.{k}.{name}": array for name, array in vars(rollout).items() if array is not None}
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
                self._earlier.append(Rollout(**{"masks": None, **saved}))  # type: ignore[arg-type]
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
    if not space.shape:
        raise RedlineError(f"{config.env} has observations {space}; Redline's PPO needs an array of numbers.")
    unpack = env.unpack if getattr(env, "packed", False) else None
    size = len(env.layout) if unpack else int(np.prod(space.shape))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(size, int(actions.n), config.hidden, config.shared, unpack)


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
    }


def config_to_json(config: TrainConfig) -> dict[str, Any]:
    """A config as plain data."""
    return dataclasses.asdict(config)


def config_from_json(data: dict[str, Any]) -> TrainConfig:
    """What `config_to_json` made."""
    known = {f.name for f in dataclasses.fields(TrainConfig)}
    fields = {name: value for name, value in data.items() if name in known}
    return TrainConfig(**{**fields, "hidden": tuple(fields["hidden"]), "ppo": PPOConfig(**fields["ppo"])})
