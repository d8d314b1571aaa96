"""The contract suite finds what it is there to find: each fault makes the test that is named for it fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redline.testing import WorldContract
from redline.worlds import batch, rules
from redline.worlds.batch import BatchEnv, SingleEnv
from redline.worlds.rules import RulesEnv

NAME = "world:examples.elevator:WORLD?max_steps=12"
Patch = pytest.MonkeyPatch


def masks_are_not_copied(patch: Patch) -> None:
    patch.setattr(BatchEnv, "_masks", lambda self: {"action_mask": self.mask})


def seeds_are_forgotten(patch: Patch) -> None:
    reset = BatchEnv.reset
    patch.setattr(BatchEnv, "reset", lambda self, *, seed=None, options=None: reset(self, options=options))


def all_envs_get_the_same_seed(patch: Patch) -> None:
    patch.setattr(batch, "seed_streams", lambda seed, num_envs: np.full(num_envs, seed, np.uint64))


def a_reset_mask_is_forgotten(patch: Patch) -> None:
    reset = BatchEnv.reset
    patch.setattr(BatchEnv, "reset", lambda self, *, seed=None, options=None: reset(self, seed=seed))


def the_clock_is_not_saved(patch: Patch) -> None:
    patch.setattr(RulesEnv, "state_arrays", lambda self: {"records": self.state})


def a_part_of_a_snapshot_may_be_missing(patch: Patch) -> None:
    restore = BatchEnv.restore
    patch.setattr(BatchEnv, "restore", lambda self, snapshot: restore(self, {**self.snapshot(), **snapshot}))


def forbidden_actions_are_played(patch: Patch) -> None:
    patch.setattr(RulesEnv, "require_allowed", lambda self, actions: None)


def lengths_are_wrong(patch: Patch) -> None:
    told = RulesEnv.ended_infos
    patch.setattr(
        RulesEnv, "ended_infos", lambda self, ended: {"episode": {**told(self, ended)["episode"], "l": ended + 0}}
    )


def the_interpreted_rules_are_others(patch: Patch) -> None:
    def at_speed(kernel: Callable[..., Any], turbo: bool) -> Callable[..., Any]:
        def other(envs: Any, *more: Any) -> None:
            kernel(envs, *more)
            getattr(envs, "state", envs).rng += 1  # all that a step needs, or the records alone

        return kernel if turbo else other

    patch.setattr(rules, "at_speed", at_speed)


def a_single_env_begins_from_the_same_seed_again(patch: Patch) -> None:
    reset = SingleEnv.reset
    patch.setattr(SingleEnv, "reset", lambda self, *, seed=5, options=None: reset(self, seed=seed, options=options))


@pytest.mark.parametrize(
    ("fault", "finder"),
    [
        (masks_are_not_copied, WorldContract.test_an_answer_is_not_overwritten_by_the_next_one),
        (seeds_are_forgotten, WorldContract.test_equal_seeds_play_equal_episodes),
        (all_envs_get_the_same_seed, WorldContract.test_an_env_does_not_notice_its_neighbours),
        (a_reset_mask_is_forgotten, WorldContract.test_a_reset_mask_leaves_the_other_envs_alone),
        (the_clock_is_not_saved, WorldContract.test_a_restored_snapshot_goes_on_as_if_nothing_had_happened),
        (a_part_of_a_snapshot_may_be_missing, WorldContract.test_a_snapshot_that_does_not_fit_is_refused),
        (forbidden_actions_are_played, WorldContract.test_actions_that_do_not_fit_are_refused_and_change_nothing),
        (lengths_are_wrong, WorldContract.test_an_ended_episode_begins_again_in_the_same_step),
        (the_interpreted_rules_are_others, WorldContract.test_compiled_and_interpreted_rules_play_the_same),
        (a_single_env_begins_from_the_same_seed_again, WorldContract.test_the_single_env_plays_what_the_batch_plays),
    ],
    ids=lambda each: each.__name__,
)
def test_a_fault_is_found(fault: Callable[[Patch], None], finder: Callable[..., None], monkeypatch: Patch):
    finder(WorldContract(), NAME)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        finder(WorldContract(), NAME)


def test_a_world_that_is_not_compiled_is_told_so():
    with pytest.raises(AssertionError, match="is of no compiled world"):
        WorldContract().make("CartPole-v1")
