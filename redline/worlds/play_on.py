"""Play on until something is new: envs go on by themselves while a policy's answer to what they see can be looked up.

One compiled call takes an env through a whole collect, looking up, drawing, stepping and recording, and comes back only
for observations that nobody has asked the policy about. A world offers it by two rules: one that plays a step of one
env, and one that tells of an episode that ended.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from redline.compiled.lookup import Index, choose, hashed, seek
from redline.compiled.rng import GOLDEN, unit
from redline.compiled.speed import kernel, rule


class Answers(NamedTuple):
    """A policy's answers to observations, looked up by their words; arrays have a row for each."""

    lookup: Index
    log_probs: np.ndarray  # float32 [rows, actions]
    cumulative: np.ndarray  # float64 [rows, actions]  running sums of probability
    guide: np.ndarray  # int32 [rows, GUIDES]  where to begin to search them
    values: np.ndarray  # float32 [rows]
    visited: np.ndarray  # bool [rows]  whether the observation was acted on


class Going(NamedTuple):
    """Where each env stands; arrays [N]."""

    steps: np.ndarray  # int64  steps played of this collect
    streams: np.ndarray  # uint64  random streams that actions are drawn from
    returns: np.ndarray  # float64  of the episode under way
    lengths: np.ndarray  # int64  likewise


class PlayedColumns(NamedTuple):
    """What was played; arrays [N, T]: env first, since each env writes its own row from end to end."""

    rows: np.ndarray  # int32
    actions: np.ndarray  # int64
    log_probs: np.ndarray  # float32
    values: np.ndarray  # float32
    rewards: np.ndarray  # float32
    terminated: np.ndarray  # bool
    truncated: np.ndarray  # bool

    @classmethod
    def empty(cls, num_envs: int, num_steps: int) -> PlayedColumns:
        """Arrays to write into."""
        kinds = (np.int32, np.int64, np.float32, np.float32, np.float32, np.bool_, np.bool_)
        return cls(*(np.empty((num_envs, num_steps), kind) for kind in kinds))


class Ends(NamedTuple):
    """Episodes that ended, in the order in which they were played; arrays with room for some."""

    envs: np.ndarray  # int64
    steps: np.ndarray  # int64  the step of the collect that was their last
    returns: np.ndarray  # float64
    lengths: np.ndarray  # int64
    final_obs: np.ndarray  # [room, numbers]  their last observations, as stored
    told: np.ndarray  # [room, ...]  what the world has to tell of them

    def first(self, count: int) -> Ends:
        """The first so many."""
        return Ends(*(each[:count] for each in self))


class Playing(NamedTuple):
    """How the envs of a batch play on."""

    kernel: Callable[..., Any]  # made by `playing_on`
    world: Any  # all that its rules need: a NamedTuple with at least `obs` and `final_obs`, [N, numbers]
    words: np.ndarray  # int64 [N, W]  what is looked up
    told: np.dtype  # what is told of an episode that ended
    metrics: Callable[[np.ndarray], dict[str, np.ndarray]]  # that by name, as it is logged


@rule
def see_words(world, words, i):
    """Where `words` are the observations themselves, they are up to date."""


@rule
def see_words_and_mask(world, words, i):
    """Write env `i`'s observation to `words`, and behind it which actions are allowed, a byte each."""
    width = world.obs.shape[1]
    for k in range(width):
        words[i, k] = world.obs[i, k]
    for k in range(width, words.shape[1]):
        words[i, k] = 0
    for action in range(world.mask.shape[1]):
        if world.mask[i, action]:
            words[i, width + action // 8] |= np.int64(1) << (8 * (action % 8))


@functools.cache
def playing_on(
    advance: Callable[..., Any], tell: Callable[..., Any], see: Callable[..., Any] = see_words
) -> Callable[..., Any]:
    """The kernel that plays envs of a world on.

    `advance(world, i, action)` plays a step of env `i` and returns reward, terminated and truncated. When an episode
    ends it leaves the last observation in `world.final_obs` and begins again. `tell(world, i, told, place)` then writes
    what there is to tell of it to `told`. `see(world, words, i)` brings the words up to date that are looked up.
    """

    @kernel
    def play_on(world, words, first, last, answers, going, columns, ends, num_ends):
        """Play envs `first` up to `last` on, each to its last step or to news. Returns how many episodes have ended.

        `words` int64 [N, W] are what is looked up: what is seen. All stop where there is no room for more ends.
        """
        num_steps, room = columns.rows.shape[1], len(ends.envs)
        for i in range(first, last):
            t = going.steps[i]
            while t < num_steps and num_ends < room:
                see(world, words, i)
                slot = seek(answers.lookup, hashed(words, i), words, i)
                row = np.int64(answers.lookup.entries[slot, 1]) - 1
                if row < 0:
                    break
                going.streams[i] += GOLDEN
                action = choose(answers.cumulative, answers.guide, row, unit(going.streams[i]))
                if not answers.visited[row]:  # reading is free, but threads would contend for what all write
                    answers.visited[row] = True
                columns.rows[i, t] = row
                columns.actions[i, t] = action
                columns.log_probs[i, t] = answers.log_probs[row, action]
                columns.values[i, t] = answers.values[row]
                reward, terminated, truncated = advance(world, i, action)
                columns.rewards[i, t] = reward
                columns.terminated[i, t] = terminated
                columns.truncated[i, t] = truncated
                going.returns[i] += reward
                going.lengths[i] += 1
                if terminated or truncated:
                    ends.envs[num_ends] = i
                    ends.steps[num_ends] = t
                    ends.returns[num_ends] = going.returns[i]
                    ends.lengths[num_ends] = going.lengths[i]
                    for k in range(ends.final_obs.shape[1]):
                        ends.final_obs[num_ends, k] = world.final_obs[i, k]
                    tell(world, i, ends.told, num_ends)
                    num_ends += 1
                    going.returns[i] = 0.0
                    going.lengths[i] = 0
                t += 1
            going.steps[i] = t
        return num_ends

    return play_on
