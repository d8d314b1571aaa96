"""Films as pages, in a real browser."""

from __future__ import annotations

import pytest

from redline.cli import main
from redline.report.episodes import watch_player
from redline.report.film_page import write_film
from tests.report.browser import Browser
from tests.report.reading import needs_browser, pixels

pytestmark = needs_browser
AT = "Number(document.querySelector('[data-part=slider]').value)"
TITLE = "document.querySelector('[data-part=title]').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """An episode of the default world."""
    shown, episode = watch_player("cage2?max_steps=30", "react-restore", 0)
    return write_film(tmp_path_factory.mktemp("film") / "film.html", shown.film(episode))


def test_keys_and_buttons_lead_through_an_episode(browser, page):
    browser.open(page)
    assert browser.run(AT) == 0
    for _ in range(4):
        browser.press("ArrowRight")
    assert browser.run(AT) == 4 and browser.run(TITLE) == "Step 4 of 30"
    browser.press("ArrowLeft")
    assert browser.run(AT) == 3
    browser.press("End")
    assert browser.run(AT) == 30
    browser.press("Home")
    browser.run("document.querySelector('[data-part=forward]').click()")
    assert browser.run(AT) == 1
    assert browser.complaints == []


def test_space_plays_and_pauses(browser, page):
    browser.open(page)
    browser.press("+")
    browser.press(" ")
    reached = f"new Promise(done => {{ const look = () => {AT} >= 3 ? done(true) : setTimeout(look, 10); look(); }})"
    assert browser.run(reached)
    browser.press(" ")
    assert browser.run("document.querySelector('[data-part=play]').getAttribute('aria-label')") == "play"
    assert browser.complaints == []


def test_moments_are_links_and_the_map_follows(browser, page):
    browser.open(page)
    hosts = "[...document.querySelectorAll('[data-layer^=\"truth\"]')].map(each => each.innerHTML).join('')"
    before = browser.run(hosts)
    browser.run("document.querySelector('[data-go]').click()")
    assert browser.run(AT) == browser.run("Number(document.querySelector('[data-go]').dataset.go)") > 0
    assert browser.run(hosts) != before


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (390, False), (1000, True)])
def test_a_page_fits_its_screen_and_follows_the_mode(browser, page, tmp_path, width, dark):
    browser.open(page, width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") == width
    browser.picture(tmp_path / "page.png")
    assert len(set(pixels(tmp_path / "page.png"))) > 20
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(22, 24, 29)" if dark else "rgb(255, 255, 255)")
    assert browser.complaints == []


def test_a_net_shows_its_chart_and_its_tokens_on_a_phone_too(browser, tmp_path):
    assert main(["play", "petri:jobshop/ft06", "--policy", "SPT", "--html", str(tmp_path / "net.html"), "-q"]) == 0
    for width, screen in ((1000, "desk"), (390, "phone")):
        browser.open(tmp_path / "net.html", width)
        browser.press("ArrowRight")
        shown = "[...document.querySelectorAll('[data-layer]')].filter(each => each.getBoundingClientRect().height)"
        assert browser.run(f"{shown}.map(each => each.dataset.layer).sort()") == [
            f"cursor {screen}",
            f"tokens {screen}",
        ]
        assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.complaints == []


def test_pointing_at_a_gantt_chart_leads_to_that_time(browser, tmp_path):
    assert main(["play", "petri:jobshop/ft06", "--policy", "SPT", "--html", str(tmp_path / "net.html"), "-q"]) == 0
    browser.open(tmp_path / "net.html")
    point = """(share) => {
        const chart = [...document.querySelectorAll('[data-scrub] svg')].find(each => each.getBoundingClientRect().width);
        const box = chart.getBoundingClientRect();
        const at = { clientX: box.left + share * box.width, clientY: box.top + 50, pointerId: 1, bubbles: true };
        chart.setPointerCapture = () => {};
        chart.dispatchEvent(new PointerEvent('pointerdown', at));
    }"""
    reached = []
    for share in (0.2, 0.5, 0.99):
        browser.run(f"({point})({share})")
        reached.append(browser.run(AT))
    last = browser.run("Number(document.querySelector('[data-part=slider]').max)")
    assert 0 < reached[0] < reached[1] < reached[2] == last
    assert browser.complaints == []


def test_what_happened_several_times_is_named_once_with_a_link_for_each_time(browser, page):
    browser.open(page)
    names = browser.run("[...document.querySelectorAll('.times > span')].map(each => each.textContent)")
    assert len(names) == len(set(names)) > 0
    for link in range(2):
        browser.run(f"document.querySelectorAll('.times button')[{link}].click()")
        label = browser.run(f"document.querySelectorAll('.times button')[{link}].getAttribute('aria-label')")
        assert label == f"{names[0]}, step {browser.run(AT)}"


def test_colours_and_marks_are_explained_by_samples(browser, page):
    browser.open(page)
    assert "Red has root access" in browser.run("document.querySelector('.keys').innerText")
    assert browser.run("document.querySelectorAll('.keys li svg').length") >= 5


def test_playing_is_not_read_out_step_by_step(browser, page):
    browser.open(page)
    live = "document.querySelector('[data-part=now]').getAttribute('aria-live')"
    assert browser.run(live) == "polite"
    browser.press(" ")
    assert browser.run(live) == "off"
    browser.press(" ")
    assert browser.run(live) == "polite"


def test_a_report_holds_two_episodes_and_keys_lead_the_one_that_was_touched(browser, tmp_path):
    run = tmp_path / "run"
    words = f"train cage2 --max-steps 12 --total-steps 768 --num-envs 16 --num-steps 12 --hidden 8 --run-dir {run} -q"
    assert main([*words.split(), "--eval-episodes", "4"]) == 0
    assert main(["eval", str(run), "--episodes", "2", "--lengths", "30", "-q"]) == 0
    assert main(["report", str(run)]) == 0
    for width in (1000, 390):
        browser.open(run / "report.html", width)
        assert browser.run("document.documentElement.scrollWidth") == width
    places = "[...document.querySelectorAll('[data-part=slider]')].map(each => Number(each.value))"
    browser.press("ArrowRight")
    assert browser.run(places) == [1, 0]
    browser.run("document.querySelectorAll('.film')[1].dispatchEvent(new Event('pointerdown'))")
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    assert browser.run(places) == [1, 2]
    text = browser.run("document.body.innerText")
    for words in ("What the policy does", "The worst episode", "KL", "explained", "Cardiff", "leaderboard"):
        assert words in text, words
    assert "no data yet" not in text and "`" not in text
    assert browser.complaints == []
