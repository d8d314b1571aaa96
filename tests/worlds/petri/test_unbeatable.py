"""A run that has played a schedule as short as any can be ends, and its policy plays it."""

from __future__ import annotations

import dataclasses

import numpy as np

from redline.learn.config import TrainConfig
from redline.learn.train import Trainer
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.scores import play_policy, unbeatable
from redline.worlds.registry import world_of

NAME = "petri:cluster/S-0?wafers=1"


def config(elite: int = 8) -> TrainConfig:
    recipe = world_of(NAME).recipe
    assert recipe is not None
    made = recipe(NAME)
    ppo = dataclasses.replace(made.ppo, elite=elite)
    return dataclasses.replace(made, num_envs=16, total_steps=30_000, threads=1, ppo=ppo)


def test_a_run_ends_with_a_schedule_at_the_bound_and_says_so():
    trainer = Trainer(config())
    updates = list(trainer)
    bound = parse_petri(NAME).lower_bound
    assert updates[-1].step < 30_000
    assert updates[-1].progress == 1.0
    assert updates[-1].notes == (
        f"A schedule of {bound} was played, which is the lower bound: there is nothing left to learn.",
    )
    results, _ = play_policy(trainer.policy, parse_petri(NAME, **config().env_options), samples=1, seed=0)
    assert results[0].makespan == bound
    resumed = Trainer(config())
    resumed.restore(*trainer.snapshot())
    assert list(resumed) == []


def ends(
    end_time: float, completed: float = 1.0, margin_min: float = 0.0, scrapped: float = 0.0
) -> dict[str, np.ndarray]:
    found = {"end_time": end_time, "completed": completed, "margin_min": margin_min, "scrapped": scrapped}
    return {name: np.array([value]) for name, value in found.items()}


def test_only_a_schedule_that_keeps_to_all_rules_is_unbeatable():
    bound = parse_petri(NAME).lower_bound
    assert bound is not None
    assert unbeatable(config(), ends(bound)) is not None
    for other in (
        ends(bound + 1), ends(bound, completed=0.0), ends(bound, margin_min=-1.0), ends(bound, scrapped=1.0), {},
    ):  # fmt: skip
        assert unbeatable(config(), other) is None


def test_a_known_optimum_counts_as_well():
    shop = dataclasses.replace(config(), env="petri:jobshop/ft06", env_options={})
    text = unbeatable(shop, ends(55.0))
    assert text == "A schedule of 55 was played, which is the known optimum: there is nothing left to learn."


def test_without_episodes_that_are_kept_a_run_goes_on():
    trainer = Trainer(config(elite=0))
    for _ in range(3):
        update = trainer.update()
    assert update.progress < 1.0
