from __future__ import annotations

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest

from redline.errors import RedlineError
from redline.worlds.nasim.env import FLAGS, NasimVectorEnv
from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.nasim.original import OriginalNasim
from redline.worlds.nasim.rules.scenario import AttackScenario
from redline.worlds.nasim.scenarios import FIXED
from redline.worlds.registry import make_env, make_single, register_envs
from tests.worlds.nasim.networks import write_network

OPTIONS = [{}, {"encoded": True}, {"turbo": False}, {"fully_obs": True}, {"fully_obs": True, "encoded": True}]
every_face = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")


def script(env: NasimVectorEnv, num_steps: int) -> np.ndarray:
    """Random actions [T, N]."""
    return np.random.default_rng(0).integers(env.num_actions, size=(num_steps, env.num_envs))


def play(env: NasimVectorEnv, actions: np.ndarray) -> list:
    return [[*(part.tolist() for part in answer), str(infos)] for *answer, infos in map(env.step, actions)]


def short(name: str, limit: int) -> AttackScenario:
    """A network whose episodes end soon."""
    return dataclasses.replace(FIXED[name], step_limit=limit)


@pytest.mark.parametrize("name", ["tiny", "medium", "pocp-2-gen"])
def test_spaces_are_the_originals(name):
    for fully_obs in (False, True):
        ours, theirs = make_single(f"nasim:{name}", fully_obs=fully_obs), OriginalNasim(name, NetworkOptions(fully_obs))
        assert ours.observation_space == theirs.env.observation_space
        assert ours.action_space.n == theirs.env.action_space.n


@pytest.mark.parametrize("fully_obs", [False, True])
def test_encoded_observations_stand_for_the_same_numbers(fully_obs):
    plain, encoded = (make_env("nasim:small-linear", 5, fully_obs=fully_obs, encoded=e) for e in (False, True))
    pairs = [(plain.reset(seed=3)[0], encoded.reset(seed=3)[0])]
    pairs += [(plain.step(actions)[0], encoded.step(actions)[0]) for actions in script(plain, 300)]
    for numbers, words in pairs:
        np.testing.assert_array_equal(numbers, encoded.encoding.decode(words), strict=True)


@every_face
def test_both_speeds_play_alike(options):
    options = {name: value for name, value in options.items() if name != "turbo"}
    fast, slow = (make_env("nasim:tiny-hard", 4, turbo=turbo, **options) for turbo in (True, False))
    np.testing.assert_array_equal(fast.reset(seed=1)[0], slow.reset(seed=1)[0], strict=True)
    assert play(fast, script(fast, 400)) == play(slow, script(fast, 400))
    assert fast.state.envs.tobytes() == slow.state.envs.tobytes()


def test_an_episode_that_ends_is_told_of_and_begins_again():
    env = NasimVectorEnv(64, "nasim:tiny")
    first_obs, _ = env.reset(seed=0)
    returns, lengths, ends = np.zeros(64), np.zeros(64), 0
    for actions in script(env, 300):
        obs, rewards, terminated, truncated, infos = env.step(actions)
        returns, lengths, ended = returns + rewards, lengths + 1, terminated | truncated
        if not ended.any():
            assert infos == {}
            continue
        ends += ended.sum()
        assert (obs[ended] == first_obs[0]).all()
        assert (infos["final_obs"][ended] != first_obs[0]).any()
        assert infos["episode"]["r"][ended].tolist() == returns[ended].tolist()
        assert infos["episode"]["l"][ended].tolist() == lengths[ended].tolist()
        assert (infos["episode_metrics"]["won"] == terminated).all()
        assert not infos["episode"]["r"][~ended].any()
        returns[ended] = lengths[ended] = 0
    assert ends > 64


def test_an_episode_at_its_step_limit_is_truncated():
    env = NasimVectorEnv(2, short("medium", 7))
    env.reset(seed=0)
    ends = [env.step(actions)[3].tolist() for actions in script(env, 14)]
    assert ends == [[(t + 1) % 7 == 0] * 2 for t in range(14)]


def test_a_single_env_tells_how_its_action_ended():
    env, original = make_single("nasim:small"), OriginalNasim("small", NetworkOptions())
    _, info = env.reset(seed=4)
    assert info == {}
    original.stream.rng = env.batch.streams[0]
    original.env.reset()
    with original.drawing_ours():
        for action in np.random.default_rng(1).integers(env.action_space.n, size=300).tolist():
            obs, reward, terminated, truncated, info = env.step(action)
            their_obs, their_reward, their_end, their_limit, their_info = original.env.step(action)
            assert (obs == their_obs).all()
            assert (reward, terminated, truncated) == (their_reward, their_end, their_limit)
            assert info == {name: their_info[name] for name in (*FLAGS, "value")}
            if terminated:
                env.reset()
                original.env.reset()


def test_gymnasium_makes_it_by_its_id():
    register_envs()
    env = gym.make("redline/Nasim-v0", name="tiny")
    assert env.reset(seed=0)[0].shape == (56,)


def test_a_file_is_a_network(tmp_path):
    path = tmp_path / "mine.yaml"
    write_network(path, seed=1)
    env = make_env(f"nasim:{path}", 2)
    assert env.network.name == "mine"
    assert env.num_actions == len(json.loads(path.read_text())["host_configurations"]) * (4 + 4 + 3)


def test_a_generated_network_follows_from_its_seed():
    one, same, other = (make_env(f"nasim:small-gen?network_seed={seed}", 1).network for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("nasim:tyny", {}, "Did you mean 'nasim:tiny'"),
        ("nasim:nowhere.yaml", {}, "no scenario file"),
        ("nasim:tiny", {"fully_obs": 3}, "not true or false"),
        ("nasim:tiny-gen", {"network_seed": -1}, "must be 0 to"),
        ("nasim:tiny", {"colour": 1}, "nasim option"),
    ],
)
def test_what_cannot_work_is_refused(name, options, why):
    with pytest.raises(RedlineError, match=why):
        make_env(name, 1, **options)


def test_too_many_subnets_are_refused():
    with pytest.raises(RedlineError, match="at most 61"):
        NasimVectorEnv(1, dataclasses.replace(FIXED["tiny"], subnets=(1,) * 64))
