"""Distillation: a policy is taught what to do in information states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from redline.learn.adam import adam_for
from redline.learn.batch import Minibatch
from redline.learn.gradient import ByHand, Table, way_for, write_sum
from redline.learn.heads.categorical import MASKED
from redline.learn.imitation import ALONE, IMITATING
from redline.learn.improvement import Switch
from redline.learn.moments import Moments
from redline.learn.policy import Policy

SAMPLE = 1024
"""Information states that are taught at a time, beside those that have changed."""
DECIDED = 0.9
"""The probability that an action gets which turned out better."""
RATE = 2e-3


class Lessons(NamedTuple):
    """What a policy is taught: probabilities of actions in information states."""

    observations: np.ndarray
    masks: np.ndarray | None
    targets: np.ndarray  # float32 [S, actions]
    visits: np.ndarray  # int [S]
    always: np.ndarray  # int64  states that are part of every lesson


def distil(
    policy: Policy, moments: Moments, switches: Sequence[Switch], lessons: int, rng: np.random.Generator
) -> None:
    """Teach a policy the switches, and to do everything else as before."""
    targets = probabilities(policy, moments.observations, moments.masks)
    for each in switches:
        targets[each.state] *= 1 - DECIDED
        targets[each.state, each.new] += DECIDED
    changed = np.array([each.state for each in switches], np.int64)
    teach(policy, Lessons(moments.observations, moments.masks, targets, moments.visits, changed), lessons, rng)


def probabilities(policy: Policy, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
    """The probability float32 [S, actions] of every action in every state."""
    return np.exp(_log_probs(policy, observations, masks))


def teach(policy: Policy, lessons: Lessons, count: int, rng: np.random.Generator) -> None:
    """Give a policy so many lessons, each about some of the states."""
    # rare states count more than their share: they are many, and some of them matter
    shares = lessons.visits.astype(np.float64) ** 0.7
    shares /= shares.sum()
    optimizer, way = adam_for(policy, RATE), way_for(policy)
    table = Table(policy.numbers(lessons.observations), lessons.masks)
    for lesson in range(count):
        optimizer.learning_rate = RATE * (1 - lesson / count)
        chosen = np.concatenate([rng.choice(len(shares), SAMPLE, p=shares), lessons.always])
        if way is None:
            _write_by_autograd(policy, lessons, table, chosen)
        else:
            _write_by_hand(policy, way, lessons, table, chosen)
        optimizer.step()


def _write_by_hand(policy: Policy, way: ByHand, lessons: Lessons, table: Table[np.ndarray], chosen: np.ndarray) -> None:
    """Write the gradient of a lesson: every action is a gain of its target, under the policy as it is.

    The slope of PPO's objective is there that of the cross-entropy. No state counts as visited, so that values and
    entropies are left alone.
    """
    rows, counts = np.unique(chosen, return_counts=True)
    masks = None if lessons.masks is None else lessons.masks[rows]
    gains = lessons.targets[rows] * counts[:, None].astype(np.float32)
    places, actions = np.nonzero(gains)
    nothing, none = np.zeros(len(rows), np.float32), np.zeros(len(places), np.float32)
    pieces = way.pieces(
        Minibatch(
            rows=rows, visits=nothing, mean_returns=nothing, spread=0.0, pair_rows=places, pair_actions=actions,
            pair_log_probs=_log_probs(policy, lessons.observations[rows], masks)[places, actions], pair_visits=none,
            gains=gains[places, actions], losses=none, num_steps=len(chosen),
        ),
        table,
        ALONE,
    )  # fmt: skip
    write_sum(way, pieces, policy, IMITATING)


def _write_by_autograd(policy: Policy, lessons: Lessons, table: Table[np.ndarray], chosen: np.ndarray) -> None:
    """The same for networks of other kinds."""
    import torch

    inputs, targets = (torch.from_numpy(each[chosen]).to(policy.device) for each in (table.inputs, lessons.targets))
    logits, _ = policy.network(inputs)
    if lessons.masks is not None:
        logits = logits.masked_fill(~torch.from_numpy(lessons.masks[chosen]).to(policy.device), MASKED)
    policy.weights.grad.zero_()  # type: ignore[union-attr]
    (-(targets * logits.log_softmax(dim=1)).sum(dim=1).mean()).backward()


def _log_probs(policy: Policy, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
    table = policy.head.empty(len(observations))
    policy.infer(observations, masks, table)
    return table[0]
