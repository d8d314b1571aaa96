"""Exact solves: the optimum is what others have proven, what trying everything finds, and what the kernel plays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from redline.cli import main
from redline.errors import RedlineError
from redline.worlds.petri.cluster_tool import ClusterTool, Route, Stage, build_net, plan_tool
from redline.worlds.petri.dispatching import DISPATCHING, actions_for
from redline.worlds.petri.instances import parse_petri
from redline.worlds.petri.job_shop import JobShop, Shop, build_shop
from redline.worlds.petri.replay import read_firings, verify
from redline.worlds.petri.rules.net import Cleaning, Net
from redline.worlds.petri.solve import ShopProblem, Solution, ToolProblem, solve, solve_problem
from redline.worlds.petri.solve.cp_sat import status_of
from tests.worlds.petri.exhaustive import can_be_done_before
from tests.worlds.petri.playing import dispatch, insertion_makespan

PROVEN = {
    "cluster/S-0?wafers=4": 905,
    "cluster/S-0?wafers=4&arms=2": 865,
    "cluster/J-0?wafers=4": 1010,
    "cluster/J-0?wafers=4&arms=2": 990,
    "cluster/J-0?wafers=4&device=cascade_full": 1140,
    "cluster/1-4?wafers=4": 505,
    "cluster/1-3?wafers=4&arms=2": 655,
    "cluster/1-6?wafers=4": 1275,
    "cluster/4-3?wafers=4": 2605,
    "jobshop/ft06": 55,
    "jobshop/la01": 666,
    "jobshop/la05": 593,
}


@pytest.mark.parametrize("name", PROVEN)
def test_what_others_have_proven_is_found_and_proven(name):
    instance = parse_petri(f"petri:{name}")
    solution = solve(instance, seconds=30)
    assert (solution.makespan, solution.proven, solution.status) == (PROVEN[name], True, "optimal")
    assert instance.optimum == solution.makespan == solution.bound


def tool(types: Any, order: tuple[int, ...] = (1,), gate: tuple[int, ...] = (), **options: Any) -> tuple[Any, Net]:
    """A plan on the device `single`, and its net."""
    stages = tuple(tuple(Stage(tuple(at.split("/")), time, clean) for at, time, clean in each) for each in types)
    route = Route("own", stages, "single", None, gate, order)
    plan = plan_tool(ClusterTool(gate="route" if gate else "off", lookahead="off", parallel="free", **options), route)
    return plan, build_net(plan)


TOOLS = {
    "one chamber": {"types": [[("PM1", 20, None)]], "wafers": 3},
    "two arms": {"types": [[("PM1", 10, None), ("PM2", 0, None)]], "wafers": 2, "arms": 2},
    "chambers alike": {"types": [[("PM1/PM2", 30, None)]], "wafers": 3},
    "chambers that only some may use": {"types": [[("PM1/PM2", 10, None), ("PM2", 5, None)]], "wafers": 2},
    "visited twice": {"types": [[("PM1", 5, None), ("PM2", 0, None), ("PM1", 5, None)]], "wafers": 2},
    "two types": {"types": [[("PM1", 20, None)], [("PM2", 0, None)]], "order": (1, 2), "wafers": 3},
    "two types, two arms": {
        "types": [[("PM1", 20, None)], [("PM1", 0, None)]],
        "order": (1, 2),
        "wafers": 2,
        "arms": 2,
    },
    "cleaned after each wafer": {"types": [[("PM1/PM2", 10, Cleaning(1, 30))]], "wafers": 3, "cleaning": True},
    "cleaned after two": {"types": [[("PM1", 0, Cleaning(2, 30))]], "wafers": 3, "cleaning": True},
    "one of two cleaned after two": {"types": [[("PM1/PM2", 10, Cleaning(2, 60))]], "wafers": 3, "cleaning": True},
    "a release gate": {"types": [[("PM1", 10, None)]], "gate": (10, 70), "wafers": 3},
    "a release gate for each type": {
        "types": [[("PM1", 10, None)], [("PM2", 0, None)]],
        "order": (1, 2, 2),
        "gate": (70, 30),
        "gate_per_type": True,
        "wafers": 4,
    },
    "a WIP limit": {"types": [[("PM1/PM2", 20, None)]], "wafers": 3, "wip_limit": "1"},
    "held for as long as one likes": {"types": [[("PM1", 20, None)]], "wafers": 2, "hold": "soft", "arms": 2},
}


@pytest.mark.parametrize("case", TOOLS)
def test_nothing_that_the_kernel_allows_is_shorter_on_a_small_tool(case):
    plan, net = tool(**TOOLS[case])
    solution = solve_problem(ToolProblem("own", plan, net), seconds=20)
    assert solution.proven
    assert not can_be_done_before(net, solution.makespan, tick=5)
    assert can_be_done_before(net, solution.makespan + 1, tick=5)


FIXED = (((0, 3),), ((1, 2),), ((0, 1),)), (((1, 2),), ((0, 4),)), (((1, 1),), ((0, 2),))
CHOICE = (((0, 3), (1, 4)), ((1, 2), (2, 3))), (((1, 2),), ((0, 0), (1, 1))), (((0, 4), (2, 1)), ((0, 2),))
SWAPS = (((0, 2),), ((1, 2),)), (((1, 2),), ((0, 2),))


@pytest.mark.parametrize("buffers", ["free", "blocking", "no_wait"])
@pytest.mark.parametrize(
    "shop",
    [Shop("fixed", FIXED), Shop("late", FIXED[1:], (0, 3)), Shop("flexible", CHOICE), Shop("swaps", SWAPS)],
    ids=lambda shop: shop.name,
)
def test_nothing_that_the_kernel_allows_is_shorter_in_a_small_shop(shop, buffers):
    options = JobShop(shop.name, buffers=buffers)
    net = build_shop(options, shop)
    solution = solve_problem(ShopProblem(shop.name, shop, options, net), seconds=20)
    assert solution.proven
    assert not can_be_done_before(net, solution.makespan)
    assert can_be_done_before(net, solution.makespan + 1)


def test_a_shop_in_which_nothing_takes_time_is_done_at_once():
    shop, options = Shop("instant", ((((0, 0),), ((1, 0),)), (((1, 0),), ((0, 0),)))), JobShop("instant")
    solution = solve_problem(ShopProblem(shop.name, shop, options, build_shop(options, shop)), seconds=20)
    assert (solution.makespan, solution.proven, solution.gap) == (0, True, 0.0)


@pytest.mark.parametrize("name", ["cluster/J-0?wafers=4", "jobshop/ft06"])
def test_a_schedule_can_be_written_and_played_again(name):
    solution = solve(parse_petri(f"petri:{name}"), seconds=30)
    verdict = verify(read_firings(solution.schedule.to_json()))
    assert (verdict.faithful, verdict.makespan) == (True, solution.makespan)


@pytest.mark.parametrize("limit", ["wip_limit=2", "gate=route", "cleaning=on", "gate=derived&cleaning=on"])
def test_gates_limits_and_cleaning_are_kept_where_a_policy_plays(limit):
    advice = "lookahead=off&parallel=free&urgent_wait_cap=off&waits=1,5,100"
    instance = parse_petri(f"petri:cluster/1-3?wafers=4&{limit}&{advice}")
    solution = solve(instance, seconds=20)
    lines = read_firings({**solution.schedule.to_json(), "net": instance.name}).script
    assert len(actions_for(instance.net, lines)) > len(lines)


def test_a_hint_makes_a_thousandth_of_a_second_enough():
    tool = parse_petri("petri:cluster/1-3?wafers=12&device=cascade_full")
    assert solve(tool, seconds=0.001).makespan <= insertion_makespan(tool.plan())
    shop = parse_petri("petri:jobshop/ft10")
    assert solve(shop, seconds=0.001).makespan <= min(dispatch(shop.net, rule) for rule in DISPATCHING)


def test_the_time_limit_is_kept():
    started = time.monotonic()
    solution = solve(parse_petri("petri:cluster/2-3?wafers=8"), seconds=1.0)
    assert time.monotonic() - started < 4.0
    assert (solution.status, solution.proven) == ("feasible", False)
    assert solution.bound < solution.makespan
    assert solution.gap == solution.makespan / solution.bound - 1


def test_every_better_schedule_is_shown():
    seen = []
    solution = solve(parse_petri("petri:cluster/J-0?wafers=4"), seconds=20, watch=seen.append)
    makespans = [progress.makespan for progress in seen]
    assert makespans == sorted(set(makespans), reverse=True)
    assert makespans[-1] == solution.makespan


def test_a_horizon_that_is_too_short_is_said_so():
    with pytest.raises(RedlineError, match="no schedule within its horizon of 900"):
        solve(parse_petri("petri:cluster/S-0?wafers=4&horizon=900"), seconds=20)


# The command


def redline(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_the_command_prints_one_json_object_and_writes_the_schedule(tmp_path, capsys):
    path = tmp_path / "schedule.json"
    assert redline("solve", "petri:cluster/S-0?wafers=4", "--json", "--export", path) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["makespan"], report["proven"], report["bound"], report["gap_percent"]) == (905, True, 905, 0)
    assert redline("verify", "petri", "--schedule", path) == 0
    assert redline("solve", "petri:jobshop/ft06", "-q", "--export", tmp_path / "schedule.csv") == 0
    assert (tmp_path / "schedule.csv").read_text().startswith("start,end,transition")
    assert "makespan 55, proven optimal (gap 0.0 %" in capsys.readouterr().out


def test_progress_goes_to_standard_error(capsys):
    assert redline("solve", "petri:cluster/J-0?wafers=4") == 0
    said = capsys.readouterr()
    assert "makespan 1010, at least" in said.err
    assert "at least" not in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cage2"], "Only envs of petri can be solved, and 'cage2' is none. Try petri:cluster/J-0."),
        (["petri:cluster/J0"], "Did you mean 'J-0'?"),
        (["petri:jobshop/ft06", "--seconds", "0"], "--seconds 0 leaves no time"),
        (["petri:jobshop/ft06", "--seconds", "nan"], "--seconds nan leaves no time"),
        (["petri:jobshop/ft06", "--workers", "0"], "--workers 0 cannot search"),
        (["petri:jobshop/ft06", "--seed", "-1"], "--seed -1 cannot be used"),
        (["petri:jobshop/ft06", "--export", "x.txt"], "not as 'x.txt'"),
        (["petri:jobshop/ft06", "--export", "/nowhere/x.json"], "there is no folder /nowhere"),
        (["petri:jobshop/ft06?non_delay=on"], "Try non_delay=off"),
        (["petri:cluster/J-0?device=cascade_full&tm1=rule"], "Try tm1=policy"),
        (["PNML"], "only cluster tools and job shops can"),
    ],
)
def test_what_cannot_be_solved_is_refused_in_one_line(arguments, words, capsys):
    net = Path(__file__).parents[2] / "data" / "petri" / "pnml" / "philosophers_5.pnml"
    arguments = [f"petri:{net}" if each == "PNML" else each for each in arguments]
    assert redline("solve", *arguments) == 2
    line = capsys.readouterr().err.strip()
    assert words in line
    assert "\n" not in line


def test_without_ortools_one_line_says_how_to_get_it():
    script = "import sys; sys.modules['ortools'] = None; from redline.cli import main; sys.exit(main(sys.argv[1:]))"
    done = run_python("-c", script, "solve", "petri:jobshop/ft06")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("pip install 'redline[ortools]', or in a clone: pip install -e '.[ortools]'")


def test_ctrl_c_keeps_the_best_schedule_so_far(tmp_path):
    path = tmp_path / "best.json"
    command = [sys.executable, "-m", "redline", "solve", "petri:cluster/2-3?wafers=4", "--export", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while "makespan" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)  # the search is announced just before it begins
        process.send_signal(signal.SIGINT)
        answer = process.stdout.read()
    assert process.returncode == 130
    assert "Interrupted: this is the best schedule found so far." in answer
    assert json.loads(path.read_text())["outcome"] == "done"


def test_a_search_that_has_hardly_begun_is_asked_to_stop_until_it_does():
    events = [KeyboardInterrupt, TimeoutError, "stopped"]
    asked: list[int] = []

    class Searching:
        def result(self, timeout: float | None) -> str:
            event = events.pop(0)
            if isinstance(event, str):
                return event
            assert (timeout is None) == (event is KeyboardInterrupt)
            raise event

    assert status_of(Searching(), lambda: asked.append(len(events))) == ("stopped", True)
    assert asked == [2, 1]


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_a_two_armed_robot_may_pick_again_on_its_way():
    plan, net = tool(types=[[("PM1/PM2", 0, None)]], wafers=2, arms=2, hold="soft")
    assert solve_problem(ToolProblem("own", plan, net), seconds=20).makespan == 40  # two hops of two wafers, 5 + 5 each


def test_a_solution_knows_how_good_it_is():
    schedule = solve(parse_petri("petri:jobshop/ft06"), seconds=20).schedule
    assert Solution(schedule, 55, 1.0).status == "optimal"
    assert Solution(schedule, 50, 1.0).gap == pytest.approx(0.1)
    assert Solution(schedule, 50, 1.0, interrupted=True).status == "interrupted"
