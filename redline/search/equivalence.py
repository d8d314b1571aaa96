"""Which workflows are alike: the same episodes, judged by each of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redline.compiled.rng import actor_seed
from redline.engines.lockstep import Lockstep
from redline.learn import checkpoint
from redline.learn.acting import Actor
from redline.learn.config import config_from_json
from redline.learn.policy import Policy
from redline.learn.train import below, make_policy
from redline.timing.stopwatch import Stopwatch
from redline.worlds.registry import make_env


@dataclass(frozen=True)
class Judging:
    """Episodes to be judged: some of an untrained policy and as many of a start. Picklable."""

    config: dict[str, Any]  # of the start's trainer, as JSON
    start: str  # its checkpoint
    options: list[dict[str, Any]]  # of the env, for each workflow
    episodes: int
    episode_steps: int
    seed: int


def judge(task: Judging) -> np.ndarray:
    """Compliance of each episode with each workflow, [workflows, episodes].

    A policy that knows nothing of workflows plays, and its actions are judged by each of them. Two that never judge
    differently are one and the same to whoever is trained to obey them.
    """
    config = config_from_json(task.config)
    env = make_env(config.env, task.episodes, encoded=True, **config.env_options)
    policy = make_policy(env, config, config.seed)
    played = [_play(env, policy, task)]
    policy.load(below(checkpoint.load(Path(task.start)).arrays, "policy"))
    played.append(_play(env, policy, task))
    return np.array([_compliance(config.env, task, options, played) for options in task.options])


def _play(env: Any, policy: Policy, task: Judging) -> np.ndarray:
    """The actions of whole episodes, [steps, episodes]."""
    actor = Actor(policy, task.episodes, actor_seed(task.seed))
    return Lockstep(env, task.seed).collect(actor, task.episode_steps, Stopwatch()).actions


def _compliance(name: str, task: Judging, options: dict[str, Any], played: list[np.ndarray]) -> np.ndarray:
    """How well the same actions obey, in an env of these options."""
    env = make_env(name, task.episodes, encoded=True, **options)
    told = []
    for actions in played:
        env.reset(seed=task.seed)
        for chosen in actions:
            *_, infos = env.step(chosen)
        told.append(infos["episode_metrics"]["compliance"])
    return np.concatenate(told)


def tell_apart(compliance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group of each workflow [n], one for those that are alike, and how far apart any two are [n, n], 1 at most."""
    _, groups = np.unique(compliance, axis=0, return_inverse=True)
    apart = np.abs(compliance[:, None] - compliance[None]).mean(axis=2)
    return groups.reshape(-1), apart / max(float(apart.max()), 1e-12)
