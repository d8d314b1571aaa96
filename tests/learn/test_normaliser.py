from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from redline.engines import Collecting
from redline.errors import RedlineError
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.normaliser import Normaliser
from redline.learn.reuse import as_seen_today
from redline.learn.train import Trainer


def config(env: str = "CartPole-v1", **more: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "num_envs": 4, "num_steps": 16, "engine": "vector", "device": "cpu", "seed": 5, "total_steps": 10**9,
        "ppo": PPOConfig(minibatches=2, epochs=2), "normalise_observations": True,
    }  # fmt: skip
    return TrainConfig(env, **{**settings, **more})


def test_numbers_get_mean_zero_and_deviation_one():
    random, normaliser = np.random.default_rng(0), Normaliser(2)
    parts = [random.normal((3.0, -200.0), (0.01, 50.0), (count, 2)) for count in (10, 1, 500)]
    for part in parts:
        normaliser.see(part, np.ones(len(part)))
    seen = normaliser.shift.apply(np.concatenate(parts).astype(np.float32))
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-2)
    np.testing.assert_allclose(seen.std(axis=0), 1, rtol=1e-2)


def test_an_observation_counts_as_often_as_it_was_seen():
    often, once = Normaliser(1), Normaliser(1)
    often.see(np.array([[1.0], [4.0]]), np.array([3, 1]))
    once.see(np.array([[1.0], [1.0], [4.0], [1.0]]), np.ones(4))
    np.testing.assert_allclose(often.snapshot(), once.snapshot())


def test_what_never_varies_and_what_is_far_off_stay_finite():
    normaliser = Normaliser(2)
    normaliser.see(np.array([[5.0, 0.0], [5.0, 1.0]]), np.ones(2))
    assert normaliser.shift.apply(np.array([[5.0, 1e30], [6.0, -1e30]], np.float32)).tolist() == [[0, 10], [10, -10]]


def test_before_anything_was_seen_numbers_stay_as_they_are():
    numbers = np.array([[0.5, -2.0]], np.float32)
    np.testing.assert_allclose(Normaliser(2).shift.apply(numbers), numbers, rtol=1e-6)


@pytest.mark.parametrize("name", ["vector", "pool"])
def test_learning_sees_what_acting_saw(name):
    trainer = Trainer(config(engine=name, collecting=Collecting(workers=2)))
    for _ in range(2):
        rollout = trainer.engine.collect(trainer.actor, 16, trainer.watch)
        again, _ = as_seen_today(rollout, trainer.policy)
        cells = rollout.cells()
        np.testing.assert_allclose(again.log_probs[cells], rollout.log_probs[cells], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(again.values[cells], rollout.values[cells], rtol=1e-4, atol=1e-5)
        trainer.ppo.update(rollout, trainer.watch)
        trainer.actor.version += 1
    assert trainer.policy.normaliser.snapshot()[0, 0] > 0
    trainer.close()


def test_a_checkpoint_holds_what_is_known_of_the_observations():
    asked = config("cage2", env_options={"max_steps": 12})
    whole = Trainer(asked)
    whole.update()
    arrays, values = whole.snapshot()
    whole.update()
    resumed = Trainer(asked)
    resumed.restore(pickle.loads(pickle.dumps(arrays)), values)
    resumed.update()
    np.testing.assert_array_equal(resumed.policy.weights.detach().numpy(), whole.policy.weights.detach().numpy())
    np.testing.assert_array_equal(resumed.policy.normaliser.snapshot(), whole.policy.normaliser.snapshot())
    whole.close()
    resumed.close()


def test_pictures_are_not_normalised_again():
    with pytest.raises(RedlineError, match="scaled already"):
        Trainer(config("external:tests.contracts.toys:Pictures"))
