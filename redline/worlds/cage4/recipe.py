"""Settings to train the five defenders with where nothing else is said."""

from __future__ import annotations

from redline.learn.config import PPOConfig, TrainConfig

DEFENCE = PPOConfig(
    learning_rate=1e-3, epochs=4, minibatches=8, gamma=0.995, entropy=0.005, anneal_entropy=True, reward_scale=1.0,
    normalise_returns=True,
)  # fmt: skip
"""Rewards are of unknown size, and far from what brought them about."""


def recipe(name: str) -> TrainConfig:
    """The settings that suit the five defenders."""
    return TrainConfig(name, {"face": "memory"}, num_envs=64, num_steps=512, hidden=(64, 64), ppo=DEFENCE)


def steps(name: str) -> int:
    """Env steps to train for."""
    return 10_000_000
