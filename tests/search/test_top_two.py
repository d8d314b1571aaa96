from __future__ import annotations

import json

import numpy as np
import pytest

from redline.search.evidence import weigh
from redline.search.top_two import Groups, InTurn, Posterior, TopTwo
from redline.worlds.cage2.workflow import DISTANCES

FIVE = DISTANCES[:5, :5]


def told(search: TopTwo, worth: np.ndarray, rounds: int, luck: np.ndarray | None = None) -> list[int]:
    """Ask and tell for some rounds. Returns all picks."""
    picks = []
    for _ in range(rounds):
        for id in search.ask():
            replicate = search.replicate(id)
            search.tell(id, float(worth[id] + (0.0 if luck is None else luck[id, replicate])))
            picks.append(id)
    return picks


def test_what_is_peculiar_to_a_replicate_is_taken_off():
    evidence = weigh({3: [-10.0, -20.0], 8: [-12.0, -22.0], 9: [-11.0]})
    assert evidence.ids == [3, 8, 9]
    np.testing.assert_allclose(
        evidence.scores, [-15.0, -17.0, -16.0]
    )  # 9 was lucky: it was spared the second replicate
    assert evidence.spare == 1


def test_more_trainings_of_a_workflow_mean_less_noise():
    evidence = weigh({0: [1.0, 2.5, 3.0], 1: [2.0, 2.0], 2: [5.0]})
    np.testing.assert_allclose(evidence.noise * [3, 2, 1], evidence.noise[2])
    assert evidence.noise[2] > 0


def test_nothing_told_is_no_evidence():
    assert weigh({}).ids == []


def test_workflows_that_are_alike_share_what_is_known():
    groups = Groups(FIVE, np.array([0, 0, 1, 1, 2]), seed=3)
    assert len(groups) == 3
    assert groups.alike(1) == [0, 1]
    mean, std = Posterior(groups, {int(groups.first[0]): [-5.0, -5.2], int(groups.first[1]): [-9.0, -9.1]}).of_all()
    assert mean[0] == mean[1] > mean[2] == mean[3]
    assert std[0] == std[1]


def test_a_replicate_is_begun_when_nobody_who_matters_lacks_the_one_before():
    search = TopTwo(FIVE, seed=0, most=2)
    picks = told(search, np.full(5, -10.0), 10, luck=np.random.default_rng(0).normal(size=(5, 2)))
    assert sorted(picks[:5]) == [0, 1, 2, 3, 4]
    assert len(picks) <= 10
    assert search.ask() == []


def test_who_can_be_told_from_the_best_is_trained_no_further():
    worth = np.array([-10.0, -10.1, -40.0, -41.0, -39.0])
    search = TopTwo(FIVE, seed=0, most=5)
    picks = told(search, worth, 25, luck=0.1 * np.random.default_rng(1).normal(size=(5, 5)))
    assert picks.count(0) == picks.count(1) == 5
    assert max(picks.count(k) for k in (2, 3, 4)) == 2  # the second shows how much is noise
    assert search.answer() in (0, 1)
    assert not search.posterior.tied(search.answer())[2:].any()


def test_nobody_is_ruled_out_by_a_single_training():
    worth, luck = np.array([-10.0, -10.0, -10.0, -10.5, -10.5]), np.zeros((5, 5))
    luck[4, 0] = -5.0  # unlucky once, while the others leave the noise looking like nothing
    picks = told(TopTwo(FIVE, seed=0, most=5), worth, 25, luck)
    assert min(picks.count(k) for k in range(5)) >= 2


def test_the_answer_is_not_one_that_was_lucky_once_and_left_behind():
    evidence = weigh({0: [-10.0, -10.2, -10.1, -10.0], 1: [-11.0, -11.2, -11.1, -11.0], 2: [-9.9]})
    assert evidence.ids[evidence.best] == 0


def test_a_search_is_settled_once_the_noise_is_known_to_be_small():
    search = TopTwo(FIVE, seed=0)
    told(search, np.array([-10.0, -20.0, -30.0, -40.0, -50.0]), 5)
    assert search.regret() == np.inf
    told(search, np.array([-10.0, -20.0, -30.0, -40.0, -50.0]), 4)
    assert search.regret() < 1.0  # of ten that the next one lacks


def test_what_is_not_obeyed_is_not_picked_again():
    search = TopTwo(FIVE, seed=0, most=3)
    [first] = search.ask()
    search.tell_infeasible(first)
    assert first not in told(search, np.zeros(5), 20)


@pytest.mark.parametrize("picks_before", [1, 4, 7])
def test_a_snapshot_goes_on_as_the_search_does(picks_before):
    worth, luck = np.array([-10.0, -11.0, -10.5, -12.0, -10.2]), np.random.default_rng(2).normal(size=(5, 5))
    search = TopTwo(FIVE, seed=4)
    told(search, worth, picks_before, luck)
    other = TopTwo(FIVE, seed=9)
    other.restore(json.loads(json.dumps(search.snapshot())))
    assert told(other, worth, 6, luck) == told(search, worth, 6, luck)


def test_several_at_once_are_different_ones():
    search = TopTwo(FIVE, seed=0)
    assert len(set(search.ask(3))) == 3
    search.forget_asked()
    assert search.ask(1) == TopTwo(FIVE, seed=0).ask(1)


def test_in_turn_everyone_has_every_replicate():
    assert told(InTurn(FIVE, most=2), np.zeros(5), 20) == [0, 1, 2, 3, 4] * 2


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="finite"):
        TopTwo(FIVE).tell(0, float("nan"))
