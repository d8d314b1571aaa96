"""Schedules as lanes, and what is drawn of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.report.draw import Box, Stroke, Text, to_svg
from redline.report.draw.bitmap import decode_png
from redline.worlds.petri.cluster_tool import ClusterTool, build_tool
from redline.worlds.petri.dispatching import Dispatcher, Game, actions_for, insert_without_waiting
from redline.worlds.petri.gantt import MOST_PANELS, draw_gantt, known_makespans, write_gantt
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.job_shop import JobShop, Shop, build_shop, find_shop
from redline.worlds.petri.lanes import MOST_LANES, Lane, LaneBar, lanes, margins
from redline.worlds.petri.pages import schedule_section_html, utilisation_table, write_schedule_page
from redline.worlds.petri.replay import Hops, load_recording, play_script, script_of
from redline.worlds.petri.rules.net import Cleaning, Net, NetRules, Place, Step, Transition
from redline.worlds.petri.rules.state import OUTCOMES, logged
from redline.worlds.petri.rules.tables import NONE
from redline.worlds.petri.schedule import Schedule

RECORDINGS = Path(__file__).parents[2] / "data" / "petri" / "schedules"
SVG = "{http://www.w3.org/2000/svg}"
ONE_ARM, TWO_ARMS, BUFFERS = "cascade_core_J-0_n4_arms1", "single_S-0_n4_arms2", "cascade_full_J-0_n4_arms1"
every_tool = pytest.mark.parametrize("stem", [ONE_ARM, TWO_ARMS, BUFFERS, "cascade_core_1-2_n4_arms2"])


@cache
def recorded(stem: str) -> Schedule:
    recording = load_recording(RECORDINGS / f"{stem}.json")
    played = play_script(recording.net, recording.script, turbo=False)
    return Schedule("", recording.net, played.makespan, played.outcome, played.firings)


def of(net: Net, *firings: tuple[int, int, str, int], makespan: int, outcome: str = "done", name: str = "") -> Schedule:
    """A schedule written by hand: start, end, transition and token of each firing."""
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    log = [(start, end, index[transition], token) for start, end, transition, token in firings]
    return Schedule(name, net, makespan, outcome, np.array(log, np.int32).reshape(-1, 4))


def played(game: Game, name: str = "") -> Schedule:
    env = game.state.envs[0]
    return Schedule(name, game.net, game.clock, OUTCOMES[env.outcome], logged(game.state, 0))


def dispatched(net: Net, rule: str, name: str = "") -> Schedule:
    game, dispatcher = Game(net, turbo=False, log_size=1000), Dispatcher(net, rule)
    while game.running:
        game.step(int(dispatcher.act(game.state, game.mask)[0]))
    return played(game, name)


def inserted(name: str) -> Schedule:
    """A schedule by the insertion rule, made without the kernel: there is no waiting in it."""
    instance = parse_petri(name)
    plan = instance.plan()
    hops = insert_without_waiting(plan)
    script = script_of(Hops(plan, 0, tuple(map(tuple, hops))), instance.net)
    place_of, rows, counts = dict.fromkeys(range(len(hops)), "LP"), [], {}
    for start, token, _, step in script.tolist():
        route = instance.net.routes[instance.net.token_types[token]]
        ways = [t for t, each in enumerate(instance.net.transitions) if each.name in route[step].transitions]
        ways = [t for t in ways if instance.net.transitions[t].inputs[0][0] == place_of[token]]
        t = min(ways, key=lambda t: counts.get(t, 0))
        counts[t] = counts.get(t, 0) + 1
        place_of[token] = instance.net.transitions[t].outputs[0][0]
        rows.append((start, start + instance.net.transitions[t].duration, t, token))
    return Schedule(name, instance.net, max(row[1] for row in rows), "done", np.array(rows, np.int32))


def lane(schedule: Schedule, name: str) -> Lane:
    return next(each for each in lanes(schedule) if each.name == name)


def phases(bars: tuple[LaneBar, ...], token: int) -> list[tuple[str, int, int]]:
    return [(bar.phase, bar.start, bar.end) for bar in bars if bar.token == token]


def gantt_svg(schedule: Schedule, standalone: bool = False) -> str:
    return to_svg(draw_gantt(schedule), standalone)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def tips(svg: str) -> list[str]:
    return [
        rect.findtext(f"{SVG}title") for rect in parsed(svg).iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None
    ]


def words(svg: str) -> list[str]:
    return [text.text or "" for text in parsed(svg).iter(f"{SVG}text")]


TOOL = build_tool(ClusterTool("S-0", wafers=1))
TO_PM1 = (0, 5, "u_LP_TM1", 0), (10, 15, "t_TM1_PM1", 0)  # it is done there at 115, to be picked by 130
NAMES = [transition.name for transition in TOOL.transitions]


# Lanes


@every_tool
def test_bars_of_a_slot_never_overlap(stem):
    for each in lanes(recorded(stem)):
        for slot in range(each.slots):
            bars = [bar for bar in each.bars if bar.slot == slot]
            assert all(before.end <= after.start for before, after in pairwise(bars))


@every_tool
def test_the_phases_of_a_stay_follow_each_other_without_a_gap(stem):
    order = {
        "robot": ("picking", "travelling", "holding", "placing"),
        "station": ("placing", "processing", "waiting", "picking"),
    }
    for each in lanes(recorded(stem)):
        expected = order["robot" if each.kind == "robot" else "station"]
        for visit in each.visits:
            assert [bar.phase for bar in visit] == [phase for phase in expected if phase in {b.phase for b in visit}]
            assert (visit[0].phase, visit[-1].phase) == (expected[0], expected[-1])
            assert all(before.end == after.start for before, after in pairwise(visit))


@every_tool
def test_every_move_of_a_robot_is_a_bar_in_its_lane_and_in_the_stations(stem):
    schedule = recorded(stem)
    seen = {(each.name, bar.phase, bar.start, bar.end, bar.token) for each in lanes(schedule) for bar in each.bars}
    for start, end, transition, token in schedule:
        origin, target = transition.inputs[0][0], transition.outputs[0][0]
        phase = "picking" if target == transition.resource else "placing"
        station = origin if phase == "picking" else target
        assert (transition.resource, phase, start, end, token) in seen
        assert (station, phase, start, end, token) in seen or station in ("LP", "LP_done")


def test_stations_come_in_the_order_of_the_route():
    assert [each.name for each in lanes(recorded(ONE_ARM))] == [
        "TM2", "TM3", "PM7", "PM8", "LLC", "PM1", "PM2", "LLD", "PM9", "PM10",
    ]  # fmt: skip
    assert [each.kind for each in lanes(recorded(ONE_ARM))[:5]] == ["robot", "robot", "chamber", "chamber", "buffer"]


@every_tool
def test_margins_are_those_of_the_kernel(stem):
    recording = load_recording(RECORDINGS / f"{stem}.json")
    game = Game(recording.net, turbo=False)
    for action in actions_for(recording.net, recording.script, turbo=False):
        game.step(action)
    while game.running:
        game.step(int(np.flatnonzero(game.mask[0])[-1]))
    counts = game.finals.counts[0]
    smallest, total, count = int(counts.margin_min), int(counts.margin_sum), int(counts.margins)
    mine = margins(recorded(stem))
    assert (min(mine), sum(mine), len(mine)) == (smallest, total, count)


def test_a_stay_is_cut_into_placing_processing_waiting_and_picking():
    (chamber,) = [
        each for each in lanes(of(TOOL, *TO_PM1, (120, 125, "u_PM1_TM1", 0), makespan=125)) if each.name == "PM1"
    ]
    assert phases(chamber.bars, 0) == [
        ("placing", 10, 15), ("processing", 15, 115), ("waiting", 115, 120), ("picking", 120, 125),
    ]  # fmt: skip
    (window,) = chamber.windows
    assert (window.start, window.deadline, window.taken, window.margin) == (115, 130, 120, 10)
    assert {bar.margin for bar in chamber.bars} == {10}


def test_a_robot_picks_travels_holds_and_places():
    robot = lane(of(TOOL, TO_PM1[0], (12, 17, "t_TM1_PM1", 0), makespan=17), "TM1")
    assert phases(robot.bars, 0) == [("picking", 0, 5), ("travelling", 5, 10), ("holding", 10, 12), ("placing", 12, 17)]
    assert robot.bars[0].label == "wafer 0 on TM1, LP → PM1"


def test_a_late_pick_is_flagged():
    chamber = lane(of(TOOL, *TO_PM1, (133, 138, "u_PM1_TM1", 0), makespan=138), "PM1")
    assert phases(chamber.bars, 0)[2:] == [("waiting", 115, 130), ("late", 130, 133), ("picking", 133, 138)]
    assert (chamber.windows[0].is_late, chamber.windows[0].margin) == (True, -3)


def test_a_pick_at_the_very_deadline_is_in_time():
    chamber = lane(of(TOOL, *TO_PM1, (130, 135, "u_PM1_TM1", 0), makespan=135), "PM1")
    assert "late" not in {bar.phase for bar in chamber.bars}
    assert not chamber.windows[0].is_late


def test_a_wafer_that_nobody_took_is_late_when_the_kernel_scraps_it():
    script = np.array([(0, 0, NAMES.index("u_LP_TM1"), NONE), (10, 0, NAMES.index("t_TM1_PM1"), NONE)], np.int32)
    scrap = play_script(TOOL, script, turbo=False)
    schedule = Schedule("", TOOL, scrap.makespan, scrap.outcome, scrap.firings)
    assert (schedule.outcome, schedule.makespan) == ("scrap", 131)
    assert phases(lane(schedule, "PM1").bars, 0)[-1] == ("late", 130, 131)
    assert margins(schedule) == []  # it was never taken
    assert "cluster" not in gantt_svg(schedule)
    assert "single/S-0: scrap at 131 s (wafer 0 in PM1)" in words(gantt_svg(schedule))


def test_what_was_under_way_at_the_end_is_cut_off_there():
    chamber = lane(of(TOOL, *TO_PM1, makespan=12, outcome="deadlock"), "PM1")
    assert phases(chamber.bars, 0) == [("placing", 10, 12)]
    assert chamber.windows == ()


def test_each_arm_has_its_slot():
    robot = lane(recorded(TWO_ARMS), "TM1")
    assert robot.slots == 2
    assert {bar.slot for bar in robot.bars} == {0, 1}
    both = [(a, b) for a in robot.bars for b in robot.bars if a.slot < b.slot and a.start < b.end and b.start < a.end]
    assert both and all(a.token != b.token for a, b in both)


def test_a_buffer_has_as_many_slots_as_were_needed():
    schedule = recorded(BUFFERS)
    assert [lane(schedule, name).slots for name in ("LLA", "LLB", "CL")] == [2, 1, 1]


def test_a_chamber_is_cleaned_after_every_so_many_wafers():
    def station(name: str, kind: str, tokens: int = 0, cleaning: Cleaning | None = None) -> Place:
        return Place(name, tokens, None if kind in ("source", "sink") else 1, kind=kind, cleaning=cleaning)

    places = (
        station("LP", "source", 3), station("PM", "process", cleaning=Cleaning(2, 30)), station("TM", "robot"),
        station("out", "sink"),
    )  # fmt: skip
    moves = {"a": ("LP", "TM"), "b": ("TM", "PM"), "c": ("PM", "TM"), "d": ("TM", "out")}
    transitions = tuple(Transition(name, ((x, 1),), ((y, 1),), 1, "TM") for name, (x, y) in moves.items())
    route = (Step(("a",), 0), Step(("b",), 5), Step(("c",), 0), Step(("d",), 0))
    net = Net("clean", places, transitions, {"out": 3}, 1000, routes=(route,), token_types=(0, 0, 0))
    runs = [
        (10 * k + dt, 10 * k + dt + 1, name, k) for k in range(3) for dt, name in zip((0, 1, 7, 8), "abcd", strict=True)
    ]
    chamber = lane(of(net, *runs, makespan=29), "PM")
    assert [(bar.start, bar.end, bar.token) for bar in chamber.bars if bar.phase == "cleaning"] == [(18, 29, None)]
    assert len(chamber.visits) == 3
    assert chamber.seconds("processing") == 15


# Job shops


@pytest.mark.parametrize("rule", ["SPT", "FIFO"])
def test_every_operation_of_a_job_shop_is_a_bar_on_its_machine(rule):
    schedule = dispatched(build_shop(JobShop("ft06")), rule)
    bars = [(each.name, bar) for each in lanes(schedule) for bar in each.bars]
    found = sorted((bar.token, bar.start, name, bar.end - bar.start) for name, bar in bars)
    jobs = find_shop("ft06").quickest()
    wanted = [(j, f"machine {m}", time) for j, job in enumerate(jobs) for m, time in job]
    assert [(job, name, time) for job, _, name, time in found] == wanted
    assert max(bar.end for _, bar in bars) == schedule.makespan
    for each in lanes(schedule):
        assert all(before.end <= after.start for before, after in pairwise(each.bars))


def test_a_job_blocks_its_machine_until_the_next_is_free():
    shop = Shop("two", ((((0, 2),), ((1, 3),)), (((0, 1),), ((1, 9),))))
    net = build_shop(JobShop(buffers="blocking"), shop)
    firings = (0, 0, "O0,0", 0), (2, 2, "O0,1", 0), (2, 2, "O1,0", 0), (5, 5, "E0,1", 0), (5, 5, "O1,1", 0)
    first, second = lanes(of(net, *firings, (14, 14, "E1,1", 0), makespan=14))
    assert phases(first.bars, 0) == [("processing", 0, 2)]
    assert phases(first.bars, 1) == [("processing", 2, 3), ("waiting", 3, 5)]
    assert (phases(second.bars, 0), phases(second.bars, 1)) == ([("processing", 2, 5)], [("processing", 5, 14)])


def test_a_job_may_stay_on_its_machine_for_its_next_operation():
    shop = Shop("again", ((((0, 2),), ((0, 3),)),))
    net = build_shop(JobShop(buffers="blocking"), shop)
    (only,) = lanes(of(net, (0, 0, "O0,0", 0), (4, 4, "O0,1", 0), (7, 7, "E0,0", 0), makespan=7))
    assert phases(only.bars, 0) == [("processing", 0, 2), ("waiting", 2, 4), ("processing", 4, 7)]
    assert len(only.visits) == 2


def test_a_job_that_must_not_wait_and_does_is_late():
    shop = Shop("no wait", ((((0, 2),), ((1, 3),)),))
    net = build_shop(JobShop(buffers="no_wait"), shop)
    schedule = of(net, (0, 0, "O0,0", 0), makespan=3, outcome="scrap")
    (machine,) = lanes(schedule)
    assert phases(machine.bars, 0) == [("processing", 0, 2), ("late", 2, 3)]
    assert machine.windows[0].is_late


def test_a_flexible_operation_is_on_the_machine_that_was_chosen():
    shop = Shop("flexible", ((((0, 2), (1, 5)),), (((0, 4),),)))
    schedule = of(build_shop(JobShop(), shop), (0, 5, "O0,0,1", 0), (0, 4, "O1,0", 0), makespan=5)
    assert [(each.name, phases(each.bars, 0), phases(each.bars, 1)) for each in lanes(schedule)] == [
        ("machine 0", [], [("processing", 0, 4)]),
        ("machine 1", [("processing", 0, 5)], []),
    ]


# Other nets


def plain_net(count: int, duration: int = 1) -> Net:
    places = (Place("a", 5), Place("b"))
    transitions = tuple(Transition(f"t{k}", (("a", 1),), (("b", 1),), duration) for k in range(count))
    return Net("plain", places, transitions, {"b": 5}, rules=NetRules())


def test_a_net_without_machines_has_a_lane_per_transition_that_fired():
    schedule = of(plain_net(3, 4), (0, 4, "t2", 0), (1, 5, "t2", 0), (5, 9, "t0", 0), makespan=9)
    first, second = lanes(schedule)
    assert (first.name, second.name, first.kind) == ("t0", "t2", "transition")
    assert [(bar.start, bar.end, bar.slot, bar.token) for bar in second.bars] == [(0, 4, 0, None), (1, 5, 1, None)]


def test_of_many_transitions_the_busiest_are_shown_and_the_rest_together():
    net = plain_net(100, 2)
    firings = [(k, k + 2, f"t{k}", 0) for k in range(100)] + [(200, 202, f"t{k}", 0) for k in range(50, 80)]
    shown = lanes(of(net, *firings, makespan=202))
    assert len(shown) == MOST_LANES
    assert {f"t{k}" for k in range(50, 80)} < {each.name for each in shown}
    assert shown[-1].name == f"{101 - MOST_LANES} others"
    assert f"{101 - MOST_LANES} others" in words(gantt_svg(of(net, *firings, makespan=202)))


def test_firings_that_take_no_time_are_shown_in_their_order():
    schedule = of(plain_net(2, 0), (0, 0, "t1", 0), (0, 0, "t0", 0), (0, 0, "t1", 0), makespan=0, outcome="deadlock")
    assert [[(bar.start, bar.end) for bar in each.bars] for each in lanes(schedule)] == [[(1, 2)], [(0, 1), (2, 3)]]
    assert "firings in order; no time passed" in words(gantt_svg(schedule))


# Drawings


def strange() -> Iterator[Schedule]:
    """Schedules that are hardly any."""
    yield of(TOOL, makespan=0, outcome="running")
    yield of(TOOL, makespan=131, outcome="deadlock")
    yield of(TOOL, TO_PM1[0], makespan=0, outcome="running")
    yield of(TOOL, TO_PM1[0], makespan=5, outcome="time limit")
    yield of(plain_net(1), makespan=0, outcome="deadlock")
    yield of(plain_net(1, 0), (0, 0, "t0", 0), makespan=0, outcome="step limit")


@pytest.mark.parametrize(
    "schedule", list(strange()), ids=lambda each: f"{each.net.name}, {len(each.log)}, {each.outcome}"
)
def test_a_schedule_of_next_to_nothing_is_drawn_too(schedule):
    svg = gantt_svg(schedule)
    assert schedule.outcome in parsed(svg).get("aria-label")
    assert ("nothing fired" in words(svg)) == (len(schedule.log) == 0)
    assert schedule.outcome in schedule_section_html(schedule)


@every_tool
@pytest.mark.parametrize("standalone", [False, True])
def test_a_chart_is_well_formed_and_shows_every_phase(stem, standalone):
    schedule = recorded(stem)
    shown = tips(gantt_svg(schedule, standalone=standalone))
    for each in lanes(schedule):
        for bar in each.bars:
            assert any(tip.startswith(f"{bar.label}: {bar.phase} {bar.start:,}–{bar.end:,} s") for tip in shown)


def test_a_tip_tells_what_was_left_of_the_residency_limit():
    shown = tips(gantt_svg(of(TOOL, *TO_PM1, (120, 125, "u_PM1_TM1", 0), makespan=125)))
    assert "wafer 0 in PM1: waiting 115–120 s, 10 s left" in shown
    assert "wafer 0 in PM1: waited 5 of 15 s, until 130 s" in shown


def test_what_is_too_late_is_red_and_crossed_out():
    late = draw_gantt(of(TOOL, *TO_PM1, (133, 138, "u_PM1_TM1", 0), makespan=138)).shapes
    fine = draw_gantt(of(TOOL, *TO_PM1, (130, 135, "u_PM1_TM1", 0), makespan=135)).shapes
    assert not any(shape.colour == "red" for shape in fine)
    assert any(isinstance(shape, Box) and shape.colour == "red" for shape in late)
    assert any(isinstance(shape, Stroke) and shape.colour == "red" for shape in late)
    assert any(isinstance(shape, Text) and shape.words == "too late" for shape in late)


def test_the_bound_and_the_optimum_are_marked_if_the_name_tells_them():
    named = inserted("petri:cluster/S-0?wafers=4")
    bound, optimum = known_makespans(named)
    assert bound is not None and optimum is not None
    assert {f"lower bound {bound:,} s", f"optimum {optimum:,} s"} < set(words(gantt_svg(named)))
    unnamed = Schedule("", named.net, named.makespan, named.outcome, named.log)
    assert not any("bound" in text for text in words(gantt_svg(unnamed)))
    gone = Schedule("petri:gone.pnml", named.net, named.makespan, named.outcome, named.log)
    assert known_makespans(gone) == (None, None)


def test_a_bound_far_beyond_the_end_is_not_marked():
    early = of(TOOL, *TO_PM1, makespan=20, outcome="deadlock", name="petri:cluster/S-0?wafers=1")
    assert not any("bound" in text for text in words(gantt_svg(early)))


def test_twelve_wafers_fit_one_panel_and_their_numbers_can_be_read():
    shown = words(gantt_svg(inserted("petri:cluster/J-0?wafers=12")))
    assert shown.count("PM1") == 1
    assert {str(wafer) for wafer in range(12)} < set(shown)


@pytest.mark.parametrize("wafers", [100, 400])
def test_many_wafers_are_spread_over_panels_and_the_file_stays_small(wafers):
    svg = gantt_svg(inserted(f"petri:cluster/J-0?wafers={wafers}"))
    assert len(svg) < 3_000_000
    assert 1 < words(svg).count("PM1") <= MOST_PANELS
    assert any("left out" in text for text in words(svg)) == (wafers == 400)
    assert str(wafers - 1) in words(svg)


def test_nothing_is_drawn_outside_the_chart():
    for schedule in (recorded(BUFFERS), inserted("petri:cluster/J-0?wafers=25"), *strange()):
        drawing = draw_gantt(schedule)
        for shape in drawing.shapes:
            if isinstance(shape, Box):
                assert shape.x >= 0 and shape.y >= 0 and shape.width > 0
                assert shape.x + shape.width <= drawing.width and shape.y + shape.height <= drawing.height


def test_names_are_escaped():
    net = plain_net(1)
    evil = Transition("<script>&\"'", (("a", 1),), (("b", 1),), 3)
    schedule = of(Net("<b>", net.places, (evil,), net.goal), (0, 3, evil.name, 0), makespan=3)
    assert "<script>" not in schedule_section_html(schedule)
    svg = gantt_svg(schedule, standalone=True)
    assert evil.name in words(svg)
    assert "<b>: done, makespan 3" in words(svg)


# Files


def test_a_png_is_written_and_not_blank(tmp_path):
    for schedule in (recorded(ONE_ARM), of(TOOL, makespan=0, outcome="running")):
        write_gantt(schedule, tmp_path / "gantt.png")
        pixels = decode_png((tmp_path / "gantt.png").read_bytes())
        assert pixels.shape[1] > 1000
        assert (pixels < 230).any(axis=2).mean() > 0.001


def test_an_svg_file_brings_its_own_colours(tmp_path):
    write_gantt(recorded(ONE_ARM), tmp_path / "gantt.svg")
    assert "--blue:" in parsed((tmp_path / "gantt.svg").read_text()).findtext(f"{SVG}style")


@pytest.mark.parametrize("name", ["gantt.pdf", "gantt", "gantt.PNG"])
def test_other_files_are_refused_in_one_line(tmp_path, name):
    with pytest.raises(RedlineError, match=r"is written as \.svg or \.png, not as .*Try gantt\.svg") as error:
        write_gantt(recorded(ONE_ARM), tmp_path / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["gantt.png", "gantt.svg"])
def test_a_folder_that_is_not_there_is_named(tmp_path, name):
    with pytest.raises(RedlineError, match=r"cannot be written to .*No such file"):
        write_gantt(recorded(ONE_ARM), tmp_path / "nowhere" / name)


def test_without_resvg_a_png_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(RedlineError, match=r"redline\[plot\]"):
        write_gantt(recorded(ONE_ARM), tmp_path / "gantt.png")


# The section of a report


def test_the_section_tells_the_makespan_the_gaps_and_the_margins():
    html = schedule_section_html(inserted("petri:cluster/S-0?wafers=4"))
    bound, optimum = known_makespans(inserted("petri:cluster/S-0?wafers=4"))
    assert "<dt>makespan</dt><dd>" in html and f"{bound:,} s" in html and f"{optimum:,} s" in html
    assert "<dt>smallest residency margin</dt><dd>15 s</dd>" in html


def test_utilisation_is_busy_time_over_makespan():
    table = utilisation_table(of(TOOL, *TO_PM1, (120, 125, "u_PM1_TM1", 0), makespan=125))
    assert "<td>TM1</td><td>robot</td>" in table
    row = next(line for line in table.splitlines() if "PM1" in line)
    assert ">100<" in row and ">80 %<" in row and ">92 %<" in row  # processing, its share, occupied


def test_scores_are_compared_and_what_is_missing_is_a_dash():
    scores = [
        {
            "policy": "ppo <1>",
            "makespan": 990,
            "outcome": "done",
            "gap_bound": 0.1,
            "gap_optimum": None,
            "margin_min": 5,
        },
        {"policy": "SPT", "makespan": None, "outcome": "scrap", "robot": {"TM2": 0.5}, "chamber": {}},
        {},
    ]
    html = schedule_section_html(recorded(ONE_ARM), scores)
    assert "ppo &lt;1&gt;" in html and "TM2 50 %" in html and "<td>–</td>" in html
    assert "above the optimum</th>" not in html  # nobody has one


def test_a_page_stands_alone(tmp_path):
    write_schedule_page(recorded(ONE_ARM), tmp_path / "schedule.html")
    text = (tmp_path / "schedule.html").read_text()
    assert text.startswith("<!DOCTYPE html>") and "<svg" in text and "48 firings" in text
    with pytest.raises(RedlineError, match="cannot be written"):
        write_schedule_page(recorded(ONE_ARM), tmp_path / "nowhere" / "schedule.html")
