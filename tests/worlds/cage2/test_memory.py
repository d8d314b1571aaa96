"""The observation `memory` and the actions `useful`: the rules against a tracker that is told what Blue is told."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.worlds.cage2.env import Cage2VectorEnv
from redline.worlds.cage2.memory import ACTION_NAMES, INPUTS, Memory
from redline.worlds.cage2.rules.scenario import RULES, action_names, describe_action

NUM_ENVS, NUM_STEPS = 32, 150
BUSY = {"red_agent": "B_lineAgent,RedMeanderAgent", "max_steps": 0}


def script(num_actions: int, seed: int = 0) -> np.ndarray:
    """Decoys at first, then random actions, most of them Sleep, so that Red gets about. Time first."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, num_actions, (NUM_STEPS, NUM_ENVS))
    actions = np.where(rng.random(actions.shape) < 0.7, 0, actions)
    actions[:4] = ACTION_NAMES.index("Decoy Enterprise0") + np.arange(NUM_ENVS) % 6
    return actions


@pytest.mark.parametrize("green_agent", ["SleepAgent", "GreenAgent"])
@pytest.mark.parametrize("rules", RULES)
def test_a_tracker_fed_with_tables_and_blues_own_actions_sees_what_the_rules_show(rules, green_agent):
    options = {**BUSY, "rules": rules, "green_agent": green_agent}
    remembering = Cage2VectorEnv(NUM_ENVS, observation="memory", actions="useful", **options)
    plain = Cage2VectorEnv(NUM_ENVS, **options)  # the same episodes, as anybody sees them
    shown, _ = remembering.reset(seed=3)
    plain.reset(seed=3)
    trackers = [Memory(rules) for _ in range(NUM_ENVS)]
    seen_ever = np.zeros(len(INPUTS), bool)
    for choices in script(len(ACTION_NAMES)):
        full = np.array([tracker.full_action(choice) for tracker, choice in zip(trackers, choices, strict=True)])
        shown, *_ = remembering.step(choices)
        tables, *_ = plain.step(full)
        told = [tracker.see(table, action) for tracker, table, action in zip(trackers, tables, full, strict=True)]
        assert (np.array(told) == shown).all()
        seen_ever |= shown.any(axis=0)
    never = {name for name, seen in zip(INPUTS, seen_ever, strict=True) if not seen}
    assert len(never) <= 6, never  # otherwise the play has shown little


@pytest.mark.parametrize("rules", RULES)
def test_the_tracker_knows_all_145_actions(rules):
    remembering = Cage2VectorEnv(NUM_ENVS, observation="memory", rules=rules, **BUSY)
    plain = Cage2VectorEnv(NUM_ENVS, rules=rules, **BUSY)
    remembering.reset(seed=5)
    plain.reset(seed=5)
    trackers = [Memory(rules) for _ in range(NUM_ENVS)]
    for actions in script(145, seed=1)[:60]:
        shown, *_ = remembering.step(actions)
        tables, *_ = plain.step(actions)
        told = [tracker.see(table, action) for tracker, table, action in zip(trackers, tables, actions, strict=True)]
        assert (np.array(told) == shown).all()


def test_a_tracker_begins_again_with_the_episode():
    tracker = Memory("final")
    table = np.zeros(52, np.int8)
    table[4 * 9] = 1  # a scan of User1
    assert tracker.see(table, 0).any()
    assert not tracker.reset().any()


def test_a_tracker_refuses_what_is_no_table_or_no_action():
    with pytest.raises(RedlineError, match="52 values"):
        Memory().see([0] * 51, 0)
    with pytest.raises(RedlineError, match="0 to 144"):
        Memory().see([0] * 52, 145)
    with pytest.raises(RedlineError, match="rule set"):
        Memory("finale")


def test_useful_actions_are_those_of_the_full_set_that_their_names_say():
    assert action_names("useful") == ACTION_NAMES
    assert len(set(ACTION_NAMES)) == 37
    tracker = Memory()
    for choice, name in enumerate(ACTION_NAMES):
        full = describe_action(tracker.full_action(choice))
        assert full == name or (name.startswith("Decoy ") and full.endswith(name.removeprefix("Decoy")))


def test_the_tracker_needs_neither_torch_nor_numba_nor_gymnasium():
    check = (
        "import sys, redline.worlds.cage2.memory; print(*({'torch', 'numba', 'gymnasium', 'rich'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "\n"


def test_needless_acts_cost_what_tidy_says_and_no_return_counts_it():
    options = {"red_agent": "SleepAgent", "max_steps": 2, "actions": "useful"}
    env = Cage2VectorEnv(2, tidy=0.25, **options)
    env.reset(seed=0)
    _, rewards, *_ = env.step(np.array([0, 1]))
    assert rewards.tolist() == [0.0, -0.25]
    *_, infos = env.step(np.array([0, 1]))
    assert infos["episode"]["r"].tolist() == [0.0, 0.0]


def test_the_truth_tells_apart_what_the_table_does_not():
    env = Cage2VectorEnv(8, observation="truth", red_agent="RedMeanderAgent")
    env.reset(seed=0)
    names = env.stored.names
    for _ in range(12):
        shown, *_ = env.step(np.zeros(8, np.int64))
    root = [names.index(f"{host}.root") for host in ("User0", "User1")]
    assert (shown[:, root[0]] == 1).all()
    assert (shown[:, root[1]] == (env.true_state().access[:, 9] == 2)).all()


def test_the_truth_is_the_same_where_the_future_is():
    """Analyse tells Blue something and changes nothing else, so the truth after it is that after Sleep."""
    analyse, sleep = ACTION_NAMES.index("Analyse User1"), 0
    envs = [Cage2VectorEnv(64, observation="truth", actions="useful", **BUSY) for _ in range(2)]
    for env in envs:
        env.reset(seed=2)
    for _ in range(30):
        shown = [env.step(np.full(64, action))[0] for env, action in zip(envs, (analyse, sleep), strict=True)]
        assert (shown[0] == shown[1]).all()
    assert (envs[0].state.table != envs[1].state.table).any()


def test_a_forgotten_field_reads_zero_and_nothing_else_changes():
    options = {**BUSY, "observation": "memory", "actions": "useful"}
    all_of_it, less = (
        Cage2VectorEnv(NUM_ENVS, **options),
        Cage2VectorEnv(NUM_ENVS, forget="age, was_scanned", **options),
    )
    all_of_it.reset(seed=3)
    less.reset(seed=3)
    gone = np.array([name.startswith("event.age") or name.endswith("was_scanned") for name in INPUTS])
    for choices in script(len(ACTION_NAMES)):
        (shown, *_), (left, *_) = all_of_it.step(choices), less.step(choices)
        assert (left == np.where(gone, 0, shown)).all()
    assert shown[:, gone].any()


def test_a_field_that_is_not_remembered_cannot_be_forgotten():
    with pytest.raises(RedlineError, match="field to forget"):
        Cage2VectorEnv(1, observation="memory", forget="ages")


def test_an_accident_restores_a_host_in_place_of_blues_action_and_costs_nothing():
    env = Cage2VectorEnv(256, red_agent="SleepAgent", actions="useful", observation="memory", accidents=0.5)
    env.reset(seed=0)
    _, rewards, *_ = env.step(np.zeros(256, np.int64))
    restored = env.state.last_action >= 132
    assert 90 < restored.sum() < 166
    assert (env.state.last_action[~restored] == 0).all()
    assert len(np.unique(env.state.last_action[restored])) == 8  # every host that is worth one
    assert (rewards == 0.0).all()


@pytest.mark.parametrize("rules", RULES)
def test_useful_actions_are_played_alike_at_both_speeds(rules):
    options = {**BUSY, "observation": "memory", "actions": "useful", "rules": rules, "encoded": True}
    fast, slow = Cage2VectorEnv(NUM_ENVS, **options), Cage2VectorEnv(NUM_ENVS, turbo=False, **options)
    fast.reset(seed=7)
    slow.reset(seed=7)
    for choices in script(len(ACTION_NAMES), seed=2)[:40]:
        assert (fast.step(choices)[0] == slow.step(choices)[0]).all()
    assert (fast.state == slow.state).all()
