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
from redline.learn.config import PPOConfig, TrainConfig, settled
from redline.processes import TimeUp, time_limit
from redline.threads import cores
from redline.worlds.given import vector_named
from redline.worlds.world import Say

PPO = PPOConfig(
    learning_rate=1e-3, epochs=10, minibatches=0, entropy=0.0, reward_scale=1.0, normalise_returns=True
)  # fmt: skip
NUM_ENVS, NUM_STEPS = 8, 256
LEAST_ROW = 32  # steps of an env between two updates, where somebody wants many envs
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


def fit(config: TrainConfig, chosen: frozenset[str], say: Say) -> TrainConfig:
    """The settings, sized so that the first update ends soon and there are many of them; those `chosen` stay.

    What it finds is coarse (powers of two) on purpose: a busy machine must not make another run of it.
    """
    if chosen >= {"num_envs", "num_steps"} or vector_named(config.env) is not None:
        return settled(config)
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
    return replace(config, num_envs=num_envs, num_steps=num_steps)


def _lanes(config: TrainConfig) -> int:
    """Envs that step at the same time."""
    kind = ENGINES.get(config.engine)
    return min(config.collecting.workers or cores(), cores()) if kind is not None and kind.has_workers else 1


def probe(config: TrainConfig) -> EnvCost:
    """Play one env for a moment, by random actions. An env that fails is left to the engine, which says so better."""
    kept = random.getstate(), np.random.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they will be heard when the env is made for good
            return _played(config)
    except RedlineError:
        raise
    except Exception:
        return EnvCost()
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def _played(config: TrainConfig) -> EnvCost:
    env: gym.Env | None = None
    reset_seconds, steps, began, played = PROBE_LIMIT, 0, time.perf_counter(), time.perf_counter()
    try:
        with time_limit(PROBE_LIMIT):
            env = Spec.plain(config.env, config.env_options).single()
            env.action_space.seed(0)
            began = time.perf_counter()
            _, info = env.reset(seed=0)
            played = time.perf_counter()
            reset_seconds = played - began
            while time.perf_counter() - played < PROBE_SECONDS:
                _, _, terminated, truncated, info = env.step(_any_action(env.action_space, info))
                steps += 1
                if terminated or truncated:
                    _, info = env.reset()
    except TimeUp:
        return EnvCost(PROBE_LIMIT if not steps else (time.perf_counter() - played) / (steps + 1), reset_seconds, True)
    finally:
        if env is not None:
            env.close()
    return EnvCost((time.perf_counter() - played) / steps, reset_seconds)


def _any_action(space: gym.Space, info: dict[str, Any]) -> Any:
    mask = info.get("action_mask")
    return space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))
