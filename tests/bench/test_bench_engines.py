"""Engines side by side, as a user measures them."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from redline.bench import engines as measuring
from redline.bench.engines import Contest, Contestant, ContestResult, Turn, compete, engine_contestant, verdict
from redline.bench.vector_peers import VECTOR_PEERS, PeerEngine
from redline.cli import main
from redline.engines import Collecting, engines_to_try, make_engine
from redline.engines.spec import Spec
from redline.learn.acting import Actor
from redline.rollout import Rollout
from redline.timing.memory import descendants
from redline.timing.stopwatch import Stopwatch

ENV = "slow?mean_ms=0.05&max_steps=10"
QUICK = ("--num-envs", "4", "--turns", "1", "--seconds", "0.02", "--num-steps", "10")
HERE = engines_to_try(address=None)
FAILING = f"external:{__name__}:failing"


def redline(*arguments: str) -> int:
    return main([*arguments])


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert redline("bench", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def contest(**changes: object) -> Contest:
    settings = {"num_envs": 4, "num_steps": 10, "turns": 1, "seconds": 0.0, "seed": 0, "collecting": Collecting()}
    return Contest(ENV, {}, **{**settings, **changes})  # type: ignore[arg-type]


def turn(rate: float, **changes: object) -> Turn:
    unknown = dict.fromkeys(("busy_share", "straggler_share", "slowest_step_seconds", "memory_mb"))
    times = {"start_up_seconds": 1.0, "cold_seconds": 2.0, "cold_rate": 5.0, "training_seconds": 0.01}
    return Turn(**{"rate": rate, "episodes": 2, "episode_steps": 20, "workers": 2, **unknown, **times, **changes})


def workers_alive() -> list[int]:
    """Processes of ours that are left, besides the fork server and the resource tracker that serve all engines."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in descendants()}
    servers = [pid for pid, line in lines.items() if "forkserver" in line or "resource_tracker" in line]
    grandchildren = [pid for pid in lines if _parent(pid) != os.getpid()]
    return [pid for pid in lines if pid not in servers or pid in grandchildren]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def failing(at_step: int = 3) -> gym.Env:
    """An env that raises after some steps."""
    return _Failing(at_step)


class _Failing(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, at_step: int) -> None:
        self._left = at_step
        if at_step < 0:
            raise ValueError("no licence")

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._left -= 1
        if self._left < 0:
            raise ValueError("the simulator broke")
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_every_engine_and_peer_is_measured_and_nobody_stays(capsys):
    found = measured(capsys, "engines", ENV, *QUICK)
    (table,) = found["tables"]
    rows = {row["name"]: row for row in table["engines"]}
    assert list(rows) == [*HERE, *VECTOR_PEERS]
    for name, row in rows.items():
        assert row["reason"] is None, row
        for key in ("steps_per_second", "low", "high", "times_serial", "times_pipes", "episodes_per_second"):
            assert math.isfinite(row[key]) and row[key] > 0, (name, key)
        for key in ("memory_mb", "start_up_seconds", "sampling_share", "training_share"):
            assert math.isfinite(row[key]) and row[key] > 0, (name, key)
        assert row["sampling_share"] + row["training_share"] == pytest.approx(1.0)
        assert row["busy_share"] is None or 0 < row["busy_share"] <= 1.05, (name, row["busy_share"])
    assert all(rows[name]["busy_share"] is not None for name in [*HERE, "SyncVectorEnv"])
    assert all(0 <= rows[name]["straggler_share"] <= 1 for name in HERE)
    assert rows["AsyncVectorEnv"]["workers"] == 4
    assert "is fastest" in table["verdict"]
    assert found["machine"]["cores"] >= 1
    assert not workers_alive()


def test_the_table_prints_with_a_verdict_and_the_machine(capsys):
    arguments = (ENV, *QUICK, "--engines", "serial,pipes", "--no-peers")
    assert redline("bench", "engines", *arguments) == 0
    text = capsys.readouterr().out
    for word in ("serial", "pipes", "straggler", "memory", "start-up", "is fastest", "cores"):
        assert word in text
    assert "…" not in text
    assert "AsyncVectorEnv" not in text


def test_workers_add_the_scaling_table_with_cold_apart_from_warm(capsys):
    arguments = (ENV, *QUICK, "--engines", "serial,shared", "--no-peers", "--workers", "1,2")
    (table,) = measured(capsys, "engines", *arguments)["tables"]
    assert [(row["engine"], row["workers"]) for row in table["scaling"]] == [("shared", 1), ("shared", 2)]
    for row in table["scaling"]:
        assert row["cold_seconds"] > 0 and row["episodes_per_second"] > 0
        assert row["cold_episodes_per_second"] * row["cold_seconds"] == pytest.approx(4)  # one in each env
        assert row["efficiency"] == pytest.approx(row["speed_up"] / row["workers"])


def test_one_number_of_workers_is_that_of_every_engine(capsys):
    arguments = (ENV, *QUICK, "--engines", "shared", "--no-peers", "--workers", "3")
    (table,) = measured(capsys, "engines", *arguments)["tables"]
    assert table["scaling"] == []
    assert table["engines"][0]["workers"] == 3


def test_our_simulators_take_their_own_options_and_both_speeds(capsys):
    arguments = ("cage2", *QUICK, "--engines", "vector", "--red-agent", "RedMeanderAgent", "--no-turbo", "--no-peers")
    found = measured(capsys, "engines", *arguments)
    assert found["env_options"] == {"red_agent": "RedMeanderAgent", "turbo": False}
    assert 0 < found["tables"][0]["engines"][0]["busy_share"] <= 1


def test_who_fails_is_named_with_the_reason_and_stops_nobody():
    def broken(contest: Contest) -> None:
        raise ValueError("out of order\nand more")

    entrants = [Contestant("broken", broken, peer=True, in_process=True), engine_contestant("serial")]
    failed, serial = compete(entrants, contest(turns=2), say=lambda text: None)
    assert failed.reason == "ValueError: out of order" and failed.rate is None
    assert len(serial.turns) == 2
    row = measuring.as_row(failed, [failed, serial])
    assert row["steps_per_second"] is None and row["reason"] == failed.reason


@pytest.mark.parametrize("name", VECTOR_PEERS)
def test_a_peer_whose_env_fails_leaves_no_process(name):
    engine = PeerEngine(VECTOR_PEERS[name], Spec.of(FAILING, {}), 3, seed=0)
    actor = Actor(contest().policy(engine.env), 3, 0)
    with pytest.raises((ValueError, EOFError, ConnectionResetError)):
        engine.collect(actor, 10, Stopwatch())
    engine.close()
    assert not workers_alive()


@pytest.mark.parametrize("name", VECTOR_PEERS)
def test_a_peer_that_is_interrupted_in_the_middle_of_a_step_leaves_no_process(name):
    engine = PeerEngine(VECTOR_PEERS[name], Spec.of("slow?mean_ms=50&wait=true", {}), 4, seed=0)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.32)
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.collect(Actor(contest().policy(engine.env), 4, 0), 100, Stopwatch())
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    engine.close()
    assert not workers_alive()


@pytest.mark.parametrize("name", VECTOR_PEERS)
def test_a_peer_plays_the_same_episodes_as_our_serial_engine(name):
    def played(engine) -> Rollout:
        try:
            return engine.collect(Actor(contest().policy(engine.env), 4, 0), 25, Stopwatch())
        finally:
            engine.close()

    ours = played(make_engine("serial", ENV, 4, 0))
    theirs = played(PeerEngine(VECTOR_PEERS[name], Spec.of(ENV, {}), 4, 0))
    for array in ("actions", "rewards", "truncated", "terminated", "next_values"):
        np.testing.assert_array_equal(getattr(ours, array), getattr(theirs, array))


AT_WORK_FOREVER = f"""
from redline.bench.engines import *
peer = peer_contestant("peer", VECTOR_PEERS["AsyncVectorEnv"])
compete([peer], Contest({ENV!r}, {{}}, 4, 10, 1, 600.0, 0, Collecting()), print)
"""


def test_peers_do_not_outlive_a_killed_benchmark():
    process = subprocess.Popen(
        [sys.executable, "-c", AT_WORK_FOREVER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while len(children := _children(process.pid)) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(children) == 4
    time.sleep(0.5)  # they ask to be told of our end once they run
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 3
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if _parent(int(entry.name)) == parent:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_the_verdict_names_the_fastest_and_the_best_peer():
    results = [
        ContestResult("serial", turns=[turn(10.0)]),
        ContestResult("pool", turns=[turn(20.0)]),
        ContestResult("shared", turns=[turn(19.0)]),
        ContestResult("ready", turns=[turn(18.0)]),
        ContestResult("AsyncVectorEnv", peer=True, turns=[turn(12.0)]),
        ContestResult("broken", peer=True, reason="not installed"),
    ]
    assert verdict(results) == "pool is fastest: 2.00 x serial; shared 1.90 x; ready 1.80 x; AsyncVectorEnv 1.20 x."
    assert verdict(results[1:3]) == "pool is fastest: 20 steps/s; shared 19 steps/s."
    assert verdict(results[-1:]) == "Nobody could be measured."


def test_learning_is_a_share_of_an_update():
    assert ContestResult("serial", turns=[turn(100.0, training_seconds=0.01)]).training_share == pytest.approx(0.5)


def test_a_collect_is_as_long_as_a_serial_one_can_afford():
    assert measuring.affordable_steps(1e-5, 20) == measuring.MOST_STEPS
    assert measuring.affordable_steps(2.5e-3, 20) == 40
    assert measuring.affordable_steps(1.0, 200) == measuring.FEWEST_STEPS


def test_training_is_timed_for_each_engine_on_any_env(capsys):
    arguments = ("CartPole-v1", "--num-envs", "4", "--num-steps", "50", "--turns", "1", "--seconds", "0.05")
    found = measured(capsys, "train", *arguments, "--engines", "serial,shared,pool")
    assert [row["name"] for row in found["engines"]] == ["serial", "shared", "pool"]
    for row in found["engines"]:
        assert row["reason"] is None
        assert 0 < row["sampling_seconds"] + row["training_seconds"] <= row["total_seconds"]
        assert row["sampling_to_training"] == pytest.approx(row["sampling_seconds"] / row["training_seconds"])
        shares = {part: each["share"] for part, each in row["per_episode"].items()}
        assert sum(shares.values()) == pytest.approx(1.0)
        assert shares["env_step"] > 0
        assert shares["action_selection"] > 0
        assert row["per_episode"]["storage"]["seconds"] > 0
        assert {"collect", "learn"} <= set(row["breakdown"]["spans"])
    assert not workers_alive()


def test_the_timing_tables_print(capsys):
    arguments = (ENV, "--num-envs", "4", "--num-steps", "10", "--turns", "1", "--seconds", "0", "--engines", "serial")
    assert redline("bench", "train", *arguments) == 0
    text = capsys.readouterr().out
    for word in ("sampling : training", "█", "action selection", "storage", "Where the time goes, serial", "cores"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("engines slow --engines serial,shred", "Did you mean 'shared'?"),
        ("engines slow --engines auto", "Known: serial"),
        ("engines slow --num-envs 0", "Try --num-envs"),
        ("engines slow --num-envs 4,0", "Try --num-envs"),
        ("engines slow --workers 0", "Try --workers"),
        ("engines slow --turns 0", "Try --turns"),
        ("engines slow --seconds -1", "Try --seconds"),
        ("engines slow --num-steps -1", "Try --num-steps"),
        ("engines slow --ready-fraction 0", "Try 0.1"),
        ("engines slow --mean-ms 0", "Try --mean-ms"),
        ("engines slwo", "Did you mean 'slow'?"),
        ("engines CartPole-v9x", "Did you mean 'CartPole-v"),
        ("engines external:nowhere:make", "nowhere"),
        (f"engines {FAILING}?at_step=-1", "no licence"),
        (f"engines {FAILING}", "the simulator broke"),
        ("train slow --engines serial,shred", "Did you mean 'shared'?"),
        ("train slow --engines=,", "Try --engines"),
        ("train slow --engines serial --num-envs 0", "Try --num-envs"),
        ("train slow --engines serial --total-steps 9", "Try --turns"),
        ("train external:nowhere:make --engines serial", "nowhere"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments, says, capsys):
    assert redline("bench", *arguments.split()) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and said[0].startswith("redline: ")
    assert says in said[0]


def test_help_names_every_option(capsys):
    assert redline("bench", "engines", "slow", "--help") == 0
    text = capsys.readouterr().out
    for option in (
        "--num-envs",
        "--workers",
        "--engines",
        "--[no-]peers",
        "--ray-address",
        "--mean-ms",
        "--json",
        "-q",
    ):
        assert option in text
