"""The PettingZoo face of CAGE-4, which is also that of the original's flat wrapper."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pettingzoo")
from redline.errors import RedlineError
from redline.worlds.cage4.parallel import Cage4ParallelEnv

RECORDED = np.load(Path(__file__).parents[2] / "data" / "cage4" / "seven_steps.npz")


@pytest.mark.filterwarnings("ignore")
def test_pettingzoo_finds_nothing_wrong_with_it():
    from pettingzoo.test import parallel_api_test  # which loads what warns

    parallel_api_test(Cage4ParallelEnv(seed=0, steps=10), num_cycles=30)


@pytest.mark.parametrize("episode", range(3))
def test_code_written_for_the_original_meets_the_same_episode(episode):
    env = Cage4ParallelEnv(seed=int(RECORDED["seed"][episode]), steps=int(RECORDED["steps"]))
    obs, info = env.reset()
    labels = json.loads(str(RECORDED["labels"][episode]))
    assert {agent: env.action_labels(agent) for agent in env.agents} == labels
    for agent in env.agents:
        assert info[agent]["action_mask"] == ["[Invalid]" not in label for label in labels[agent]]
        assert env.action_space(agent).n == len(labels[agent]) and obs[agent] in env.observation_space(agent)
    for t in range(6):
        step = 6 * episode + t
        actions = dict(zip(env.possible_agents, RECORDED["actions"][step].tolist(), strict=True))
        messages = dict(zip(env.possible_agents, RECORDED["messages"][step].astype(bool), strict=True))
        obs, rewards, terminated, truncated, _ = env.step(actions, messages=messages)
        for b, agent in enumerate(env.possible_agents):
            assert obs[agent].dtype == np.int64
            assert obs[agent].tolist() == RECORDED["obs"][step, b, : len(obs[agent])].tolist()
            assert rewards[agent] == RECORDED["rewards"][step]
        assert set(terminated.values()) == set(truncated.values()) == {t == 5}
    assert env.agents == []


def test_padded_spaces_are_equal_and_padding_sleeps():
    env, plain = Cage4ParallelEnv(seed=1, pad_spaces=True, steps=10), Cage4ParallelEnv(seed=1, steps=10)
    (obs, info), (small, _) = env.reset(), plain.reset()
    assert {env.action_space(agent).n for agent in env.agents} == {242}
    assert {each.shape for each in obs.values()} == {(210,)} and not any(info["blue_agent_0"]["action_mask"][82:])
    padded = env.step({"blue_agent_0": 200})
    assert padded[1] == plain.step({})[1] and env.action_labels("blue_agent_0")[200] == "[Padding] Sleep"
    assert padded[0]["blue_agent_4"].shape == small["blue_agent_4"].shape
    with pytest.raises(RedlineError, match="are 0 to 81"):
        plain.step({"blue_agent_0": 200})


def test_hosts_and_zones_are_named_as_the_original_names_them():
    env = Cage4ParallelEnv(seed=1, steps=10)
    assert env.subnets("blue_agent_4") == ["admin_network_subnet", "office_network_subnet", "public_access_zone_subnet"]
    assert len(env.hosts("blue_agent_0")) == 17 and "restricted_zone_a_subnet_router" in env.hosts("blue_agent_0")
    assert env.true_state().clock.tolist() == [0]
