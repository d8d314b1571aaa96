"""Scoring: the official CAGE-2 protocol, and the return of any env."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from redline.baselines import make_baseline
from redline.engines import ENGINES, vector
from redline.envs import make_env
from redline.envs.cage2 import Cage2VectorEnv
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.acting import Actor
from redline.learn.config import TrainConfig, config_from_json
from redline.learn.policy import Policy
from redline.learn.train import below, make_policy
from redline.rollout import Acting
from redline.sims.cage2.scenario import RULES, Scenario

LENGTHS = (30, 50, 100)
"""Episode lengths of the official protocol."""
PROTOCOL_AGENTS = ("B_lineAgent", "RedMeanderAgent", "SleepAgent")
BATCH = 1000  # episodes played side by side

PUBLISHED: dict[str, dict[tuple[str, int], float]] = {
    name: {
        (agent, length): score
        for (length, agent), score in zip(
            [(length, agent) for length in LENGTHS for agent in PROTOCOL_AGENTS[:2]], scores, strict=True
        )
    }
    for name, scores in {
        "Cardiff": (-3.47, -5.64, -6.41, -8.69, -13.76, -16.6),
        "KIRL-ens": (-3.48, -6.47, -5.85, -10.33, -11.39, -19.38),
        "Mindrake": (-3.53, -6.76, -6.2, -10.13, -12.78, -17.65),
        "KIRL-PPO": (-4.76, -8.03, -8.13, -12.91, -17.19, -22.94),
    }.items()
}
"""The leaderboard of 12 August 2022: 1,000 episodes an entry, rule set `leaderboard`.

Cardiff: CardiffUni (PPO and greedy decoys). KIRL: Keeping it RL (an ensemble of ensembles; plain PPO). Mindrake:
hierarchical PPO.
"""


@dataclass(frozen=True)
class Score:
    """How a policy did in one setting."""

    rules: str
    red_agent: str
    length: int
    episodes: int
    mean: float
    stderr: float
    std: float


@dataclass(frozen=True)
class Trained:
    """A policy read from a run, and what it was trained on."""

    policy: Policy
    config: TrainConfig
    path: Path
    step: int


def score(returns: np.ndarray, rules: str, red_agent: str, length: int) -> Score:
    """Mean and standard error of episode returns."""
    std = float(returns.std(ddof=1)) if len(returns) > 1 else float("nan")
    return Score(rules, red_agent, length, len(returns), float(returns.mean()), std / len(returns) ** 0.5, std)


def load_policy(path: Path) -> Trained:
    """The policy of a run (its newest checkpoint) or of one checkpoint."""
    if (path / "search_state.json").exists():
        raise RedlineError(f"{path} is a workflow search. Its best policy is {path / 'best'}, once the search is done.")
    found = checkpoint.load(checkpoint.resolve(path))
    if "config" not in found.values:
        raise RedlineError(f"{found.path} does not say what was trained. It was not written by `redline train`.")
    config = config_from_json(found.values["config"])
    env = make_env(config.env, 1, **config.env_options, **({"packed": True} if config.env == "cage2" else {}))
    policy = make_policy(env, config, seed=0)
    policy.load_state_dict({name: torch.from_numpy(array) for name, array in below(found.arrays, "policy").items()})
    return Trained(policy, config, found.path, found.step)


def play(env: VectorEnv, policy: Acting, episodes: int, seed: int) -> np.ndarray:
    """Returns of `episodes` episodes, float64. Every env plays the same number, so short episodes are not favoured."""
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    obs, infos = env.reset(seed=seed)
    masks, running, returns = infos.get("action_mask"), np.zeros(env.num_envs), []
    step = 0
    while quota.any():
        if step % 1000 == 0:
            policy.begin(1000)
        obs, rewards, terminated, truncated, infos = env.step(policy.act(obs, masks).actions)
        masks, running, step = infos.get("action_mask"), running + rewards, step + 1
        ended = terminated | truncated
        if ended.any():
            counted = ended & (quota > 0) & ~infos.get("lost", np.False_)
            returns.append(running[counted])
            quota[counted] -= 1
            running[ended] = 0.0
    return np.round(np.concatenate(returns), 9)


def evaluate_cage2(
    policy: Policy | str,
    scenario: Scenario,
    *,
    episodes: int = 1000,
    lengths: Iterable[int] = LENGTHS,
    red_agents: Iterable[str] = PROTOCOL_AGENTS,
    rule_sets: Iterable[str] = RULES,
    seed: int = 0,
    deterministic: bool = False,
) -> list[Score]:
    """Scores of a policy (or of the baseline of that name) in every setting, as the challenge scores them."""
    scores = []
    for rules in rule_sets:
        for length in lengths:
            for agent in red_agents:
                # scores are the environment's own reward: obedience to a workflow pays nothing here
                setting = dataclasses.replace(
                    scenario, rules=rules, max_steps=length, red_agent=agent, alignment_lambda=0.0
                )
                returns = _returns(policy, setting, episodes, seed, deterministic)
                scores.append(score(returns, rules, agent, length))
    return scores


def _returns(policy: Policy | str, scenario: Scenario, episodes: int, seed: int, deterministic: bool) -> np.ndarray:
    num_envs = min(episodes, BATCH)
    if isinstance(policy, str):
        plain = dataclasses.replace(scenario, observation="table", actions="all", workflow="")
        plain_env = Cage2VectorEnv(num_envs, plain)
        return play(plain_env, make_baseline(policy, seed, plain_env), episodes, seed)
    env = make_env("cage2", num_envs, scenario=scenario, packed=True)
    return play(env, Actor(policy, num_envs, seed, deterministic=deterministic), episodes, seed)


def evaluate_env(trained: Trained, episodes: int, seed: int, deterministic: bool) -> np.ndarray:
    """Episode returns of a policy in the env it was trained on, played where it was trained: here, or in workers."""
    config = trained.config
    num_envs = min(episodes, 64)
    workers = ENGINES[config.engine].workers if config.engine in ENGINES else False
    env = vector(
        config.env, num_envs, "shared" if workers else "vector",
        workers=config.collecting.workers, seed=seed, faults=config.collecting.faults, infos=False, **config.env_options,
    )  # fmt: skip
    try:
        return play(env, Actor(trained.policy, num_envs, seed, False, deterministic), episodes, seed)
    finally:
        env.close()


def scenario_of(config: TrainConfig) -> Scenario:
    """What a CAGE-2 run played."""
    return Scenario(**config.env_options)


def as_json(scores: list[Score]) -> list[dict[str, Any]]:
    """Scores as plain data."""
    return [dataclasses.asdict(each) for each in scores]
