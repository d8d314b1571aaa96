"""CAGE-4 is the original, step for step: recordings, and a slow twin."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from redline.cli import main
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.cage4.recordings import TeamRecording, replay
from redline.worlds.cage4.rules.observe import SIZES
from redline.worlds.cage4.rules.scenario import CN, IN, NUM_ACTIONS
from redline.worlds.cage4.truth import generators, session_table
from tests.oracles.cage4 import BLUE_ZONES, Twin

DATA = Path(__file__).parents[2] / "data" / "cage4"


def verify(capsys, *arguments: str | Path) -> tuple[int, dict]:
    code = main(["verify", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def shortened(path: Path, source: str, num_episodes: int, num_steps: int) -> Path:
    """A recording of the first steps of the first episodes of another."""
    arrays = dict(np.load(DATA / source))
    length, counts = arrays["length"], arrays["session_count"].astype(int)
    first, first_session = np.cumsum(length) - length, np.cumsum(counts) - counts
    steps = np.concatenate([first[e] + np.arange(num_steps) for e in range(num_episodes)])
    sessions = np.concatenate([first_session[s] + np.arange(counts[s]) for s in steps])
    for name, array in arrays.items():
        if array.ndim and name != "sessions":
            arrays[name] = array[:num_episodes] if len(array) == len(length) else array[steps]
    arrays |= {"sessions": arrays["sessions"][sessions], "length": np.full(num_episodes, num_steps)}
    np.savez(path, **{"steps": np.array(int(length[0]) + 1), **arrays})
    return path


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.npz")))
def test_every_recorded_step_of_the_original_comes_out_again(name, capsys):
    code, found = verify(capsys, "cage4", "--traces", DATA / name)
    assert code == 0 and found["mismatches"] == 0
    assert found["steps"] == np.load(DATA / name)["length"].sum()


def test_so_it_does_with_interpreted_rules(capsys, tmp_path):
    part = shortened(tmp_path / "part.npz", "finite_state.npz", 2, 12)
    code, found = verify(capsys, "cage4", "--traces", part, "--no-turbo")
    assert (code, found["steps"], found["mismatches"]) == (0, 24, 0)


@pytest.mark.parametrize("name", ["rewards", "obs", "gen", "sessions", "events"])
def test_a_recording_that_differs_is_told_of_with_the_first_step_that_does(name, capsys, tmp_path):
    part = shortened(tmp_path / "part.npz", "finite_state.npz", 1, 5)
    arrays = dict(np.load(part))
    changed = arrays[name].reshape(len(arrays[name]), -1)
    changed[-1, 0] = changed[-1, 0] == 0
    np.savez(part, **arrays)
    code, found = verify(capsys, "cage4", "--traces", part)
    assert (code, found["mismatches"], found["files"][0]["by_array"]) == (1, 1, {name: 1})
    assert "episode 0, step 4" in found["first_mismatch"]["text"] and name in found["first_mismatch"]["text"]


def test_other_blocks_and_another_network_are_told_of(tmp_path):
    part = shortened(tmp_path / "part.npz", "finite_state.npz", 1, 5)
    arrays = dict(np.load(part))
    arrays["blocks"] = np.array(["\n".join(['[["admin_network_subnet", ["internet_subnet"]]]'] * 5)])
    arrays["network"] = np.array([str(arrays["network"][0]).replace("MYSQLD", "SMTP")])
    np.savez(part, **arrays)
    assert replay(TeamRecording.load(part)).by_array == {"network": 1, "blocks": 5}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"actions": None}, "lacks actions"),
        ({"actions": np.zeros((3, 5))}, "actions has shape"),
        ({"actions": np.full((60, 5), 100)}, "actions must be 0 to 81"),
        ({"session_count": None}, "lacks session_count"),
        ({"length": np.zeros(6, int)}, "no steps"),
    ],
)
def test_what_is_no_recording_gets_one_line(change, complaint, tmp_path, capsys):
    arrays = {**np.load(DATA / "seven_steps.npz"), **change}
    if "actions" in change and change["actions"] is not None and len(change["actions"]) == 60:
        arrays["actions"] = np.full_like(np.load(DATA / "seven_steps.npz")["actions"], 100)
    np.savez(tmp_path / "broken.npz", **{name: array for name, array in arrays.items() if array is not None})
    assert main(["verify", "cage4", "--traces", str(tmp_path / "broken.npz")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert complaint in line


# The twin


def assert_same(env: Cage4VectorEnv, i: int, twin: Twin, obs: np.ndarray) -> None:
    """The whole of what can be told from outside, the generator first."""
    state = twin.rng.bit_generator.state
    whole = (int(env.state.state_high[i]) << 64) + int(env.state.state_low[i])
    assert (whole, int(env.state.has_half[i])) == (state["state"]["state"], state["has_uint32"])
    assert [tuple(row) for row in session_table(env.state, i).tolist()] == twin.red_sessions()
    for b, size in enumerate(SIZES):
        assert obs[b, :size].tolist() == twin.observation(b)
    for h, host in enumerate(twin.hosts):
        processes = int(env.state.backup_pid[i, h]) + int(env.state.top[i, h])
        assert processes == max([0, *(process.pid for process in host.processes)])
        if host.services:
            assert env.state.reliability[i, h] == next(iter(host.services.values())).reliability
    for agent, red in enumerate(twin.red):
        known = int(env.state.known[i, agent])
        assert env.state.known_host[i, agent, :known].tolist() == list(red.hosts)
        names = [("K", "KD", "S", "SD", "U", "UD", "R", "RD", "F")[s] for s in env.state.known_state[i, agent, :known]]
        assert names == [state for state, _ in red.hosts.values()]
        assert env.state.ids[i, agent, : int(env.state.num_ids[i, agent])].tolist() == list(red.ids)


def play_beside_twins(turbo: bool, num_envs: int, num_steps: int, restless: bool, **options) -> None:
    env = Cage4VectorEnv(num_envs, turbo=turbo, autoreset=False, **options)
    env.reset(seed=70)
    named = {"red": options.get("red_agent", "FiniteStateRedAgent"), "steps": options.get("steps", 500)}
    green = options.get("green_agent") != "SleepAgent"
    twins = [Twin(np.random.default_rng(70 + i), green=green, **named) for i in range(num_envs)]
    for twin in twins:
        twin.reset()
    random = np.random.default_rng(1)
    for _ in range(num_steps):
        actions = random.integers(0, NUM_ACTIONS, (num_envs, 5))
        if restless:  # the same few hosts over and over: pids are used again
            actions = np.where(random.random(actions.shape) < 0.8, np.array([17, 17, 33, 66, 49 + 32]), actions)
        messages = random.integers(0, 2, (num_envs, 5, 8))
        env.messages = messages
        obs, rewards, *_ = env.step(actions)
        for i, twin in enumerate(twins):
            assert twin.step(actions[i].tolist(), messages[i]) == rewards[i]
            assert_same(env, i, twin, obs[i])


@pytest.mark.parametrize(
    ("restless", "options"),
    [
        (False, {"steps": 60}),
        (True, {"steps": 90}),
        (False, {"steps": 60, "red_agent": "DiscoveryFSRed"}),
        (False, {"steps": 20, "red_agent": "SleepAgent"}),
        (False, {"steps": 60, "green_agent": "SleepAgent"}),
    ],
)
def test_a_slow_and_obvious_twin_plays_the_same(restless, options):
    play_beside_twins(True, 3, options["steps"] - 1, restless, **options)


def test_so_it_does_beside_interpreted_rules():
    play_beside_twins(False, 1, 15, False, steps=16)


def test_the_twin_leaves_the_same_zones_unwatched():
    assert not {CN, IN} & {zone for zones in BLUE_ZONES for zone in zones}


def test_a_seed_is_that_of_the_original():
    """`CybORG(…, seed=s)` draws a network when it is made; its first episode is the one after that."""
    recorded = np.load(DATA / "finite_state.npz")
    env = Cage4VectorEnv(len(recorded["seed"]))
    env.reset(seed=[int(seed) for seed in recorded["seed"]])
    assert (generators(env.state) == recorded["gen_before"]).all()
    env.reset()
    assert (generators(env.state) == recorded["gen_start"]).all()
