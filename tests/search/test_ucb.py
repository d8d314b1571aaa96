from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from statistics import mean

import numpy as np
import pytest

from redline.search.ucb import GPUCB, OneByOne
from redline.worlds.cage2.workflow import ALL_WORKFLOWS, DISTANCES, Workflow

SEARCHES = [partial(GPUCB, DISTANCES), partial(OneByOne, 120)]
every_search = pytest.mark.parametrize("Search", SEARCHES, ids=["GPUCB", "OneByOne"])

PEAK = 77
LANDSCAPE = -50 - 30 * DISTANCES[PEAK]
SEEN = [3, 20, 45, 60, 81, 99, 118]


def told(search, ids: Iterable[int]):
    for id in ids:
        search.tell(id, LANDSCAPE[id])
    return search


def play(search, num_rounds: int, batch: int = 1) -> list[int]:
    """Ask and tell for some rounds. Returns all picks."""
    picks = []
    for _ in range(num_rounds):
        asked = search.ask(batch)
        told(search, asked)
        picks += asked
    return picks


@every_search
def test_the_first_pick_is_drawn_from_the_seed(Search):
    picks = [Search(seed).ask() for seed in range(20)]
    assert picks == [Search(seed).ask() for seed in range(20)]
    assert len({pick for [pick] in picks}) > 10


@pytest.mark.parametrize("outcome", ["pending", "told", "infeasible"])
def test_the_second_pick_is_the_farthest_from_the_first(outcome):
    search = GPUCB(DISTANCES, seed=5)
    [first] = search.ask()
    if outcome == "told":
        search.tell(first, -50.0)
    elif outcome == "infeasible":
        search.tell_infeasible(first)
    [second] = search.ask()
    assert ALL_WORKFLOWS[second] == Workflow(ALL_WORKFLOWS[first].order[::-1])


def test_later_picks_have_the_highest_upper_bound():
    search = told(GPUCB(DISTANCES, beta=1.5), SEEN)
    means, stds, bounds = search.acquisition()
    assert np.array_equal(bounds, means + 1.5 * stds)
    assert search.ask() == [int(np.argmax(bounds))]


def test_more_beta_explores_more():
    timid, bold = told(GPUCB(DISTANCES, beta=0.0), SEEN), told(GPUCB(DISTANCES, beta=100.0), SEEN)
    means, stds, _ = timid.acquisition()
    assert timid.ask() == [int(np.argmax(means))]
    assert stds[bold.ask()[0]] == pytest.approx(stds.max())


def test_before_any_observation_the_acquisition_is_the_prior():
    means, stds, bounds = GPUCB(DISTANCES, beta=2.0).acquisition()
    assert (set(means), set(stds), set(bounds)) == ({0.0}, {1.0}, {2.0})


@every_search
@pytest.mark.parametrize("seen", [[], SEEN], ids=["at the start", "later"])
def test_parallel_picks_differ(Search, seen):
    search = told(Search(), seen)
    picks = search.ask(8) + search.ask(8)
    assert len(set(picks)) == 16


def test_a_batch_spreads_out_where_single_picks_would_crowd():
    search = told(GPUCB(DISTANCES), SEEN)
    _, _, bounds = search.acquisition()
    crowd = np.argsort(bounds)[-6:]
    batch = search.ask(6)
    assert DISTANCES[np.ix_(batch, batch)].mean() > DISTANCES[np.ix_(crowd, crowd)].mean()


def test_a_batch_is_the_same_as_asking_one_by_one():
    together, apart = told(GPUCB(DISTANCES), SEEN), told(GPUCB(DISTANCES), SEEN)
    assert together.ask(4) == [apart.ask()[0] for _ in range(4)]


@every_search
def test_the_order_of_completion_does_not_matter(Search):
    one, other = Search(seed=3), Search(seed=3)
    for _ in range(3):
        batch = one.ask(4)
        assert other.ask(4) == batch
        one.tell_infeasible(batch[0])
        told(one, batch[1:3])  # the last stays pending
        told(other, reversed(batch[1:3]))
        other.tell_infeasible(batch[0])
    assert one.snapshot() == other.snapshot()
    assert one.ask(4) == other.ask(4)


@every_search
def test_an_infeasible_workflow_is_never_picked_again(Search):
    search = Search()
    picks = []
    while asked := search.ask(7):
        picks += asked
        for id in asked:
            search.tell_infeasible(id)
    assert sorted(picks) == list(range(120))  # each once, and then none is left


def test_a_peak_that_cannot_be_obeyed_does_not_hold_up_the_search():
    search = GPUCB(DISTANCES)
    picks = []
    for _ in range(25):
        [pick] = search.ask()
        picks.append(pick)
        if DISTANCES[pick, PEAK] <= 0.1:
            search.tell_infeasible(pick)
        else:
            search.tell(pick, LANDSCAPE[pick])
    barred = [pick for pick in picks if DISTANCES[pick, PEAK] <= 0.1]
    assert len(barred) == len(set(barred))
    assert min(DISTANCES[pick, PEAK] for pick in search.trials.values) == 0.2


def test_the_last_batch_is_as_large_as_what_is_left():
    search = GPUCB(DISTANCES)
    for id in range(118):
        search.tell_infeasible(id)
    assert sorted(search.ask(5)) == [118, 119]
    assert search.ask(5) == []


def test_the_newest_value_of_a_workflow_replaces_the_older_one():
    trained_further = told(GPUCB(DISTANCES), SEEN)
    trained_further.tell(SEEN[0], -20.0)
    from_the_start = GPUCB(DISTANCES)
    from_the_start.tell(SEEN[0], -20.0)
    told(from_the_start, SEEN[1:])
    assert np.array_equal(trained_further.acquisition(), from_the_start.acquisition())


def test_a_workflow_is_picked_again_while_that_makes_it_better():
    search = told(GPUCB(DISTANCES, beta=0.0), SEEN)
    search.tell(PEAK, 0.0)
    for value in (5.0, 6.0, 6.0):
        assert search.ask() == [PEAK]
        search.tell(PEAK, value)
    assert search.ask() != [PEAK]


def test_a_retired_workflow_keeps_its_value_and_is_not_picked():
    search = told(GPUCB(DISTANCES, beta=0.0), [*SEEN, PEAK])
    before = search.acquisition()
    search.retire(PEAK)
    assert np.array_equal(search.acquisition(), before)
    assert PEAK not in search.ask(119)


@every_search
def test_a_restored_search_goes_on_as_if_it_had_not_stopped(Search):
    search = Search(seed=9)
    play(search, num_rounds=3, batch=3)
    search.tell_infeasible(search.ask()[0])
    search.ask(2)  # still pending when it stops
    restored = Search(seed=1)
    restored.restore(json.loads(json.dumps(search.snapshot())))
    assert restored.snapshot() == search.snapshot()
    assert play(restored, num_rounds=3, batch=2) == play(search, num_rounds=3, batch=2)


@every_search
def test_nonsense_is_refused(Search):
    with pytest.raises(ValueError, match="finite"):
        Search().tell(3, float("nan"))
    with pytest.raises(ValueError, match="0 to 119"):
        Search().tell(120, -50.0)
    with pytest.raises(ValueError, match="0 to 119"):
        Search().tell_infeasible(-1)


def picks_until_found(search, peak: int, seed: int) -> int:
    """How many picks it takes to try the best workflow, when a value is read with an error of 2 on a range of 30."""
    rng = np.random.default_rng([seed, 1])
    for count in range(1, 121):
        [pick] = search.ask()
        if pick == peak:
            return count
        search.tell(pick, -50 - 30 * DISTANCES[peak, pick] + 2 * rng.normal())
    return 121


def test_gp_ucb_finds_the_best_workflow_in_far_fewer_picks_than_chance():
    peaks = {seed: int(np.random.default_rng([seed, 2]).integers(120)) for seed in range(10)}
    by_gp = mean(picks_until_found(GPUCB(DISTANCES, seed), peak, seed) for seed, peak in peaks.items())
    by_chance = mean(picks_until_found(OneByOne(120, seed), peak, seed) for seed, peak in peaks.items())
    assert by_gp < by_chance / 3
