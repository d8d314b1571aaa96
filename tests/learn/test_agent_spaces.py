"""Agents take observations and give actions of every kind, as their env does."""

from __future__ import annotations

import numpy as np
import pytest

import redline
from redline.errors import RedlineError
from tests.contracts import toys

SMALL = {"num_envs": 2, "num_steps": 8, "total_steps": 16, "minibatches": 1, "hidden": (8,)}


@pytest.mark.parametrize("toy", ["Shifted", "Several", "Switches", "Levers", "NestedMasked", "Wheels", "Pictures"])
def test_an_agent_plays_what_its_env_takes(toy):
    training = redline.train(f"external:tests.contracts.toys:{toy}", **SMALL)
    for _ in training:
        pass
    env, agent = getattr(toys, toy)(), training.agent
    obs, _ = env.reset(seed=0)
    for deterministic in (True, False):
        action = agent.act(obs, deterministic=deterministic)
        assert env.action_space.contains(action)
    several = [obs, obs] if toy.startswith("Nested") else np.stack([obs, obs])
    assert len(agent.act(several)) == 2


def test_an_agent_that_remembers_carries_its_memory_until_it_is_told_to_forget():
    training = redline.train("external:tests.contracts.toys:Memory", recurrent="gru", **SMALL)
    for _ in training:
        pass
    agent, obs = training.agent, np.array([1, 1], np.float32)
    actor = agent._actor(1, True)
    agent.act(obs)
    first = actor._memories.copy()
    agent.act(obs)
    assert (actor._memories != first).any()
    agent.forget()
    agent.act(obs)
    np.testing.assert_array_equal(actor._memories, first)


def test_a_part_that_is_missing_is_named():
    training = redline.train("external:tests.contracts.toys:Nested", **SMALL)
    for _ in training:
        pass
    with pytest.raises(RedlineError, match="does not fit its space"):
        training.agent.act({"sign": 3})
