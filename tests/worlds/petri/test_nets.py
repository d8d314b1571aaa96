"""Cluster tools, job shops and PNML files as nets; schedules, rules, bounds; and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from redline.bench.sim import draw_allowed
from redline.worlds.petri.bounds import shop_bound, tool_bound
from redline.worlds.petri.cluster_tool import (
    ClusterTool,
    Device,
    Robot,
    Route,
    Stage,
    Station,
    ToolPlan,
    build_net,
    build_tool,
    derived_intervals,
    find_device,
    plan_tool,
    references,
    route_names,
)
from redline.worlds.petri.dispatching import (
    DISPATCHING,
    Dispatcher,
    Game,
    actions_for,
    insert_without_waiting,
)
from redline.worlds.petri.instances import list_petri, parse_petri
from redline.worlds.petri.job_shop import JobShop, Shop, build_shop, find_shop, parse_shop
from redline.worlds.petri.pnml import PnmlNet, build_pnml, read_pnml
from redline.worlds.petri.replay import (
    Hops,
    RecordedSchedule,
    load_recording,
    play_script,
    read_firings,
    read_hops,
    script_of,
    verify,
)
from redline.worlds.petri.rules import kernel
from redline.worlds.petri.rules.net import Net, NetRules, Place, Step, Transition
from redline.worlds.petri.rules.reachability import explore
from redline.worlds.petri.rules.state import DONE, OUTCOMES, logged, new_finals, new_state
from redline.worlds.petri.rules.tables import NONE, tabulate
from redline.worlds.petri.schedule import Schedule
from tests.oracles.coloured_shop import build_coloured_shop
from tests.oracles.pnml_writer import write_pnml
from tests.worlds.petri.playing import complaint, dispatch, insertion_makespan

DATA = Path(__file__).parents[2] / "data" / "petri"
SCHEDULES = sorted((DATA / "schedules").glob("*.json"))
every_schedule = pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)


# Recorded schedules


@every_schedule
def test_a_recorded_schedule_ends_at_exactly_its_makespan_at_both_speeds(path):
    schedule = load_recording(path)
    fast, slow = verify(schedule), verify(schedule, turbo=False)
    assert fast.problem is None
    assert fast.makespan == schedule.makespan
    assert (fast.played.firings == slow.played.firings).all()
    assert slow.makespan == fast.makespan


def test_all_recorded_schedules_are_there():
    assert len(SCHEDULES) == 51


@every_schedule
def test_a_recorded_schedule_can_be_chosen_action_by_action(path):
    schedule = read_hops(json.loads(path.read_text()))
    guarded = replace(schedule.plan.options, lookahead="robots", parallel="least_used", horizon=0)
    net = build_net(replace(schedule.plan, options=guarded))
    game = Game(net)
    for action in actions_for(net, script_of(schedule, net)):
        game.step(action)
    assert (OUTCOMES[game.state.envs[0].outcome], game.clock) == ("done", schedule.makespan)


def delayed(schedule: Hops, hop: int, pick: int) -> RecordedSchedule:
    """The first wafer's schedule alone, with one pick at another time and everything after it as much later."""
    [first, *_] = schedule.hops
    later = pick - first[hop][0]
    hops = tuple(times if k < hop else (times[0] + later, times[1] + later) for k, times in enumerate(first))
    plan = replace(schedule.plan, options=replace(schedule.plan.options, wafers=1))
    return Hops(plan, hops[-1][1] + 5, (hops,)).recording()


@pytest.mark.parametrize(("hop", "limit"), [(1, 15), (2, 45), (3, 15), (4, 45), (5, 15)])
def test_a_pick_one_second_past_its_window_scraps_that_wafer_at_that_second(hop, limit):
    schedule = read_hops(json.loads((DATA / "schedules" / "cascade_core_J-0_n4_arms1.json").read_text()))
    ready = schedule.hops[0][hop - 1][1] + 5 + schedule.plan.types[0][hop].process_time
    assert verify(delayed(schedule, hop, ready + limit)).problem is None
    for turbo in (True, False):
        late = verify(delayed(schedule, hop, ready + limit + 1), turbo)
        assert late.problem == f"wafer 0 was scrapped at {ready + limit + 1}"


def test_a_schedule_that_is_wrong_is_found_out():
    data = json.loads(SCHEDULES[0].read_text())
    assert "not at" in str(verify(read_hops({**data, "makespan": data["makespan"] - 1}).recording()).problem)
    data["wafers"][1][0] = {"pick": data["wafers"][0][0]["pick"] + 1, "place": data["wafers"][0][0]["place"] + 1}
    assert "cannot be done then" in str(verify(read_hops(data).recording()).problem)


# Figures of others


def plan_of(row: dict[str, Any]) -> ToolPlan:
    return plan_tool(ClusterTool(row["route"], row["device"], row["n"], row["arms"]))


def test_simple_bounds_are_the_listed_ones():
    assert [tool_bound(plan_of(row)) for row in references()] == [row["lb_simple"] for row in references()]


def test_the_insertion_rule_reaches_the_listed_makespans():
    assert [insertion_makespan(plan_of(row)) for row in references()] == [row["greedy_nowait"] for row in references()]


def test_optima_lie_between_bounds_and_the_insertion_rule():
    for row in references():
        assert row["lb_simple"] <= row["bound"] <= row["best"] <= row["greedy_nowait"]


@pytest.mark.parametrize("route", route_names())
def test_the_insertion_rule_is_feasible_on_every_route(route):
    plan = plan_tool(ClusterTool(route, wafers=7))
    hops = insert_without_waiting(plan)
    schedule = Hops(plan, 0, tuple(map(tuple, hops)))
    net = build_net(plan)
    game = Game(net)
    for action in actions_for(net, script_of(schedule, net)):
        game.step(action)
    assert (OUTCOMES[game.state.envs[0].outcome], game.clock) == ("done", insertion_makespan(plan))


VECTORS = json.loads((DATA / "dispatch_vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("name", VECTORS)
def test_dispatching_rules_reach_the_listed_makespans(name):
    net, expected = build_shop(JobShop(name)), VECTORS[name]
    assert (len(net.places), len(net.transitions)) == (expected["net_places"], expected["net_transitions"])
    assert {rule: dispatch(net, rule) for rule in DISPATCHING} == {rule: expected[rule] for rule in DISPATCHING}
    assert find_shop(name).optimum == expected["optimum"]


def test_a_dispatching_rule_is_the_same_at_both_speeds():
    net = build_shop(JobShop("ft06"))
    assert dispatch(net, "SPT", turbo=False) == dispatch(net, "SPT") == 88


def optimum_of_ft06() -> np.ndarray:
    """A schedule of length 55 by the start of each job's operations, found by branching over active schedules."""
    starts = {
        0: (5, 6, 16, 30, 38, 49), 1: (0, 8, 13, 28, 38, 48), 2: (0, 5, 9, 18, 27, 38),
        3: (8, 13, 22, 27, 30, 45), 4: (13, 22, 25, 41, 48, 52), 5: (13, 16, 19, 28, 45, 49),
    }  # fmt: skip
    net = build_shop(JobShop("ft06"))
    index = {transition.name: t for t, transition in enumerate(net.transitions)}
    lines = [(start, NONE, index[f"O{j},{k}"], NONE) for j, job in starts.items() for k, start in enumerate(job)]
    return np.array(sorted(lines), np.int32)


def test_an_optimal_schedule_of_ft06_takes_55():
    for turbo in (True, False):
        played = play_script(build_shop(JobShop("ft06")), optimum_of_ft06(), turbo)
        assert (played.outcome, played.makespan) == ("done", 55)


@pytest.mark.parametrize("name", ["ft06", "la01"])
def test_jobs_as_tokens_take_as_long_as_jobs_as_places(name):
    shop = find_shop(name)
    plain, coloured = Game(build_shop(JobShop(name))), Game(build_coloured_shop(shop))
    dispatcher = Dispatcher(plain.net, "SPT")
    while plain.running:
        action = int(dispatcher.act(plain.state, plain.mask)[0])
        assert plain.net.action_names[action] == coloured.net.action_names[action]
        assert plain.mask[0].tolist() == coloured.mask[0].tolist()
        plain.step(action)
        coloured.step(action)
        assert plain.clock == coloured.clock
    assert not coloured.running
    assert plain.clock == VECTORS[name]["SPT"]


# No policy beats a bound


def shortest(net: Net, num_steps: int) -> int | None:
    """The shortest completed episode of random play, much of it."""
    tables, sizes = tabulate(net)
    state, finals = new_state(256, sizes, 0), new_finals(256, sizes)
    obs, mask = np.zeros((256, sizes.observation), np.float32), np.zeros((256, sizes.actions), np.bool_)
    actions, rewards, flags = np.zeros(256, np.int64), np.zeros(256), np.zeros((2, 256), np.bool_)
    kernel.reset(tables, state, 0, 256, obs, mask, True)
    best = None
    for _ in range(num_steps):
        draw_allowed(state.envs.rng, 0, 256, mask, actions)
        kernel.step(
            tables, state, 0, 256, kernel.STEP_ON, actions, obs, mask, rewards, flags[0], flags[1], obs.copy(), finals
        )
        done = flags[0] & (finals.counts.outcome == DONE)
        if done.any():
            best = min(int(finals.counts.clock[done].min()), best or 1 << 30)
    return best


SMALL = [row for row in references() if row["n"] == 4]


@pytest.mark.parametrize("row", SMALL, ids=lambda row: f"{row['device']} {row['route']} {row['arms']}")
def test_no_completed_episode_beats_a_proven_bound(row):
    plan = plan_tool(ClusterTool(row["route"], row["device"], 4, row["arms"], parallel="free"))
    net = build_net(plan)
    unhindered = play_script(net, script_of(Hops(plan, 0, insert_without_waiting(plan)), net))
    assert unhindered.outcome == "done"  # random play rarely gets that far
    assert min(unhindered.makespan, shortest(net, 250) or unhindered.makespan) >= row["bound"]


def test_no_job_shop_is_quicker_than_its_optimum():
    for name, optimum in (("ft06", 55), ("la01", 666)):
        best = shortest(build_shop(JobShop(name)), 400)
        assert best is not None
        assert best >= optimum >= shop_bound(find_shop(name).quickest())


# PNML

EXPECTED = json.loads((DATA / "pnml" / "expected.json").read_text())
COUNTED = [name for name in EXPECTED if (DATA / "pnml" / f"{name}.pnml").exists()]


@pytest.mark.parametrize("name", COUNTED)
def test_a_pnml_net_has_the_published_markings(name):
    net, expected = build_pnml(PnmlNet(str(DATA / "pnml" / f"{name}.pnml"))), EXPECTED[name]
    arcs = sum(len(transition.inputs) + len(transition.outputs) for transition in net.transitions)
    assert (len(net.places), len(net.transitions), arcs) == (
        expected["places"],
        expected["transitions"],
        expected["arcs"],
    )
    assert sum(place.tokens for place in net.places) == expected["initial_tokens"]
    assert list(explore(net)) == expected["states_edges_dead"]


def test_markings_are_the_same_at_both_speeds():
    net = build_pnml(PnmlNet(str(DATA / "pnml" / "weighted_press_3.pnml")))
    assert explore(net, turbo=False) == explore(net) == (7, 11, 0)


def test_a_kanban_of_three_cards_has_the_published_markings():
    """More than there is room for at first."""
    text = (DATA / "pnml" / "kanban_2.pnml").read_text()
    net = read_pnml(text.replace("<text>2</text>", "<text>3</text>"), "kanban_3", max_steps=5)
    assert explore(net) == (58_400, 446_400, 0)


def test_counting_markings_ends_at_the_limit():
    net = build_pnml(PnmlNet(str(DATA / "pnml" / "kanban_2.pnml")))
    assert explore(net, most=4600).states == 4600
    assert "reaches more than 4,599 markings" in complaint(lambda: explore(net, most=4599))


def test_counting_markings_counts_no_firings_which_would_run_over(monkeypatch):
    states = []
    monkeypatch.setattr(
        "redline.worlds.petri.rules.reachability.new_state",
        lambda *sizes: states.append(new_state(*sizes)) or states[-1],
    )
    explore(build_pnml(PnmlNet(str(DATA / "pnml" / "weighted_press_3.pnml"))), turbo=False)
    assert states[0].envs.fired == [0]


def test_only_nets_without_time_are_counted():
    slow = Net("slow", (Place("a", 1, 1, min_stay=3), Place("b")), go(), {"b": 1})
    for net in (slow, build_tool(ClusterTool()), build_shop(JobShop("ft06"))):
        assert "has times or routes" in complaint(lambda net=net: explore(net))


def test_a_net_that_grows_for_ever_is_not_counted_for_ever():
    more = Transition("more", (("a", 1),), (("a", 1 << 20),))
    assert "more tokens than can be counted" in complaint(
        lambda: explore(Net("growth", (Place("a", 1),), (more,), horizon=10))
    )


@pytest.mark.parametrize("name", COUNTED)
def test_export_and_import_are_each_others_inverse(name):
    net = build_pnml(PnmlNet(str(DATA / "pnml" / f"{name}.pnml")))
    assert read_pnml(write_pnml(net), net.name, max_steps=net.max_steps, rules=net.rules) == net


def test_times_survive_export():
    places = (Place("a & b", 2, 5, 3, 4, "ignore"), Place("<c>", capacity=1))
    slow = Transition('t"1', (("a & b", 2),), (("<c>", 1),), 7, "robot", False, 3)
    net = Net("timed", places, (slow,), horizon=50)
    assert read_pnml(write_pnml(net), "timed", horizon=50) == net


def pnml(body: str, kind: str = "http://www.pnml.org/version-2009/grammar/ptnet") -> str:
    return f'<pnml><net id="n" type="{kind}">{body}</net></pnml>'


NODES = '<place id="p"><initialMarking><text>1</text></initialMarking></place><place id="q"/><transition id="t"/>'


def test_pages_references_and_parallel_arcs_are_understood():
    body = (
        f'<page id="a"><page id="b">{NODES}</page><referencePlace id="r" ref="s"/><referencePlace id="s" ref="p"/>'
        '<arc id="1" source="r" target="t"/><arc id="2" source="p" target="t"/>'
        '<arc id="3" source="t" target="q"><inscription><text> 4 </text></inscription></arc></page>'
    )
    [transition] = read_pnml(pnml(body), "paged", max_steps=5).transitions
    assert (transition.inputs, transition.outputs) == ((("p", 2),), (("q", 4),))


def test_pages_may_be_nested_as_deep_as_they_like():
    depth = 100_000
    arcs = '<arc id="1" source="p" target="t"/><arc id="2" source="t" target="q"/>'
    body = '<page id="a">' * depth + NODES + "</page>" * depth + arcs
    assert [place.name for place in read_pnml(pnml(body), "deep", max_steps=5).places] == ["p", "q"]


def test_a_side_file_gives_durations(tmp_path):
    arcs = '<arc id="1" source="p" target="t"/><arc id="2" source="t" target="q"/>'
    (tmp_path / "net.pnml").write_text(pnml(NODES + arcs))
    options = {"path": str(tmp_path / "net.pnml"), "goal": "q:1"}
    assert build_pnml(PnmlNet(default_duration=3, **options)).transitions[0].duration == 3
    (tmp_path / "net.timing.json").write_text('{"t": 9}')
    game = Game(build_pnml(PnmlNet(default_duration=3, **options)))
    game.step(0)
    assert (game.clock, OUTCOMES[game.state.envs[0].outcome]) == (9, "done")


# Devices, routes and options


@pytest.mark.parametrize(
    ("device", "route", "counts"),
    [("single", "S-0", (7, 7)), ("cascade_core", "J-0", (15, 15)), ("cascade_full", "J-0", (19, 19))],
)
def test_a_device_has_its_transitions_whatever_the_route(device, route, counts):
    names = [transition.name for transition in build_tool(ClusterTool(route, device)).transitions]
    assert (sum(n.startswith("u_") for n in names), sum(n.startswith("t_") for n in names)) == counts


def test_waits_get_as_fine_as_the_times_need():
    assert build_tool(ClusterTool("J-0")).rules.waits == (0, 5, 10, 20, 50, 100)
    assert build_tool(ClusterTool("1-1")).rules.waits == (0, 1, 5, 10, 20, 50, 100)
    assert build_tool(ClusterTool("1-1", waits="3,30")).rules.waits == (0, 3, 30)


def test_mixed_types_are_released_in_their_order():
    assert build_tool(ClusterTool("4-9", wafers=8)).token_types == (0, 0, 1, 1, 1, 1, 0, 0)


def test_a_release_gate_keeps_its_intervals():
    net = build_tool(ClusterTool("3-1", wafers=9, gate="derived"))
    rng, longest = np.random.default_rng(3), []
    for _ in range(40):
        game = Game(net, log_size=500)
        while game.running:
            game.step(int(rng.choice(np.flatnonzero(game.mask[0]))))
        log = logged(game.state, 0)
        releases = log[log[:, 2] == net.action_names.index("u_LP_TM2"), 0]
        gaps = np.diff(releases)
        assert (gaps >= 89).all()  # 267 s over three chambers
        longest = max(longest, gaps.tolist(), key=len)
    assert len(longest) >= 3


def test_a_wip_limit_is_kept():
    net = build_tool(ClusterTool("3-1", wafers=8, wip_limit="2"))
    game, rng = Game(net), np.random.default_rng(0)
    seen = set()
    for _ in range(400):
        if not game.running:
            game = Game(net)
        game.step(int(rng.choice(np.flatnonzero(game.mask[0]))))
        seen.add(int(game.state.envs[0].released - game.state.envs[0].finished))
    assert max(seen) == 2


def test_derived_intervals_are_fast_and_slow_around_cleaning():
    assert build_tool(ClusterTool("S-1", wafers=6, gate="derived")).rules.release_intervals == (300,)
    plan = plan_tool(ClusterTool("3-2", wafers=14, cleaning=True))
    assert derived_intervals(plan, plan.types) == (*[267] * 5, 587, *[267] * 5, 587, 267, 267)


def test_the_rule_of_tm1_needs_no_policy():
    net = build_tool(ClusterTool("3-2", "cascade_full", wafers=3, tm1="rule"))
    game = Game(net)
    while game.running:
        game.step(int(np.flatnonzero(game.mask[0])[0]))
    assert OUTCOMES[game.state.envs[0].outcome] == "done"
    assert not any("TM1" in net.action_names[a] for a in np.flatnonzero(game.mask[0])[1:])


def test_release_dates_keep_jobs_back():
    shop = Shop("late", ((((0, 2),),), (((0, 3),),)), releases=(10, 0))
    game = Game(build_shop(JobShop(), shop))
    assert game.mask[0].tolist() == [False, True, True]
    game.step(1)
    game.step(0)
    assert (game.clock, OUTCOMES[game.state.envs[0].outcome]) == (12, "done")


def test_flexible_operations_have_a_choice_of_machines():
    shop = Shop("flexible", ((((0, 5), (1, 2)),), (((1, 4),),)))
    net = build_shop(JobShop(), shop)
    assert net.action_names == ("O0,0,0", "O0,0,1", "job 1", "wait")
    game = Game(net)
    game.step(2)
    game.step(0)
    assert game.clock == 5


def test_a_blocked_job_keeps_its_machine():
    shop = Shop("blocked", ((((0, 2),), ((1, 5),)), (((0, 1),), ((1, 1),))))
    free, blocking = (Game(build_shop(JobShop(buffers=buffers), shop)) for buffers in ("free", "blocking"))
    for game, end in ((free, 8), (blocking, 8)):
        for action in (0, 0, 1, 1):
            game.step(action)
        assert game.net.action_names == ("job 0", "job 1", "wait")
        assert (game.clock, OUTCOMES[game.state.envs[0].outcome]) == (end, "done")
    no_wait = Game(build_shop(JobShop(buffers="no_wait"), shop))
    for action in (0, 0, 1):  # job 1 cannot go on when machine 0 is done with it
        no_wait.step(action)
    assert OUTCOMES[no_wait.state.envs[0].outcome] == "scrap"


def test_job_shops_are_read_in_both_forms():
    standard = parse_shop("s", "# a comment\n2 2\n0 3 1 4\n1 5 0 6\n")
    taillard = parse_shop("s", "2 2\nTimes\n3 4\n5 6\nMachines\n1 2\n2 1\n")
    assert standard.jobs == taillard.jobs == ((((0, 3),), ((1, 4),)), (((1, 5),), ((0, 6),)))


def test_every_listed_net_can_be_made():
    rows = list_petri()
    assert len(rows) == 26 + 158
    for row in rows[:40]:  # the other job shops are alike, and large
        instance = parse_petri(row["name"])
        assert instance.lower_bound == row["lower_bound"]
        assert instance.optimum == row["optimum"]
        assert row["optimum"] is None or row["optimum"] >= row["lower_bound"]


def test_a_proven_optimum_is_claimed_only_for_the_options_it_was_proven_for():
    assert parse_petri("petri:cluster/J-0?wafers=12").optimum == 2330
    assert parse_petri("petri:cluster/J-0?wafers=12&arms=2").optimum == 2230
    for other in ("hold=soft", "cleaning=on", "wip_limit=7", "gate=derived", "wafers=13"):
        assert parse_petri(f"petri:cluster/J-0?{other}").optimum is None


# Bad input, one clear line each


def small_net(**changes: Any) -> Net:
    parts: dict[str, Any] = {
        "name": "small",
        "places": (Place("a", 1), Place("b")),
        "transitions": (Transition("go", (("a", 1),), (("b", 1),)),),
        "goal": {"b": 1},
    }
    return Net(**{**parts, **changes})


def go(**changes: Any) -> tuple[Transition]:
    return (replace(Transition("go", (("a", 1),), (("b", 1),)), **changes),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"transitions": go(inputs=(("aa", 1),))}, "arc of transition 'go': 'aa'. Did you mean 'a'?"),
        ({"transitions": go(inputs=(("a", 0),))}, "The arc between 'a' and 'go' weighs 0."),
        ({"transitions": go(outputs=(("b", -2),))}, "weighs -2"),
        ({"transitions": go(inputs=(("a", 1), ("a", 1)))}, "two arcs to one place"),
        ({"transitions": go(duration=-1)}, "cannot last -1"),
        ({"transitions": go(guards=("magic",))}, "There is no guard 'magic'"),
        ({"transitions": go() + go()}, "two transitions named 'go'"),
        ({"transitions": ()}, "no transitions"),
        ({"places": (Place("a", 3, 2), Place("b"))}, "capacity 2 but starts with 3 tokens. Try a capacity of 3."),
        ({"places": (Place("a", -1), Place("b"))}, "cannot start with -1 tokens"),
        ({"places": (Place("a", 1, min_stay=-1), Place("b"))}, "cannot hold a token for -1"),
        ({"places": (Place("a", 1, max_stay=-5), Place("b"))}, "infeasible residency limit"),
        ({"places": (Place("a", 1, min_stay=5), Place("b"))}, "has a stay time but no capacity"),
        ({"places": (Place("a", 1), Place("b"), Place("b"))}, "two places named 'b'"),
        ({"places": (Place("a", 1, kind="chamber"), Place("b"))}, "There is no kind of place 'chamber'"),
        ({"goal": {}}, "no goal and no horizon"),
        ({"goal": {"c": 1}}, "There is no place in the goal: 'c'"),
        ({"goal": {"b": 0}}, "The goal asks for 0 tokens in 'b'"),
        ({"horizon": 0}, "A horizon of 0"),
        ({"rules": NetRules(waits=(-5,))}, "Waits of -5"),
        ({"rules": NetRules(reward="profit")}, "There is no reward 'profit'"),
        ({"rules": NetRules(wip_limit=0)}, "A WIP limit of 0"),
        ({"rules": NetRules(lower_bound=0)}, "A lower bound of 0"),
        ({"routes": ((Step(("og",), 0),),), "token_types": (0,)}, "no transition on a route: 'og'. Did you mean 'go'?"),
        ({"routes": ((Step(("go",), 0),),)}, "0 token types were given for 1 tokens"),
        ({"routes": ((Step(("go",), 0),),), "token_types": (1,)}, "Token types must be 0 to 0"),
    ],
)  # fmt: skip
def test_a_net_that_cannot_be_played_is_refused(changes, words):
    assert words in complaint(lambda: small_net(**changes))


def test_a_provably_infeasible_residency_limit_is_refused_when_the_net_is_built():
    places = (Place("raw", 1, 1, max_stay=5), Place("tool", 1, 1, min_stay=20), Place("done"))
    join = Transition("join", (("raw", 1), ("tool", 1)), (("done", 1),))
    line = complaint(lambda: Net("late", places, (join,), {"done": 1}))
    assert line == (
        "Place 'raw' has an infeasible residency limit: its first token must be taken by 5, but nothing can before 20. "
        "Raise max_stay."
    )
    assert Net("in time", (replace(places[0], max_stay=20), *places[1:]), (join,), {"done": 1}).name == "in time"


def test_a_wafer_that_cannot_be_put_down_in_time_is_refused_when_the_tool_is_built():
    robots = {"R": Robot("R", ("IN", "PM", "OUT"), travel=30, hold_limit=20)}
    stations = {"IN": Station("IN", "source"), "PM": Station("PM", "process", 1), "OUT": Station("OUT", "sink")}
    route = Route("r", ((Stage(("PM",), 10),),))
    device = Device("slow", robots, stations)
    assert "infeasible residency limit" in complaint(lambda: build_tool(ClusterTool(), route, device))
    strict = {**stations, "PM": Station("PM", "process", 1, residency_limit=-1)}
    assert "infeasible residency limit" in complaint(
        lambda: build_tool(ClusterTool(hold="soft"), route, replace(device, stations=strict))
    )


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([Stage(("PM77",), 5)], "There is no place for route 'mine' on cascade_core: 'PM77'. Did you mean 'PM7'?"),
        ([Stage(("PM1",), 5)], "no robot carries a wafer from LP to PM1"),
        ([Stage(("PM7",), -5)], "a process time of 0 or more"),
        ([Stage((), 5)], "needs places"),
    ],
)
def test_a_route_that_leads_nowhere_is_refused(stages, words):
    route = Route("mine", (tuple(stages),))
    assert words in complaint(lambda: plan_tool(ClusterTool(), route, find_device("cascade_core")))


ARC = '<arc id="1" source="p" target="t"/>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (pnml(NODES + ARC)[:-20], "is not PNML"),
        ("", "is not PNML"),
        ("<html/>", "there is no <net> in it"),
        (pnml(NODES, "http://www.pnml.org/version-2009/grammar/symmetricnet"), "is a net of type http://www.pnml.org/version-2009/grammar/symmetricnet"),
        (pnml(NODES + '<arc id="1" source="p" target="x"/>'), "There is no node for the arc '1' of 'bad': 'x'"),
        (pnml(NODES + '<arc id="1" source="p" target="q"/>'), "must join a place and a transition"),
        (pnml(NODES + '<arc id="1" source="p" target="t"><inscription><text>0</text></inscription></arc>'), "weighs 0"),
        (pnml(NODES + '<arc id="1" source="p" target="t"><inscription><text>x</text></inscription></arc>'), "Only whole"),
        (pnml(NODES + '<arc id="1" source="p" target="t"><type value="inhibitor"/></arc>'), "an arc of type inhibitor"),
        (pnml(NODES + NODES + ARC), "two nodes with the id 'p'"),
        (pnml("<place/>"), "a place without an id"),
        (pnml('<place id="p"><initialMarking><text>-1</text></initialMarking></place><transition id="t"/>'), "-1 tokens"),
        (pnml('<place id="p"/>'), "no transitions"),
    ],
)  # fmt: skip
def test_pnml_that_cannot_be_played_is_refused(text, words):
    assert words in complaint(lambda: read_pnml(text, "bad", max_steps=5))


@pytest.mark.parametrize("timing", ["[]", '{"t": -1}', '{"t": 1.5}', "{", '{"x": 1}'])
def test_a_timing_file_that_makes_no_sense_is_refused(tmp_path, timing):
    (tmp_path / "net.pnml").write_text(pnml(NODES + ARC))
    (tmp_path / "net.timing.json").write_text(timing)
    complaint(lambda: build_pnml(PnmlNet(str(tmp_path / "net.pnml"))))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "its first line"),
        ("two jobs\n", "its first line"),
        ("2 2\n0 3 1 4\n", "announces 2 jobs on 2 machines but has 1 lines"),
        ("1 2\n0 3 1\n", "announces 1 jobs"),
        ("1 2\n0 3 2 4\n", "job 0 uses a machine that is not one of its 2: 2. They are counted from 0 here; try 1"),
        ("1 2\n3 4\n1 3\n", "job 0 uses a machine that is not one of its 2: 3. They are counted from 1 here; try 2"),
        ("1 1\n0 -3\n", "job 0: operation 0 makes no sense. It is given as 0 -3"),
        ("1 1\n0 2.5\n", "holds 2.5, but takes whole numbers. Try 2"),
        ("1 1\n0 --2.5\n", "announces 1 jobs on 1 machines but has 0 lines"),
        ("1 1\n0 " + "9" * 400 + ".5\n", "announces 1 jobs on 1 machines but has 0 lines"),
    ],
)
def test_a_job_shop_that_makes_no_sense_is_refused(text, words):
    assert words in complaint(lambda: parse_shop("bad", text))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("petri:", "names no net. Try petri:cluster/J-0?wafers=12"),
        ("petri:clustr/J-0", "There is no kind of net 'clustr'. Did you mean 'cluster'?"),
        ("petri:cluster/J0", "There is no route 'J0'. Did you mean 'J-0'?"),
        ("petri:cluster/", "names no cluster instance"),
        ("petri:cluster", "names no cluster instance"),
        ("petri:J-0", "Did you mean petri:cluster/J-0?"),
        ("petri:ft06", "Did you mean petri:jobshop/ft06?"),
        ("petri:jobshop/ft6", "There is no job shop 'ft6'. Did you mean 'ft06'?"),
        ("petri:jobshop/none.txt", "There is no job shop at none.txt"),
        ("petri:none.pnml", "There is no PNML file at none.pnml"),
        ("petri:cluster/none.json", "There is no tool or route at none.json"),
        ("petri:cluster/J-0?wafer=3", "There is no cluster option 'wafer'. Did you mean 'wafers'?"),
        ("petri:cluster/J-0?wafers=x", "wafers=x is no whole number. Try wafers=12."),
        ("petri:cluster/J-0?wafers=--5", "wafers=--5 is no whole number. Try wafers=12."),
        ("petri:cluster/J-0?wafers=²", "wafers=² is no whole number. Try wafers=12."),
        ("petri:cluster/J-0?wip_limit=²", "Try wip_limit=route, off or a number"),
        ("petri:cluster/J-0?waits=5,²", "Waits of '5,²' cannot be waited"),
        ("petri:cluster/J-0?horizon=9999999999", "A horizon of 9999999999 is too large for the net 'cascade_core/J-0'"),
        ("petri:jobshop/ft06?horizon=1073741824", "Give 1073741823 at most."),
        ("petri:cluster/J-0?wip_limit=3000000000", "A WIP limit of 3000000000 is too large"),
        ("petri:cluster/J-0?wafers=0", "0 wafers cannot be processed"),
        (
            "petri:cluster/J-0?wafers",
            "'wafers' behind 'petri:cluster/J-0' is not an option. Write petri:cluster/J-0?opt",
        ),
        ("petri:cluster/J-0?wafers=1.5", "wafers=1.5 is no whole number. Try wafers=12."),
        ("petri:cluster/J-0?route=my.json", "route=my.json is another. Try petri:cluster/my.json."),
        ("petri:cluster/J-0?route=1-1", "names its route already, and route=1-1 is another. Try petri:cluster/1-1."),
        ("petri:jobshop/ft06?instance=ft10", "instance=ft10 is another. Try petri:jobshop/ft10."),
        ("petri:cluster/J-0?arms=3", "Try arms=1 or arms=2"),
        ("petri:cluster/J-0?cleaning=maybe", "neither on nor off"),
        ("petri:cluster/J-0?layout=jobs", "There is no observation layout 'jobs'"),
        ("petri:jobshop/ft06?layout=graph&observe_clock=on", "Leave observe_clock off"),
        ("petri:cluster/J-0?swap_action=on", "Try arms=2 with swap_action=on"),
        ("petri:cluster/J-0?clock=seriel", "There is no clock 'seriel'. Did you mean 'serial'?"),
        ("petri:cluster/J-0?device=cascade", "There is no device 'cascade'. Did you mean 'cascade_"),
        ("petri:cluster/J-0?device=single", "There is no place for route 'J-0' on single"),
        ("petri:cluster/J-0?lookahead=far", "There is no look-ahead 'far'"),
        ("petri:cluster/J-0?wip_limit=none", "Try wip_limit=route, off or a number"),
        ("petri:cluster/J-0?waits=5,x", "Waits of '5,x' cannot be waited"),
        ("petri:cluster/J-0?reward=profit", "There is no reward 'profit'"),
        ("petri:jobshop/ft06?buffers=blocked", "There is no kind of buffers 'blocked'. Did you mean 'blocking'?"),
    ],
)
def test_a_name_that_means_no_net_says_what_would(name, words):
    assert words in complaint(lambda: parse_petri(name))


def test_a_route_is_read_from_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"device": "single", "types": [[{"at": ["PM1", "PM2"], "p": 40}]]}')
    instance = parse_petri(f"petri:cluster/{path}?wafers=2")
    assert instance.net.name == "single/mine"
    assert instance.plan().route.types == ((Stage(("PM1", "PM2"), 40),),)
    assert instance.optimum is None


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "3", '{"types": 3}', '{"types": [[]], "device": 5}', '{"types": [[{"at": "PM7", "p": 5}]]}',
        '{"types": [[{"at": ["PM7"], "p": "5"}]]}', '{"types": [[{"at": ["PM7"]}]]}',
        '{"types": [[{"at": ["PM7"], "p": 5, "clean": {"often": 3}}]]}',
        '{"types": [[{"at": ["PM7"], "p": 5}]], "release_order": ["first"]}',
        '{"types": [[{"at": ["PM7"], "p": 5}]], "release_order": []}',
        '{"types": [[{"at": ["PM7"], "p": 5}]], "release_intervals": [[5], 6]}',
        '{"types": [[{"at": ["PM7"], "p": 5}]], "wip_limit": "few"}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_route_is_refused_in_a_line(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    assert complaint(lambda: parse_petri(f"petri:cluster/{tmp_path}/bad.json?gate=route&wip_limit=route"))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"device": "cascade_core", "wafers": [[{}]], "makespan": 1}', '{"device": "single"']
)
def test_a_file_that_is_no_schedule_is_refused(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    assert "is not a schedule" in complaint(lambda: load_recording(tmp_path / "bad.json"))
    assert "There is no schedule at" in complaint(lambda: load_recording(tmp_path / "none.json"))


# What is promised of rewards, bounds and endings


def test_a_late_wafer_cannot_be_scrapped_too():
    told = complaint(lambda: parse_petri("cluster/S-0?lenient=on&stop_on_scrap=off"))
    assert told == "A wafer that overstays is either scrapped or late. Try stop_on_scrap=off with lenient=off."


def test_holding_is_limited_whenever_it_would_cost_nothing():
    assert parse_petri("cluster/J-0?wafers=12").optimum == 2330
    assert parse_petri("cluster/J-0?wafers=12&lenient=on").optimum == 2330
    assert parse_petri("cluster/J-0?wafers=12&reward=ct_dense").optimum is None
    assert parse_petri("cluster/J-0?wafers=12&hold=soft").optimum is None


def test_a_two_armed_robot_may_be_at_work_all_the_time():
    """It picks two, places two: 40 s for two wafers that need no processing."""
    route = Route("quick", ((Stage(("PM1", "PM2"), 0),),), "single")
    assert tool_bound(plan_tool(ClusterTool(device="single", wafers=2, arms=2, hold="soft"), route)) <= 40


@pytest.mark.parametrize("buffers", ["blocking", "no_wait"])
def test_a_schedule_that_ends_by_itself_can_be_played_again(buffers, tmp_path):
    (tmp_path / "flow.txt").write_text("2 2\n0 3 1 2\n0 2 1 4\n")
    name = f"petri:jobshop/{tmp_path / 'flow.txt'}?buffers={buffers}"
    instance = parse_petri(name)
    game = Game(instance.net, log_size=1000)
    while game.running:
        game.step(int(np.flatnonzero(game.mask[0])[0]))
    outcome = OUTCOMES[game.state.envs[0].outcome]
    log = logged(game.state, 0)
    schedule = Schedule(name, instance.net, game.clock, outcome, log)
    verdict = verify(read_firings(schedule.to_json()))
    assert (verdict.outcome, verdict.makespan) == ("done", game.clock)
    assert verdict.played.firings.tolist() == log.tolist()
