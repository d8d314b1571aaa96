"""A first episode to learn from: what a rule does on a timed net, or a schedule from a file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.learn.elite import Episode
from redline.worlds.petri.dispatching import actions_for, play_actions, rule_actions, rules_for
from redline.worlds.petri.env import PetriVectorEnv
from redline.worlds.petri.instances import Instance, parse_petri
from redline.worlds.petri.replay import load_recording

BEST = "best"
"""The rule that ends first."""
NEAR = "near"
"""The same, unless it ends so late that it would lead astray."""
NEAR_ENOUGH = 1.2
"""Times the lower bound."""


def demonstrate(config: TrainConfig) -> Episode | None:
    """The episode that `config.warm_start` names, played in the env of the config; None if no rule can play it."""
    if config.warm_start is None:
        return None
    instance = parse_petri(config.env, **config.env_options)
    if config.warm_start.endswith(".json"):
        return replay(instance, actions_for(instance.net, load_recording(Path(config.warm_start)).script))
    if config.warm_start not in (BEST, NEAR):
        return replay(instance, rule_actions(instance, config.warm_start))
    possible = [actions for actions in _possible(instance) if config.warm_start == BEST or _is_near(instance, actions)]
    return max((replay(instance, actions) for actions in possible), key=lambda episode: episode.total, default=None)


def _possible(instance: Instance) -> list[list[int]]:
    """The actions of all rules that the options of a net allow."""
    found = []
    for rule in rules_for(instance):
        with suppress(RedlineError):
            found.append(rule_actions(instance, rule))
    return found


def _is_near(instance: Instance, actions: list[int]) -> bool:
    """Whether actions lead to an end that is not far from the lower bound."""
    makespan, bound = play_actions(instance.net, actions).makespan, instance.lower_bound
    return bound is None or makespan <= NEAR_ENOUGH * bound


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
