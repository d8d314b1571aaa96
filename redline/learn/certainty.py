"""Whether chance plays a part in an env: what its world says, or else what two of them do under the same actions."""

from __future__ import annotations

import contextlib
import random
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from redline.engines.spec import Spec
from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.processes import TimeUp, ends_in_time, time_limit
from redline.worlds.registry import world_of

STEPS, SECONDS = 200, 2.0
"""For how long two envs are watched."""


def require_certainty(config: TrainConfig) -> None:
    """Refuse to imitate the best episodes of an env whose best ones are the luckiest."""
    if config.ppo.elite and _is_left_to_chance(config):
        raise RedlineError(
            f"--elite {config.ppo.elite} would imitate lucky episodes: chance plays a part in {config.env}. Try --elite 0."
        )


def _is_left_to_chance(config: TrainConfig) -> bool:
    known, spec = world_of(config.env).chance, Spec.plain(config.env, config.env_options)
    if known is not None:
        return known
    if spec.vector is not None:
        raise RedlineError(
            f"--elite {config.ppo.elite} is for envs that leave nothing to chance, which cannot be tried with a VectorEnv. "
            "Pass a function that makes one env, or leave elite out."
        )
    kept = random.getstate(), np.random.get_state()
    try:
        return _differ(spec)
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def _differ(spec: Spec) -> bool:
    """Whether two envs with different seeds answer the same actions in different ways, as far as is seen in a moment."""
    with contextlib.ExitStack() as open_envs, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they will be heard when envs are made for good
        with contextlib.suppress(TimeUp), time_limit(SECONDS):
            one, other = (_made(spec, open_envs) for _ in range(2))
            one.action_space.seed(0)
            return _answer_differently(one, other)
    return False


def _made(spec: Spec, open_envs: contextlib.ExitStack) -> gym.Env:
    env = spec.single()
    open_envs.callback(ends_in_time, env.close)
    return env


def _answer_differently(one: gym.Env, other: gym.Env) -> bool:
    (obs, info), (other_obs, _) = one.reset(seed=0), other.reset(seed=1)
    if not data_equivalence(obs, other_obs, exact=True):
        return True
    for _ in range(STEPS):
        action = _any_action(one.action_space, info)
        *told, info = one.step(action)
        *other_told, _ = other.step(action)
        if not data_equivalence(tuple(told), tuple(other_told), exact=True):
            return True
        if told[2] or told[3]:
            (_, info), _ = one.reset(), other.reset()
    return False


def _any_action(space: gym.Space, info: dict[str, Any]) -> Any:
    mask = info.get("action_mask")
    return space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))
