"""Settings for envs that we did not write."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from redline.learn.config import recipe, settled
from redline.worlds.given import name_of
from redline.worlds.python import recipe as recipes
from redline.worlds.python.recipe import EnvCost, fit, probe, sized

NONE = frozenset[str]()
CARTPOLE = recipe("CartPole-v1")


class Sleepy(gym.Env):
    """Takes its time, over a step or over a reset, and plays with everybody's dice."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, step_seconds: float = 0.0, reset_seconds: float = 0.0) -> None:
        self.step_seconds, self.reset_seconds = step_seconds, reset_seconds

    def reset(self, *, seed=None, options=None):
        time.sleep(self.reset_seconds)
        random.random(), np.random.rand()
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(self.step_seconds)
        random.random(), np.random.rand()
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("step_seconds", [1e-6, 1e-5, 1e-4, 1e-3, 3e-3])
def test_envs_that_are_quick_enough_get_the_same_settings_however_quick_they_are(step_seconds):
    found = settled(sized(CARTPOLE, NONE, EnvCost(step_seconds)))
    assert (found.num_envs, found.num_steps, found.ppo.minibatches) == (8, 256, 32)


@pytest.mark.parametrize("step_seconds", [1e-5, 1e-2, 5e-2, 0.2, 0.9])
@pytest.mark.parametrize("total_steps", [1_000, 20_000, 1_000_000])
def test_the_first_update_ends_within_ten_seconds_and_there_are_fifty(step_seconds, total_steps):
    found = settled(sized(replace(CARTPOLE, total_steps=total_steps), NONE, EnvCost(step_seconds)))
    steps = found.num_envs * found.num_steps
    assert steps * step_seconds < 10
    assert total_steps / steps >= 50
    assert steps % found.ppo.minibatches == 0


def test_resets_that_take_seconds_leave_room_for_few_envs():
    assert sized(CARTPOLE, NONE, EnvCost(1e-3, reset_seconds=2.0)).num_envs == 2


def test_what_was_chosen_stays():
    many = sized(replace(CARTPOLE, num_envs=512), frozenset({"num_envs"}), EnvCost(1e-5))
    assert (many.num_envs, many.num_steps) == (512, 32)
    long = sized(replace(CARTPOLE, num_steps=2048), frozenset({"num_steps"}), EnvCost(1e-5))
    assert (long.num_envs, long.num_steps) == (1, 2048)
    both = replace(CARTPOLE, num_envs=3, num_steps=7)
    assert fit(both, frozenset({"num_envs", "num_steps"}), print) == settled(both)


def test_fitting_says_one_line_and_the_same_every_time():
    said: list[str] = []
    found = [fit(CARTPOLE, NONE, said.append) for _ in range(2)]
    assert found[0] == found[1] and len(said) == 2
    assert "A step of CartPole-v1 costs" in said[0] and "8 envs x 256 steps an update" in said[0]


def test_probing_has_a_time_limit_and_leaves_everybodys_dice_alone(monkeypatch):
    monkeypatch.setattr(recipes, "PROBE_LIMIT", 0.2)
    random.seed(3), np.random.seed(3)
    for slow in ({"step_seconds": 60.0}, {"reset_seconds": 60.0}):
        began = time.monotonic()
        config = replace(CARTPOLE, env=name_of(Sleepy), env_options=slow)
        found = probe(config)
        assert found.cut_short and time.monotonic() - began < 10
        assert sized(config, NONE, EnvCost(5.0, found.reset_seconds, True)).num_envs == 1
    probe(replace(CARTPOLE, env=name_of(Sleepy)))
    seen = random.random(), np.random.rand()
    random.seed(3), np.random.seed(3)
    assert seen == (random.random(), np.random.rand())


def test_an_env_that_fails_is_left_to_the_engine():
    def broken() -> gym.Env:
        raise ValueError("no")

    assert probe(replace(CARTPOLE, env=name_of(broken))) == EnvCost()


def test_numbers_as_actions_get_normalised_observations_however_they_are_sized():
    pendulum, sizes = recipe("Pendulum-v1"), frozenset({"num_envs", "num_steps"})
    for found in (fit(pendulum, NONE, print), fit(replace(pendulum, num_envs=2, num_steps=8), sizes, print)):
        assert found.normalise_observations
    mine = fit(replace(pendulum, num_envs=2, num_steps=8), sizes | {"normalise_observations"}, print)
    assert not mine.normalise_observations
    small = replace(CARTPOLE, num_envs=2, num_steps=8)
    assert not fit(small, sizes, print).normalise_observations
    remembering = fit(replace(small, recurrent="gru"), sizes, print)
    assert remembering.normalise_observations and remembering.ppo.target_kl == 0.02


class Screen(Sleepy):
    """Shows pictures."""

    observation_space = gym.spaces.Box(0, 255, (10, 10, 4), np.uint8)


def test_pictures_get_fewer_passes_in_larger_parts():
    found = fit(recipe(name_of(Screen)), NONE, print)
    steps = found.num_envs * found.num_steps
    assert (found.ppo.epochs, found.ppo.entropy, steps // found.ppo.minibatches) == (4, 0.01, 256)
    assert found.shared and not found.normalise_observations
    mine = replace(recipe(name_of(Screen)), ppo=replace(recipe(name_of(Screen)).ppo, epochs=7, minibatches=2))
    kept = fit(mine, frozenset({"epochs", "minibatches"}), print).ppo
    assert (kept.epochs, kept.minibatches, kept.entropy) == (7, 2, 0.01)
