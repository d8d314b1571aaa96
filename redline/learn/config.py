"""What to train on and how: the settings of a run, which are also the help text of `redline train`."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from redline.engines.settings import Collecting
from redline.errors import RedlineError
from redline.learn.stored import from_json
from redline.worlds.registry import default_world, world_of

MINIBATCH, MOST_MINIBATCHES = 64, 32
"""Steps in a minibatch, and how many there are at most, where that is left to us."""
MOST_LAYERS, MOST_COUNT = 64, 10**15


@dataclass(frozen=True)
class PPOConfig:
    """How PPO learns from a rollout."""

    learning_rate: Annotated[float, "--learning-rate", "--lr"] = 5e-3
    """Adam's step size at the start."""
    anneal: Annotated[bool, "--anneal-lr", "~--anneal"] = True
    """Let the step size fall linearly to zero over the run."""
    epochs: Annotated[int, "--update-epochs", "~--epochs"] = 4
    """Passes over each rollout."""
    minibatches: Annotated[int, "--num-minibatches", "~--minibatches"] = 1
    """Parts a pass is cut into; 1 learns from the whole rollout at once, 0 takes parts of 64 steps (32 at most)."""
    whole_observations: bool = False
    """Cut a pass between observations, not between steps: those that saw the same one stay together, so that it goes
    through the network once a pass. Sooner where observations repeat, and there only."""
    gamma: float = 0.99
    """Discount of future reward."""
    gae_lambda: float = 0.95
    """Trade between bias and variance of the advantages."""
    clip: Annotated[float, "--clip-coef", "~--clip"] = 0.2
    """How far a probability may move before the objective stops rewarding it."""
    entropy: Annotated[float, "--ent-coef", "~--entropy"] = 0.003
    """Weight of the entropy bonus."""
    anneal_entropy: bool = False
    """Let the entropy bonus fall linearly to zero over the run."""
    value: Annotated[float, "--vf-coef", "~--value"] = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients longer than this are shortened to it."""
    target_kl: float | None = None
    """Stop a rollout's passes when the policy has moved this far; none never stops early."""
    adaptive_kl: float | None = None
    """Let the step size follow how far the policy moves: smaller beyond twice this KL, larger below half of it. Takes the
    place of --anneal."""
    normalise: Annotated[bool, "--norm-adv", "~--normalise"] = True
    """Scale advantages to mean 0 and deviation 1 over the rollout."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this before learning; reported returns are not."""
    normalise_returns: Annotated[bool, "--norm-reward", "~--normalise-returns"] = False
    """Also divide rewards by how much returns vary, as seen so far; for envs whose returns are of unknown size."""
    elite: int = 0
    """Best episodes to remember and imitate; for envs in which nothing is left to chance. 0 imitates none."""
    imitation: float = 1.0
    """Weight of imitating them."""


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training run."""

    env: Annotated[str, "positional"] = field(default_factory=lambda: default_world().name)
    """Env to train on: a name from `redline envs`, a Gymnasium id, or external:package.module:factory for your own."""
    env_options: Annotated[dict[str, Any], "hidden"] = field(default_factory=dict)
    """The env's own options."""
    total_steps: Annotated[int | None, "--total-steps", "--total-timesteps"] = None
    """Stop after this many env steps, such as 100k or 5M (rounded up to whole updates). Default: what the env's world
    suggests, 1 million where it suggests nothing."""
    total_episodes: int | None = None
    """Stop after this many episodes instead."""
    num_envs: int = 512
    """Episodes played side by side."""
    num_steps: int = 100
    """Steps each of them plays between two updates."""
    engine: str = "vector"
    """How to collect: serial, vector, pipes, shared, ready, pool, ray, or auto, which tries them and takes the fastest."""
    collecting: Collecting = field(default_factory=Collecting)
    """How experience is collected, beside the engine's name."""
    seed: int = 0
    """All randomness follows from it: same seed, same machine, same result."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the network's hidden layers."""
    shared: bool = False
    """One trunk for actor and critic instead of one each."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"
    """What follows every hidden layer."""
    network: str | None = None
    """A network of your own, package.module:Net: a torch module made from the numbers of inputs and outputs, which answers
    inputs [n, inputs] with (outputs [n, outputs], values [n])."""
    make_network: Annotated[Callable[..., Any] | None, "hidden"] = None
    """The same from Python: a module, or a function that makes one."""
    recurrent: Literal["gru", "lstm"] | None = None
    """Remember: a GRU or an LSTM as wide as the last hidden layer stands behind the hidden layers."""
    normalise_observations: Annotated[bool, "--norm-obs", "~--normalise-observations"] = False
    """Bring every number of the observations to mean 0 and deviation 1, as seen so far."""
    schedule: Annotated[Callable[[float], float] | None, "hidden"] = None
    """From Python: a function of progress (0 to 1) whose result the learning rate is multiplied by, in place of --anneal."""
    dedup: bool = True
    """Send each distinct observation through the network once. The gradient is the same, only sooner."""
    turbo: bool = True
    """Run our simulators compiled. Off, the same code is interpreted, with the same result."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    threads: int = 0
    """Threads that learn; 0 takes one per core. They change the speed, never the result."""
    compile: Annotated[bool, "--torch-compile", "~--compile"] = False
    """Let torch.compile have the network instead of our own gradient code: slow to start, for networks on a GPU."""
    reuse: int = 0
    """Learn again from this many earlier rollouts, with truncated importance weights (V-trace)."""
    warm_start: str | None = None
    """Where the env's world has rules: what one of them does (its name, best of them, or near: best if it ends near the
    optimum), or a recorded FILE.json, is the first of the episodes to imitate (see --elite); none begins without."""
    clone: bool = False
    """Train the policy to follow the warm start before it plays its first episode."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """How PPO learns from a rollout."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, saying what would."""
        at_least(1, num_envs=self.num_envs, num_steps=self.num_steps, epochs=self.ppo.epochs)
        at_least(
            0,
            minibatches=self.ppo.minibatches,
            threads=self.threads,
            reuse=self.reuse,
            seed=self.seed,
            elite=self.ppo.elite,
        )
        for name in ("total_steps", "total_episodes"):
            if getattr(self, name) is not None:
                at_least(1, **{name: getattr(self, name)})
        if self.total_steps is not None and self.total_episodes is not None:
            raise RedlineError("Both --total-steps and --total-episodes were given. Pass one of them.")
        if self.clone and self.warm_start is None:
            raise RedlineError("--clone was given, but nothing to follow. Try --clone --warm-start best.")
        if any(width < 1 for width in self.hidden):
            raise RedlineError(f"A layer cannot have {min(self.hidden)} units. Try --hidden 64,64.")
        _check_layers(self.hidden)
        _check_network(self)
        batch = self.num_envs * self.num_steps
        if self.ppo.minibatches and batch % self.ppo.minibatches:
            raise RedlineError(
                f"{batch} steps ({self.num_envs} envs x {self.num_steps}) cannot be cut into {self.ppo.minibatches} "
                f"equal minibatches. Try --minibatches {nearest_divisor(batch, self.ppo.minibatches)}."
            )
        _check_ranges(self.ppo)
        _check_memory(batch, self.num_envs)

    @property
    def steps_goal(self) -> int | None:
        """Env steps to train for, if that is how the end is set."""
        if self.total_steps is None and self.total_episodes is None:
            return world_of(self.env).steps(self.env)
        return self.total_steps


@dataclass(frozen=True)
class Saving:
    """The files that a run leaves behind, and how often."""

    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints; one is written at the end in any case."""
    keep: int = 3
    """Checkpoints to keep."""
    log: tuple[str, ...] = ()
    """Where the metrics go as well, separated by commas: tensorboard, wandb. Each is an extra to install."""
    tensorboard: bool = False
    """The same as --log tensorboard."""
    eval_every: int | None = None
    """Score the policy every so many env steps, and keep the checkpoint that did best as `best`; none does not."""
    eval_every_episodes: int = 20
    """Episodes of each of these scores."""

    @property
    def loggers(self) -> tuple[str, ...]:
        """All that the metrics are handed to."""
        return (*self.log, *(("tensorboard",) if self.tensorboard else ()))

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.keep < 1:
            raise RedlineError(f"--keep {self.keep} would keep no checkpoint. Try --keep 3.")
        at_least(1, eval_every_episodes=self.eval_every_episodes)
        if self.eval_every is not None:
            at_least(1, eval_every=self.eval_every)
        if self.loggers:
            from redline.learn.loggers import require_loggers

            require_loggers(self.loggers)
        if not self.checkpoint_seconds > 0:
            raise RedlineError(f"--checkpoint-seconds {self.checkpoint_seconds:g} cannot work. Try 30.")


def at_least(minimum: int, **values: int) -> None:
    """Refuse a count that is too small, or beyond all that could ever be counted; a seed may be as large as it likes."""
    for name, value in values.items():
        option = name.replace("_", "-")
        if value < minimum:
            raise RedlineError(
                f"--{option} {value} cannot work: it must be at least {minimum}. Try --{option} {minimum}."
            )
        if value > MOST_COUNT and name != "seed":
            raise RedlineError(f"--{option} {value} cannot work: it must be at most {MOST_COUNT}. Try a smaller one.")


def finite(**values: float) -> None:
    """Refuse what is no number, or an infinite one."""
    for name, value in values.items():
        if not math.isfinite(value):
            option = name.replace("_", "-")
            raise RedlineError(f"--{option} {value:g} cannot work: it must be a finite number. Try --{option} 0.")


def _check_memory(batch: int, num_envs: int) -> None:
    """Refuse a rollout that could not be held in memory; the estimate is a low one."""
    needed = 60 * batch + 400 * num_envs
    available = _memory()
    if needed > available:
        raise RedlineError(
            f"{batch:,} steps an update need at least {needed / 2**30:.0f} GiB; this machine has {available / 2**30:.0f}. "
            "Try --num-envs 512."
        )


def _check_layers(hidden: tuple[int, ...]) -> None:
    """Refuse layers that could not be held in memory, with their gradients and moments, or made in a day."""
    if len(hidden) > MOST_LAYERS:
        raise RedlineError(
            f"{len(hidden):,} hidden layers cannot be learned: at most {MOST_LAYERS}. Try --hidden 64,64."
        )
    weights = sum(before * after for before, after in zip((1, *hidden), hidden, strict=False))
    available = _memory()
    if 16 * weights > available:
        raise RedlineError(
            f"Hidden layers of {', '.join(map(str, hidden)):.40} units need at least {min(weights, 2**70) >> 26:,} GiB; "
            f"this machine has {available >> 30}. Try --hidden 64,64."
        )


def _memory() -> int:
    """Bytes that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_network(config: TrainConfig) -> None:
    """Refuse what a recurrent network cannot do, and two networks at once."""
    given = config.network is not None or config.make_network is not None
    if config.recurrent is None:
        return
    if given:
        raise RedlineError("Both --recurrent and --network were given. Pass one of them.")
    for option, asked in (
        ("--reuse", config.reuse), ("--elite", config.ppo.elite), ("--warm-start", config.warm_start is not None),
    ):  # fmt: skip
        if asked:
            raise RedlineError(
                f"{option} cannot be had with --recurrent, which learns from whole sequences. Leave it out."
            )


def nearest_divisor(size: int, wanted: int) -> int:
    """How many equal parts a batch can be cut into, near what is wanted."""
    return min((d for d in range(1, min(size, 4 * wanted) + 1) if size % d == 0), key=lambda d: abs(d - wanted))


def _check_ranges(ppo: PPOConfig) -> None:
    for name, value, low, high in (
        ("learning-rate", ppo.learning_rate, 0.0, 1.0),
        ("gamma", ppo.gamma, 0.0, 1.0),
        ("gae-lambda", ppo.gae_lambda, 0.0, 1.0),
        ("clip", ppo.clip, 0.0, 10.0),
        ("max-grad-norm", ppo.max_grad_norm, 1e-6, 1e6),
        ("entropy", ppo.entropy, 0.0, 1e6),
        ("value", ppo.value, 0.0, 1e6),
        ("reward-scale", ppo.reward_scale, 1e-9, 1e9),
        ("imitation", ppo.imitation, 0.0, 1e6),
        ("adaptive-kl", 0.01 if ppo.adaptive_kl is None else ppo.adaptive_kl, 1e-9, 1e9),
        ("target-kl", 0.01 if ppo.target_kl is None else ppo.target_kl, 1e-9, 1e9),
    ):
        if not low <= value <= high:
            default = PPOConfig.__dataclass_fields__[name.replace("-", "_")].default or 0.01
            raise RedlineError(
                f"--{name} {value:g} cannot work: it must be {low:g} to {high:g}. Try --{name} {default:g}."
            )


def recipe(env: str) -> TrainConfig:
    """The settings that suit an env: those of its world, where it has any."""
    make = world_of(env).recipe
    return TrainConfig(env) if make is None else make(env)


def settled(config: TrainConfig) -> TrainConfig:
    """The config with the number of minibatches decided."""
    if config.ppo.minibatches:
        return config
    batch = config.num_envs * config.num_steps
    wanted = min(MOST_MINIBATCHES, max(1, batch // MINIBATCH))
    return dataclasses.replace(config, ppo=dataclasses.replace(config.ppo, minibatches=nearest_divisor(batch, wanted)))


def config_to_json(config: TrainConfig) -> dict[str, Any]:
    """A config as plain data."""
    named = config.network
    if config.make_network is not None and named is None:
        named = f"{config.make_network.__module__}:{getattr(config.make_network, '__qualname__', '')}"
    return dataclasses.asdict(dataclasses.replace(config, network=named, make_network=None, schedule=None))


def config_from_json(data: dict[str, Any]) -> TrainConfig:
    """A config from plain data; runs of earlier versions may leave settings out."""
    return from_json(TrainConfig, data)
