"""A rollout boiled down to one batch, in two passes: advantages, and sums over pairs of observation and action.

It is what `gae` and `Gatherer` come to for all steps at once, without an array in between for each of their results.
Steps are taken env by env: that is how envs which play on by themselves have written them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.speed import kernel
from redline.learn.batch import Minibatch
from redline.learn.heads.head import Head
from redline.rollout import Rollout


class Variances(NamedTuple):
    """Mean and variance of the advantages and of the returns of a rollout."""

    advantage_mean: float
    advantage_variance: float
    return_mean: float
    return_variance: float


class Summed(NamedTuple):
    """A rollout as one batch."""

    batch: Minibatch[np.ndarray]
    spread: Variances
    advantages: np.ndarray  # float32 [N, T], as they were before they were normalised
    extremes: np.ndarray  # float32 [3]  mean, least and greatest return; not finite if one is not


def sum_up(
    rollout: Rollout, scaled: np.ndarray, gamma: np.float32, lam: np.float32, normalise: bool, head: Head
) -> Summed:
    """All steps of a rollout without holes as one batch; `scaled` [T, N] are its rewards in the unit that is learned in."""
    rewards, values, next_values, terminated, truncated, rows, log_probs = (
        np.ascontiguousarray(each.T)
        for each in (
            scaled, rollout.values, rollout.next_values, rollout.terminated, rollout.truncated,
            rollout.rows, rollout.log_probs,
        )
    )  # fmt: skip
    size = rewards.size
    actions = _choices(rollout.actions, head)
    advantages, sums = np.empty_like(rewards), np.zeros(6)
    _advantages(rewards, values, next_values, terminated, truncated, gamma, lam, advantages, sums)
    spread = _spread(sums[:4], size)
    shift, factor = (spread.advantage_mean, 1 / (spread.advantage_variance**0.5 + 1e-8)) if normalise else (0.0, 1.0)
    assert head.num_choices is not None
    num_rows, most = len(rollout.observations), min(size, len(rollout.observations) * head.num_choices)
    places = np.full(num_rows, -1, np.int32), np.full(num_rows * head.num_choices, -1, np.int32)
    firsts, pair_rows, pairs = np.empty(most, np.int64), np.empty(most, np.int64), np.empty((most, 4))
    num_pairs = _pairs(
        rows, actions, advantages, values, np.float32(shift), head.num_choices, *places, firsts, pair_rows, pairs
    )
    # in order of their observations, and these as they first appeared, whatever the numbers of their rows
    order, starts = np.empty(num_pairs, np.int64), np.zeros(int(pair_rows[:num_pairs].max()) + 2, np.int64)
    _put_in_order(pair_rows, order, starts, starts.copy())
    firsts, pair_rows, pairs = firsts[order], pair_rows[order], pairs[order]
    visits, gained = np.add.reduceat(pairs[:, 0], starts[:-1]), np.add.reduceat(pairs[:, 3], starts[:-1])
    means = gained / visits
    batch = Minibatch(
        rows=rows.reshape(-1)[firsts[starts[:-1]]].astype(np.int64),
        visits=visits.astype(np.float32),
        mean_returns=means.astype(np.float32),
        spread=float(sums[3] - (gained * means).sum()),
        pair_rows=pair_rows,
        pair_actions=rollout.actions[firsts % rows.shape[1], firsts // rows.shape[1]],
        pair_log_probs=log_probs.reshape(-1)[firsts],
        pair_visits=pairs[:, 0].astype(np.float32),
        gains=(pairs[:, 1] * factor).astype(np.float32),
        losses=(pairs[:, 2] * factor).astype(np.float32),
        num_steps=size,
    )
    extremes = np.array([spread.return_mean, *sums[4:]], np.float32)
    return Summed(batch, spread, advantages, extremes)


def _choices(actions: np.ndarray, head: Head) -> np.ndarray:
    """The number of each action, int64 [N, T], of actions [T, N, ...]."""
    by_env = np.ascontiguousarray(np.moveaxis(actions, 1, 0))
    flat = by_env.reshape(-1, *head.action_shape)
    return head.choices(flat).reshape(by_env.shape[:2])


def _spread(sums: np.ndarray, size: int) -> Variances:
    advantage, advantage_square, gained, gained_square = (sums / size).tolist()
    return Variances(
        advantage, max(0.0, advantage_square - advantage**2), gained, max(0.0, gained_square - gained**2)
    )  # fmt: skip


@kernel
def _advantages(rewards, values, next_values, terminated, truncated, gamma, lam, advantages, sums):
    """Write advantages [N, T]; `sums` gets those of advantages, their squares, returns, their squares; last the extremes."""
    total = squares = gained_total = gained_squares = least = most = 0.0
    for i in range(rewards.shape[0]):
        credit = np.float32(0.0)
        for t in range(rewards.shape[1] - 1, -1, -1):
            future = np.float32(0.0) if terminated[i, t] else next_values[i, t]
            surprise = rewards[i, t] + gamma * future - values[i, t]
            goes_on = not (terminated[i, t] or truncated[i, t])
            credit = surprise + (gamma * lam * credit if goes_on else np.float32(0.0))
            advantages[i, t] = credit
            advantage, gained = np.float64(credit), np.float64(credit + values[i, t])
            total += advantage
            squares += advantage * advantage
            gained_total += gained
            gained_squares += gained * gained
            least, most = min(least, gained), max(most, gained)
    sums[0], sums[1], sums[2], sums[3], sums[4], sums[5] = total, squares, gained_total, gained_squares, least, most


@kernel
def _pairs(
    rows, actions, advantages, values, shift, num_choices, place_of_row, place_of_pair, firsts, pair_rows, pairs
):  # fmt: skip
    """Add up the steps of each pair: how many, their gains and losses less `shift`, and their returns.

    `firsts` gets the first step of each, `pair_rows` the place of its observation among those that appeared. Returns
    the number of pairs.
    """
    num_rows, num_pairs, width = 0, 0, rows.shape[1]
    for i in range(rows.shape[0]):
        for t in range(width):
            row = np.int64(rows[i, t])
            pair = place_of_pair[row * num_choices + actions[i, t]]
            if pair < 0:
                if place_of_row[row] < 0:
                    place_of_row[row] = num_rows
                    num_rows += 1
                pair = place_of_pair[row * num_choices + actions[i, t]] = num_pairs
                firsts[pair], pair_rows[pair] = i * width + t, place_of_row[row]
                for k in range(4):
                    pairs[pair, k] = 0.0
                num_pairs += 1
            advantage = np.float64(advantages[i, t] - shift)
            pairs[pair, 0] += 1.0
            pairs[pair, 1] += max(advantage, 0.0)
            pairs[pair, 2] += min(advantage, 0.0)
            pairs[pair, 3] += np.float64(advantages[i, t] + values[i, t])
    return num_pairs


@kernel
def _put_in_order(pair_rows, order, starts, places):
    """Write pairs in the order of their rows, equal ones as they come, and where each row begins among them.

    `starts` and `places` come all 0.
    """
    for pair in range(len(order)):
        starts[pair_rows[pair] + 1] += 1
    for row in range(1, len(starts)):
        starts[row] += starts[row - 1]
        places[row] = starts[row]
    for pair in range(len(order)):
        place = places[pair_rows[pair]]
        order[place] = pair
        places[pair_rows[pair]] = place + 1
