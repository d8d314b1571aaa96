"""Playing on with the likeliest actions is, to the last bit, playing step by step."""

from __future__ import annotations

import numpy as np
import pytest

from redline.learn.config import TrainConfig
from redline.learn.likeliest import Followed, Likeliest
from redline.learn.policy import Policy
from redline.learn.train import make_policy
from redline.worlds.batch import BatchEnv
from redline.worlds.registry import make_env

ENVS = {
    "cage2": {
        "red_agent": "B_lineAgent,RedMeanderAgent",
        "observation": "memory",
        "actions": "useful",
        "max_steps": 10,
    },
    "nasim:tiny": {},
}
WORLDS = pytest.mark.parametrize("name", ENVS)


def some_envs(name: str, count: int = 40) -> BatchEnv:
    env = make_env(name, count, encoded=True, **ENVS[name])
    assert isinstance(env, BatchEnv)
    env.reset(seed=5)
    return env


def decided(env: BatchEnv, name: str) -> Policy:
    """A policy that does many things."""
    policy = make_policy(env, TrainConfig(name, hidden=(16,)), 3)
    policy.vector[:] = np.random.default_rng(1).normal(size=len(policy.vector))
    return policy


@WORLDS
def test_playing_on_is_playing_step_by_step(name):
    together, one_by_one = some_envs(name), some_envs(name)
    policy = decided(together, name)
    player, slow = Likeliest(policy), Likeliest(policy)
    for steps in (7, 50):  # over the ends of episodes, and on from where it was
        found = player.follow(together, steps)
        assert found.rewards.shape == found.ended.shape == (40, steps)
        for t in range(steps):
            _, rewards, terminated, truncated, _ = one_by_one.step(slow.actions(one_by_one.obs, one_by_one.masks()))
            np.testing.assert_array_equal(found.rewards[:, t], rewards.astype(np.float32))
            np.testing.assert_array_equal(found.ended[:, t], terminated | truncated)
    assert found.ended.sum() > 80 or name != "cage2", "there should be no room for all ends at once"
    np.testing.assert_array_equal(together.obs, one_by_one.obs)
    np.testing.assert_array_equal(together.streams, one_by_one.streams)


def test_a_world_that_cannot_play_on_is_played_until_all_episodes_have_ended():
    env = make_env("petri:jobshop/ft06", 4, encoded=True)
    assert isinstance(env, BatchEnv) and env.playing is None
    env.reset(seed=0)
    followed = Likeliest(make_policy(env, TrainConfig("petri:jobshop/ft06"), 0)).follow(env, 1000)
    assert followed.ended.any(axis=1).all()
    assert followed.rewards.shape[1] < 1000


def test_rewards_count_by_their_age_until_an_episode_ends():
    rewards = np.array([[1, 2, 4], [1, 2, 4], [1, 2, 4]], np.float32)
    ended = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.bool_)
    alive, returns = np.array([True, True, False]), np.array([100.0, 200.0, 300.0])
    Followed(rewards, ended).add_returns(np.array([0, 10, 1, 0.5, 2]), np.array([1, 1, 1]), alive, returns)
    np.testing.assert_array_equal(returns, [100 + 10 + 2 + 2, 200 + 10 + 2, 300])
    np.testing.assert_array_equal(alive, [True, False, False])
