"""Moments of play: what a policy met, and the information states that these moments belong to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.learn.distinct import Distinct, words_of
from redline.learn.judge import Arena
from redline.learn.likeliest import Likeliest
from redline.learn.policy import Policy

MOST_BYTES = 1 << 29
"""Moments of play are kept up to this size."""


class Moments(NamedTuple):
    """What a policy met while it played, moment by moment, and the information states that they belong to."""

    snapshots: dict[str, np.ndarray]  # [V, ...]
    ages: np.ndarray  # [V] steps since the episode began
    observations: np.ndarray  # [S, ...] the commonest first
    masks: np.ndarray | None  # [S, actions]
    visits: np.ndarray  # [S]
    members: list[np.ndarray]  # for each state, moments

    def common(self, most: int, least_visits: int) -> int:
        """How many of the commonest states to look at: `most`, or those with so many visits."""
        return min(most, int(np.count_nonzero(self.visits >= least_visits)))


def visit(policy: Policy, arena: Arena, episodes: int, seed: int) -> Moments:
    """Play episodes with the likeliest actions, keeping every moment."""
    env, player = arena.make(episodes), Likeliest(policy)
    obs, infos = env.reset(seed=seed)
    alive, age, room = np.ones(episodes, np.bool_), 0, MOST_BYTES
    kept: list[dict[str, np.ndarray]] = []
    seen, ages, masks = [], [], []
    while alive.any() and room > 0:
        mask = infos.get("action_mask")
        kept.append({name: array[alive] for name, array in env.snapshot().items()})
        room -= sum(array.nbytes for array in kept[-1].values())
        seen.append(obs[alive])
        ages.append(np.full(len(seen[-1]), age))
        if mask is not None:
            masks.append(mask[alive])
        obs, _, terminated, truncated, infos = env.step(player.actions(obs, mask))
        alive &= ~(terminated | truncated)
        age += 1
    snapshots = {name: np.concatenate([each[name] for each in kept]) for name in kept[0]}
    return gathered(snapshots, np.concatenate(ages), np.concatenate(seen), np.concatenate(masks) if masks else None)


def gathered(snapshots: dict[str, np.ndarray], ages: np.ndarray, obs: np.ndarray, masks: np.ndarray | None) -> Moments:
    """Moments with their information states, the commonest first."""
    words = words_of(obs, masks)
    rows = Distinct(words.shape[1]).find(words)
    counts = np.bincount(rows)
    order = np.argsort(-counts, kind="stable")
    by_row = np.argsort(rows, kind="stable")
    groups = np.split(by_row, np.cumsum(counts)[:-1])
    firsts = np.array([groups[k][0] for k in order])
    return Moments(
        snapshots, ages, obs[firsts], None if masks is None else masks[firsts], counts[order],
        [groups[k] for k in order],
    )  # fmt: skip
