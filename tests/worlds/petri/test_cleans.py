"""Cleaning of idle chambers and between types of wafers, and a release gate for each type: exact instants, and the slow
twin at both speeds.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redline.errors import RedlineError
from redline.worlds.petri.cluster_tool import (
    ClusterTool,
    Route,
    Stage,
    build_net,
    build_tool,
    plan_tool,
    read_route,
)
from redline.worlds.petri.dispatching import (
    INSERTION,
    Game,
    actions_for,
    insert_without_waiting,
    rule_actions,
)
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.replay import Hops, read_firings, script_of, verify
from redline.worlds.petri.rules.net import IdleCleaning, Net, NetRules, Place, Transition
from redline.worlds.petri.rules.state import OUTCOMES, logged
from redline.worlds.petri.rules.tables import tabulate
from redline.worlds.petri.schedule import Schedule
from tests.worlds.petri.playing import insertion_makespan, legal, play, seen
from tests.worlds.petri.test_kernel import assert_speeds_agree, walk_side_by_side

BY_HAND: dict[str, Any] = {"skip_forced_waits": False, "urgent_wait_cap": False, "hold": "soft"}
"""Nothing happens that is not asked for, and nobody minds what is."""


def place_state(game: Game, name: str) -> Any:
    return game.state.places[0, [place.name for place in game.net.places].index(name)]


# Idle chambers


def idle_game(**options: Any) -> Game:
    """Wafers that go through PM7 alone, for 267 s each."""
    return Game(build_tool(ClusterTool(**{"route": "3-2", "wafers": 2, "idle_cleaning": "on", **BY_HAND, **options})))


def test_an_empty_chamber_is_cleaned_after_80_s_and_again_80_s_after_every_clean():
    game, instants = idle_game(), []
    for _ in range(6):
        play(game, "wait")
        instants.append((game.clock, int(place_state(game, "PM7").clean_until)))
    assert instants == [(80, 110), (110, 110), (190, 220), (220, 220), (300, 330), (330, 330)]


def test_a_chamber_that_is_being_cleaned_for_idleness_takes_no_wafer_until_the_clean_is_over():
    game = idle_game(lookahead="off")
    play(game, "wait", "u_LP_TM2", "wait", "wait")
    assert (game.clock, legal(game)) == (90, set())  # the wafer has travelled
    play(game, "wait")
    assert (game.clock, legal(game)) == (110, {"t_TM2_PM7"})


def test_the_idle_clock_starts_anew_when_a_wafer_has_left():
    game = idle_game()
    play(game, "u_LP_TM2", "wait", "wait", "t_TM2_PM7", "wait", "wait")
    assert game.clock == 10 + 5 + 267  # nothing was idle meanwhile
    play(game, "u_PM7_TM2", "wait")
    assert (game.clock, place_state(game, "PM7").clean_until) == (287, 0)
    play(game, "wait", "t_TM2_LP_done", "wait", "wait")
    assert (game.clock, place_state(game, "PM7").clean_until) == (287 + 80, 287 + 80 + 30)


def test_a_chamber_is_not_idle_while_a_wafer_is_being_put_into_it():
    game = idle_game()
    play(game, "wait 50", "wait 10", "wait 5", "u_LP_TM2", "wait", "wait", "t_TM2_PM7", "wait")
    assert (game.clock, place_state(game, "PM7").clean_until) == (80, 0)
    late = idle_game(lookahead="off")
    play(late, "wait 50", "wait 20", "u_LP_TM2", "wait", "wait")
    assert (late.clock, place_state(late, "PM7").clean_until, legal(late)) == (80, 110, set())


def test_no_wafer_is_picked_that_would_find_its_chamber_just_being_cleaned():
    game = idle_game()
    play(game, "wait 50", "wait 10", "wait 5", *["wait 1"] * 4)
    assert (game.clock, legal(game)) == (69, {"u_LP_TM2"})  # 10 s later it could be put down, at 79
    play(game, "wait 1")
    assert (game.clock, legal(game)) == (70, set())
    short = idle_game(idle_cleaning="80,5")
    play(short, "wait 50", "wait 20", "wait 1", "wait 1", "wait 1", "wait 1")
    assert (short.clock, legal(short)) == (74, set())
    play(short, "wait 1")
    assert (short.clock, legal(short)) == (75, {"u_LP_TM2"})  # at 85 the clean is over


def test_idleness_counts_from_the_end_of_any_clean():
    game = idle_game(cleaning=True, wafers=7)
    for _ in range(6):
        play(game, "u_LP_TM2", "wait", "wait", "t_TM2_PM7", "wait", "wait", "u_PM7_TM2", "wait", "wait")
        play(game, "t_TM2_LP_done", "wait")
    left = 6 * 297 - 10  # the sixth pick ended; travelling and placing followed
    assert place_state(game, "PM7").clean_until == left + 320
    play(game, "wait", "wait")
    assert (game.clock, place_state(game, "PM7").clean_until) == (left + 320 + 80, left + 320 + 80 + 30)


def test_only_chambers_that_wafers_come_to_are_cleaned():
    net = build_tool(ClusterTool("J-0", idle_cleaning="60,20"))
    cleaned = {place.name: place.idle_cleaning for place in net.places if place.idle_cleaning}
    assert cleaned == dict.fromkeys(("PM7", "PM8", "PM9", "PM10", "PM1", "PM2"), IdleCleaning(60, 20))


def test_the_observation_tells_of_idle_cleaning():
    game = idle_game(cleaning=True)
    none = {"cleaning": 0, "clean_left": 0, "clean_soon": 0}

    def cleans() -> dict[str, float]:
        return {name: value for name, value in seen(game, "PM7").items() if name in none}

    play(game, "wait 20")
    assert cleans() == none | {"clean_soon": 0.25}  # 20 of 80 s
    play(game, "wait", "wait 10")
    assert game.clock == 90
    assert cleans() == pytest.approx(none | {"cleaning": 1, "clean_left": 2 / 3})
    play(game, "wait")
    assert cleans() == none


# Between types


def one_chamber_for_two(order: tuple[int, ...] = (1, 1, 2), **options: Any) -> Game:
    """Wafers of two types that go through PM1 for 20 s; it is cleaned for 100 s in between."""
    stages = (Stage(("PM1",), 20),)
    tool = ClusterTool(device="single", wafers=3, change_cleaning="100", **{**BY_HAND, **options})
    return Game(build_tool(tool, Route("two", (stages, stages), "single", release_order=order)))


IN_AND_OUT = ("u_LP_TM1", "wait", "wait", "t_TM1_PM1", "wait", "wait", "u_PM1_TM1", "wait", "wait")
THROUGH = (*IN_AND_OUT, "t_TM1_LP_done", "wait")
"""One wafer, 50 s: left at 40."""


def test_a_wafer_of_the_same_type_may_follow_at_once_and_another_type_after_the_clean():
    game = one_chamber_for_two(lookahead="off")
    play(game, *THROUGH)
    assert game.clock == 50
    play(game, *THROUGH)
    assert game.clock == 100  # and the chamber was left at 90
    play(game, "u_LP_TM1", "wait", "wait")
    assert (game.clock, legal(game)) == (110, set())
    play(game, "wait")
    assert (game.clock, legal(game)) == (190, {"t_TM1_PM1"})


def test_nothing_is_picked_for_a_chamber_that_is_not_clean_for_it():
    game = one_chamber_for_two()
    play(game, *THROUGH, *THROUGH)
    assert (game.clock, legal(game)) == (100, set())
    play(game, "wait")
    assert (game.clock, legal(game)) == (190, {"u_LP_TM1"})


def test_a_chamber_is_clean_for_every_type_at_the_start():
    game = one_chamber_for_two((2, 1))
    play(game, "u_LP_TM1", "wait", "wait")
    assert (game.clock, legal(game)) == (10, {"t_TM1_PM1"})


def test_a_swap_is_not_offered_between_types():
    for order, swaps in (((1, 1), {"x_TM1_PM1"}), ((1, 2), set())):
        game = one_chamber_for_two(order, arms=2, swap_action=True, lookahead="off")
        play(game, "u_LP_TM1", "wait", "wait", "t_TM1_PM1", "wait", "u_LP_TM1", "wait", "wait", "wait")
        assert game.clock == 35
        assert {name for name in legal(game) if name.startswith("x")} == swaps


def test_the_observation_tells_of_a_clean_between_types():
    game = one_chamber_for_two(lookahead="off")
    play(game, *THROUGH)
    assert seen(game, "PM1")["cleaning"] == 0
    assert seen(game, "PM1")["clean_left"] == pytest.approx(0.9)  # 10 of 100 s are over


def test_idleness_counts_from_the_end_of_a_clean_between_types():
    game = one_chamber_for_two(idle_cleaning="80,30")
    play(game, *THROUGH, *["wait"] * 2)
    assert (game.clock, place_state(game, "PM1").clean_until) == (40 + 100 + 80, 40 + 100 + 80 + 30)


def test_only_chambers_that_several_types_come_to_are_cleaned_between_them():
    net = build_tool(ClusterTool("4-13", change_cleaning="on"))
    assert {place.name: place.change_cleaning for place in net.places if place.change_cleaning} == {"PM1": 200}
    alone = build_tool(ClusterTool("J-0", change_cleaning="on"))
    assert not alone.remembers_cleans
    assert tabulate(alone)[0].traits.extras == ()


# A gate for each type


def gated_game(**route: Any) -> Game:
    """Two types in turn, each with a chamber of its own, 20 s."""
    types = ((Stage(("PM1",), 20),), (Stage(("PM2",), 20),))
    tool = ClusterTool(device="single", wafers=6, gate="route", gate_per_type="type_intervals" not in route, **BY_HAND)
    return Game(build_tool(tool, Route("two", types, "single", release_order=(1, 2), **route)), log_size=100)


def releases(game: Game, until: int) -> list[int]:
    """When wafers leave the source, each as soon as it can."""
    while game.running and game.clock < until:
        fires = sorted(legal(game), key=lambda name: ("LP_done" not in name, not name.startswith("t_"), "LP" in name))
        play(game, fires[0] if fires else "wait")
    log = logged(game.state, 0)
    return [int(start) for start, _, t, _ in log if game.net.transitions[t].name == "u_LP_TM1"]


def test_each_type_waits_for_its_own_intervals():
    assert releases(gated_game(release_intervals=(100, 200)), 500) == [0, 15, 100, 115, 300, 315]


def test_each_type_may_have_intervals_of_its_own():
    assert releases(gated_game(type_intervals=((200,), (300,))), 800) == [0, 15, 200, 315, 400, 615]


def test_a_type_whose_gate_is_closed_is_not_overtaken():
    game = gated_game(type_intervals=((500,), (10,)))
    assert releases(game, 700) == [0, 15, 500, 515]


def test_without_gate_per_type_all_share_one_gate():
    net = build_tool(ClusterTool("4-11", gate="route"))
    assert (len(net.rules.release_intervals), net.rules.type_intervals) == (18, ())
    assert tabulate(net)[0].traits.extras == ()


def test_derived_intervals_of_a_type_are_those_of_its_own_stages():
    net = build_tool(ClusterTool("4-10", gate="derived", gate_per_type=True))
    assert net.rules.type_intervals == ((53,), (27,))  # 105 s over two chambers, and over four
    assert build_tool(ClusterTool("4-10", gate="derived")).rules.release_intervals == (53,)


def test_a_route_may_give_intervals_for_each_type():
    stage = {"at": ["PM1"], "p": 20}
    data = {"device": "single", "types": [[stage], [stage]], "release_order": [1, 2], "release_intervals": [[30], [40]]}
    assert read_route("mine", data).type_intervals == ((30,), (40,))


def test_the_observation_tells_when_the_first_wafer_in_line_may_go():
    game = gated_game(release_intervals=(100, 200))
    play(game, "u_LP_TM1")
    assert seen(game, "tool")["time_to_release"] == 1.0  # until the pick is over it is still the first
    play(game, "wait")
    assert seen(game, "tool")["time_to_release"] == 0.0  # the other type's gate is open
    play(game, "wait", "t_TM1_PM1", "wait", "u_LP_TM1", "wait")
    assert (game.clock, seen(game, "tool")["time_to_release"]) == (20, pytest.approx(0.8))


# The slow twin, and both speeds

RULES: list[dict[str, Any]] = [
    {"route": "J-0", "idle_cleaning": "on"},
    {"route": "J-0", "idle_cleaning": "on", "arms": 2, "swap_action": True, "cleaning": True},
    {"route": "1-3", "device": "cascade_full", "idle_cleaning": "40,25", "cleaning": True, "tm1": "rule"},
    {"route": "S-1", "idle_cleaning": "50,20", "lookahead": "strict", "clock": "serial"},
    {"route": "2-2", "idle_cleaning": "60,30", "lookahead": "off", "clock": "lockstep", "reward": "ct_dense"},
    {"route": "4-8", "change_cleaning": "on", "arms": 2, "swap_action": True},
    {"route": "4-13", "change_cleaning": "300", "idle_cleaning": "on", "parallel": "free"},
    {"route": "4-14", "device": "cascade_full", "change_cleaning": "90", "layout": "graph", "idle_cleaning": "on"},
    {"route": "4-11", "gate": "route", "gate_per_type": True, "wip_limit": "route"},
    {"route": "4-12", "device": "cascade_full", "gate": "derived", "gate_per_type": True, "change_cleaning": "on"},
]
every_rule = pytest.mark.parametrize("options", RULES, ids=str)
LASTING: dict[str, Any] = {"wafers": 8, "hold": "soft", "stop_on_scrap": False}
"""Episodes that go on for long enough to meet every rule."""


@every_rule
def test_extra_cleaning_and_gates_do_what_the_slow_twin_says(options):
    walk_side_by_side(build_tool(ClusterTool(**LASTING | options)), 250, seed=5)
    walk_side_by_side(build_tool(ClusterTool(**{"wafers": 6} | options)), 100, seed=6)


@every_rule
def test_both_speeds_agree_bit_for_bit_on_extra_cleaning_and_gates(options):
    assert_speeds_agree(build_tool(ClusterTool(**LASTING | options)), 40)


SHARED = Route(
    "shared",
    (
        (Stage(("PM1", "PM2"), 20), Stage(("PM3",), 10)),
        (Stage(("PM2", "PM1", "PM4"), 30),),
        (Stage(("PM3",), 5), Stage(("PM1", "PM2"), 15)),
    ),
    "single",
    release_order=(1, 2, 2, 3, 3, 1),
)
"""Three types that meet in the same chambers all the time."""
CHANGES: list[dict[str, Any]] = [
    {},
    {"parallel": "free"},
    {"lookahead": "strict", "idle_cleaning": "40,20"},
    {"lookahead": "off"},
    {"arms": 2, "swap_action": True},
    {"arms": 2, "swap_action": True, "lookahead": "off", "idle_cleaning": "25,10"},
    {"arms": 2, "lookahead": "strict", "parallel": "free"},
]


@pytest.mark.parametrize("seconds", ["10", "60"])
@pytest.mark.parametrize("options", CHANGES, ids=str)
def test_types_that_share_chambers_do_what_the_slow_twin_says(options, seconds):
    tool = ClusterTool(device="single", change_cleaning=seconds, **{**LASTING, "wafers": 24} | options)
    net = build_tool(tool, SHARED)
    walk_side_by_side(net, 250, seed=8)
    assert_speeds_agree(net, 60)


MANY = st.fixed_dictionaries(
    {
        "route": st.sampled_from(["S-0", "J-0", "1-5", "2-3", "3-3", "4-8", "4-9", "4-13", "4-14"]),
        "idle_cleaning": st.sampled_from(["off", "on", "1,1", "17,60", "200,5"]),
        "change_cleaning": st.sampled_from(["off", "on", "1", "35"]),
        "gate": st.sampled_from(["route", "derived"]),
        "gate_per_type": st.booleans(),
        "arms": st.sampled_from([1, 2]),
        "cleaning": st.booleans(),
        "lookahead": st.sampled_from(["robots", "strict", "off"]),
        "skip_forced_waits": st.booleans(),
        "hold": st.sampled_from(["soft", "hard"]),
        "stop_on_scrap": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None)
@given(MANY, st.integers(0, 1000))
def test_all_options_together_do_what_the_slow_twin_says(options, seed):
    walk_side_by_side(build_tool(ClusterTool(wafers=6, **options)), 80, seed)


# What must not change


@pytest.mark.parametrize("route", ["J-0", "4-13"])
def test_chambers_that_are_never_idle_for_long_enough_change_nothing(route):
    instance = parse_petri(f"cluster/{route}?wafers=5")
    lazy = parse_petri(f"cluster/{route}?wafers=5&idle_cleaning=1000000,5").net
    assert tabulate(instance.net)[0].traits.extras == () != tabulate(lazy)[0].traits.extras
    assert tabulate(instance.net)[1].observation == tabulate(lazy)[1].observation
    one, other = Game(instance.net), Game(lazy)
    for action in rule_actions(instance, INSERTION):
        assert one.step(action) == other.step(action)
        assert one.clock == other.clock
    assert OUTCOMES[other.state.envs[0].outcome] == "done"


def test_a_single_type_has_no_need_for_a_gate_of_its_own():
    assert build_tool(ClusterTool("1-3", gate="route", gate_per_type=True)) == build_tool(
        ClusterTool("1-3", gate="route")
    )


def test_no_optimum_is_claimed_and_the_bound_stays():
    plain = parse_petri("cluster/J-0?wafers=12")
    for option in ("idle_cleaning=on", "change_cleaning=on"):
        other = parse_petri(f"cluster/J-0?wafers=12&{option}")
        assert (other.optimum, other.lower_bound) == (None, plain.lower_bound)


# Schedules and rules


@pytest.mark.parametrize("route", ["4-8", "4-13", "4-14"])
@pytest.mark.parametrize("device", ["cascade_core", "cascade_full"])
def test_the_insertion_rule_allows_for_cleaning_between_types(route, device):
    plan = plan_tool(ClusterTool(route, device, wafers=9, change_cleaning="on"))
    net = build_net(plan)
    game = Game(net)
    for action in actions_for(net, script_of(Hops(plan, 0, insert_without_waiting(plan)), net)):
        game.step(action)
    assert (OUTCOMES[game.state.envs[0].outcome], game.clock) == ("done", insertion_makespan(plan))


def test_a_schedule_with_idle_cleaning_is_played_again_to_the_second():
    name = "petri:cluster/3-2?wafers=2&idle_cleaning=on"
    net = parse_petri(name).net
    game = Game(net, log_size=100)
    play(game, "u_LP_TM2", "t_TM2_PM7", "u_PM7_TM2", "t_TM2_LP_done", "wait 50", "wait 20")
    play(game, "u_LP_TM2", "t_TM2_PM7", "u_PM7_TM2", "t_TM2_LP_done")
    log = logged(game.state, 0)
    assert log[4, 0] == 397  # the chamber was left at 287: the second wafer had to wait for the end of the clean
    data = json.loads(json.dumps(Schedule(name, net, game.clock, "done", log).to_json()))
    for turbo in (True, False):
        assert verify(read_firings(data), turbo).problem is None
    for firing in data["firings"][4:]:
        firing["start"] -= 20  # the place would begin in the middle of the clean
    assert verify(read_firings(data)).problem == "what wafer 1 does at 387 cannot be done then"


# Bad input, one clear line each


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("idle_cleaning=80", "idle_cleaning=80 is not two times"),
        ("idle_cleaning=80,0", "Try idle_cleaning=80,30, on or off."),
        ("idle_cleaning=0,30", "Try idle_cleaning=80,30, on or off."),
        ("idle_cleaning=-1,30", "Try idle_cleaning=80,30, on or off."),
        ("idle_cleaning=80,30,10", "Try idle_cleaning=80,30, on or off."),
        ("idle_cleaning=99999999999,30", "Try idle_cleaning=80,30, on or off."),
        ("idle_cleaning=maybe", "Try idle_cleaning=80,30, on or off."),
        ("change_cleaning=-3", "Try change_cleaning=200, on or off."),
        ("change_cleaning=0", "Try change_cleaning=200, on or off."),
        ("change_cleaning=2.5", "Try change_cleaning=200, on or off."),
        ("gate_per_type=on", "Try gate=route with gate_per_type=on."),
        ("gate=route&gate_per_type=each", "gate_per_type=each is neither on nor off"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(RedlineError) as caught:
        parse_petri(f"petri:cluster/4-13?{options}")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"idle_cleaning": IdleCleaning(5, 5)}, "only counts its tokens"),
        ({"change_cleaning": 5}, "only counts its tokens"),
    ],
)
def test_counted_tokens_have_no_types_to_clean_between(place, words):
    with pytest.raises(RedlineError, match=words):
        Net("n", (Place("a", 1), Place("b", **place)), (Transition("go", (("a", 1),), (("b", 1),)),), {"b": 1})


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"type_intervals": ((5,),)}, "1 lists of release intervals were given for 0 types"),
        ({"type_intervals": ((5,),), "release_intervals": (5,)}, "Give one of them"),
    ],
)
def test_intervals_of_types_that_do_not_exist_are_refused(rules, words):
    go = Transition("go", (("a", 1),), (("b", 1),))
    with pytest.raises(RedlineError, match=words):
        Net("n", (Place("a", 1), Place("b")), (go,), {"b": 1}, rules=NetRules(**rules))


def test_the_insertion_rule_says_that_it_does_not_reckon_with_idle_cleaning():
    with pytest.raises(RedlineError, match="does not reckon with idle_cleaning=on"):
        rule_actions(parse_petri("cluster/J-0?idle_cleaning=on"), INSERTION)
