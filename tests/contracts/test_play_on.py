"""Envs that play on by themselves live through the same, to the last bit, as those that step together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from redline.engines import Collecting, fused, make_engine
from redline.engines.fused import Fused
from redline.engines.lockstep import Lockstep
from redline.learn.acting import Actor
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.train import Trainer, make_policy
from redline.rollout import Rollout
from redline.timing.stopwatch import Stopwatch
from tests.engines.scripted import Scripted

ORDER = "user,op_host,enterprise,op_server,defender"
ENVS = {
    "cage2": "cage2?max_steps=20&red_agent=B_lineAgent,RedMeanderAgent",
    "workflow": f"cage2?max_steps=11&workflow={ORDER}&compliance_bonus=0.1&green_agent=GreenAgent",
    "memory": "cage2?max_steps=7&observation=memory&actions=useful&rules=leaderboard",
    "scan": "cage2?max_steps=9&observation=table+scan&actions=reduced&wrapper=cw2",
    "history": "cage2?observation=history&history=2&actions=reduced",
    "one step": "cage2?max_steps=1",
    "nasim": "nasim:tiny",
    "rules": "world:examples.elevator:WORLD?rate=0.4",
}
NUM_ENVS, NUM_STEPS = 24, 30
every_env = pytest.mark.parametrize("env", ENVS.values(), ids=list(ENVS))


def collecting(play_on: bool, threads: int = 1) -> Collecting:
    return Collecting(play_on=play_on, play_threads=threads)


def collects(env: str, how: Collecting) -> tuple[list[Rollout], list[np.ndarray]]:
    """Three rollouts of a policy whose weights change, and all that is left afterwards."""
    engine = make_engine("vector", env, NUM_ENVS, 5, {}, how)
    assert isinstance(engine, Fused) == how.play_on
    policy = make_policy(engine.env, TrainConfig(env), seed=1)
    actor = Actor(policy, NUM_ENVS, seed=2)
    rollouts = []
    for version in range(3):
        actor.version = version
        rollouts.append(engine.collect(actor, NUM_STEPS, Stopwatch()))
        policy.weights.data.mul_(1.5)
    left = [actor.streams, *(engine.snapshot() or {}).values()]
    engine.close()
    return rollouts, left


def assert_same(found: Rollout, expected: Rollout) -> None:
    """Equal in all that a rollout carries; rows may be numbered in another order."""
    for field in dataclasses.fields(Rollout):
        ours, theirs = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(theirs, dict):
            assert ours.keys() == theirs.keys()
            for name in theirs:
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        elif field.name not in ("rows", "observations", "masks"):
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
            assert theirs is None or ours.dtype == theirs.dtype
    np.testing.assert_array_equal(found.observations[found.rows], expected.observations[expected.rows])
    assert len(found.observations) == len(expected.observations)
    assert (found.masks is None) == (expected.masks is None)
    if found.masks is not None and expected.masks is not None:
        np.testing.assert_array_equal(found.masks[found.rows], expected.masks[expected.rows])


@every_env
def test_playing_on_is_stepping_together(env, monkeypatch):
    monkeypatch.setattr(fused, "WORTH_SHARING", 300)  # a part of the steps: some rounds are shared, and some are not
    expected, expected_left = collects(env, collecting(play_on=False))
    assert env.startswith(("cage2?obs", "nasim", "world")) or sum(len(each.episode_returns) for each in expected)
    for threads in (1, 3):
        found, left = collects(env, collecting(play_on=True, threads=threads))
        for ours, theirs in zip(found, expected, strict=True):
            assert_same(ours, theirs)
        for ours, theirs in zip(left, expected_left, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def trained(how: Collecting, stop_at: int = 0, **ppo: Any) -> Trainer:
    """A run of four updates, broken off and resumed after some of them if so asked."""
    config = TrainConfig(
        ENVS["workflow"], num_envs=NUM_ENVS, num_steps=NUM_STEPS, total_steps=10**9, threads=1, collecting=how,
        ppo=PPOConfig(epochs=2, **ppo),
    )  # fmt: skip
    trainer = Trainer(config)
    for number in range(4):
        if number and number == stop_at:
            saved = trainer.snapshot()
            trainer = Trainer(config)
            assert trainer.restore(*saved)
        trainer.update()
    return trainer


@pytest.mark.parametrize("ppo", [{}, {"minibatches": 3}, {"normalise_returns": True}], ids=str)
def test_weights_learned_either_way_are_equal(ppo):
    ours, theirs = trained(collecting(play_on=True), **ppo), trained(collecting(play_on=False), **ppo)
    assert isinstance(ours.engine, Fused) and not isinstance(theirs.engine, Fused)
    assert ours.policy.weights.equal(theirs.policy.weights)


def test_a_run_goes_on_as_if_nothing_had_happened_whoever_began_it():
    expected = trained(collecting(play_on=True)).policy.weights
    assert trained(collecting(play_on=True), stop_at=2).policy.weights.equal(expected)


def test_a_policy_that_remembers_nothing_is_asked_step_by_step():
    ours = make_engine("vector", ENVS["cage2"], NUM_ENVS, 5, {}, collecting(play_on=True))
    theirs = make_engine("vector", ENVS["cage2"], NUM_ENVS, 5, {}, collecting(play_on=False))
    assert isinstance(ours, Fused) and type(theirs) is Lockstep
    for _ in range(2):
        rollouts = [each.collect(Scripted(145), NUM_STEPS, Stopwatch()) for each in (ours, theirs)]
        assert_same(*rollouts)


def test_without_repeats_it_goes_over_to_lockstep_and_back():
    engine = make_engine("vector", ENVS["history"], 4, 5, {}, collecting(play_on=True))
    actor = Actor(make_policy(engine.env, TrainConfig(ENVS["history"]), seed=1), 4, seed=2)
    spans = []
    for version in (1, 2, 20):
        actor.version, watch = version, Stopwatch()
        engine.collect(actor, 40, watch)
        spans.append({path[-1] for path in watch.breakdown().seconds})
    assert "play" in spans[0] and "play" not in spans[1] and "play" in spans[2]
