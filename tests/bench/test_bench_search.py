from __future__ import annotations

import numpy as np
import pytest

from redline.bench.search import (
    Apart,
    Course,
    SharedStarts,
    TrainingTable,
    Truthful,
    bench_search,
    contenders,
    simulate,
)
from redline.bench.search_picture import regret_chart
from redline.worlds.cage2.workflow import DISTANCES

GROUPS = np.arange(120) % 6
APART = 1.0 - np.eye(6)


def a_table(worth: list[float], noise: float, start_episodes: int = 50) -> TrainingTable:
    """Six groups of twenty, five replicates, each with luck of its own."""
    random = np.random.default_rng(0)
    scores = np.array(worth)[:, None] + noise * random.normal(size=(6, 5)) + random.normal(size=5)
    return TrainingTable(scores[GROUPS], GROUPS, APART, DISTANCES, 10, start_episodes)


def test_a_paired_search_pays_for_a_start_once_and_every_other_each_time():
    table = a_table([-1, -2, -3, -4, -5, -6], 0.1)
    paired, apart = SharedStarts(table, 0), Apart(table, 0)
    assert [paired.training(id)[1] for id in (0, 1, 0, 1)] == [60, 10, 60, 10]
    assert [apart.training(id)[1] for id in (0, 1, 0, 1)] == [60, 60, 60, 60]
    assert Truthful(table, 0).training(3) == (table.truth[3], 60)


def test_searches_do_not_share_the_luck_of_the_first_replicate():
    table = a_table([-1, -2, -3, -4, -5, -6], 0.1)
    first = {SharedStarts(table, seed).training(0)[0] for seed in range(20)}
    assert first == set(table.scores[0])


def test_workflows_of_one_replicate_are_looked_up_in_the_same_column():
    table = a_table([-1, -2, -3, -4, -5, -6], 0.0)
    paired = SharedStarts(table, 3)
    assert paired.training(0)[0] - paired.training(1)[0] == pytest.approx(1.0)


def test_the_top_five_are_one_group_where_groups_are_large_and_ties_count():
    table = a_table([-1, -2, -3, -4, -5, -6], 0.0)
    assert table.top == set(np.flatnonzero(GROUPS == 0))
    assert table.near == table.top
    like_the_first = a_table([-1, -1, -3, -4, -5, -6], 0.0)
    assert len(like_the_first.top) == len(like_the_first.near) == 40


def test_an_answer_counts_from_when_it_stays_good():
    course = Course([10, 20, 30, 40], [0.0] * 4, [True, False, True, True], [False] * 4)
    assert course.episodes_until_good == 30
    assert course.episodes_until_near == float("inf")


def test_the_search_needs_at_most_half_of_what_chance_does_where_trainings_are_noisy():
    table = a_table([-1, -2, -3, -4, -5, -6], 0.8)
    ours, chance = (contenders(table)[name] for name in ("top-two", "chance"))
    needed = [
        np.median(
            [simulate(each.searcher(k), each.looker(table, k), table, 1500).episodes_until_good for k in range(9)]
        )
        for each in (ours, chance)
    ]
    assert needed[0] <= needed[1] / 2


def test_all_contenders_are_in_the_picture():
    courses = bench_search(a_table([-1, -2, -3, -4, -5, -6], 0.5), seeds=2, budget=200)
    assert list(courses) == ["top-two", "chance", "chance with our start", "no noise"]
    assert regret_chart(courses).height > 0
