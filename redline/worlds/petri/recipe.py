"""Settings to train on timed nets with where nothing else is said."""

from __future__ import annotations

from dataclasses import replace

from redline.learn.config import PPOConfig, TrainConfig

NETS = PPOConfig(
    learning_rate=1e-3, minibatches=8, gamma=1.0, entropy=0.02, anneal_entropy=True, reward_scale=1.0,
    normalise_returns=True, elite=8,
)  # fmt: skip
"""Nothing is left to chance, episodes are long and only their end counts."""
TOOLS = replace(NETS, minibatches=4, imitation=5.0)
"""Cluster tools: what is found by luck is hard to find again, so it is held on to."""


def recipe(name: str) -> TrainConfig:
    """The settings that suit a net."""
    if _is(name, "cluster"):
        # an untrained policy scraps its first wafer, and learns little from that but not to touch the next
        options = {"lenient": True}
        return TrainConfig(name, options, num_envs=256, num_steps=64, warm_start="near", ppo=TOOLS)
    return TrainConfig(name, num_envs=256, num_steps=128, warm_start="best", ppo=NETS)


def steps(name: str) -> int:
    """Env steps to train for."""
    return 8_000_000 if _is(name, "jobshop") else 6_000_000


def _is(name: str, family: str) -> bool:
    return name.startswith(f"petri:{family}/")
