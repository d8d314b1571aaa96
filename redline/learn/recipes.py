"""Settings to start from, by env: what `redline train` uses where nothing else is said."""

from __future__ import annotations

from dataclasses import replace

from redline.envs.petri import PREFIX
from redline.learn.config import PPOConfig, TrainConfig

NETS = PPOConfig(
    learning_rate=1e-3, minibatches=8, gamma=1.0, entropy=0.02, anneal_entropy=True, reward_scale=1.0,
    normalise_returns=True, elite=8,
)  # fmt: skip
"""Timed nets: nothing is left to chance, episodes are long and only their end counts."""
TOOLS = replace(NETS, minibatches=4, imitation=5.0)
"""Cluster tools: what is found by luck is hard to find again, so it is held on to."""


def recipe(env: str) -> TrainConfig:
    """The settings that suit an env."""
    if env.startswith(f"{PREFIX}cluster/"):
        # an untrained policy scraps its first wafer, and learns little from that but not to touch the next
        options = {"lenient": True}
        return TrainConfig(env, options, num_envs=256, num_steps=64, warm_start="near", ppo=TOOLS)
    if env.startswith(PREFIX):
        return TrainConfig(env, num_envs=256, num_steps=128, warm_start="best", ppo=NETS)
    return TrainConfig(env)
