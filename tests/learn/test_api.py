"""Redline from Python: train, load, evaluate."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import redline
from redline.learn.api import Training
from redline.worlds.registry import default_world
from tests.learn.corridor import Corridor

TINY = {"num_envs": 4, "num_steps": 10}


def weights(training: Training) -> np.ndarray:
    return np.concatenate([array.reshape(-1) for array in training.agent.weights.values()])


@pytest.fixture(scope="module")
def trained() -> Training:
    training = redline.train("CartPole-v1", total_steps=80, **TINY)
    training.finish()
    return training


def test_training_is_a_loop_over_updates():
    steps = [update.step for update in redline.train("CartPole-v1", total_steps=120, **TINY)]
    assert steps == [40, 80, 120]


def test_what_train_returns_knows_its_agent_its_config_and_how_far_it_is(trained):
    assert trained.progress == 1.0 and trained.step == 80
    assert trained.config.num_envs == 4 and trained.config.ppo.learning_rate > 0
    assert trained.run is None
    assert trained.agent.step == 80
    assert "CartPole-v1" in repr(trained) and "CartPole-v1" in repr(trained.agent)
    assert list(trained) == []  # it is over


def test_nothing_is_written_unless_a_folder_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    redline.train("CartPole-v1", total_steps=40, **TINY).finish()
    assert list(tmp_path.iterdir()) == []


def test_a_loop_that_is_left_and_entered_again_is_the_loop_that_was_never_left():
    name = default_world().name
    left = redline.train(name, total_steps=120, **TINY)
    for _ in left:
        break
    assert left.step == 40
    whole = redline.train(name, total_steps=120, **TINY)
    left.finish(), whole.finish()
    assert np.array_equal(weights(left), weights(whole))


def test_a_loop_that_is_left_leaves_no_process_behind():
    training = redline.train(lambda: Corridor(), total_steps=400, engine="shared", workers=2, **TINY)
    assert multiprocessing.active_children()
    for _ in training:
        break
    assert multiprocessing.active_children() == []
    assert training.agent.step == 40


def test_neither_does_one_that_is_forgotten_or_whose_block_ends():
    redline.train(lambda: Corridor(), total_steps=400, engine="shared", workers=1, **TINY)
    gc.collect()
    assert multiprocessing.active_children() == []
    with redline.train(lambda: Corridor(), total_steps=400, engine="shared", workers=1, **TINY):
        assert multiprocessing.active_children()
    assert multiprocessing.active_children() == []


def test_a_run_folder_is_one_that_the_command_and_load_know(tmp_path):
    training = redline.train("CartPole-v1", total_steps=80, run_dir=tmp_path / "run", **TINY)
    for _ in training:
        break
    agent = training.finish()
    assert training.run is not None and training.run.path == tmp_path / "run"
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for path in (str(tmp_path / "run"), tmp_path / "run", *(tmp_path / "run" / "checkpoints").iterdir()):
        loaded = redline.load(path)
        if loaded.step == 80:
            assert np.array_equal(loaded.probabilities(obs), agent.probabilities(obs))
            assert np.array_equal(loaded.value(obs), agent.value(obs))


@pytest.mark.parametrize("engine", ["vector", "shared", "pool"])
def test_a_factory_of_ones_own_works_with_every_kind_of_engine(engine):
    with redline.train(lambda: Corridor(), total_steps=80, engine=engine, workers=1, **TINY) as training:
        agent = training.finish()
    assert agent.act(np.zeros(2, np.float32)) in (5, 6, 7)
    assert agent.action_names == ("left", "on", "right")
    assert redline.evaluate(agent, episodes=4)["episodes"] == 4


def test_a_factory_that_cannot_travel_is_refused_in_one_line():
    lock = threading.Lock()
    with pytest.raises(redline.RedlineError, match=r"cannot be sent to workers .*engine='vector'"):
        redline.train(lambda: (lock, Corridor())[1], engine="shared", **TINY)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_env_is_trained_on_whatever_its_autoreset_mode(mode):
    envs = SyncVectorEnv([Corridor] * 3, autoreset_mode=mode)
    updates = list(redline.train(envs, total_steps=60, num_steps=22))
    assert all(update.metrics["length"] == 10 for update in updates)
    # the step in which an env only begins its next episode is nobody's
    assert updates[0].steps == (22 - 2 if mode is AutoresetMode.NEXT_STEP else 22) * 3


class Parts(gym.Wrapper):
    """The corridor, seen in parts."""

    def __init__(self, env):
        super().__init__(env)
        sides = gym.spaces.Tuple([gym.spaces.Discrete(2), env.observation_space])
        self.observation_space = gym.spaces.Dict({"sides": sides, "action_mask": gym.spaces.MultiBinary(3)})

    def _seen(self, obs):
        return {"sides": (np.int64(obs[0] > 0), obs), "action_mask": np.array([1, 1, obs[0] <= 0], np.int8)}

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        return self._seen(obs), info

    def step(self, action):
        obs, *rest = self.env.step(action)
        return self._seen(obs), *rest


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_env_of_dicts_is_seen_as_its_single_envs_are(mode):
    envs = SyncVectorEnv([lambda: Parts(Corridor())] * 3, autoreset_mode=mode)
    settings = {"total_steps": 66, "num_steps": 22, "normalise_observations": False, "minibatches": 1}
    together = redline.train(envs, **settings).finish()
    assert together.probabilities({"sides": (1, np.ones(2, np.float32)), "action_mask": [1, 1, 0]}).shape == (3,)
    if mode is not AutoresetMode.NEXT_STEP:  # which plays steps in between
        alone = redline.train(lambda: Parts(Corridor()), num_envs=3, **settings).finish()
        for name, array in together.weights.items():
            np.testing.assert_array_equal(array, alone.weights[name])


def test_a_world_is_trained_on_by_an_env_of_its_own():
    agent = redline.train(default_world(), total_steps=40, **TINY).finish()
    assert agent.config.env == default_world().name


def test_settings_and_env_options_are_told_apart():
    training = redline.train(Corridor, total_steps=1e3, lr=1e-4, hidden=[8], env_options={"pay": 2.0}, **TINY)
    assert training.config.total_steps == 1000 and training.config.hidden == (8,)
    assert training.config.ppo.learning_rate == 1e-4
    assert training.config.env_options == {"pay": 2.0}
    assert redline.train(Corridor, pay=3.0, **TINY).config.env_options == {"pay": 3.0}


@pytest.mark.parametrize(
    ("env", "settings", "line"),
    [
        ("CartPole-v1", {"learning_rat": 1}, "Did you mean 'learning_rate'"),
        ("CartPole-v1", {"num_envs": "many"}, "num_envs='many' cannot be used: it takes int"),
        ("CartPole-v1", {"speed": 1, **TINY}, "speed"),
        (Corridor, {"speed": 1, **TINY}, "speed"),
        (default_world().name, {"red_agnt": 1}, "Did you mean 'red_agent'"),
        ("CartPole-v7", {}, "CartPole-v"),
        (Corridor(), {}, "lambda: Corridor"),
        (7, {}, "type int is no env"),
    ],
)
def test_bad_input_is_one_line(env, settings, line):
    with pytest.raises(redline.RedlineError, match=line) as raised:
        redline.train(env, **settings)
    assert "\n" not in str(raised.value)


def test_evaluate_gives_the_worlds_own_protocol_as_data(trained):
    found = redline.evaluate(trained.agent, episodes=3, deterministic=True)
    assert found["episodes"] == 3 and 1 <= found["mean"] <= 500 and "policy" not in found
    agent = redline.train(default_world().name, total_steps=40, **TINY).agent
    table = redline.evaluate(agent, episodes=2, lengths=(3,))
    assert {row["length"] for row in table["scores"]} == {3}
    with pytest.raises(redline.RedlineError, match="option 'episods'"):
        redline.evaluate(agent, episods=2)


# The agent


def test_an_agent_answers_one_observation_or_a_batch_in_kind(trained):
    agent, obs = trained.agent, np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    assert [agent.act(one) for one in obs] == agent.act(obs).tolist()
    assert agent.probabilities(obs).shape == (6, 2)
    assert np.allclose(agent.probabilities(obs).sum(axis=1), 1)
    assert agent.value(obs)[2] == pytest.approx(agent.value(obs[2]))
    assert set(agent.act(np.repeat(obs, 50, axis=0), deterministic=False)) == {0, 1}
    assert agent.action_names == ("0", "1")


def test_a_mask_rules_actions_out(trained):
    agent, obs = trained.agent, np.zeros((2, 4), np.float32)
    assert agent.act(obs, mask=[[True, False], [False, True]]).tolist() == [0, 1]
    assert agent.probabilities(obs[0], mask=[False, True]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("obs", "mask", "line"),
    [
        (np.zeros(3, np.float32), None, r"shape \(3,\) does not fit CartPole-v1"),
        (np.zeros((2, 2, 4), np.float32), None, "shape"),
        (np.zeros((0, 4), np.float32), None, "shape"),
        (np.zeros(4, np.int64), None, "type int64 does not fit CartPole-v1, which gives float32"),
        (np.zeros(4, np.float32), [True], "mask of shape"),
        (np.zeros(4, np.float32), [0.5, 0.5], "mask of shape"),
        (np.zeros(4, np.float32), [False, False], "allows no action"),
    ],
)
def test_what_the_env_would_not_give_is_refused(trained, obs, mask, line):
    with pytest.raises(redline.RedlineError, match=line):
        trained.agent.act(obs, mask)


def test_packed_words_are_never_taken_for_an_observation():
    agent = redline.train(default_world().name, total_steps=40, **TINY).agent
    plain, _ = redline.make_env(default_world().name, 2).reset(seed=0)
    assert agent.act(plain).shape == (2,)
    words, _ = redline.make_env(default_world().name, 2, encoded=True).reset(seed=0)
    with pytest.raises(redline.RedlineError, match="shape"):
        agent.act(words)


def test_loading_what_is_not_there_is_one_line(tmp_path):
    with pytest.raises(redline.RedlineError, match="nothing at"):
        redline.load(tmp_path / "none")


def test_a_run_on_an_object_loads_with_that_object(tmp_path):
    redline.train(lambda: Corridor(), total_steps=40, run_dir=tmp_path / "run", **TINY).finish()
    agent = redline.load(tmp_path / "run", env=Corridor)
    assert agent.act(np.zeros(2, np.float32)) in (5, 6, 7)
    assert isinstance(agent.path, Path)


class Senses(gym.Env):
    """A Dict to see, numbers to play."""

    observation_space = gym.spaces.Dict(
        {"place": gym.spaces.Box(-1, 1, (2,), np.float32), "kind": gym.spaces.Discrete(3)}
    )
    action_space = gym.spaces.Box(-0.5, 0.5, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return {"place": np.zeros(2, np.float32), "kind": np.int64(1)}, {}

    def step(self, action):
        assert action.shape == (2,) and (abs(action) <= 0.5).all()
        self.clock += 1
        return {"place": np.zeros(2, np.float32), "kind": np.int64(2)}, 0.0, False, self.clock == 5, {}


def test_an_agent_takes_dicts_and_gives_boxes():
    agent = redline.train(Senses, total_steps=80, **TINY).finish()
    seen = Senses().reset()[0]
    one = agent.act(seen)
    assert Senses.action_space.contains(one)
    assert np.array_equal(agent.act([seen, seen]), [one, one])
    with pytest.raises(redline.RedlineError, match="does not fit"):
        agent.act({"place": np.zeros(2, np.float32)})
    with pytest.raises(redline.RedlineError, match="no probabilities of actions"):
        agent.probabilities(seen)
    assert redline.evaluate(agent, episodes=2)["episodes"] == 2


def test_a_recurrent_agent_remembers_until_it_is_told_to_forget():
    agent = redline.train("CartPole-v1", total_steps=40, recurrent="gru", dedup=False, **TINY).finish()
    obs = np.ones(4, np.float32)
    assert agent.act(obs) in (0, 1)
    agent.forget()
    with pytest.raises(redline.RedlineError, match="depends on what came before"):
        agent.value(obs)
