"""A number that is none stops learning before it spoils anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from redline.cli import main
from redline.learn import checkpoint
from redline.learn.config import PPOConfig
from redline.learn.finite import NotFinite
from redline.learn.train import Trainer
from tests.learn.test_train import tiny


class Jackpot(gym.Env):
    """Pays nothing but once: after `calm` steps, more than can be reckoned with."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, calm: int = 20, reward: float = 3e38) -> None:
        self._left, self._reward = calm, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self._left -= 1
        return self.observation_space.sample(), self._reward if self._left < 0 else 0.0, self._left % 7 == 0, False, {}


def train(run: Path, *more: str) -> int:
    sizes = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "320", "--engine", "serial", "--hidden", "8"]
    return main(["train", "external:tests.learn.test_finite:Jackpot", *sizes, "--run-dir", str(run), "-q", *more])


@pytest.mark.parametrize("often", ["1e-9", "1000"])
def test_a_loss_that_is_no_number_stops_the_run_and_spoils_no_checkpoint(often, tmp_path, capsys):
    assert train(tmp_path / "run", "--no-normalise-returns", "--checkpoint-seconds", often) == 1
    said = capsys.readouterr().err.strip()
    kept = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert kept
    assert len(said.splitlines()) == 1
    assert said.endswith(f"The last good checkpoint is {kept[-1]}.")
    for path in kept:
        arrays = checkpoint.load(path).arrays
        assert all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f")


def test_the_advice_that_is_given_helps(tmp_path):
    assert train(tmp_path / "run", "--normalise-returns") == 0


def test_weights_that_are_spoiled_are_not_learned_with():
    trainer = Trainer(tiny())
    trainer.policy.weights.data[3] = float("nan")
    with pytest.raises(NotFinite, match=r"came to nan"):
        trainer.update()


def test_a_step_size_that_is_too_large_is_named():
    trainer = Trainer(dataclasses.replace(tiny(), ppo=PPOConfig(learning_rate=1.0)))
    trainer.policy.weights.data.fill_(float("inf"))
    with pytest.raises(NotFinite, match=r"--learning-rate 1e-01"):
        trainer.update()
