"""A run that no longer gets better offers to end, or ends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.learn.records import Records
from redline.learn.train import Trainer

# one step is one episode of one reward, so the records stand from the first update on
CONFIG = TrainConfig(
    "slow", num_envs=2, num_steps=4, hidden=(4,), total_steps=80, threads=1,
    env_options={"mean_ms": 1e-6, "max_steps": 1},
)  # fmt: skip


def flat_returns(trainer: Trainer) -> Trainer:
    """Every episode comes to the same."""
    collect = trainer.engine.collect

    def collect_flat(*given):
        rollout = collect(*given)
        return dataclasses.replace(rollout, episode_returns=np.zeros_like(rollout.episode_returns))

    trainer.engine.collect = collect_flat  # type: ignore[method-assign]
    return trainer


def test_records_stand_after_a_third_of_the_steps_without_a_better_best_or_median():
    records = Records()
    records.see(np.array([1.0, 2.0, 9.0]), 10)
    records.see(np.array([3.0, 3.0, 3.0]), 20)  # a better median
    records.see(np.array([0.0, 0.0, 9.0]), 30)
    records.see(np.empty(0), 40)
    assert (records.best, records.usual, records.raised_at) == (9.0, 3.0, 20)
    assert [records.stand(step, 90) for step in (49, 50)] == [False, True]


def test_a_run_that_has_settled_ends_and_says_so_also_when_it_is_resumed():
    config = dataclasses.replace(CONFIG, stop_when_settled=True)
    trainer = flat_returns(Trainer(config))
    updates = list(trainer)
    assert updates[-1].step == 40  # the records are those of step 8, and a third of 80 steps is over at 35
    assert updates[-1].notes[-1] == (
        "Neither the best nor the usual return has gone up since step 8: the run has settled, and ends."
    )
    resumed = Trainer(config)
    resumed.restore(*trainer.snapshot())
    assert list(resumed) == []


def test_without_the_option_a_run_goes_on_to_its_end_and_offers_once():
    notes = [note for update in flat_returns(Trainer(CONFIG)) for note in update.notes if "Neither" in note]
    assert notes == [
        "Neither the best nor the usual return has gone up since step 8. With --stop-when-settled the run would end here."
    ]


def test_a_goal_of_episodes_has_no_third_of_its_steps():
    with pytest.raises(RedlineError, match="--total-steps"):
        dataclasses.replace(CONFIG, total_steps=None, total_episodes=5, stop_when_settled=True)
