"""Worlds that are made from their rules: what is refused, and how numbers are packed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import redline
from examples import elevator
from redline.compiled import interpreted, kernel
from redline.errors import RedlineError
from redline.worlds.encoding import packed, put

LIFT = "world:examples.elevator:WORLD"


def lift_rules(**changes: Any) -> redline.Rules:
    return dataclasses.replace(elevator.rules(elevator.Options()), **changes)


def begin(env, settings):
    """Not marked as a rule."""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"record": np.dtype(np.int64)}, "needs a field ('rng', np.uint64)"),
        ({"record": np.dtype([("rng", np.int64)])}, "needs a field ('rng', np.uint64)"),
        ({"metrics": ("flor",)}, "no field 'flor'"),
        ({"begin": begin}, "The function begin (begin) is no rule: write @redline.rule above it."),
        ({"num_actions": 0}, "cannot be played"),
        ({"max_steps": -1}, "cannot be played"),
        ({"action_names": ("up",)}, "1 names cannot be given to 3 actions"),
    ],
)
def test_rules_that_cannot_be_played_are_refused(changes, says):
    with pytest.raises(RedlineError) as caught:
        lift_rules(**changes)
    assert says in str(caught.value)


def test_a_forbidden_action_is_named():
    env = redline.make_env(LIFT, 2)
    env.reset(seed=0)
    with pytest.raises(RedlineError, match=r"Env 1 does not allow action 1 \(down\) now: .* e\.g\. 0 \(up\)\."):
        env.step(np.array([0, 1]))


def test_fields_of_the_record_are_told_of_ended_episodes():
    world = redline.rules_world(
        "lift", "with metrics", lambda options: lift_rules(metrics=("floor",), max_steps=2), elevator.Options
    )
    assert world.batch is not None
    env = world.batch(2, "lift")
    env.reset(seed=0)
    env.step(np.array([0, 0]))
    *_, infos = env.step(np.array([0, 1]))
    assert infos["episode_metrics"]["floor"].tolist() == [2.0, 0.0]


def test_more_about_a_world_can_be_given():
    world = redline.rules_world("lift", "more", elevator.rules, elevator.Options, eval_episodes=7, verify=None)
    assert (world.eval_episodes, world.verify) == (7, None)


# Packed numbers

HIGH = {"a": 1, "b": 127, "c": 5, **{f"d{k}": 100 for k in range(9)}}
SEEN = packed(HIGH)
PLACES = SEEN.places


@kernel
def write(obs, numbers):
    """Writes all numbers, the last ones first."""
    for i in range(numbers.shape[0]):
        for k in range(numbers.shape[1] - 1, -1, -1):
            put(obs, i, PLACES, k, numbers[i, k])


@pytest.mark.parametrize("speed", [write, interpreted(write)])
def test_packed_numbers_come_out_as_they_were_put_in_whatever_was_there(speed):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, np.array([*HIGH.values()]) + 1, size=(50, len(HIGH)))
    stored = rng.integers(0, 1 << 62, size=(50, *SEEN.shape))
    speed(stored, numbers)
    assert (SEEN.decode(stored) == numbers).all()
    assert SEEN.shape == (2,)
    assert SEEN.names == tuple(HIGH)
    assert SEEN.high.tolist() == [*HIGH.values()]


def test_equal_numbers_are_equal_words():
    first, second = np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64)
    write(first, np.full((1, len(HIGH)), 1))
    write(second, np.full((1, len(HIGH)), 0))
    write(second, np.full((1, len(HIGH)), 1))
    assert (first == second).all()


@pytest.mark.parametrize(("numbers", "says"), [({"a": 0}, "try 1 to 127"), ({"a": 128}, "try 1 to 127"), ({}, "shows")])
def test_numbers_that_cannot_be_packed_are_refused(numbers, says):
    with pytest.raises(RedlineError, match=says):
        packed(numbers)
