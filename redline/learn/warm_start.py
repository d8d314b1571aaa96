"""A first episode to learn from: what a rule does on a timed net, or a schedule from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from redline.envs.petri import PREFIX, PetriVectorEnv
from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.learn.elite import Episode
from redline.sims.petri.instances import Instance, parse_petri
from redline.sims.petri.replay import load_recording
from redline.sims.petri.rules import actions_for, rule_actions, rules_for

BEST = "best"
"""The rule that ends first."""


def demonstrate(config: TrainConfig) -> Episode:
    """The episode that `config.warm_start` names, played in the env of the config."""
    if not config.env.startswith(PREFIX):
        raise RedlineError(
            f"--warm-start {config.warm_start} needs a timed net, not {config.env}. Try petri:jobshop/ft06."
        )
    instance = parse_petri(config.env, **config.env_options)
    return replay(instance, _actions(instance, config.warm_start))


def _actions(instance: Instance, name: str) -> list[int]:
    if name.endswith(".json"):
        return actions_for(instance.net, load_recording(Path(name)).script)
    rules = rules_for(instance)
    if name == BEST:
        return min((rule_actions(instance, rule) for rule in rules), key=lambda each: -replay(instance, each).total)
    return rule_actions(instance, name)


def replay(instance: Instance, actions: list[int]) -> Episode:
    """Play actions, noting what a policy would have seen."""
    env = PetriVectorEnv(1, instance.net, autoreset=False)
    obs, infos = env.reset(seed=0)
    seen, masks, paid = [], [], []
    for action in actions:
        seen.append(obs[0])
        masks.append(infos["action_mask"][0])
        obs, rewards, _, _, infos = env.step(np.array([action]))
        paid.append(rewards[0])
    return Episode(np.stack(seen), np.stack(masks), np.array(actions, np.int64), np.array(paid, np.float32))
