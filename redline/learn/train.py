"""The training loop: collect, learn, again. Everything else (logs, checkpoints, progress) iterates over it."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from redline.engines import Collecting, Engine, make_engine
from redline.engines.auto import Choice, choose
from redline.engines.spec import EnvDescription
from redline.errors import RedlineError
from redline.learn.acting import REPEATS_WORTH_FINDING, Actor
from redline.learn.certainty import require_certainty
from redline.learn.config import TrainConfig, settled
from redline.learn.elite import Elite
from redline.learn.finite import require_finite
from redline.learn.heads import head_for
from redline.learn.imitation import Demonstrations, clone, models, settle
from redline.learn.policy import Policy
from redline.learn.ppo import PPO
from redline.learn.restoring import Experience, refusing, require_like, require_numbers, require_steps
from redline.rollout import Rollout
from redline.threads import cores, use_threads
from redline.timing.breakdown import Breakdown
from redline.timing.stopwatch import Stopwatch
from redline.worlds.batch import encoding_of
from redline.worlds.loading import load_object
from redline.worlds.registry import is_compiled, world_of
from redline.worlds.world import World

if TYPE_CHECKING:
    from redline.learn.policy import Module

Saved = tuple[dict[str, np.ndarray], dict[str, Any]]
"""A snapshot of a run: arrays, and plain values."""
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What Linux has where a driver for NVIDIA or AMD, or Windows below it, offers a GPU."""
SLOW_COLLECT = 0.5
"""Seconds. A collect that takes as long may be broken off, so a snapshot is taken before it."""


@dataclass(frozen=True)
class Update:
    """One round of collecting and learning."""

    number: int  # updates since the start of the run
    step: int  # env steps since the start of the run
    episodes: int  # episodes finished since the start of the run
    steps: int  # env steps of this update
    progress: float  # part of the run that is over, 0 to 1
    metrics: dict[str, float]
    breakdown: Breakdown
    notes: tuple[str, ...] = ()  # what else there is to tell about it, a sentence each


class Trainer:
    """A training run in progress: iterate over it to train, one `Update` at a time.

    Between two updates `snapshot` holds everything the rest of the run depends on, and `restore` goes on from there as if
    nothing had happened.
    """

    unbeatable = False
    """Whether an episode was played that is as good as any can be."""

    def __init__(self, config: TrainConfig, watch: Stopwatch | None = None) -> None:
        config = settled(config)
        self.config, self.world = config, world_of(config.env)
        require_certainty(config)
        self.watch = watch or Stopwatch()
        self.device = pick_device(config.device)
        self.threads, self.thread_plan = use_threads(config.threads)
        env_seed, policy_seed, action_seed, order_seed = spread_seed(config.seed, 4)
        self.engine = make_config_engine(config, env_seed)
        try:
            self.policy = make_policy(self.engine.env, config, policy_seed).to(self.device)
        except BaseException:
            self.engine.close()
            raise
        self.actor = Actor(self.policy, config.num_envs, action_seed, config.dedup, threads=self.threads)
        self.actor.watch = self.watch
        self.ppo = PPO(
            self.policy, config.ppo, order_seed, config.dedup, self.threads, False if config.compile else None,
            config.schedule,
        )  # fmt: skip
        if config.compile:
            self.policy.network.compile(dynamic=True)
        self.step = self.episodes = self.number = 0
        self.collecting = False  # whether an update is under way and has changed nothing yet
        self.updating = False  # whether an update is under way
        self._deduplicated = config.dedup
        self._before: Saved | None = None  # a snapshot from before the collect under way, where that may take long
        self._collect_seconds = SLOW_COLLECT  # of the latest collect
        self._earlier: deque[Rollout] = deque(maxlen=config.reuse)
        self.elite = Elite(config.ppo.elite)
        if config.warm_start is not None:
            self._begin_warm()

    @property
    def progress(self) -> float:
        """Part of the run that is over."""
        config = self.config
        if self.unbeatable:
            return 1.0
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
        self.actor.version = self.number
        self._before = self.snapshot() if self._collect_seconds >= SLOW_COLLECT else None
        began = time.monotonic()
        self.collecting = self.updating = True
        with watch.span("collect"):
            rollout = self.engine.collect(self.actor, config.num_steps, watch)
            while not rollout.num_steps:  # every episode was lost; the restart budget ends this if it goes on
                rollout = self.engine.collect(self.actor, config.num_steps, watch)
        self.collecting, self._before = False, None
        self._collect_seconds = time.monotonic() - began
        with watch.span("learn"):
            to_imitate = self._models(rollout)
            metrics = self.ppo.update(rollout, watch, self.progress, tuple(self._earlier), to_imitate)
        if config.reuse:
            self._earlier.append(rollout)
        self.number += 1
        self.step += rollout.num_steps
        self.episodes += len(rollout.episode_returns)
        ends = self._note_perfection(rollout)
        if self.elite.episodes and self.progress >= 1.0:
            with watch.span("learn"), watch.span("imitate"):
                settle(self.policy, self.elite.episodes[0], np.random.default_rng(config.seed))
        with watch.span("learn"), watch.span("metrics"):
            require_finite("A weight", [float(np.abs(self.policy.vector).max())], rollout, config.ppo)
            metrics = {**_episode_metrics(rollout, self.world), **metrics, **self._fault_metrics()}
            notes = (*self._note_repeats(rollout, metrics), *ends)
        self.updating = False
        return Update(
            self.number, self.step, self.episodes, rollout.num_steps, self.progress, metrics, watch.lap(), notes
        )

    def _note_perfection(self, rollout: Rollout) -> tuple[str, ...]:
        """A sentence if an episode is as good as any can be and is kept, which ends the run."""
        if self.world.unbeatable is None or not self.elite.episodes:
            return ()
        said = self.world.unbeatable(self.config, rollout.episode_metrics)
        self.unbeatable = said is not None
        return () if said is None else (said,)

    def _note_repeats(self, rollout: Rollout, metrics: dict[str, float]) -> tuple[str, ...]:
        """Add to the metrics whether deduplication is worth it; a sentence where that has changed."""
        if not self.config.dedup or self.policy.memory_size:
            return ()
        if self._deduplicated and rollout.num_steps >= REPEATS_WORTH_FINDING * len(rollout.observations):
            metrics["dedup"] = 1.0  # whichever of the observations were met: counting them takes longer
            return ()
        repeats = rollout.num_steps / rollout.num_distinct
        before, self._deduplicated = self._deduplicated, repeats >= REPEATS_WORTH_FINDING
        metrics["dedup"] = float(self._deduplicated)
        if before == self._deduplicated:
            return ()
        met = f"an observation was met {rounded_down(repeats)} times on average"
        if self._deduplicated:
            return (f"Deduplication is taken up again: {met}.",)
        return (f"Deduplication is given up: {met}, fewer than {REPEATS_WORTH_FINDING:g}. It is tried now and then.",)

    def _begin_warm(self) -> None:
        """Begin with what a rule does: an episode to imitate, or to follow from the start."""
        if self.world.demonstrate is None:
            raise RedlineError(
                f"--warm-start {self.config.warm_start} needs rules to begin with, and {self.config.env} has none. "
                "Leave it out."
            )
        episode = self.world.demonstrate(self.config)
        if episode is not None and self.config.clone:
            clone(self.policy, Demonstrations(self.policy, [episode]), np.random.default_rng(self.config.seed))
        if episode is not None and self.elite.keep:
            self.elite.add(episode)

    def _models(self, rollout: Rollout) -> Demonstrations | None:
        """The episodes to imitate: the best so far, if any are to be kept."""
        if not self.elite.keep:
            return None
        with self.watch.span("elite"):
            self.elite.see(rollout)
            return models(self.policy, self.elite.episodes, self.config.ppo.gamma, self.progress)

    def _fault_metrics(self) -> dict[str, float]:
        """Restarts and lost episodes since the start of the process, once there are any."""
        faults = self.engine.faults
        if not faults.restarts and not faults.lost_episodes:
            return {}
        return {"restarts": float(faults.restarts), "lost_episodes": float(faults.lost_episodes)}

    @property
    def is_savable(self) -> bool:
        """Whether a snapshot would hold all there is: not within a collect, unless one was taken before it."""
        return not self.collecting or self._before is not None

    def snapshot(self) -> Saved:
        """Arrays and plain values from which `restore` continues bit for bit.

        Of a collect that was broken off nothing is left: the snapshot is that from before it.
        """
        if self._before is not None:
            return self._before
        arrays = {f"policy.{name}": tensor for name, tensor in self.policy.arrays().items()}
        arrays |= {f"ppo.{name}": array for name, array in self.ppo.snapshot_arrays().items()}
        arrays |= {f"actor.{name}": array for name, array in self.actor.snapshot().items()}
        if not self.updating:  # an update that was broken off has left the envs in the middle of something
            arrays |= {f"engine.{name}": array for name, array in (self.engine.snapshot() or {}).items()}
        arrays |= {f"elite.{name}": array for name, array in self.elite.snapshot().items()}
        for k, rollout in enumerate(self._earlier):
            kept = {name: value for name, value in vars(rollout).items() if isinstance(value, np.ndarray)}
            arrays |= {f"earlier.{k}.{name}": array for name, array in kept.items()}
        values = {"step": self.step, "episodes": self.episodes, "number": self.number, "order": self.ppo.order_state()}
        return arrays, {**values, "unbeatable": self.unbeatable, "deduplicated": self._deduplicated}

    def restore(self, arrays: dict[str, np.ndarray], values: dict[str, Any], where: str = "The snapshot") -> bool:
        """Go on from a snapshot. Returns whether the envs go on too (those that cannot be saved begin new episodes).

        It may come from a file, called `where` in errors: all of it is looked through before it is used.
        """
        with refusing(where):
            self._require_possible(arrays, values)
            load_weights(self.policy, below(arrays, "policy"))
            self.ppo.restore(below(arrays, "ppo"), values["order"])
            self.actor.restore(below(arrays, "actor"))
            self.elite.restore(below(arrays, "elite"))
            self._earlier.clear()
            for k in range(self.config.reuse):
                if saved := below(arrays, f"earlier.{k}"):
                    self._earlier.append(Rollout(**{"masks": None, "episode_metrics": {}, **saved}))  # type: ignore[arg-type]
            self.step, self.episodes, self.number = values["step"], values["episodes"], values["number"]
            self._deduplicated = values.get("deduplicated", self.config.dedup)  # earlier versions kept none
            self.unbeatable = bool(values.get("unbeatable", False))
        saved_envs = below(arrays, "engine")
        if saved_envs:
            with refusing(where):
                self.engine.restore(saved_envs)
        else:  # new episodes, and not the ones that the run began with
            self.engine.close()
            self.engine = make_config_engine(self.config, spread_seed(self.config.seed, 4, self.step)[0])
            self.actor.forget(np.arange(self.config.num_envs))
        return bool(saved_envs)

    def _require_possible(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> None:
        """Refuse a snapshot that no training could have come to."""
        require_steps(values)
        env = self.engine.env
        experience = Experience(self.policy.encoding, env.single_action_space, self.policy.head.num_outputs)
        ppo, actor = below(arrays, "ppo"), below(arrays, "actor")
        require_numbers(ppo, "ppo")
        require_like(ppo, {name: array for name, array in self.ppo.snapshot_arrays().items() if name in ppo}, "ppo")
        experience.require_actor(actor, self.actor.snapshot())
        experience.require_elite(below(arrays, "elite"), self.config.num_envs)
        for k in range(self.config.reuse):
            if saved := below(arrays, f"earlier.{k}"):
                experience.require_rollout(saved, f"earlier.{k}")

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


def trainer_for(config: TrainConfig) -> Trainer:
    """What trains on the env of a config: one policy, or one for each kind of agent of a team."""
    if not world_of(config.env).agents:
        return Trainer(config)
    from redline.learn.team import TeamTrainer

    return TeamTrainer(config)


def rounded_down(number: float) -> str:
    """Two digits of a number that is not below 1, never more than it is: what is below a limit also reads so."""
    return f"{math.floor(10 * number) / 10:g}" if number < 10 else f"{math.floor(number)}"


def warm_up(config: TrainConfig, updates: int = 1) -> None:
    """Have everything compiled that a run needs, by a tiny run of the same kind, so that no update has to wait for it.

    The first of its `updates` looks observations up; where they do not repeat, the next ones do without.
    """
    once = dataclasses.replace(config.ppo, minibatches=1)
    tiny = dataclasses.replace(
        config, warm_start=None, engine="vector", collecting=Collecting(), num_envs=2, num_steps=4, ppo=once
    )
    if not is_compiled(config.env):  # an env of somebody else is left alone
        tiny = dataclasses.replace(tiny, env="slow", env_options={"mean_ms": 1e-6, "max_steps": 2})
        tiny = dataclasses.replace(tiny, network=None, make_network=None)  # which may fit its own env only
    trainer = trainer_for(tiny)
    for _ in range(updates):
        trainer.update()
    trainer.close()


def load_weights(policy: Policy, arrays: dict[str, np.ndarray]) -> None:
    """Give a policy the weights of a checkpoint, if they are weights and fit it."""
    require_numbers(arrays, "policy")
    require_like(arrays, policy.arrays(), "policy")
    policy.load(arrays)


def below(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix.`, without it."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(prefix + ".")}


def make_config_engine(config: TrainConfig, seed: int) -> Engine:
    """The engine a config asks for. Envs that play on by themselves do so on as many threads as learn."""
    threads = config.collecting.play_threads or config.threads or cores()
    collecting = dataclasses.replace(config.collecting, play_threads=threads)
    return make_engine(config.engine, config.env, config.num_envs, seed, _env_options(config), collecting)


def choose_engine(config: TrainConfig, say: Callable[[str], None]) -> tuple[TrainConfig, Choice]:
    """The config with the engine that collects fastest here, and how that was found out."""

    def policy_for(env: EnvDescription, num_envs: int) -> Actor:
        return Actor(make_policy(env, config, 0), num_envs, 0, config.dedup)

    options = _env_options(config)
    choice = choose(config.env, config.num_envs, config.num_steps, options, config.collecting, policy_for, say)
    collecting = dataclasses.replace(config.collecting, workers=choice.workers)
    return dataclasses.replace(config, engine=choice.engine, collecting=collecting), choice


def _env_options(config: TrainConfig) -> dict[str, Any]:
    native = is_compiled(config.env)
    return {**config.env_options, **({"turbo": config.turbo} if native else {})}


def spread_seed(seed: int, count: int, step: int = 0) -> list[int]:
    """Independent seeds that follow from one, and from the step of a run that goes on with new episodes."""
    entropy = np.random.SeedSequence([seed, step] if step else seed)
    return [int(part) for part in entropy.generate_state(count, np.uint32)]


def pick_device(name: str) -> str:
    """The device called `name`; `auto` takes a GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise RedlineError(f"There is no device {name!r}. Try --device auto, cpu or cuda.")
    if name == "cpu" or (name == "auto" and not _may_have_gpu()):
        return "cpu"
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise RedlineError("--device cuda was asked for, but torch finds no CUDA device here. Try --device auto.")
    return "cuda" if torch.cuda.is_available() else "cpu"


def _may_have_gpu() -> bool:
    """Whether torch could find a GPU: loading it to ask takes longer than the first updates."""
    return not sys.platform.startswith("linux") or any(Path(each).exists() for each in GPU_DEVICES)


def make_policy(env: Any, config: TrainConfig, seed: int) -> Policy:
    """A fresh policy that fits the env; for a team, one of several."""
    if getattr(env, "agents", ()):
        from redline.learn.team_policy import make_team_policy

        return make_team_policy(env, config, seed)
    try:
        encoding, head = encoding_of(env), head_for(env.single_action_space)
    except RedlineError as error:
        raise RedlineError(f"{config.env} cannot be learned. {error}") from error
    return Policy(
        encoding, head, config.hidden, config.shared, config.activation, config.recurrent or "",
        config.normalise_observations, _module(config), seed,
    )  # fmt: skip


def _module(config: TrainConfig) -> Module | None:
    """The network of one's own that a config asks for, if it does."""
    if config.make_network is not None or config.network is None:
        return config.make_network
    from redline.learn.network.custom import FORM

    found: Module = load_object(config.network, FORM)
    return found


def _episode_metrics(rollout: Rollout, world: World) -> dict[str, float]:
    returns, lengths = rollout.episode_returns, rollout.episode_lengths
    if not len(returns):
        return dict.fromkeys(("return", "return_std", "return_min", "return_max", "length"), float("nan"))
    return {
        "return": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "length": float(lengths.mean()),
        **{name: _mean_told(values) for name, values in rollout.episode_metrics.items()},
        **(world.summarise(rollout.episode_metrics) if world.summarise else {}),
    }


def _mean_told(values: np.ndarray) -> float:
    """The mean over the episodes that something was told about."""
    told = values[~np.isnan(values)]
    return float(told.mean()) if len(told) else float("nan")
