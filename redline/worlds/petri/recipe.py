"""Settings to train on timed nets with where nothing else is said."""

from __future__ import annotations

from dataclasses import replace

from redline.errors import RedlineError
from redline.learn.config import PPOConfig, TrainConfig
from redline.worlds.petri.instances import parse_petri
from redline.worlds.world import Say

NETS = PPOConfig(
    learning_rate=1e-3, minibatches=2, gamma=1.0, entropy=0.02, anneal_entropy=True, reward_scale=1.0,
    normalise_returns=True, elite=8, whole_observations=True,
)  # fmt: skip
"""Nothing is left to chance, episodes are long and only their end counts."""
TOOLS = replace(NETS, imitation=5.0)
"""Cluster tools: what is found by luck is hard to find again, so it is held on to."""


def recipe(name: str) -> TrainConfig:
    """The settings that suit a net."""
    if name.startswith("petri:cluster/"):
        # an untrained policy scraps its first wafer, and learns little from that but not to touch the next
        options = {"lenient": True}
        return TrainConfig(name, options, num_envs=256, num_steps=64, warm_start="near", ppo=TOOLS)
    return TrainConfig(name, num_envs=256, num_steps=128, warm_start="best", ppo=NETS)


def fit(config: TrainConfig, chosen: frozenset[str], say: Say) -> TrainConfig:
    """The config as it is. A net without a goal is refused: every reward would be 0."""
    net = parse_petri(config.env, **config.env_options).net
    if not net.goal:
        ends = [place.name for place in net.places if not any(place.name in dict(t.inputs) for t in net.transitions)]
        wanted = (ends or [net.places[-1].name])[0]
        raise RedlineError(
            f"{config.env} has no goal, so every reward would be 0. Say which tokens are wanted where, such as "
            f"'{config.env}?goal={wanted}:1'; its places are {', '.join(place.name for place in net.places[:12])}."
        )
    return config
