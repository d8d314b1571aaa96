"""The page of a profile, on made-up profiles and, where there is one, in a real browser."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.learn.config import TrainConfig
from redline.profiler.advise import Advice
from redline.profiler.modes import ModeComparison
from redline.profiler.record import Profile, WatchedUpdate
from redline.report.charts.row_looks import LOOKS
from redline.report.charts.timeline import MOST_BLOCKS, SPAN_ROWS, Block, last_batch, own_blocks, slices
from redline.report.draw import PALETTE, duration
from redline.report.profile import headline, write_profile
from redline.timing.breakdown import Breakdown
from redline.timing.rows import PARTS, rows
from redline.timing.trace import MAIN, Trace
from redline.timing.workers import WorkerTimes
from tests.report.reading import Outline, browse, needs_browser, pixels

ATTACK = "<script>console.error('owned')</script>"

OUTER = {("collect",): 0.7, ("learn",): 0.25, ("log",): 0.04}
INNER = {
    ("collect", "env"): 0.35, ("collect", "env", "reset"): 0.05, ("collect", "policy"): 0.2,
    ("collect", "policy", "sample"): 0.05, ("collect", "record"): 0.04, ("collect", "wait"): 0.1,
    ("learn", "gae"): 0.01, ("learn", "batch"): 0.03, ("learn", "gradient"): 0.15,
    ("learn", "gradient", "loss"): 0.08, ("learn", "gradient", "backward"): 0.06, ("learn", "optimizer"): 0.03,
    ("learn", "imitate"): 0.01,
}  # fmt: skip


def breakdown(seconds: float = 1.0, env: float = 1.0) -> Breakdown:
    """A batch; `env` multiplies its env steps."""
    more = (env - 1) * 0.3 * seconds
    spent = {path: share * seconds for path, share in (OUTER | INNER).items()}
    for path in (("collect",), ("collect", "env")):
        spent[path] += more
    return Breakdown(seconds + more, spent, dict.fromkeys(spent, 10))


def profile(mode: str = "shared", batches: int = 4, env: float = 1.0, noise: float = 0.0, workers: int = 0) -> Profile:
    rng = np.random.default_rng(len(mode))
    found = [WatchedUpdate(breakdown(1 + noise * rng.standard_normal(), env), 1000, 5) for _ in range(batches)]
    times = None
    if workers:
        times = WorkerTimes(workers)
        times.step_seconds += 0.5 * batches
        times.slowest_seconds, times.straggler_seconds = 0.0123, 0.2
    config = TrainConfig(env="cage2", engine="shared", num_envs=200)
    return Profile(
        mode, config, start_up_seconds=0.84, warm_up=WatchedUpdate(breakdown(9.0), 1000, 5), batches=found, workers=times,
        num_workers=workers or 1, collect_seconds=0.7 * batches, memory_mb=411.0,
    )  # fmt: skip


def synthetic_trace(workers: int, steps: int = 60, batches: int = 2) -> Trace:
    """Lockstep: the policy acts, all workers step, the slowest decides when it goes on."""
    trace, rng, now = Trace(), np.random.default_rng(0), 10**9
    for _ in range(batches):
        began = now
        for _ in range(steps):
            trace.span(("collect", "policy", "forward"), now, 200_000)
            trace.span(("collect", "policy"), now, 250_000)
            now += 260_000
            took = rng.gamma(4, 250_000, max(1, workers)).astype(int)
            for worker in range(workers):
                trace.add(f"worker {worker}", "step", now + 20_000, int(took[worker]))
                if rng.random() < 0.1:
                    trace.add(f"worker {worker}", "reset", now + 20_000 + int(took[worker]), 100_000)
            wait = int(took.max()) + 130_000
            trace.span(("collect", "wait"), now, wait)
            now += wait
            trace.span(("collect", "record"), now, 60_000)
            now += 60_000
        trace.span(("collect",), began, now - began)
        learned = now
        for name, length in (
            ("gae", 400_000),
            ("batch", 900_000),
            *(("gradient", 7_000_000), ("optimizer", 2_000_000)) * 4,
        ):
            trace.span(("learn", name), now, length)
            now += length
        trace.span(("learn",), learned, now - learned)
        trace.span(("log",), now, 3_000_000)
        now += 3_000_000
    return trace


ADVICE = [
    Advice("env step", 0.3, "--engine ready", {"engine": "ready"}, " and workers wait", 1.62),
    Advice("policy forward", 0.15, "--dedup", {"dedup": True}, "", 1.1),
]


def alone(**how) -> ModeComparison:
    return ModeComparison([profile(**how)], {})


def written(folder: Path, comparison: ModeComparison, advice=(), applied=None, trace=None) -> str:
    path = write_profile(folder / "profile.html", comparison, list(advice), applied, trace)
    assert path == folder / "profile.html"
    return path.read_text(encoding="utf-8")


def everything(folder: Path) -> str:
    modes = [
        profile("serial", 7, noise=0.02, workers=4),
        profile("faster", 7, 0.2, 0.02),
        profile("twin", 7, noise=0.02),
    ]
    applied = ModeComparison([profile("as it was"), profile("--engine ready", env=0.5)], {})
    failed = {"ray": "Ray is not installed."}
    return written(folder, ModeComparison(modes, failed), ADVICE, applied, synthetic_trace(4))


def test_a_page_is_balanced_and_needs_no_script_and_no_network(tmp_path):
    document = everything(tmp_path)
    outline = Outline(document)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in outline.tags}
    assert not {"src", "href"} & {name for _, attributes in outline.tags for name in attributes}
    assert "@import" not in document and "url(" not in document
    assert set(re.findall(r"https?://[^\"' ]+", document)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched


def test_every_row_and_every_mode_appears(tmp_path):
    outline = Outline(everything(tmp_path))
    shown = {re.sub(r"^\d\. ", "", text) for _, text in outline.texts}
    assert {row.name for row in rows(breakdown())} <= shown
    assert {"serial", "faster", "twin", "ray", "Ray is not installed."} <= shown
    assert outline.inside("h2") == [
        "In short", "ModeComparison", "Where the time goes", "Timeline", "What would make it faster", "Settings",
    ]  # fmt: skip


def test_every_row_has_a_look_of_its_own():
    leaves = {leaf.name for part in PARTS for leaf in part.parts or (part,)}
    assert leaves <= set(LOOKS) and len(set(LOOKS.values())) == len(LOOKS)
    assert {look.colour for look in LOOKS.values()} <= set(PALETTE)
    assert set(SPAN_ROWS.values()) <= leaves


def test_a_row_has_the_same_colour_everywhere(tmp_path):
    block = r'<rect [^>]*?fill="([^"]+)"(?: fill-opacity="([\d.]+)")?><title>(.*?)</title>'
    drawn = re.findall(block, everything(tmp_path))
    for name in LOOKS.keys() - {"playing on", "loss and backward"}:  # which take the place of others
        colours = [(fill, faint) for fill, faint, words in drawn if re.search(rf"(^|, ){name}:", words)]
        assert len(colours) > 20 and len(set(colours)) == 1, name


def test_the_headline_says_where_the_time_goes():
    assert headline(alone()) == "Engine shared, 1,000 steps/s. 30 % of the run is env step, 15 % is policy forward."
    assert headline(alone(mode="A")).startswith("A: engine shared")


def test_one_profile_has_facts_and_no_comparison(tmp_path):
    outline = Outline(written(tmp_path, alone(workers=8)))
    found = dict(zip(outline.inside("dt"), outline.inside("dd"), strict=True))
    assert found["workers"] == "8" and found["slowest step"] == "12.3 ms" and found["memory"] == "411 MB"
    assert found["unaccounted"] == "1.0 %" and found["sampling : training"] == "2.8 : 1"
    assert not {"ModeComparison", "Timeline"} & set(outline.inside("h2"))


def test_too_much_unaccounted_time_is_marked(tmp_path):
    leaky = profile()
    leaky.batches = [WatchedUpdate(Breakdown(1.1, breakdown().seconds), 1000, 5)]
    outline = Outline(written(tmp_path, ModeComparison([leaky], {})))
    assert "10 % !" in outline.inside("dd")
    assert any("in no span" in words for words in outline.inside("p"))


def test_a_warm_up_that_takes_long_leaves_the_batches_their_length(tmp_path):
    document = written(tmp_path, alone())
    blocks = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*><title>batch 1, ([^:]*)', document)
    assert sum(float(width) for _, width, _ in blocks) > 400
    assert "9 s" in Outline(document).inside("text")
    assert 'opacity="0.55"' in document  # pale, for it is in no average


def test_a_profile_without_a_warm_up_and_many_batches(tmp_path):
    long = profile(batches=100)
    long.warm_up = None
    outline = Outline(written(tmp_path, ModeComparison([long], {})))
    assert "warm-up" not in outline.inside("text")
    assert any("The last 60 of 100 batches" in words for words in outline.inside("figcaption"))


def test_what_cannot_be_told_from_noise_is_grey_and_says_so(tmp_path):
    twins = ModeComparison([profile("one", 7, noise=0.05), profile("other one", 7, noise=0.05)], {})
    document = written(tmp_path, twins)
    outline = Outline(document)
    assert "within noise" in outline.inside("text")
    assert any("cannot be told from one: within noise" in text for text in outline.inside("p"))
    assert not re.search(r"<circle[^>]*fill=\"var\(--(?!axis)", document)


def test_a_real_speed_up_is_shown_with_its_interval(tmp_path):
    outline = Outline(
        written(tmp_path, ModeComparison([profile("slow", 7, noise=0.01), profile("fast", 7, env=0.1)], {}))
    )
    assert any(re.fullmatch(r"\d\.\d\dx \(\d\.\d\d – \d\.\d\d\)", words) for words in outline.inside("text"))
    assert {"slow", "fast"} <= set(outline.inside("th"))


def test_a_row_that_only_one_mode_has_is_no_speed_up(tmp_path):
    without = profile("B")
    spent = {path: s for path, s in breakdown().seconds.items() if path != ("collect", "wait")}
    without.batches = [WatchedUpdate(Breakdown(1.0, spent), 1000, 5)] * 4
    assert "only in A" in Outline(written(tmp_path, ModeComparison([profile("A"), without], {}))).inside("text")


def test_two_turns_are_too_few_for_an_interval_and_still_a_page(tmp_path):
    outline = Outline(written(tmp_path, ModeComparison([profile("A", 2), profile("B", 2, env=0.1)], {})))
    assert "within noise" in outline.inside("text")


def test_suggestions_stand_beside_what_they_gave(tmp_path):
    applied = ModeComparison([profile("as it was"), profile("--engine ready", env=0.5)], {})
    cells = Outline(written(tmp_path, alone(), ADVICE, applied)).inside("td")
    at = cells.index("--engine ready")
    assert cells[at + 1] == "env step is 30 % of the run and workers wait"
    assert cells[at + 2 : at + 4] == ["1.6×", "1.18× (1.18 – 1.18)"]


def test_a_suggestion_that_could_not_run_says_why(tmp_path):
    applied = ModeComparison([profile("as it was")], {"--engine ready": "No room."})
    assert "could not run: No room." in Outline(written(tmp_path, alone(), ADVICE, applied)).inside("td")


def test_no_suggestion_is_said(tmp_path):
    assert any("Nothing stands out" in text for text in Outline(written(tmp_path, alone())).inside("p"))


def test_names_are_shown_and_not_run(tmp_path):
    trace = synthetic_trace(1, steps=3)
    trace.add(ATTACK, ATTACK, trace.events[-1][2], 10**6)
    modes = ModeComparison([profile(ATTACK), profile('"><img src=x>')], {ATTACK + "2": ATTACK})
    outline = Outline(written(tmp_path, modes, [Advice(ATTACK, 0.1, ATTACK, {}, ATTACK, 2.0)], None, trace))
    assert not {"script", "img"} & {tag for tag, _ in outline.tags}
    assert ATTACK in outline.inside("th")


def test_spans_inside_spans_become_blocks_side_by_side():
    spans = [("env", 10, 40), ("policy", 50, 70), ("collect", 0, 100), ("forward", 50, 60)]
    assert own_blocks(spans) == [
        Block("collect", 0, 10), Block("env", 10, 40), Block("collect", 40, 50), Block("forward", 50, 60),
        Block("policy", 60, 70), Block("collect", 70, 100),
    ]  # fmt: skip


def test_a_slice_of_time_is_shared_by_what_happened_in_it():
    assert slices([Block("env", 0, 15), Block("policy", 15, 20)], 0, 20, count=2) == [
        {"env step": 1.0},
        {"env step": 0.5, "policy forward": 0.5},
    ]


def test_the_timeline_shows_the_last_batch_with_the_collector_first():
    batch = last_batch(synthetic_trace(12, steps=10))
    assert list(batch.lanes) == [MAIN, *(f"worker {k}" for k in range(12))]
    assert batch.whole
    assert not last_batch(synthetic_trace(12, steps=500, batches=1)).whole


def test_blocks_of_a_track_never_overlap():
    for lane in last_batch(synthetic_trace(5)).lanes.values():
        assert all(one.end <= other.start for one, other in pairwise(lane))


@pytest.mark.parametrize("workers", [0, 1, 100, 300])
def test_any_number_of_workers_gives_a_page_of_reasonable_size(tmp_path, workers):
    document = written(tmp_path, alone(workers=workers), trace=synthetic_trace(workers, steps=100))
    outline = Outline(document)
    assert MAIN in outline.inside("text")
    assert document.count("<rect") < MOST_BLOCKS + 2000 and len(document) < 1_000_000
    if workers:
        assert "worker 0" in outline.inside("text")
    assert any("more tracks" in words for words in outline.inside("figcaption")) == (workers == 300)


@pytest.mark.parametrize("trace", [None, Trace()])
def test_without_a_trace_there_is_no_timeline(tmp_path, trace):
    assert "Timeline" not in Outline(written(tmp_path, alone(), trace=trace)).inside("h2")


def test_a_trace_that_was_full_says_so(tmp_path):
    trace = synthetic_trace(2, steps=5)
    trace.left_out = 1234
    captions = Outline(written(tmp_path, alone(), trace=trace)).inside("figcaption")
    assert any("1,234 later spans" in words for words in captions)


def test_settings_in_which_modes_differ_come_first(tmp_path):
    one, other = profile("one"), profile("two")
    other.config = TrainConfig(env="cage2", engine="pool", num_envs=200)
    cells = Outline(written(tmp_path, ModeComparison([one, other], {}))).inside("td")
    at = cells.index("engine")
    assert cells[at + 1 : at + 4] == ["shared", "pool", "env"]


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0 s"), (1.25, "1.25 s"), (0.0123, "12.3 ms"), (79e-6, "79 µs")])
def test_a_duration_has_the_unit_that_suits_it(seconds, shown):
    assert duration(seconds) == shown


def test_a_page_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(RedlineError, match=r"cannot be written to .*Try --html profile\.html") as caught:
        write_profile(tmp_path / "missing" / "profile.html", alone(), [], None, None)
    assert "\n" not in str(caught.value)


@needs_browser
def test_a_browser_shows_the_page_without_complaint(tmp_path):
    everything(tmp_path)
    picture = tmp_path / "profile.png"
    options = ("--enable-logging=stderr", f"--screenshot={picture}", "--window-size=1000,3000")
    assert "CONSOLE" not in browse(tmp_path / "profile.html", *options).stderr
    assert len(set(pixels(picture))) > 100
