"""Settings to start from, by env: what `redline train` uses where nothing else is said."""

from __future__ import annotations

from redline.envs.petri import PREFIX
from redline.learn.config import PPOConfig, TrainConfig

NETS = PPOConfig(
    learning_rate=1e-3, minibatches=8, gamma=1.0, entropy=0.01, anneal_entropy=True, reward_scale=1.0,
    normalise_returns=True, elite=8, imitation=1.0,
)  # fmt: skip
"""Timed nets: nothing is left to chance, episodes are long and only their end counts."""


def recipe(env: str) -> TrainConfig:
    """The settings that suit an env."""
    if not env.startswith(PREFIX):
        return TrainConfig(env)
    # a cluster tool pays for progress, or an untrained policy would learn to scrap its first wafer at once
    options = {"reward": "progress"} if env.startswith(f"{PREFIX}cluster/") else {}
    return TrainConfig(env, options, num_envs=256, num_steps=128, warm_start="best", ppo=NETS)
