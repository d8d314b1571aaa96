from pathlib import Path

import numpy as np
import pytest

from redline.report.charts.bar_chart import Bar, bar_chart, share_bar
from redline.report.charts.line_chart import Mark, Series, line_chart
from redline.report.draw import HUES, PALETTE, Drawing, fit, percent, short, text_width
from redline.report.page import Section, facts, figure, note, page, table
from tests.report.reading import Outline, browse, needs_browser, pixels

ATTACK = "<script>document.title = 'owned'</script>"


def sample_page(title: str = "Report") -> str:
    curve = line_chart(
        [Series("vector", [0, 5e6, 1e7], [-700, -40, -18])],
        title="Learning",
        x_label="steps",
        y_label="reward",
        marks=[Mark(-20, "best")],
    )
    bars = bar_chart([Bar("serial", 270), Bar("vector", 1_400_000)], title="Speed", unit="steps/s", log_x=True)
    shares = share_bar([("env", 12), ("policy", 18), ("learn", 70)], title="Time")
    return page(
        title,
        "a & b",
        [
            Section("Numbers <now>", facts([("Reward", "−18.2"), ("Steps", 10_000_000)]) + note("1 < 2")),
            Section("Charts", figure(curve, "Five seeds") + figure(bars) + figure(shares)),
            Section("Table", table(["team", "reward"], [("us", -18.2), (ATTACK, -37)], highlight=0)),
        ],
    )


def contrast(first: str, second: str) -> float:
    """The WCAG contrast ratio of two #rrggbb colours."""

    def luminance(colour: str) -> float:
        channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_a_page_is_one_balanced_document():
    outline = Outline(sample_page())
    assert outline.inside("h1") == ["Report"]
    assert outline.inside("h2") == ["Numbers <now>", "Charts", "Table"]
    assert "a & b" in outline.inside("p")
    assert sample_page().startswith("<!DOCTYPE html>")


def test_a_page_needs_no_script_and_no_network():
    outline = Outline(sample_page())
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in outline.tags}
    assert not {"src", "href"} & {name for _, attributes in outline.tags for name in attributes}
    assert "@import" not in sample_page() and "url(" not in sample_page()


def test_a_page_without_sections_is_still_a_page():
    assert Outline(page("Empty", "", [])).inside("h1") == ["Empty"]


@pytest.mark.parametrize("words", [ATTACK, '"><img src=x onerror=alert(1)>', "a\x00b", "&lt;"])
def test_whatever_text_is_given_is_shown_and_not_run(words):
    document = page(words, words, [Section(words, facts([(words, words)]) + note(words) + table([words], [[words]]))])
    outline = Outline(document)
    shown = words.replace("\x00", "\ufffd")
    assert not {"script", "img"} & {tag for tag, _ in outline.tags}
    for tag in ("title", "h1", "h2", "dt", "dd", "th", "td"):
        assert outline.inside(tag) == [shown], tag
    assert Outline(figure(Drawing("", 1, 1, []), words)).inside("figcaption") == [shown]


def test_columns_of_numbers_stand_on_the_right_with_their_header():
    outline = Outline(
        table(["team", "reward", "speed", "spread"], [["a", -18.2, "1.4 M", "± 2"], ["b2", 3, "270", None]])
    )
    assert outline.classes("th") == [None, "number", "number", "number"]
    assert outline.classes("td") == [None, "number", "number", "number"] * 2


@pytest.mark.parametrize(
    "cell", ["−18.2 ± 0.4", "12 %", "3×", "1,400,000", "1e-5", "<0.1 %", "242 k steps/s", "41.3 s", "-7"]
)
def test_a_number_is_recognised_however_it_is_written(cell):
    assert Outline(table(["x"], [[cell]])).classes("td") == ["number"]


@pytest.mark.parametrize("cell", ["PPO", "2024-11-02", "v1.2", "", "–", "5 envs on 2 cores", True])
def test_text_is_not_taken_for_a_number(cell):
    assert Outline(table(["x"], [[cell]])).classes("td") == [None]


def test_table_numbers_are_easy_to_read():
    row = [1_400_000, np.int64(-7), 1234.5, -18.234, np.float32(0.5), 0.0001234, 0.0, None, float("nan"), True]
    shown = Outline(table([""] * len(row), [row])).inside("td")
    assert shown == ["1,400,000", "−7", "1,234", "−18.23", "0.50", "0.000123", "0.00", "–", "–", "True"]


def test_only_the_chosen_row_is_highlighted():
    rows = [["a"], ["b"], ["c"]]
    assert Outline(table(["x"], rows, highlight=1)).classes("tr") == [
        None,
        None,
        "highlight",
        None,
    ]  # the first is the head
    assert Outline(table(["x"], rows)).classes("tr") == [None] * 4


def test_a_table_without_rows_says_so():
    assert Outline(table(["a", "b"], [])).inside("td") == ["no data yet"]


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError):
        table(["a", "b"], [["only one"]])


def test_facts_pair_labels_with_figures():
    outline = Outline(facts([("Steps", 10_000_000), ("Wall time", "41 s")]))
    assert outline.inside("dt") == ["Steps", "Wall time"]
    assert outline.inside("dd") == ["10,000,000", "41 s"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-0.0, "0"),
        (270, "270"),
        (-18.24, "−18.2"),
        (3100, "3,100"),
        (9999.6, "10 k"),
        (10_000, "10 k"),
        (999_999, "1 M"),
        (2_500_000, "2.5 M"),
        (1.4e9, "1.4 G"),
        (0.05, "0.05"),
        (0.00004, "4e-5"),
        (-1.25e18, "−1.25e18"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_a_short_number_is_rounded_and_scaled(value, shown):
    assert short(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"), [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.042, "4.2 %"), (0.61, "61 %"), (1, "100 %")]
)
def test_a_percentage_has_two_digits_or_so(share, shown):
    assert percent(share) == shown


def test_words_are_cut_to_the_room_there_is():
    assert fit("short", 100) == "short"
    cut = fit("a rather long name", 60)
    assert cut.endswith("…") and text_width(cut) <= 60
    assert fit("anything", 0) == ""


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_every_hue_can_be_told_from_the_surface(mode):
    surface = PALETTE["surface"][mode]
    assert min(contrast(PALETTE[hue][mode], surface) for hue in HUES) >= 3
    assert min(contrast(PALETTE[text][mode], PALETTE["soft"][mode]) for text in ("ink", "muted")) >= 4.5


def browse_page(folder: Path, document: str, *options: str) -> str:
    (folder / "report.html").write_text(document, encoding="utf-8")
    return browse(folder / "report.html", *options).stdout


@needs_browser
@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_a_browser_shows_the_page_in_the_mode_of_the_reader(tmp_path, mode):
    picture = tmp_path / "report.png"
    scheme = f"--blink-settings=preferredColorScheme={1 - mode}"
    browse_page(tmp_path, sample_page(), scheme, f"--screenshot={picture}", "--window-size=1000,1600")
    top_left = pixels(picture)[1:4]  # no PNG filter changes it
    assert top_left == bytes.fromhex(PALETTE["surface"][mode][1:])


@needs_browser
def test_a_browser_does_not_run_a_run_named_like_a_script(tmp_path):
    dom = browse_page(tmp_path, sample_page(title=ATTACK), "--dump-dom")
    assert "<title>&lt;script&gt;document.title" in dom
    assert dom.count("<svg") == 3
