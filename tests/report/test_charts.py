import re
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from redline.report.charts.bar_chart import Bar, bar_chart, share_bar
from redline.report.charts.line_chart import MAX_POINTS, Mark, Series, line_chart
from redline.report.draw import to_svg

SVG = "{http://www.w3.org/2000/svg}"
NAN, INF = float("nan"), float("inf")


def draw(
    *series: Series, marks: Sequence[Mark] = (), standalone: bool = False, **options: object
) -> ElementTree.Element:
    options = {"title": "Reward", "x_label": "steps", "y_label": "reward", **options}
    return ElementTree.fromstring(to_svg(line_chart(series, marks=marks, **options), standalone))


def draw_bars(*bars: Bar, **options: object) -> ElementTree.Element:
    return ElementTree.fromstring(to_svg(bar_chart(bars, **{"title": "Speed", "unit": "steps/s", **options})))


def draw_shares(*parts: tuple[str, float], **options: object) -> ElementTree.Element:
    return ElementTree.fromstring(to_svg(share_bar(parts, **{"title": "Time", **options})))


def words(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


def text_element(svg: ElementTree.Element, wanted: str) -> ElementTree.Element:
    return next(text for text in svg.iter(f"{SVG}text") if text.text == wanted)


def curve(svg: ElementTree.Element, name: str) -> str:
    """The path of the curve called `name`, without its band."""
    group = next(g for g in svg.iter(f"{SVG}g") if g.findtext(f"{SVG}title") == name)
    return next(path.get("d") for path in group.iter(f"{SVG}path") if path.get("fill") == "none")


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def bar_lengths(svg: ElementTree.Element) -> list[float]:
    return [float(rect.get("width")) for rect in svg.findall(f"{SVG}g/{SVG}rect")]


def assert_inside(svg: ElementTree.Element) -> None:
    """Every number that places something is finite and on the canvas."""
    _, _, width, height = (float(number) for number in svg.get("viewBox").split())
    for element in svg.iter():
        for names, limit in ((("x", "x1", "x2", "cx"), width), (("y", "y1", "y2", "cy"), height)):
            assert all(0 <= float(element.get(name, 0)) <= limit for name in names), element.attrib
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points(element.get("d", "")))


def test_a_curve_goes_through_its_points_in_order():
    (x0, y0), (x1, y1), (x2, y2) = points(curve(draw(Series("a", [0, 1, 2], [5, 7, 6])), "a"))
    assert x0 < x1 < x2
    assert y1 < y2 < y0  # up is a smaller y in SVG


def test_ticks_are_round_and_thousands_are_short():
    shown = words(draw(Series("a", [0, 10_000_000], [-700, -18])))
    assert {"0", "2 M", "10 M"} <= set(shown)
    assert {"−600", "−400", "−200"} <= set(shown)
    assert {"2.5 k", "5 k"} & set(shown) == set()  # below 10 k there is room for the whole number


def test_close_values_have_enough_digits_to_differ():
    shown = words(draw(Series("a", [0, 1], [1_000_000, 1_000_420])))
    assert {"1 M", "1.0001 M", "1.0002 M", "1.0003 M", "1.0004 M", "1.00042 M"} <= set(shown)


def test_the_last_value_is_written_next_to_the_curve():
    assert "−18.2" in words(draw(Series("a", [0, 1, 2], [-700, -18.24, NAN])))


def test_labels_of_near_marks_do_not_touch():
    marks = [Mark(-20, "best"), Mark(-21, "second"), Mark(-37, "baseline")]
    svg = draw(Series("a", [0, 1e7], [-700, -18]), Series("b", [0, 1e7], [-700, -19]), marks=marks)
    labels = ["−18", "−19", "best", "second", "baseline"]
    heights = [float(text_element(svg, label).get("y")) for label in labels]
    assert heights == sorted(heights)
    assert all(lower - upper >= 15 for upper, lower in pairwise(heights))
    assert_inside(svg)


def test_a_mark_outside_the_data_is_still_shown():
    svg = draw(Series("a", [0, 1], [1, 2]), marks=[Mark(100, "goal"), Mark(NAN, "unknown")])
    assert "goal" in words(svg)
    assert "unknown" not in words(svg)
    assert_inside(svg)


@pytest.mark.parametrize("hole", [NAN, INF, -INF])
def test_a_value_that_is_not_finite_breaks_the_curve(hole):
    path = curve(draw(Series("a", range(5), [1, 2, hole, 4, 5])), "a")
    assert path.count("M") == 2
    assert len(points(path)) == 4


def test_a_point_alone_between_gaps_is_a_dot():
    svg = draw(Series("a", range(5), [1, NAN, 3, NAN, 5]))
    assert len(list(svg.iter(f"{SVG}circle"))) == 3


def test_a_band_covers_low_to_high_and_skips_gaps():
    svg = draw(Series("a", range(4), [1, 2, 3, 4], low=[0, 1, NAN, 3], high=[2, 3, 4, 5]))
    (band,) = (path.get("d") for path in svg.iter(f"{SVG}path") if path.get("fill-opacity"))
    assert band.count("Z") == 2
    assert len(points(band)) == 6


def test_a_long_series_is_thinned_but_keeps_its_peak_and_its_ends():
    y = np.zeros(100_000)
    y[41_234] = 1.0
    path = points(curve(draw(Series("a", np.arange(100_000), y)), "a"))
    assert len(path) <= MAX_POINTS
    heights = [height for _, height in path]
    assert heights.count(min(heights)) == 1
    assert path[0][0] == min(x for x, _ in path) and path[-1][0] == max(x for x, _ in path)


def test_a_long_gap_survives_thinning():
    y = np.ones(50_000)
    y[20_000:30_000] = NAN
    assert curve(draw(Series("a", np.arange(50_000), y)), "a").count("M") == 2


@pytest.mark.parametrize("series", [[], [Series("a", [], [])], [Series("a", [1, 2], [NAN, NAN])]])
def test_a_chart_without_data_says_so(series):
    svg = draw(*series, marks=[Mark(-20, "best")])
    assert "no data yet" in words(svg)
    assert "Reward" in words(svg)


def test_one_empty_series_does_not_hide_the_others():
    svg = draw(Series("empty", [], []), Series("full", [1, 2], [3, 4]))
    assert len(points(curve(svg, "full"))) == 2
    assert_inside(svg)


@pytest.mark.parametrize(
    "y",
    [[5.0], [0.0, 0.0], [7.0, 7.0, 7.0], [-3, -2], [1e-12, 1e15], [-1e299, 1e299], [1e16, 1e16 + 2], [5e-324, 0]],
    ids=str,
)
def test_any_range_is_drawn_inside_the_canvas(y):
    svg = draw(Series("a", range(len(y)), y))
    assert len(points(curve(svg, "a"))) == len(y)
    assert_inside(svg)


@pytest.mark.parametrize("y", [[20, 45], [1e-9, 1e12], [1e-299, 1e299], [3, 3], [1000, 1001]], ids=str)
def test_any_positive_range_fits_a_log_scale(y):
    svg = draw(Series("a", [0, 1], y), log_y=True)
    assert len(points(curve(svg, "a"))) == 2
    assert_inside(svg)


def test_equal_factors_are_equal_distances_on_a_log_scale():
    (_, one), (_, ten), (_, hundred) = points(curve(draw(Series("a", [0, 1, 2], [1, 10, 100]), log_y=True), "a"))
    assert one - ten == pytest.approx(ten - hundred, abs=0.2)


def test_a_log_scale_leaves_out_what_it_cannot_show():
    svg = draw(Series("a", range(4), [1, 0, -5, 100]), marks=[Mark(-1, "below zero")], log_y=True)
    assert len(points(curve(svg, "a"))) == 2
    assert "below zero" not in words(svg)


def test_more_series_than_hues_stay_distinct_and_inside():
    svg = draw(*(Series(f"run number {k}", [0, 1], [k, k + 1]) for k in range(20)), height=500)
    legend = [line for line in svg.iter(f"{SVG}line") if line.get("stroke-width") == "3"]
    looks = [(line.get("stroke"), line.get("stroke-dasharray")) for line in legend]
    assert len(looks) == 20
    assert len(set(looks)) == 16  # eight hues, solid and dashed
    assert_inside(svg)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\"&'", "nul\x00 escape\x1b", "\udcff"])
def test_names_are_text_and_never_markup(name):
    for svg in (
        draw(Series(name, [0, 1], [0, 1]), title=name, x_label=name, y_label=name, marks=[Mark(0.5, name)]),
        draw_bars(Bar(name, 1, colour=name), title=name, unit=name),
        draw_shares((name, 1), title=name),
    ):
        assert not list(svg.iter(f"{SVG}script")) + list(svg.iter("script"))
        assert "".join(svg.itertext()).encode("utf-8")
    assert name in words(draw(Series("a", [0], [0]), title=name)) or not name.isprintable()


def test_a_long_label_is_cut_and_can_be_read_by_pointing_at_it():
    svg = draw_bars(Bar("engine " * 40, 1))
    label = next(text for text in svg.iter(f"{SVG}text") if text.text.endswith("…"))
    assert label.findtext(f"{SVG}title") == "engine " * 40


def test_bars_are_as_long_as_their_values():
    short_bar, long_bar = bar_lengths(draw_bars(Bar("serial", 100), Bar("vector", 300)))
    assert long_bar == pytest.approx(3 * short_bar, abs=0.1)


def test_bar_values_are_written_short():
    shown = words(draw_bars(Bar("original", 270), Bar("serial", 3100), Bar("vector", 1_400_000), log_x=True))
    assert {"270", "3,100", "1.4 M", "steps/s (log scale)"} <= set(shown)


def test_every_bar_is_visible_on_a_log_scale():
    svg = draw_bars(Bar("a", 100), Bar("b", 1_000), Bar("c", 10_000_000), log_x=True)
    assert min(bar_lengths(svg)) > 5
    assert_inside(svg)


def test_negative_bars_point_left_from_zero():
    svg = draw_bars(Bar("loss", -50), Bar("gain", 10))
    loss, gain = svg.findall(f"{SVG}g/{SVG}rect")
    assert float(loss.get("x")) + float(loss.get("width")) == pytest.approx(float(gain.get("x")), abs=0.02)
    assert_inside(svg)


def test_a_bar_without_a_value_shows_a_dash():
    for missing in (Bar("ray", NAN), Bar("ray", INF)):
        assert "–" in words(draw_bars(Bar("serial", 10), missing))
    assert "–" in words(draw_bars(Bar("serial", 10), Bar("ray", 0), log_x=True))


def test_an_interval_is_drawn_within_the_chart():
    svg = draw_bars(Bar("a", 10, low=8, high=90), Bar("b", 20, low=None, high=NAN))
    assert len(list(svg.iter(f"{SVG}path"))) == 1
    assert_inside(svg)


@pytest.mark.parametrize("bars", [[], [Bar("a", NAN)]])
def test_bars_without_data_say_so(bars):
    assert "no data yet" in words(draw_bars(*bars))


@pytest.mark.parametrize("values", [[0, 0], [5], [-5, -5], [1e-12, 1e299]], ids=str)
def test_any_bars_are_drawn_inside_the_canvas(values):
    assert_inside(draw_bars(*(Bar("a", value) for value in values)))


def test_a_bar_takes_a_hue_by_name_or_any_colour():
    hue, own = draw_bars(Bar("a", 1, colour="green"), Bar("b", 1, colour="#123456")).findall(f"{SVG}g/{SVG}rect")
    assert hue.get("fill").startswith("var(--green")
    assert own.get("fill") == "#123456"


def test_shares_fill_the_bar_in_proportion():
    svg = draw_shares(("env", 1), ("learn", 3))
    _, learn = svg.findall(f"{SVG}g/{SVG}rect")
    assert float(learn.get("x")) == 190  # a quarter of 760
    assert {"25 %", "75 %", "env", "learn"} <= set(words(svg))


def test_small_shares_keep_a_decimal_and_tiny_ones_are_not_zero():
    assert {"94 %", "5.6 %", "<0.1 %"} <= set(words(draw_shares(("a", 943.9), ("b", 56), ("c", 0.1))))


def test_too_many_shares_are_folded_into_other():
    svg = draw_shares(*((f"span {k}", k) for k in range(1, 21)))
    assert len(svg.findall(f"{SVG}g/{SVG}rect")) == 8
    assert "other" in words(svg)
    assert "span 20" in words(svg) and "span 13" not in words(svg)


@pytest.mark.parametrize("parts", [[], [("a", 0)], [("a", NAN), ("b", -1)]])
def test_shares_of_nothing_say_so(parts):
    assert "no data yet" in words(draw_shares(*parts))


def test_only_a_standalone_chart_brings_its_own_colours():
    series = Series("a", [0, 1], [0, 1])
    assert draw(series).find(f"{SVG}style") is None
    style = draw(series, standalone=True).findtext(f"{SVG}style")
    assert "--surface" in style and "prefers-color-scheme:dark" in style


def test_a_chart_loads_nothing():
    for chart in (draw(Series("a", [0, 1], [0, 1]), standalone=True), draw_bars(Bar("a", 1)), draw_shares(("a", 1))):
        text = ElementTree.tostring(chart, encoding="unicode")
        assert not re.search(r"url\(|href|@import|src=", text)
