"""Settings for envs that we did not write, fitted to what a step of theirs costs and to the steps asked for."""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from redline.engines import ENGINES
from redline.engines.auto import spelled
from redline.engines.spec import Spec
from redline.errors import RedlineError
from redline.learn.config import PPOConfig, TrainConfig, nearest_divisor, settled
from redline.processes import TimeUp, ends_in_time, time_limit
from redline.threads import cores
from redline.worlds.encoding import Image
from redline.worlds.given import vector_named
from redline.worlds.observations import space_encoding
from redline.worlds.world import Say

PPO = PPOConfig(
    learning_rate=1e-3, epochs=10, minibatches=0, entropy=0.0, reward_scale=1.0, normalise_returns=True
)  # fmt: skip
NUM_ENVS, NUM_STEPS = 8, 256
LEAST_ROW = 32  # steps of an env between two updates, where somebody wants many envs
PICTURES = {"epochs": 4, "entropy": 0.01}
PICTURE_MINIBATCH = 256
MEMORY_KL = 0.02  # what is remembered at the start of a sequence is that of the policy as it was: it must stay near
LEAST_UPDATES = 50
FIRST_UPDATE_SECONDS = 8.0  # for its collect; learning from it is quick
LEAST_STEPS = 8  # an update of fewer would teach nothing
PROBE_SECONDS, PROBE_LIMIT = 0.3, 5.0


def recipe(name: str) -> TrainConfig:
    """The settings to begin with: those of an env whose steps cost next to nothing."""
    return TrainConfig(name, num_envs=NUM_ENVS, num_steps=NUM_STEPS, ppo=PPO)


@dataclass(frozen=True)
class EnvCost:
    """The cost of one env, found by playing it for a moment."""

    step_seconds: float = 0.0
    reset_seconds: float = 0.0
    cut_short: bool = False  # by the time limit: it costs that much at least
    actions: gym.Space | None = None  # None where no env could be made in time
    observations: gym.Space | None = None


def fit(config: TrainConfig, chosen: frozenset[str], say: Say) -> TrainConfig:
    """The settings, sized so that the first update ends soon and there are many of them; those `chosen` stay.

    What it finds is coarse (powers of two) on purpose: a busy machine must not make another run of it.
    """
    given = vector_named(config.env)
    if given is not None:
        return settled(_suited(config, chosen, given.single_action_space, given.single_observation_space))
    if chosen >= {"num_envs", "num_steps"}:
        found = probe(config, seconds=0.0)
        return settled(_suited(config, chosen, found.actions, found.observations))
    found = probe(config)
    fitted = settled(sized(config, chosen, found))
    cost = f"over {PROBE_LIMIT:.0f} s" if found.cut_short else spelled(found.step_seconds)
    say(
        f"A step of {config.env} costs {cost}: {fitted.num_envs} envs x {fitted.num_steps} steps an update, "
        f"{fitted.ppo.minibatches} minibatches. Say --num-envs, --num-steps, --minibatches for others."
    )
    return fitted


def sized(config: TrainConfig, chosen: frozenset[str], found: EnvCost) -> TrainConfig:
    """The settings for an env of that cost."""
    steps = max(NUM_ENVS * NUM_STEPS, LEAST_ROW * config.num_envs)
    steps = min(steps, int(FIRST_UPDATE_SECONDS * _lanes(config) / max(found.step_seconds, 1e-9)))
    if config.steps_goal is not None:
        steps = min(steps, config.steps_goal // LEAST_UPDATES)
    steps = max(LEAST_STEPS, 2 ** (max(1, steps).bit_length() - 1))
    num_envs, num_steps = config.num_envs, config.num_steps
    if "num_envs" not in chosen:
        resets = max(1, int(0.5 * FIRST_UPDATE_SECONDS / max(found.reset_seconds, 1e-9)))
        num_envs = min(max(NUM_ENVS, _lanes(config)), resets, max(1, steps // LEAST_STEPS))
        if "num_steps" in chosen:
            num_envs = min(num_envs, max(1, steps // num_steps))
    if "num_steps" not in chosen:
        num_steps = min(NUM_STEPS, max(1, steps // num_envs))
    config = replace(config, num_envs=num_envs, num_steps=num_steps)
    return _suited(config, chosen, found.actions, found.observations)


def _suited(
    config: TrainConfig, chosen: frozenset[str], actions: gym.Space | None, observations: gym.Space | None
) -> TrainConfig:
    """The settings as they suit the spaces of an env."""
    if observations is not None and isinstance(space_encoding(observations), Image):
        return _for_pictures(config, chosen)
    wanted = isinstance(actions, gym.spaces.Box) or config.recurrent is not None
    plain = config.network is config.make_network is None
    if "normalise_observations" not in chosen and wanted and plain:
        config = replace(config, normalise_observations=True)
    if config.recurrent is not None and "target_kl" not in chosen:
        config = replace(config, ppo=replace(config.ppo, target_kl=MEMORY_KL))
    return config


def _for_pictures(config: TrainConfig, chosen: frozenset[str]) -> TrainConfig:
    """Looking costs more than anything else: actor and critic share it, in fewer passes and larger parts, and some entropy
    makes up for it.
    """
    changes: dict[str, Any] = {name: value for name, value in PICTURES.items() if name not in chosen}
    if "minibatches" not in chosen:
        batch = config.num_envs * config.num_steps
        changes["minibatches"] = nearest_divisor(batch, max(1, batch // PICTURE_MINIBATCH))
    shared = config.shared if "shared" in chosen else True
    return replace(config, shared=shared, ppo=replace(config.ppo, **changes))


def _lanes(config: TrainConfig) -> int:
    """Envs that step at the same time."""
    kind = ENGINES.get(config.engine)
    return min(config.collecting.workers or cores(), cores()) if kind is not None and kind.has_workers else 1


def probe(config: TrainConfig, seconds: float = PROBE_SECONDS) -> EnvCost:
    """Play one env for a moment, by random actions; 0 seconds only look at it.

    An env that fails is left to the engine, which says so better.
    """
    kept = random.getstate(), np.random.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they will be heard when the env is made for good
            return _played(config, seconds)
    except (RedlineError, KeyboardInterrupt):
        raise
    except BaseException:
        return EnvCost()
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def _played(config: TrainConfig, seconds: float) -> EnvCost:
    env: gym.Env | None = None
    reset_seconds, steps, began, played = PROBE_LIMIT, 0, time.perf_counter(), time.perf_counter()
    try:
        with time_limit(PROBE_LIMIT):
            env = Spec.plain(config.env, config.env_options).single()
            env.action_space.seed(0)
            began = played = time.perf_counter()
            if not seconds:
                return EnvCost(actions=env.action_space, observations=env.observation_space)
            _, info = env.reset(seed=0)
            played = time.perf_counter()
            reset_seconds = played - began
            while time.perf_counter() - played < seconds:
                _, _, terminated, truncated, info = env.step(_any_action(env.action_space, info))
                steps += 1
                if terminated or truncated:
                    _, info = env.reset()
    except TimeUp:
        cost = PROBE_LIMIT if not steps else (time.perf_counter() - played) / (steps + 1)
        spaces = () if env is None else (env.action_space, env.observation_space)
        return EnvCost(cost, reset_seconds, True, *spaces)
    finally:
        if env is not None:
            ends_in_time(env.close)
    cost = (time.perf_counter() - played) / max(1, steps)
    return EnvCost(cost, reset_seconds, False, env.action_space, env.observation_space)


def _any_action(space: gym.Space, info: dict[str, Any]) -> Any:
    mask = info.get("action_mask")
    return space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))
