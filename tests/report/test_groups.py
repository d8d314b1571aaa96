"""Runs beside each other: groups, intervals, verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from redline.cli import main
from redline.cli.console import short
from redline.learn.config import TrainConfig, config_to_json
from redline.metrics import final_return
from redline.report.comparison import compare, said, write_comparison
from redline.report.groups import find_runs, group_runs, interquartile_mean, interval, read_run, verdict
from redline.runs import LOCK, METRICS, SCORES, Run
from tests.report.browser import Browser
from tests.report.reading import needs_browser


def make_run(folder: Path, seed: int, score: float | None, **settings: object) -> Path:
    """A run folder as training leaves one, with a score of our choosing."""
    ppo = {"learning_rate": 5e-3, **settings}
    run = Run.at(folder, {"env": "cage2", "seed": seed, "total_steps": 200, "num_envs": 512, "ppo": ppo})
    rows = "".join(f"{step},{value}\n" for step, value in ((100, -50.0), (200, -10.0 if score is None else score)))
    (folder / METRICS).write_text("step,return\n" + rows)
    if score is not None:
        run.write_json(SCORES, {"scores": [{"mean": score, "stderr": 0.1}]})
    return folder


def runs_of(root: Path, name: str, scores: list[float], **settings: object) -> list[Path]:
    return [make_run(root / f"{name}{seed}", seed, score, **settings) for seed, score in enumerate(scores)]


def test_the_interquartile_mean_leaves_a_quarter_out_at_either_end():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, -100.0])) == 1.5
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0


def test_runs_that_differ_by_seed_are_one_group(tmp_path):
    runs = [*runs_of(tmp_path, "a", [-20, -21]), *runs_of(tmp_path, "b", [-30], learning_rate=1e-3)]
    groups = group_runs([read_run(path) for path in runs])
    assert [(group.name, len(group.runs)) for group in groups] == [
        ("learning_rate 0.005", 2),
        ("learning_rate 0.001", 1),
    ]


def test_a_clear_difference_is_told_and_a_small_one_is_noise(tmp_path):
    clear = [*runs_of(tmp_path, "a", [-20, -21, -19, -20.5]), *runs_of(tmp_path, "b", [-30, -31, -29, -32], clip=0.1)]
    found = compare([read_run(path) for path in clear])
    assert found.verdicts[0].told_apart and found.groups[0].name == "clip –" and "is better than" in said(found)[0]
    noisy = [
        *runs_of(tmp_path, "c", [-20, -31, -19, -26], clip=0.3),
        *runs_of(tmp_path, "d", [-24, -31, -19, -25], clip=0.4),
    ]
    found = compare([read_run(path) for path in noisy])
    assert not found.verdicts[0].told_apart and "within noise" in said(found)[0]


def test_the_best_and_the_worst_of_many_equal_groups_are_not_told_apart_more_often_than_two(tmp_path):
    drawn = np.random.default_rng(3)
    claims = 0
    for _ in range(40):
        groups = sorted((Dealt(drawn.normal(size=5)) for _ in range(8)), key=lambda group: -group.scores.mean())
        claims += verdict(groups[0], groups[-1], True, groups[1:-1]).told_apart
    assert claims <= 6  # 2 of 40 are expected, and without the six between them 13 were


class Dealt:
    """Scores without runs."""

    name = "dealt"

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def values(self, by_score: bool) -> np.ndarray:
        return self.scores


def test_a_hopeless_third_group_does_not_hide_a_difference():
    good, worse, hopeless = (Dealt(np.array([0.0, 1, 2, 3, 4]) - shift) for shift in (0, 10, 1000))
    assert verdict(good, worse, True).told_apart
    assert verdict(good, hopeless, True, [worse]).told_apart


def test_a_run_on_an_env_that_is_not_here_differs_by_what_was_changed_only(tmp_path):
    config = {**config_to_json(TrainConfig("world:gone_away:WORLD")), "num_steps": 77}
    Run.at(tmp_path / "gone", config)
    assert read_run(tmp_path / "gone").changed == {"num_steps": 77}


def test_the_list_of_runs_keeps_names_in_one_piece(tmp_path, capsys):
    name = "a-run-with-a-name-that-is-longer-than-most-of-them-20260101-120000"
    make_run(tmp_path / name, 0, -20.0, learning_rate=1e-3)
    assert main(["runs", str(tmp_path)]) == 0
    assert name in capsys.readouterr().out


def test_too_few_seeds_never_give_a_verdict(tmp_path):
    runs = [*runs_of(tmp_path, "a", [-1, -1, -1]), *runs_of(tmp_path, "b", [-900, -900, -900], clip=0.1)]
    found = compare([read_run(path) for path in runs])
    assert not found.verdicts[0].told_apart and "too few seeds" in said(found)[0]


def test_runs_without_a_difference_are_rarely_told_apart():
    from redline.report.groups import RunFacts, RunGroup

    def group(values: np.ndarray) -> RunGroup:
        facts = [RunFacts(Path(), "e", {}, {}, 0, 0, None, "", float(v), None, "return", {}) for v in values]
        return RunGroup("g", tuple(facts))

    rng = np.random.default_rng(1)
    told = [verdict(group(rng.normal(size=5)), group(rng.normal(size=5)), True).told_apart for _ in range(200)]
    assert np.mean(told) <= 0.09  # 5 % are meant to be


def test_an_interval_of_one_run_is_that_run():
    assert interval(np.array([3.0])) == interval(np.array([3.0, np.nan])) and interval(np.array([3.0])).low == 3.0


def test_runs_are_listed_with_what_differs_and_their_state(tmp_path, capsys):
    make_run(tmp_path / "done", 0, -12.0, clip=0.1)
    make_run(tmp_path / "half", 1, None)
    (tmp_path / "half" / METRICS).write_text("step,return\n100,-50\n")
    assert main(["runs", str(tmp_path), "--json"]) == 0
    found = {Path(each["run"]).name: each for each in json.loads(capsys.readouterr().out)["runs"]}
    assert found["done"]["state"] == "finished" and found["done"]["differs"]["ppo.clip"] == 0.1
    assert found["half"]["state"] == "stopped" and found["half"]["score"] is None and found["half"]["steps"] == 100


def test_a_list_of_runs_claims_none_of_them(tmp_path):
    run = Run.open(make_run(tmp_path / "half", 0, None))
    assert [each.state for each in find_runs(tmp_path)] == ["finished"]
    assert not (run.path / LOCK).exists()
    with run.locked():
        assert [each.state for each in find_runs(tmp_path)] == ["running"]
    assert [each.state for each in find_runs(tmp_path)] == ["finished"]
    (run.path / LOCK).write_text("999999999")
    assert [each.state for each in find_runs(tmp_path)] == ["finished"]
    assert (run.path / LOCK).read_text() == "999999999"


def test_runs_of_one_env_without_an_episode_are_not_called_runs_of_different_envs(tmp_path):
    paths = [make_run(tmp_path / "a", 0, None), make_run(tmp_path / "b", 0, None, clip=0.1)]
    for path in paths:
        (path / METRICS).write_text("step,return\n100,nan\n")
    found = compare([read_run(path) for path in paths])
    assert said(found) == ["Fewer than two groups have finished an episode: there is nothing to compare yet."]


def test_there_is_one_final_return():
    assert final_return(np.array([1.0, *[5.0] * 17, 2.0, 4.0])) == 3.0
    assert final_return(np.array([1.0, 5.0, np.nan])) == 5.0
    assert np.isnan(final_return(np.array([np.nan])))


@pytest.mark.parametrize(("number", "words"), [(999_999, "1 M"), (999.6, "1,000"), (1_520_000, "1.52 M"), (412, "412")])
def test_a_number_is_rounded_before_its_unit_is_chosen(number, words):
    assert short(number) == words


@pytest.mark.parametrize(("words", "why"), [(["nowhere"], "no run folder"), (["{one}"], "two runs at least")])
def test_what_cannot_be_compared_is_said(words, why, tmp_path, capsys):
    one = make_run(tmp_path / "one", 0, -1.0)
    assert main(["compare", *(word.format(one=one) for word in words)]) == 2
    assert why in capsys.readouterr().err


@needs_browser
def test_a_comparison_is_a_page_that_fits_a_phone(tmp_path):
    runs = [*runs_of(tmp_path, "a", [-20, -21]), *runs_of(tmp_path, "b", [-30, -29], learning_rate=1e-3)]
    page = write_comparison(tmp_path / "compare.html", compare([read_run(path) for path in runs]))
    browser = Browser(tmp_path / "browser")
    try:
        browser.open(page, 390)
        assert browser.run("document.documentElement.scrollWidth") == 390
        assert browser.run("document.querySelectorAll('svg.chart').length") == 2
        assert browser.complaints == []
    finally:
        browser.close()
