import csv
import math
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.report.charts.dot_chart import Dot, Kind, dot_columns, dot_rows
from redline.report.charts.heat_map import heat_map, shades
from redline.report.charts.line_chart import Series, line_chart
from redline.report.draw import to_svg
from redline.report.search import write_search_pngs, write_search_report
from redline.report.search_results import UNSEEN, Beliefs, pair_effects, position_values, read_search
from redline.runs import Run
from redline.worlds.cage2.workflow import ALL_WORKFLOWS, DISTANCES, TYPES, WORKFLOWS
from tests.report.browser import Browser
from tests.report.reading import needs_browser

CONFIG = {
    "total_episodes": 100_000,
    "episodes_per_update": 200,
    "beta": 2.0,
    "compliance_threshold": 0.9,
    "seed": 7,
    "red_agent": "B_lineAgent",
}
SVG = "{http://www.w3.org/2000/svg}"
PNG = b"\x89PNG\r\n\x1a\n"
INFEASIBLE = (113, 64)
TRAINED = (57, 119, 50, 48, 113, 12, 14, 60, 54, 64, 49, 2)
BEST = 57


def true_values() -> np.ndarray:
    """Losing the op server hurts most, then enterprise; users first is a waste of time. float64 [120]."""
    places = np.argsort([workflow.order for workflow in ALL_WORKFLOWS], axis=1)
    return -17.0 - places @ np.array([0.4, 1.3, 2.6, 0.3, -1.1]) + 2 * np.sin(np.arange(120))


def write_csv(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def make_search(path: Path, *, ranked: bool = True) -> Run:
    """A folder as a finished search leaves it behind; without a ranking, as one that still runs."""
    run, rng, values = Run.at(path, CONFIG), np.random.default_rng(3), true_values()
    picks: list[dict[str, object]] = []
    updates: list[dict[str, object]] = []
    step = 0
    for iteration, k in enumerate(TRAINED):
        num_updates = 50 if k in INFEASIBLE else int(rng.integers(20, 45))
        start, goal = (-420.0 if iteration == 0 else -60.0), 0.84 if k in INFEASIBLE else 0.92
        for update in range(1, num_updates + 1):
            step += 200
            left = np.exp(-5 * update / num_updates)
            reward = values[k] + (start - values[k]) * left + rng.normal(0, 0.8)
            compliance = goal - 0.4 * left + rng.normal(0, 0.01)
            updates.append(
                {
                    "step": step,
                    "iteration": iteration,
                    "workflow_id": k,
                    "order": str(ALL_WORKFLOWS[k]),
                    "update": update,
                    "episodes": 200 * update,
                    "env_reward": reward,
                    "alignment_reward": 30 * compliance,
                    "total_reward": reward + 30 * compliance,
                    "compliance": compliance,
                    "fixes": 14.2,
                    "collect_seconds": 0.9,
                    "update_seconds": 0.6,
                }
            )
        picks.append(
            {
                "step": step,
                "iteration": iteration,
                "workflow_id": k,
                "order": str(ALL_WORKFLOWS[k]),
                "ucb": "" if iteration == 0 else values[k] + 4,
                "gp_mean": values[k],
                "gp_std": 2.0,
                "env_reward": reward,
                "compliance": compliance,
                "episodes": 200 * num_updates,
                "passed": int(k not in INFEASIBLE),
            }
        )
    write_csv(path / "search_log.csv", picks)
    write_csv(path / "training_log.csv", updates)

    observed = [k for k in TRAINED if k not in INFEASIBLE]
    near = np.exp(-3 * DISTANCES)
    weights = near[:, observed] @ np.linalg.inv(near[np.ix_(observed, observed)] + 0.05 * np.eye(len(observed)))
    centre = values[observed].mean()
    variance = 1 - np.einsum("ij,ij->i", weights, near[:, observed])
    gp = {
        "mean": centre + weights @ (values[observed] - centre),
        "std": 3.5 * np.sqrt(variance),
        "observed": {str(k): values[k] for k in observed},
        "infeasible": list(INFEASIBLE),
    }
    run.write_json("gp.json", gp)
    if ranked:
        workflows = [
            {
                "workflow_id": k,
                "order": str(ALL_WORKFLOWS[k]),
                "mean": values[k],
                "stderr": 0.35,
                "episodes": 1000,
                "compliance": 0.85 if k in INFEASIBLE else 0.93,
                "trained_episodes": next(p["episodes"] for p in picks if p["workflow_id"] == k),
                "passed": k not in INFEASIBLE,
            }
            for k in sorted(TRAINED, key=lambda k: -values[k])
        ]
        names = ["greedy", "greedy critical_first", "plain PPO", "random"]
        baselines = [
            {"name": name, "mean": mean, "stderr": stderr}
            for name, mean, stderr in zip(names, [-41.0, -33.5, -19.4, -912.0], [0.9, 0.7, 0.4, 8.0], strict=True)
        ]
        best = next(each for each in workflows if each["workflow_id"] == BEST)
        run.write_json("ranking.json", {"workflows": workflows, "baselines": baselines, "best": best})
    return run


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of turn, and collects the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.headings: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.rows[-1].append(data)
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_search(tmp_path / "search")


def test_the_page_is_one_balanced_document_with_every_section(run: Run):
    path = write_search_report(run)
    assert path == run.path / "report.html"
    assert Balanced(path.read_text()).headings == [
        "In short",
        "Ranking",
        "What the search believes",
        "Which type at which place",
        "Which pairs matter",
        "Learning",
        "Settings",
    ]


def test_the_page_names_the_best_workflow_and_its_interval(run: Run):
    text = write_search_report(run).read_text()
    assert f"<strong>{ALL_WORKFLOWS[BEST]}</strong>".replace(" > ", " &gt; ") in text
    assert f"{true_values()[BEST]:.2f} ± 0.69".replace("-", "−") in text


def test_the_ranking_marks_infeasible_workflows_and_baselines(run: Run):
    rows = Balanced(write_search_report(run).read_text()).rows
    status = {row[1]: row[6] for row in rows if len(row) == 7}
    assert [status[str(ALL_WORKFLOWS[k])] for k in TRAINED] == [
        "infeasible" if k in INFEASIBLE else "passed" for k in TRAINED
    ]
    assert status["random"] == "baseline"


def test_the_search_may_still_be_running(tmp_path: Path):
    run = make_search(tmp_path / "running", ranked=False)
    page = write_search_report(run).read_text()
    assert "There is no ranking.json yet" in page
    assert "while training (the final evaluation is still to come)" in page
    assert [row[6] for row in Balanced(page).rows if len(row) == 7].count("infeasible") == len(INFEASIBLE)


def test_a_search_that_has_only_begun_says_so(tmp_path: Path):
    run = Run.at(tmp_path / "begun", CONFIG)
    page = write_search_report(run).read_text()
    Balanced(page)
    assert "nothing to rank" in page and "no gp.json yet" in page and "no rows in training_log.csv" in page
    assert "No workflow has passed" in page
    assert write_search_pngs(run) == []


@pytest.mark.parametrize("gone", ["gp.json", "search_log.csv", "training_log.csv", "ranking.json"])
def test_any_one_file_may_be_missing(run: Run, gone: str):
    (run.path / gone).unlink()
    Balanced(write_search_report(run).read_text())
    assert all(path.read_bytes().startswith(PNG) for path in write_search_pngs(run))


@pytest.mark.parametrize("log", ["search_log.csv", "training_log.csv"])
@pytest.mark.parametrize("lines", [0, 1, 2])  # nothing, the header, one row
def test_a_log_may_be_empty_or_torn(run: Run, log: str, lines: int):
    path = run.path / log
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]) + "3,torn")
    Balanced(write_search_report(run).read_text())


def test_nothing_passed_leaves_no_best(run: Run):
    ranking = run.read_json("ranking.json")
    for each in ranking["workflows"]:
        each["passed"] = False
    run.write_json("ranking.json", {**ranking, "best": None})
    assert "No workflow has passed" in write_search_report(run).read_text()
    assert len(write_search_pngs(run)) == 4


def test_unknown_numbers_are_dashes(run: Run):
    ranking = run.read_json("ranking.json")
    ranking["workflows"][0].update(mean=None, stderr=None, compliance=None)
    ranking["baselines"].append({"name": "unmeasured"})
    run.write_json("ranking.json", ranking)
    rows = Balanced(write_search_report(run).read_text()).rows
    assert next(row for row in rows if "unmeasured" in row)[2:] == ["–", "–", "–", "–", "baseline"]
    assert len(write_search_pngs(run)) == 4


def test_a_long_ranking_has_a_short_chart_and_a_full_table(run: Run):
    ranking = run.read_json("ranking.json")
    ranking["workflows"] = [
        {**ranking["best"], "workflow_id": k, "order": str(workflow), "mean": -20.0 - k}
        for k, workflow in enumerate(ALL_WORKFLOWS)
    ]
    run.write_json("ranking.json", ranking)
    text = write_search_report(run).read_text()
    assert "The 84 worst workflows are in the table only." in text
    assert len([row for row in Balanced(text).rows if len(row) == 7]) == 124


def test_everything_is_escaped(run: Run):
    ranking = run.read_json("ranking.json")
    ranking["best"]["order"] = ranking["workflows"][0]["order"] = "<script>alert(1)</script>"
    ranking["baselines"][0]["name"] = "<img src=x>"
    run.write_json("ranking.json", ranking)
    text = write_search_report(Run(run.path, {**CONFIG, "red_agent": "<b>red</b>"})).read_text()
    assert "<script" not in text and "<img" not in text and "<b>" not in text


def test_a_gp_of_another_size_is_refused(run: Run):
    run.write_json("gp.json", {"mean": [1.0, 2.0], "std": [1.0, 2.0]})
    with pytest.raises(RedlineError, match="2 means and 2 stds, but there are 120"):
        write_search_report(run)


def believed(mean: np.ndarray) -> Beliefs:
    return Beliefs(WORKFLOWS, mean, np.zeros_like(mean), [UNSEEN] * len(mean), np.arange(len(mean)))


def test_position_values_average_the_workflows_with_a_type_at_a_place():
    starts_with_user = np.array([float(workflow.order[0] == TYPES.index("user")) for workflow in ALL_WORKFLOWS])
    values = position_values(believed(starts_with_user))
    assert values.shape == (5, 5)
    assert values[4].tolist() == [1, 0, 0, 0, 0]
    assert values[0].tolist() == [0, 0.25, 0.25, 0.25, 0.25]


def test_pair_effects_find_the_pair_that_matters_and_its_sign():
    server, user = TYPES.index("op_server"), TYPES.index("user")
    loss = [-3.0 if w.order.index(server) < w.order.index(user) else 0.0 for w in ALL_WORKFLOWS]
    effects = pair_effects(believed(np.array(loss)))
    assert effects[0] == ("op_server", "user", -3.0)
    assert len(effects) == 10
    assert [abs(effect) for *_, effect in effects] == sorted((abs(effect) for *_, effect in effects), reverse=True)


def test_the_pictures_are_pngs_of_a_good_size(run: Run):
    paths = write_search_pngs(run)
    assert [path.name for path in paths] == ["ranking.png", "gp.png", "positions.png", "learning.png"]
    for path in paths:
        data = path.read_bytes()
        width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
        assert data.startswith(PNG) and width >= 1000 and height >= 600 and len(data) > 10_000


def test_pictures_without_resvg_say_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(RedlineError, match=r"pip install 'redline\[plot\]'"):
        write_search_pngs(run)


def test_a_quiet_curve_is_behind_the_others_and_not_in_the_legend():
    curves = [Series("<quiet>", [0, 1], [1, 2], quiet=True), Series("loud", [0, 1], [3, 4])]
    svg = to_svg(line_chart(curves, title="t", x_label="x", y_label="y"))
    assert "<quiet>" not in texts(svg) and "loud" in texts(svg)
    groups = [group.findtext(f"{SVG}title") for group in ElementTree.fromstring(svg).iter(f"{SVG}g")]
    assert groups == ["<quiet>", "loud"]


def test_a_dot_far_below_the_floor_is_an_arrow_and_does_not_stretch_the_axis():
    kind = Kind("kind", "blue")
    dots = [Dot("near", -1.0, kind, 0.5), Dot("far", -900.0, kind)]
    svg = to_svg(dot_rows(dots, title="t", unit="u", floor=-10))
    assert "−900.00" in texts(svg) and "−1.00 ± 0.50" in texts(svg)
    assert len(ElementTree.fromstring(svg).findall(f"{SVG}g/{SVG}circle")) == 1
    assert "−500" not in texts(svg)


@pytest.mark.parametrize("draw", [dot_rows, dot_columns])
def test_dots_without_values_say_so(draw):
    labels = {"unit": "u"} if draw is dot_rows else {"x_label": "x", "y_label": "y"}
    for dots in ([], [Dot("unknown", math.nan, Kind("kind", "blue"))]):
        assert "no data yet" in texts(to_svg(draw(dots, title="t", **labels)))


def test_a_heat_map_shows_every_value_and_a_dash_for_the_unknown():
    svg = to_svg(heat_map([[1.0, -2.5], [math.nan, 0.5]], ["a", "<b>"], ["c", "d"], title="t", x_label="x"))
    assert {"1.00", "−2.50", "–", "0.50", "<b>"} <= set(texts(svg))


def test_shades_reach_from_the_centre_to_the_farthest_cell():
    assert shades(np.array([[3.0, 1.0, 0.0, np.nan]]), centre=1.0).tolist() == [[1.0, 0.0, -0.5, 0.0]]
    assert shades(np.full((2, 2), 7.0), centre=7.0).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_orders_that_are_alike_are_listed_once(run: Run):
    groups = [id // 20 for id in range(120)]
    run.write_json("alike.json", {"groups": groups, "distances": []})
    beliefs = read_search(run).beliefs
    assert beliefs is not None
    listed = beliefs.distinct_best_first
    assert sorted(groups[id] for id, _ in listed) == [0, 1, 2, 3, 4, 5]
    assert {count for _, count in listed} == {20}
    assert "and 19 alike" in write_search_report(run).read_text()


def test_a_pair_whose_order_means_nothing_is_worth_exactly_nothing():
    beliefs = believed(np.full(120, -15.4) + 1e-14 * np.arange(120))
    assert {effect for *_, effect in pair_effects(beliefs)} == {0.0}


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_no_chart_of_a_search_scrolls_sideways_on_a_phone(dark: bool, run: Run, tmp_path: Path):
    browser = Browser(tmp_path / "browser")
    try:
        browser.open(write_search_report(run), 360, dark=dark)
        assert browser.run("document.documentElement.scrollWidth") == 360
        widths = browser.run(
            "[...document.querySelectorAll('figure')].map(each => each.scrollWidth - each.clientWidth)"
        )
        assert widths == [0] * len(widths)
        assert len(widths) >= 6
        assert browser.complaints == []
    finally:
        browser.close()
