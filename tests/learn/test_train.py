from __future__ import annotations

import dataclasses
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import redline
from redline.errors import RedlineError
from redline.learn import acting, checkpoint
from redline.learn import train as training
from redline.learn.config import PPOConfig, TrainConfig, config_from_json, config_to_json, recipe
from redline.learn.train import Trainer, Update, spread_seed, train

TINY = TrainConfig(
    num_envs=8, num_steps=25, hidden=(16,), env_options={"max_steps": 20}, total_steps=5000, device="cpu"
)
"""Episodes are shorter than a collect, and neither ends with the other."""


def tiny(minibatches: int = 1, **changes: Any) -> TrainConfig:
    return dataclasses.replace(TINY, ppo=PPOConfig(minibatches=minibatches), **changes)


def run(config: TrainConfig, num_updates: int = 3) -> tuple[Trainer, list[Update]]:
    trainer = Trainer(config)
    return trainer, go_on(trainer, num_updates)


def go_on(trainer: Trainer, num_updates: int) -> list[Update]:
    return [trainer.update() for _ in range(num_updates)]


def weights(trainer: Trainer) -> np.ndarray:
    return trainer.policy.weights.numpy()


def assert_same_run(trainer: Trainer, updates: list[Update], expected: tuple[Trainer, list[Update]]) -> None:
    """Equal to the last bit in everything but time."""
    expected_trainer, expected_updates = expected
    for update, twin in zip(updates, expected_updates, strict=True):
        for name, value in vars(twin).items():
            if name != "breakdown":
                np.testing.assert_equal(getattr(update, name), value)  # to which NaN equals NaN
    arrays, values = trainer.snapshot()
    expected_arrays, expected_values = expected_trainer.snapshot()
    assert values == expected_values
    assert arrays.keys() == expected_arrays.keys()
    for name, array in expected_arrays.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


# Reproducible

NET = dataclasses.replace(
    recipe("petri:cluster/J-0"),
    env_options={"wafers": 2, "lenient": True}, num_envs=8, num_steps=25, hidden=(16,), total_steps=1500, device="cpu",
)  # fmt: skip
"""All that nets have and others have not: masks, imitation, returns of a changing unit, a bonus that fades."""

settings = pytest.mark.parametrize(
    "config",
    [
        tiny(),
        tiny(minibatches=4),
        tiny(minibatches=4, reuse=2),
        tiny(dedup=False),
        tiny(shared=True, hidden=()),
        tiny(env_options={"max_steps": 20, "red_agent": "B_lineAgent,RedMeanderAgent", "observation": "history"}),
        dataclasses.replace(NET, ppo=dataclasses.replace(NET.ppo, minibatches=2)),
    ],
    ids=["whole", "minibatches", "reuse", "plain", "shared", "history", "net"],
)


@settings
def test_the_same_seed_gives_the_same_run_to_the_last_bit(config):
    assert_same_run(*run(config), expected=run(config))


def test_another_seed_gives_another_run():
    first, second = run(tiny())[0], run(tiny(seed=1))[0]
    assert (weights(first) != weights(second)).any()


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    monkeypatch.setattr("redline.learn.gradient.InOneCall.PIECE", 20)  # so that threads have something to share
    assert_same_run(*run(tiny(threads=2)), expected=run(tiny(threads=1)))


def test_turbo_changes_no_bit():
    assert_same_run(*run(tiny(turbo=False)), expected=run(tiny(turbo=True)))


def test_dedup_changes_a_first_update_by_no_more_than_rounding():
    (fast, (fast_update,)), (plain, (plain_update,)) = run(tiny(), 1), run(tiny(dedup=False), 1)
    before = weights(Trainer(tiny())).copy()
    moved = np.abs(weights(plain) - before).max()
    np.testing.assert_allclose(weights(fast), weights(plain), rtol=0, atol=0.01 * moved)
    for name in ("return", "length", "learning_rate", "gradient_steps"):
        assert fast_update.metrics[name] == plain_update.metrics[name]
    for name in ("loss", "value_loss", "entropy", "kl", "explained_variance"):
        assert fast_update.metrics[name] == pytest.approx(plain_update.metrics[name], rel=1e-3, abs=1e-5)
    assert fast_update.metrics["distinct"] < plain_update.metrics["distinct"] == 200


def test_every_kind_of_randomness_gets_a_seed_of_its_own():
    assert spread_seed(7, 4) == spread_seed(7, 4)
    assert len({*spread_seed(7, 4), *spread_seed(8, 4)}) == 8


# Interrupted


@settings
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(config):
    uninterrupted = run(config, 6)
    interrupted, updates = run(config, 3)
    resumed = Trainer(config)
    assert resumed.restore(*interrupted.snapshot())
    assert_same_run(resumed, updates + go_on(resumed, 3), expected=uninterrupted)


@settings
def test_a_run_goes_on_from_a_checkpoint_on_disk_as_if_nothing_had_happened(config, tmp_path: Path):
    uninterrupted = run(config, 6)
    interrupted, updates = run(config, 3)
    saved = checkpoint.load(checkpoint.save(tmp_path, interrupted.step, *interrupted.snapshot()))
    resumed = Trainer(config)
    assert resumed.restore(saved.arrays, saved.values)
    assert_same_run(resumed, updates + go_on(resumed, 3), expected=uninterrupted)


def test_a_run_may_be_interrupted_before_it_has_begun():
    config = tiny(minibatches=4, reuse=1)
    resumed = Trainer(config)
    resumed.restore(*Trainer(config).snapshot())
    assert_same_run(resumed, go_on(resumed, 2), expected=run(config, 2))


def test_a_snapshot_is_not_touched_by_what_comes_after():
    trainer, _ = run(tiny(reuse=1), 2)
    arrays, values = trainer.snapshot()
    before, values_before = {name: array.copy() for name, array in arrays.items()}, json.dumps(values)
    go_on(trainer, 2)
    assert json.dumps(values) == values_before
    for name, array in before.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


def test_envs_that_cannot_be_saved_begin_new_episodes():
    config = TrainConfig("CartPole-v1", num_envs=2, num_steps=10, hidden=(4,), device="cpu")
    interrupted, _ = run(config, 2)
    resumed = Trainer(config)
    assert not resumed.restore(*interrupted.snapshot())
    np.testing.assert_array_equal(weights(resumed), weights(interrupted))
    (update,) = go_on(resumed, 1)
    assert (update.number, update.step) == (3, 60)


# The loop


def test_training_stops_at_the_goal_rounded_up_to_whole_updates():
    updates = list(train(tiny(total_steps=401)))
    assert [update.step for update in updates] == [200, 400, 600]
    assert [update.number for update in updates] == [1, 2, 3]
    assert [update.progress for update in updates] == [200 / 401, 400 / 401, 1.0]


def test_training_may_stop_after_a_number_of_episodes_instead():
    updates = list(train(tiny(total_steps=None, total_episodes=20)))
    assert [update.episodes for update in updates] == [8, 16, 24]  # 8 envs finish episodes at steps 20, 40 and 60


def test_the_step_size_falls_with_progress():
    rates = [update.metrics["learning_rate"] for update in train(tiny(total_steps=800))]
    np.testing.assert_allclose(rates, PPOConfig().learning_rate * np.array([1, 0.75, 0.5, 0.25]))


def test_an_update_without_a_finished_episode_has_no_return():
    (update,) = run(tiny(num_steps=10), 1)[1]
    assert update.episodes == 0
    assert np.isnan(update.metrics["return"])


def test_returns_are_reported_unscaled():
    (update,) = run(TINY, 1)[1]
    (scaled,) = run(dataclasses.replace(TINY, ppo=PPOConfig(reward_scale=2.0)), 1)[1]
    for name in ("return", "return_std", "return_min", "return_max", "length"):
        assert scaled.metrics[name] == update.metrics[name]
    assert scaled.metrics["value_loss"] > update.metrics["value_loss"]
    assert update.metrics["return_min"] <= update.metrics["return"] <= update.metrics["return_max"] < 0
    assert update.metrics["length"] == 20


def test_the_time_of_an_update_is_spent_collecting_and_learning():
    (update,) = run(tiny(), 1)[1]
    assert update.breakdown.children() == [("collect",), ("learn",)]
    assert ("collect", "play") in update.breakdown.seconds
    assert ("learn", "gradient") in update.breakdown.seconds


def test_a_config_survives_json():
    config = tiny(minibatches=4, reuse=2, hidden=(8, 4), seed=3)
    assert config_from_json(json.loads(json.dumps(config_to_json(config)))) == config


def test_where_chance_plays_a_part_lucky_episodes_are_not_imitated():
    with pytest.raises(RedlineError, match=r"--elite 8 .* chance plays a part in cage2. Try --elite 0\.$"):
        Trainer(dataclasses.replace(TINY, ppo=PPOConfig(elite=8)))


class Walk(gym.Env):
    """Ends after three steps; pays by the action, and `lucky` a bit of luck at the end."""

    observation_space, action_space = gym.spaces.Discrete(4), gym.spaces.Discrete(2)

    def __init__(self, lucky=False):
        self.lucky, self.place = lucky, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place += 1
        luck = self.np_random.random() if self.lucky and self.place == 3 else 0.0
        return self.place, float(action) + luck, self.place == 3, False, {}


def test_of_an_env_that_says_nothing_about_chance_two_are_watched():
    redline.train(Walk, 16, num_envs=2, num_steps=8, elite=2).finish()
    with pytest.raises(RedlineError, match=r"^--elite 2 .* chance plays a part in .* Try --elite 0\.$"):
        redline.train(lambda: Walk(lucky=True), 16, num_envs=2, num_steps=8, elite=2)
    with pytest.raises(RedlineError, match=r"^--elite 2 .* cannot be tried with a VectorEnv\. Pass .*\.$"):
        redline.train(gym.vector.SyncVectorEnv([Walk] * 2), 16, num_steps=8, elite=2)


def test_giving_deduplication_up_and_taking_it_up_again_is_told_once_each(monkeypatch):
    monkeypatch.setattr(acting, "TRY_AGAIN", 2)
    trainer = Trainer(tiny())
    monkeypatch.setattr(acting, "REPEATS_WORTH_FINDING", 1e9)
    monkeypatch.setattr(training, "REPEATS_WORTH_FINDING", 1e9)
    given_up = go_on(trainer, 5)
    monkeypatch.setattr(acting, "REPEATS_WORTH_FINDING", 1.1)
    monkeypatch.setattr(training, "REPEATS_WORTH_FINDING", 1.1)
    taken_up = go_on(trainer, 4)
    assert [update.metrics["dedup"] for update in (given_up[-1], taken_up[-1])] == [0.0, 1.0]
    [first, second] = [note for update in given_up + taken_up for note in update.notes]
    assert first.startswith("Deduplication is given up: an observation was met")
    assert second.startswith("Deduplication is taken up again: an observation was met")


@pytest.mark.parametrize(("number", "text"), [(1.999, "1.9"), (2.0, "2"), (1.0, "1"), (9.96, "9.9"), (123.9, "123")])
def test_what_is_below_a_limit_also_reads_so(number, text):
    assert training.rounded_down(number) == text


def test_without_deduplication_there_is_nothing_to_tell_of_it():
    _, updates = run(tiny(dedup=False), 2)
    assert not any(update.notes or "dedup" in update.metrics for update in updates)


def test_observations_that_never_repeat_can_be_trained_on():
    trainer, updates = run(TrainConfig("CartPole-v1", num_envs=4, num_steps=16, hidden=(8,), device="cpu"))
    assert not trainer.actor.dedup
    assert [update.metrics["distinct"] for update in updates[1:]] == [64, 64]
    assert all(np.isfinite(update.metrics["loss"]) for update in updates)
    assert np.isfinite(weights(trainer)).all()


# Refused


def complaint(**changes: Any) -> str:
    """What is said against a config; always one line."""
    with pytest.raises(RedlineError) as caught:
        Trainer(TrainConfig(**changes))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_envs": 0},
        {"num_envs": -3},
        {"num_steps": 0},
        {"total_steps": 0},
        {"total_episodes": -1},
        {"threads": -1},
        {"reuse": -1},
        {"seed": -1},
        {"ppo": {"epochs": 0}},
        {"ppo": {"minibatches": -1}},
        {"ppo": {"minibatches": -2}},
        {"ppo": {"learning_rate": -1e-3}},
        {"ppo": {"learning_rate": float("nan")}},
        {"ppo": {"gamma": 1.5}},
        {"ppo": {"gae_lambda": -0.1}},
        {"ppo": {"clip": -0.2}},
        {"ppo": {"entropy": -1.0}},
        {"ppo": {"value": -1.0}},
        {"ppo": {"max_grad_norm": -0.5}},
        {"num_envs": 10, "num_steps": 10, "ppo": {"minibatches": 7}},
        {"num_envs": 1, "num_steps": 3, "ppo": {"minibatches": 50}},
    ],
    ids=str,
)
def test_a_number_that_cannot_work_is_answered_with_one_that_does(changes):
    ppo = changes.get("ppo", {})
    said = complaint(**{**changes, "ppo": PPOConfig(**ppo)})
    name, suggested = re.search(r"Try --([a-z-]+) ([-\d.e]+)\.$", said).groups()
    field = name.replace("-", "_")
    assert field in {**changes, **ppo}
    mended = float(suggested) if "." in suggested else int(suggested)
    if field in ppo:
        TrainConfig(**{**changes, "ppo": PPOConfig(**{**ppo, field: mended})})
    else:
        TrainConfig(**{**changes, field: mended})


def test_minibatches_that_do_not_divide_are_answered_with_the_nearest_that_do():
    said = complaint(num_envs=10, num_steps=10, ppo=PPOConfig(minibatches=7))
    assert "100 steps (10 envs x 10)" in said
    assert said.endswith("Try --minibatches 5.")


def test_only_one_goal_can_be_given():
    assert "Pass one of them" in complaint(total_steps=1000, total_episodes=10)


def test_a_layer_without_units_is_refused():
    assert "Try --hidden 64,64" in complaint(hidden=(64, 0))


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"engine": "vectr"}, "Did you mean 'vector'?"),
        ({"env": "cage"}, "Did you mean 'cage"),
        ({"env": "CartPoel-v1"}, "Did you mean 'CartPole-v1'?"),
        ({"env_options": {"max_step": 30}}, "Did you mean 'max_steps'?"),
        ({"device": "gpu"}, "Try --device auto, cpu or cuda."),
    ],
    ids=str,
)
def test_an_unknown_name_is_answered_with_one_that_exists(changes, hint):
    assert hint in complaint(**changes)


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "Try --device auto." in complaint(device="cuda")


def test_an_env_whose_observations_are_not_arrays_is_refused():
    said = complaint(env="external:tests.contracts.toys:Sentences", num_envs=2)
    assert "Text" in said and "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple" in said


# It learns


def test_it_learns_to_balance_a_pole_with_the_settings_it_has_by_itself():
    returns = [update.metrics["return"] for update in islice(redline.train("CartPole-v1", 50_000), 24)]
    assert returns[0] < 40
    assert np.nanmax(returns) > 150


def test_it_learns_to_defend_a_network():
    returns = [update.metrics["return"] for update in islice(train(TrainConfig(device="cpu")), 40)]
    assert returns[0] < -600
    assert returns[-1] > -60
