"""The net kernel against its slow twin, compiled against interpreted, and the promises of single rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from redline.bench.sim import draw_allowed
from redline.compiled.speed import at_speed
from redline.worlds.petri.cluster_tool import ClusterTool, build_net, build_tool, plan_tool, route_names
from redline.worlds.petri.dispatching import Dispatcher, Game, actions_for, insert_without_waiting
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.job_shop import JobShop, build_shop, shop_names
from redline.worlds.petri.replay import Hops, script_of
from redline.worlds.petri.rules import kernel
from redline.worlds.petri.rules.net import Net, NetRules, Place, Step, Transition
from redline.worlds.petri.rules.state import DONE, OUTCOMES, Finals, NetState, logged, new_finals, new_state
from redline.worlds.petri.rules.tables import tabulate
from tests.oracles.petri import Oracle
from tests.worlds.petri.playing import play, seen


def devices_of(route: str) -> list[str]:
    return ["single"] if route.startswith("S") else ["cascade_core", "cascade_full"]


TOOLS = [(route, device, arms) for route in route_names() for device in devices_of(route) for arms in (1, 2)]
EVERYTHING_ON = {"cleaning": True, "gate": "route", "wip_limit": "route", "reward": "ct_dense", "tm1": "rule"}
every_tool = pytest.mark.parametrize(("route", "device", "arms"), TOOLS, ids=lambda part: str(part))


# The slow twin


def pick(rng: np.random.Generator, net: Net, mask: np.ndarray) -> int:
    """A legal action, more often a firing than a wait: nets are livelier that way."""
    legal = np.flatnonzero(mask)
    swaps = [a for a in legal if net.swaps and net.action_names[a].startswith("x_")]
    if swaps and rng.random() < 0.8:
        return int(rng.choice(swaps))
    fires = legal[legal < len(net.action_names) - len(net.rules.waits)]
    return int(rng.choice(fires if len(fires) and rng.random() < 0.6 else legal))


def walk_side_by_side(net: Net, num_steps: int, seed: int) -> set[str]:
    """Play the kernel and its slow twin together; returns how episodes ended."""
    game, twin, rng = Game(net), Oracle(net), np.random.default_rng(seed)
    ends = set()
    for _ in range(num_steps):
        assert game.mask[0].tolist() == twin.mask()
        assert game.clock == twin.now
        assert game.state.places.marking[0].tolist() == [len(twin.where[place.name]) for place in net.places]
        assert OUTCOMES[game.state.envs[0].outcome] == twin.outcome
        if not game.running:
            ends.add(twin.outcome)
            game = Game(net)
            twin.reset()
            continue
        action = pick(rng, net, game.mask[0])
        assert game.step(action) == twin.step(action)
    return ends


@every_tool
def test_a_cluster_tool_does_what_its_slow_twin_does(route, device, arms):
    options: dict[str, Any] = {"route": route, "device": device, "arms": arms}
    walk_side_by_side(build_tool(ClusterTool(wafers=6, lenient=True, **options)), 90, seed=1)
    walk_side_by_side(build_tool(ClusterTool(wafers=8, **EVERYTHING_ON, **options)), 60, seed=2)


LOSSY: list[dict[str, Any]] = [
    {"wafers": 8},
    {"arms": 2, "reward": "ct_dense", "cleaning": True, "gate": "derived"},
    {"device": "cascade_full", "wip_limit": "2", "wafers": 4},
]
LENIENT: list[dict[str, Any]] = [
    {"wafers": 8},
    {"route": "1-1", "arms": 2, "cleaning": True, "gate": "derived"},
    {"route": "J-0", "reward": "ct_dense", "hold": "hard"},
    {"device": "cascade_full", "wip_limit": "2", "wafers": 4, "clock": "serial"},
]
SWAPPED: list[dict[str, Any]] = [
    {"route": "S-0", "wafers": 8},
    {"route": "2-4", "wafers": 8, "cleaning": True, "reward": "ct_dense", "clock": "lockstep"},
    {"route": "1-2", "wafers": 8, "stop_on_scrap": False, "clock": "serial"},
    {"device": "cascade_full", "tm1": "rule"},
]
CLOCKED: list[dict[str, Any]] = [
    {},
    {"arms": 2, "reward": "ct_dense"},
    {"device": "cascade_full", "tm1": "rule", "skip_forced_waits": False},
]


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": "free", "hold": "soft"},
        {"lookahead": "strict"},
        {"lookahead": "off", "arms": 2},
        {"gate": "derived", "cleaning": True, "wip_limit": "3"},
        {"skip_forced_waits": False, "urgent_wait_cap": False},
        {"device": "cascade_full", "tm1": "rule", "wafers": 3},
        *({"swap_action": True, "arms": 2, **more} for more in SWAPPED),
        *({"stop_on_scrap": False, **more} for more in LOSSY),
        *({"lenient": True, **more} for more in LENIENT),
        *({"clock": clock, **more} for clock in ("serial", "lockstep") for more in CLOCKED),
    ],
    ids=str,
)
def test_options_of_a_cluster_tool_do_what_the_slow_twin_says(options):
    walk_side_by_side(build_tool(ClusterTool(**{"route": "2-2", "wafers": 5, **options})), 300, seed=3)


@pytest.mark.parametrize("buffers", ["free", "blocking", "no_wait"])
@pytest.mark.parametrize("actions", ["jobs", "operations"])
def test_a_job_shop_does_what_its_slow_twin_does(buffers, actions):
    ends = walk_side_by_side(build_shop(JobShop("ft06", actions, buffers)), 250, seed=4)
    assert ends == {{"free": "done", "blocking": "deadlock", "no_wait": "scrap"}[buffers]}


def random_net(seed: int) -> Net:
    """A small net of counted tokens with everything such a net may have."""
    rng = np.random.default_rng(seed)

    def place(k: int) -> Place:
        limit = int(rng.integers(2, 9)) if rng.random() < 0.2 else None
        stay = int(rng.integers(0, 4))
        return Place(f"p{k}", int(rng.integers(0, 3)), 4, stay, limit, ("fail", "ignore")[int(rng.integers(2))])

    def arcs(count: int) -> tuple[tuple[str, int], ...]:
        chosen = rng.choice(5, size=count, replace=False)
        return tuple((f"p{k}", int(rng.integers(1, 3))) for k in chosen)

    def transition(k: int) -> Transition:
        resource = f"r{rng.integers(2)}" if rng.random() < 0.4 else None
        own_pace = rng.random() < 0.25  # takes time, so that it cannot run in circles at one instant
        duration = int(rng.integers(1, 5)) if own_pace else int(rng.integers(0, 5))
        inputs, outputs = arcs(int(rng.integers(1, 3))), arcs(int(rng.integers(1, 3)))
        return Transition(f"t{k}", inputs, outputs, duration, resource, not own_pace, int(rng.integers(3)))

    places = [place(k) for k in range(5)]
    transitions = [transition(k) for k in range(6)]
    rules = NetRules(waits=(0, 1, 3), lower_bound=20, layout="places")
    return Net(f"random {seed}", tuple(places), tuple(transitions), {"p0": 4}, 60, 20, rules=rules)


def test_random_nets_do_what_their_slow_twins_do():
    ends: set[str] = set()
    built = 0
    for seed in range(80):
        try:
            net = random_net(seed)
        except Exception as error:  # some are refused, provably infeasible as they are
            assert "infeasible residency limit" in str(error)
            continue
        built += 1
        ends |= walk_side_by_side(net, 50, seed)
    assert built > 40
    assert ends >= {"deadlock", "scrap", "step limit"}


# One kernel, two speeds


class Run:
    """A batch at one of the two speeds."""

    def __init__(self, net: Net, num_envs: int, turbo: bool) -> None:
        self.tables, self.sizes = tabulate(net)
        self.state: NetState = new_state(num_envs, self.sizes, seed=0, log_size=8)
        self.finals: Finals = new_finals(num_envs, self.sizes)
        self.obs = np.full((num_envs, self.sizes.observation), np.nan, np.float32)
        self.final_obs = np.zeros_like(self.obs)
        self.mask = np.zeros((num_envs, self.sizes.actions), np.bool_)
        self.rewards = np.zeros(num_envs)
        self.flags = np.zeros((2, num_envs), np.bool_)
        self.step_kernel, self.num_envs = at_speed(kernel.step, turbo), num_envs
        kernel.reset(self.tables, self.state, 0, num_envs, self.obs, self.mask, True, turbo)

    def step(self, actions: np.ndarray) -> None:
        self.obs[:] = np.nan  # whatever is not written again shows
        self.step_kernel(
            self.tables, self.state, 0, self.num_envs, kernel.STEP_ON, actions, self.obs, self.mask, self.rewards,
            self.flags[0], self.flags[1], self.final_obs, self.finals,
        )  # fmt: skip

    def play_at_random(self) -> None:
        """One step of legal actions, drawn by the kernel, which is quick."""
        actions = np.zeros(self.num_envs, np.int64)
        draw_allowed(self.state.envs.rng, 0, self.num_envs, self.mask, actions)
        self.step(actions)

    def everything(self) -> list[np.ndarray]:
        outputs = [self.obs, self.final_obs, self.mask, self.rewards, self.flags]
        return [*(np.asarray(part) for part in self.state), *(np.asarray(part) for part in self.finals), *outputs]


def assert_same_state(fast: Run, slow: Run, t: int) -> None:
    for one, other in zip(fast.everything(), slow.everything(), strict=True):
        assert one.tobytes() == other.tobytes(), t


def assert_speeds_agree(net: Net, num_steps: int, num_envs: int = 2, seed: int = 0) -> None:
    fast, slow = Run(net, num_envs, turbo=True), Run(net, num_envs, turbo=False)
    rng = np.random.default_rng(seed)
    for t in range(num_steps + 1):
        assert_same_state(fast, slow, t)
        assert not np.isnan(fast.obs).any()
        actions = np.array([pick(rng, net, row) for row in fast.mask])
        fast.step(actions)
        slow.step(actions)


@every_tool
def test_both_speeds_agree_bit_for_bit_on_every_tool(route, device, arms):
    extra = EVERYTHING_ON if (len(route) + arms) % 2 else {"lenient": True}
    assert_speeds_agree(build_tool(ClusterTool(route, device, 4, arms, **extra)), 6)


OPTIONS: list[dict[str, Any]] = [
    {"layout": "graph", "cleaning": True},
    {"swap_action": True, "arms": 2, "route": "S-0"},
    {"stop_on_scrap": False, "wip_limit": "2"},
    {"clock": "serial"},
    {"clock": "lockstep", "arms": 2, "reward": "ct_dense"},
    {"clock": "lockstep", "device": "cascade_full", "tm1": "rule"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_both_speeds_agree_bit_for_bit_on_every_option(options):
    assert_speeds_agree(build_tool(ClusterTool(**{"route": "2-2", "wafers": 4, **options})), 40)


@pytest.mark.parametrize("name", shop_names())
def test_both_speeds_agree_bit_for_bit_on_every_job_shop(name):
    assert_speeds_agree(build_shop(JobShop(name)), 2 if name in ("ta01", "ft10", "ft20", "la16") else 15, 1)


@pytest.mark.parametrize("layout", ["places", "graph"])
def test_both_speeds_agree_bit_for_bit_on_every_layout_of_a_job_shop(layout):
    assert_speeds_agree(build_shop(JobShop("ft06", layout=layout)), 15)
    assert_speeds_agree(build_shop(JobShop("ft06", buffers="blocking", layout=layout)), 15)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_speeds_agree_bit_for_bit_on_nets_of_counted_tokens(seed):
    assert_speeds_agree(random_net(seed), 60)


def assert_speeds_agree_on(net: Net, actions: list[int]) -> None:
    """Both speeds play the same script to its end."""
    fast, slow = Run(net, 1, turbo=True), Run(net, 1, turbo=False)
    for t, action in enumerate(actions):
        fast.step(np.array([action]))
        slow.step(np.array([action]))
        assert_same_state(fast, slow, t)
    assert fast.finals.counts[0].outcome == DONE


@pytest.mark.parametrize(
    ("route", "device"), [("S-0", "single"), ("J-0", "cascade_core"), ("4-9", "cascade_core"), ("2-2", "cascade_full")]
)
def test_both_speeds_agree_bit_for_bit_under_the_insertion_rule(route, device):
    plan = plan_tool(ClusterTool(route, device, wafers=3, reward="ct_dense"))
    hops = insert_without_waiting(plan)
    schedule = Hops(plan, 0, tuple(map(tuple, hops)))
    net = build_net(plan)
    assert_speeds_agree_on(net, actions_for(net, script_of(schedule, net)))


def test_both_speeds_agree_bit_for_bit_under_a_dispatching_rule():
    net = build_shop(JobShop("ft06"))
    game, dispatcher, actions = Game(net), Dispatcher(net, "MWR"), []
    while game.running:
        actions.append(int(dispatcher.act(game.state, game.mask)[0]))
        game.step(actions[-1])
    assert_speeds_agree_on(net, actions)


def test_an_env_does_not_notice_its_neighbours():
    net = build_tool(ClusterTool("J-0", wafers=5))
    crowd, rng = Run(net, 16, turbo=True), np.random.default_rng(0)
    alone = Run(net, 1, turbo=True)
    for _ in range(200):
        actions = np.array([pick(rng, net, row) for row in crowd.mask])
        crowd.step(actions)
        alone.step(actions[7:8])
        assert crowd.obs[7].tobytes() == alone.obs[0].tobytes()
        assert crowd.rewards[7] == alone.rewards[0]
        assert (crowd.mask[7] == alone.mask[0]).all()


# What must always hold


@pytest.mark.parametrize("name", ["cluster/J-0", "cluster/1-4?arms=2", "cluster/2-2?device=cascade_full&cleaning=on"])
def test_tokens_are_conserved_and_capacities_kept(name):
    net = parse_petri(name, wafers="9").net
    run = Run(net, 64, turbo=True)
    capacity = run.tables.places.capacity
    hands = [p for p, place in enumerate(net.places) if place.kind == "robot"]
    for _ in range(400):
        run.play_at_random()
        marking = run.state.places.marking
        assert (marking.sum(axis=1) == 9).all()
        assert (marking + run.state.places.reserved <= capacity).all()
        assert (run.state.envs.underway <= len(hands)).all()


def test_every_legal_action_is_accepted_and_every_other_changes_nothing():
    net = build_tool(ClusterTool("1-3", wafers=4))
    rng, game = np.random.default_rng(0), Game(net)
    for _ in range(60):
        if not game.running:
            game = Game(net)
        legal = pick(rng, net, game.mask[0])
        before = [np.asarray(part).tobytes() for part in game.state[1:]]
        for action in np.flatnonzero(~game.mask[0]):
            game.step(int(action))
            assert [np.asarray(part).tobytes() for part in game.state[1:]] == before
        game.step(legal)
        assert [np.asarray(part).tobytes() for part in game.state] != before
    assert game.mask.shape[1] == len(net.action_names) == 36


LIVELY = [
    "cluster/1-3?arms=2&hold=soft&gate=route&wip_limit=route",
    "cluster/3-2?cleaning=on&wafers=16&skip_forced_waits=off",
    "cluster/4-10?wafers=6",
    "jobshop/ft06",
]


@pytest.mark.parametrize("name", LIVELY)
def test_every_feature_moves(name):
    net = parse_petri(name).net
    run = Run(net, 256, turbo=True)
    low, high = run.obs.min(axis=0), run.obs.max(axis=0)
    for _ in range(1500):
        run.play_at_random()
        low, high = np.minimum(low, run.obs.min(axis=0)), np.maximum(high, run.obs.max(axis=0))
    assert (low >= 0).all()
    assert (high <= 1).all()
    assert set(np.flatnonzero(low == high).tolist()) <= features_that_cannot_move(net)


def features_that_cannot_move(net: Net) -> set[int]:
    """What tells of chambers off the route, of cleaning, gates and types where there are none, and so on."""
    tables, _ = tabulate(net)
    if not net.routes:
        return set()
    used = {name for route in net.routes for step in route for name in step.transitions}
    still = set() if net.rules.release_intervals else {int(tables.constants.globals_cell) + 1}
    for p, place in enumerate(net.places):
        still |= {int(tables.places[p].cell) + k for k in still_in_place(net, place, used)}
    return still


def still_in_place(net: Net, place: Place, used: set[str]) -> set[int]:
    loads = [t for t in net.transitions if t.outputs[0][0] == place.name and t.name in used]
    stays = [s.stay for route in net.routes for s in route if any(t.name in s.transitions for t in loads)]
    if place.kind == "process":
        return set(range(9)) if not loads else set() if place.cleaning else {6, 7, 8}
    if place.kind == "buffer":
        return set(range(5)) if not loads else set() if any(stays) else {1, 3}
    if place.kind == "source":
        return {1} if len(net.routes) == 1 else set()
    if place.kind == "sink":
        return set()
    targets = [t.name for t in net.transitions if t.inputs[0][0] == place.name]
    if not set(targets) & used:
        return set(range(4 + len(targets) + 2))
    size = 4 + len(targets)
    arms = range(place.capacity or 1)
    off = {arm * size + 4 + k for arm in arms for k, name in enumerate(targets) if name not in used}
    return off | ({1, 1 + size} if place.on_overstay == "fail" else set())  # scrapped before it shows


# Single rules, on tiny nets


def one_chamber(limit: int | None = 3, **rules: Any) -> Net:
    """One wafer, one robot, one chamber that takes 10."""
    places = (
        Place("in", 1, kind="source"),
        Place("chamber", 0, 1, max_stay=limit, kind="process"),
        Place("out", kind="sink"),
        Place("robot", 0, 1, max_stay=20, on_overstay="penalty", kind="robot"),
    )
    moves = [("pick in", "in", "robot"), ("put chamber", "robot", "chamber"), ("pick chamber", "chamber", "robot")]
    transitions = [
        Transition(name, ((origin, 1),), ((target, 1),), 2, "robot")
        for name, origin, target in (*moves, ("put out", "robot", "out"))
    ]
    stays = (1, 10, 1, 0)
    route = tuple(Step((transition.name,), stay) for transition, stay in zip(transitions, stays, strict=True))
    waits = NetRules((0, 1, 5, 100), lower_bound=20, layout="tool", **rules)
    return Net("one chamber", places, tuple(transitions), {"out": 1}, 200, None, (route,), (0,), rules=waits)


def test_a_hop_takes_pick_travel_and_place():
    game = Game(one_chamber())
    play(game, "pick in")
    assert game.clock == 3  # 2 to pick, 1 to travel: nothing could be done in between
    play(game, "put chamber")
    assert game.clock == 15  # 2 to place, 10 to process
    play(game, "pick chamber", "put out")
    assert (game.clock, OUTCOMES[game.state.envs[0].outcome]) == (20, "done")


def test_firing_does_not_move_the_clock_but_forced_waits_do():
    game = Game(build_tool(ClusterTool("J-0", wafers=2, skip_forced_waits=False)))
    play(game, "u_LP_TM2")
    assert game.clock == 0
    play(game, "wait")
    assert game.clock == 5


def test_a_wafer_may_leave_at_its_very_deadline_and_is_scrapped_one_second_later():
    for late, outcome in ((3, "running"), (4, "scrap")):
        game = Game(one_chamber(limit=3))
        play(game, "pick in", "put chamber", *["wait 1"] * late)
        assert OUTCOMES[game.state.envs[0].outcome] == outcome
        assert game.clock == 15 + late
    assert game.state.envs[0].scrapped == 0


def test_waits_are_cut_at_the_next_event():
    game = Game(one_chamber(limit=3))
    play(game, "pick in", "put chamber", "wait 100")
    assert game.clock == 18  # the deadline
    play(game, "wait 100")
    assert game.clock == 19  # and the instant after it


def test_only_short_waits_are_offered_while_something_is_urgent():
    game = Game(one_chamber(limit=None, urgent_wait=5))
    waits = [a for a, name in enumerate(game.net.action_names) if name.startswith("wait")]
    assert not game.mask[0, waits].any()  # nothing will ever happen by itself
    play(game, "pick in")  # and now the robot holds the wafer, which nothing but its placing can change
    assert not game.mask[0, waits].any()
    busy = Game(one_chamber(limit=20, urgent_wait=5))
    play(busy, "pick in", "put chamber")
    assert [busy.net.action_names[a] for a in np.flatnonzero(busy.mask[0])] == ["pick chamber", "wait 1", "wait 5"]


def test_the_dense_reward_is_the_sum_of_its_rates_and_events():
    game = Game(one_chamber(limit=3, reward="ct_dense"))
    rewards = play(game, "pick in", "put chamber", "wait 1", "pick chamber", "put out")
    # 3 s alone; 12 s, 10 of them processing; 1 s overstaying; 3 s, 2 of them still overstaying; 2 s, done, all done
    assert rewards == [-30.0, -120.0 + 50.0, -10.0 - 4.0, -30.0 - 8.0, -20.0 + 500.0 + 3000.0]


def test_a_completed_episode_returns_one_minus_makespan_over_bound():
    game = Game(one_chamber())
    total = sum(play(game, "pick in", "put chamber", "wait 1", "pick chamber", "put out"))
    assert total == pytest.approx(1 - 21 / 20)
    assert float(game.state.envs[0].score) == pytest.approx(total)


def test_scrapping_never_pays():
    net = build_tool(ClusterTool("2-4", wafers=3))
    worst_done, best_failed = np.inf, -np.inf
    run, returns = Run(net, 256, turbo=True), np.zeros(256)
    for _ in range(500):
        run.play_at_random()
        returns += run.rewards
        ended = run.flags.any(axis=0)
        for i in np.flatnonzero(ended):
            done, late = run.finals.counts[i].outcome == DONE, run.finals.counts[i].clock > 3 * net.rules.lower_bound
            if done and not late:
                worst_done = min(worst_done, returns[i])
            elif not done:
                best_failed = max(best_failed, returns[i])
        returns[ended] = 0
    assert best_failed < -2 < worst_done


def test_time_skipped_before_the_first_decision_is_paid_for():
    net = Net(
        "late", (Place("a", 1, 1, min_stay=7), Place("b", 0, 1)), (Transition("go", (("a", 1),), (("b", 1),), 3),),
        {"b": 1}, rules=NetRules(lower_bound=10),
    )  # fmt: skip
    game = Game(net)
    assert game.clock == 7
    assert game.step(0) == 0.0  # 1 - 10 / 10
    assert game.clock == 10


def test_uncontrollable_transitions_fire_by_priority_before_anybody_is_asked():
    def own(name: str, priority: int) -> Transition:
        return Transition(name, (("a", 1),), ((name, 1),), controllable=False, priority=priority)

    places = (Place("a", 2), Place("low"), Place("high", 0, 1), Place("b", 1), Place("c"))
    chosen = Transition("go", (("b", 1),), (("c", 1),))
    net = Net("own pace", places, (own("low", 1), own("high", 2), chosen), {"c": 1})
    game = Game(net)
    assert game.state.places.marking[0].tolist() == [0, 1, 1, 1, 0]


def test_a_loop_of_firings_that_take_no_time_is_caught():
    there = Transition("there", (("a", 1),), (("b", 1),), controllable=False)
    back = Transition("back", (("b", 1),), (("a", 1),), controllable=False)
    game = Game(Net("loop", (Place("a", 1), Place("b")), (there, back), horizon=10))
    assert OUTCOMES[game.state.envs[0].outcome] == "livelock"


def test_growth_without_end_is_caught():
    more = Transition("more", (("a", 1),), (("a", 3),))
    game = Game(Net("growth", (Place("a", (1 << 30) - 3),), (more,), horizon=10))
    play(game, "more")
    assert game.running
    play(game, "more")
    assert OUTCOMES[game.state.envs[0].outcome] == "overflow"


def test_nothing_to_do_and_nothing_to_wait_for_is_a_deadlock():
    stuck = Transition("stuck", (("a", 2),), (("b", 1),))
    game = Game(Net("stuck", (Place("a", 1), Place("b")), (stuck,), {"b": 1}, 10))
    assert OUTCOMES[game.state.envs[0].outcome] == "deadlock"
    assert game.mask[0].tolist() == [True, False]


def test_time_runs_out_at_exactly_the_horizon():
    slow = Transition("slow", (("a", 1),), (("b", 1),), 15)
    game = Game(Net("slow", (Place("a", 1), Place("b")), (slow,), {"b": 1}, 10))
    play(game, "slow")
    assert (game.clock, OUTCOMES[game.state.envs[0].outcome]) == (10, "time limit")


def test_cleaning_starts_when_the_last_wafer_has_left():
    net = build_tool(ClusterTool("3-2", wafers=7, cleaning=True))
    game = Game(net)
    for _ in range(6):
        play(game, "u_LP_TM2", "t_TM2_PM7", "u_PM7_TM2", "t_TM2_LP_done")
    chamber = [place.name for place in net.places].index("PM7")
    left = 6 * 297 - 10  # the sixth pick ended; travelling and placing followed
    assert game.state.places[0, chamber].clean_until == left + 320
    assert game.clock == left + 320  # nothing may be picked toward a chamber that is being cleaned


# Other clocks


def robots_at_work(log: np.ndarray, clock: int) -> int:
    """How many picks and places are under way."""
    return int(((log[:, 0] <= clock) & (clock < log[:, 1])).sum())


def logs_of_random_episodes(net: Net, episodes: int = 20) -> list[np.ndarray]:
    rng, logs = np.random.default_rng(0), []
    for _ in range(episodes):
        game = Game(net, log_size=1000)
        while game.running:
            game.step(pick(rng, net, game.mask[0]))
        logs.append(logged(game.state, 0))
    return logs


@pytest.mark.parametrize(("clock", "most"), [("event", 2), ("serial", 1), ("lockstep", 2)])
def test_a_serial_clock_lets_one_robot_work_at_a_time(clock, most):
    logs = logs_of_random_episodes(build_tool(ClusterTool("J-0", wafers=6, clock=clock)))
    assert max(robots_at_work(log, start) for log in logs for start in log[:, 0]) == most


def test_in_lockstep_whatever_overlaps_began_together():
    logs = logs_of_random_episodes(build_tool(ClusterTool("J-0", wafers=6, clock="lockstep")))
    for log in logs:
        for start in log[:, 0]:
            assert not ((log[:, 0] < start) & (start < log[:, 1])).any()


def test_a_wait_ends_a_round_of_lockstep():
    net = build_tool(ClusterTool("J-0", wafers=3, clock="lockstep", skip_forced_waits=False))
    game = Game(net)
    play(game, "u_LP_TM2")
    assert [net.action_names[a] for a in np.flatnonzero(game.mask[0])] == ["wait"]
    play(game, "wait")
    assert game.clock == 5


def test_one_robot_is_serial_anyway():
    event, serial = (build_tool(ClusterTool("S-0", wafers=4, clock=clock)) for clock in ("event", "serial"))
    for one, other in zip(logs_of_random_episodes(event), logs_of_random_episodes(serial), strict=True):
        assert one.tolist() == other.tolist()


# Scrap that does not end the episode


def test_a_scrapped_wafer_is_taken_out_and_the_others_go_on():
    net = build_tool(ClusterTool("S-0", wafers=2, stop_on_scrap=False))
    game = Game(net)
    rewards = play(game, "u_LP_TM1", "t_TM1_PM1", *["wait 5"] * 3, "wait")  # it overstays in PM1
    assert game.running
    assert dict(zip((p.name for p in net.places), game.state.places.marking[0].tolist(), strict=True))["scrap"] == 1
    assert rewards[-1] == pytest.approx(-4 / 2 - 1 / net.rules.lower_bound)
    play(game, "u_LP_TM1", "t_TM1_PM1", "u_PM1_TM1", "t_TM1_PM3", "u_PM3_TM1", "t_TM1_LP_done")
    assert (OUTCOMES[game.state.envs[0].outcome], game.state.envs[0].finished, game.state.envs[0].gone) == (
        "scrap",
        1,
        1,
    )


@pytest.mark.parametrize("kinder", [{"stop_on_scrap": False}, {"lenient": True}], ids=str)
def test_without_a_scrap_nothing_changes(kinder):
    net = build_tool(ClusterTool("S-0", wafers=3))
    lossy = build_tool(ClusterTool("S-0", wafers=3, **kinder))
    plan = plan_tool(ClusterTool("S-0", wafers=3))
    script = script_of(Hops(plan, 0, tuple(map(tuple, insert_without_waiting(plan)))), net)
    one, other = Game(net), Game(lossy)
    for action in actions_for(net, script):
        assert one.step(action) == other.step(action)
        assert one.obs.tobytes() == other.obs.tobytes()
    assert OUTCOMES[other.state.envs[0].outcome] == "done"


# Lateness that does not end the episode


def test_a_late_wafer_costs_two_seconds_for_one_and_the_episode_goes_on():
    net = build_tool(ClusterTool("S-0", wafers=1, lenient=True))
    game = Game(net)
    rewards = play(game, "u_LP_TM1", "t_TM1_PM1", *["wait 5"] * 3, "wait")  # its time is up, and a second more
    assert game.running
    assert rewards[-1] == pytest.approx(-3 / net.rules.lower_bound)
    rewards += play(game, "u_PM1_TM1", "t_TM1_PM3", "u_PM3_TM1", "t_TM1_LP_done")
    assert OUTCOMES[game.state.envs[0].outcome] == "scrap"
    assert sum(rewards) == pytest.approx(1 - (game.clock + 2) / net.rules.lower_bound - 0.03)


# Swaps


def test_a_swap_is_a_pick_and_a_place_with_nothing_in_between():
    net = build_tool(ClusterTool("3-2", wafers=2, arms=2, swap_action=True))
    game = Game(net, log_size=20)
    play(game, "u_LP_TM2", "wait 5", "t_TM2_PM7", *["wait 50"] * 5, "u_LP_TM2")
    assert game.clock == 282  # 267 s after the first was put down
    play(game, "x_TM2_PM7")
    names = [(int(start), int(end), net.action_names[t]) for start, end, t, _ in logged(game.state, 0)[3:5]]
    assert names == [(282, 287, "u_PM7_TM2"), (287, 292, "t_TM2_PM7")]


def test_swaps_come_between_the_transitions_and_the_waits_and_only_when_asked_for():
    off, on = (build_tool(ClusterTool("S-0", arms=2, swap_action=swap)) for swap in (False, True))
    extra = [f"x_TM1_PM{k}" for k in range(1, 7)]
    assert list(on.action_names) == [*off.action_names[:14], *extra, *off.action_names[14:]]
    assert tabulate(on)[1].observation == tabulate(off)[1].observation


# A net as a graph


def test_a_graph_has_a_row_of_numbers_for_each_place():
    game = Game(replace(one_chamber(limit=20), rules=NetRules((0, 1), lower_bound=20, layout="graph")))
    play(game, "pick in", "put chamber", "wait 1", "wait 1")
    rows = game.obs[0].reshape(len(game.net.places), -1)
    assert rows.shape == (4, 15)
    source, chamber, sink, _ = rows.tolist()
    assert source[:8] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert chamber[:8] == pytest.approx(
        [1, 1, 0, 0, 18 / 20, 0, 0, 0]
    )  # two of the twenty seconds it may stay are over
    assert [row[8:].index(1.0) for row in rows.tolist()] == [1, 2, 5, 4]  # source, process, sink, robot
    play(game, "pick chamber", "put out")
    assert seen(game, "out")["share_of_goal"] == 1
    assert sink[7] == 0


# Rows are not counted from their ends


class Forward(np.recarray):
    """An array that takes no negative index, as a compiled rule cannot."""

    def __getitem__(self, index: Any) -> Any:
        assert not isinstance(index, int | np.integer) or index >= 0
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        assert not isinstance(index, int | np.integer) or index >= 0
        super().__setitem__(index, value)


def forward(parts: Any) -> Any:
    return type(parts)(*(part.view(Forward) if isinstance(part, np.ndarray) else part for part in parts))


FORWARD_NETS = [
    build_tool(ClusterTool("J-0", wafers=4)),
    build_tool(ClusterTool("2-2", "cascade_full", 4, 2, **EVERYTHING_ON)),
    build_tool(ClusterTool("S-0", wafers=4, arms=2, swap_action=True, lenient=True)),
    build_tool(ClusterTool("2-2", wafers=4, stop_on_scrap=False, clock="lockstep", layout="graph")),
    build_shop(JobShop("ft06")),
    build_shop(JobShop("ft06", buffers="blocking", layout="graph")),
    random_net(1),
]


@pytest.mark.parametrize("net", FORWARD_NETS, ids=lambda net: net.name)
def test_no_rule_counts_from_the_end_of_a_row(net: Net) -> None:
    run, rng = Run(net, 2, turbo=False), np.random.default_rng(0)
    run.tables, run.state = forward(run.tables), forward(run.state)
    run.obs, run.mask = run.obs.view(Forward), run.mask.view(Forward)
    for _ in range(60):
        run.step(np.array([pick(rng, net, np.asarray(row)) for row in run.mask]))
