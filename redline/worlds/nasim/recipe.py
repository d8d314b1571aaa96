"""Settings to train an attacker with where nothing else is said."""

from __future__ import annotations

from redline.learn.config import PPOConfig, TrainConfig

ATTACK = PPOConfig(
    learning_rate=2e-3, minibatches=4, gamma=0.995, entropy=0.03, anneal_entropy=True, reward_scale=1.0,
    normalise_returns=True,
)  # fmt: skip
"""All actions cost and few pay: much entropy at first, or the attacker learns to do whatever is cheapest; and a long
view, for until it has learned to attack, the first reward is a thousand steps away."""

STEPS = {"tiny": 4_000_000, "small": 8_000_000, "medium": 16_000_000}
"""Env steps to train for, by how the name of a network begins."""
MORE_STEPS = 32_000_000


def recipe(name: str) -> TrainConfig:
    """The settings that suit a network."""
    return TrainConfig(name, num_envs=1024, num_steps=64, ppo=ATTACK)


def steps(name: str) -> int:
    """Env steps to train for."""
    bare = name.partition(":")[2]
    return next((steps for size, steps in STEPS.items() if bare.startswith(size)), MORE_STEPS)
