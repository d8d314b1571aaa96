"""What defenders remember, what they make of it, and how an episode of theirs is shown."""

from __future__ import annotations

import json

import numpy as np
import pytest

from redline.cli import main
from redline.errors import RedlineError
from redline.worlds.cage4.encoding import words_of
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.cage4.parallel import Cage4ParallelEnv
from redline.worlds.cage4.remembering import EnterpriseMemory
from redline.worlds.cage4.rules.remembered import (
    ALERT,
    ENTERED_1,
    NO_AGE,
    NUM_NUMBERS,
    RESTORES,
    SOURCE_1,
    USEFUL,
    place_since,
)
from redline.worlds.cage4.rules.scenario import BLUE_TABLE, RESTORE
from redline.worlds.team import pick_allowed


def played(count: int = 40, num_envs: int = 2, **options):
    """A memory env after each of some steps of useful actions at random: env, observations, masks, rewards."""
    env = Cage4VectorEnv(num_envs, encoded=True, face="memory", **options)
    obs, infos = env.reset(seed=3)
    random = np.random.default_rng(0)
    for _ in range(count):
        yield env, obs, infos["action_mask"], infos["acting"]
        actions = np.where(infos["acting"], pick_allowed(infos["action_mask"], random), 0)
        obs, _, _, _, infos = env.step(actions)
    yield env, obs, infos["action_mask"], infos["acting"]


def test_a_memory_needs_nothing_but_flat_observations_and_own_actions():
    flat, memory, random = Cage4VectorEnv(1, autoreset=False), EnterpriseMemory(), np.random.default_rng(0)
    numbers, infos = flat.reset(seed=3)
    memory.reset(numbers[0], infos["action_mask"][0])
    for env, obs, masks, acting in played(120, 1):
        assert (memory.rows == obs).all() and (memory.masks == masks).all() and (memory.acting == acting).all()
        assert (words_of(numbers[0]) == env.words[0]).all()
        actions = memory.full_actions(np.where(acting, pick_allowed(masks, random), 0))
        numbers, _, _, _, _ = flat.step(actions[None])
        memory.see(numbers[0], actions)


def test_a_break_in_and_its_source_are_remembered_until_they_are_restored():
    flat, memory = Cage4VectorEnv(1), EnterpriseMemory()
    numbers, infos = flat.reset(seed=0)
    memory.reset(numbers[0], infos["action_mask"][0])
    seen, sleeps = numbers[0].copy(), flat.idle
    process, traffic, user, server = 1 + 27, 1 + 27 + 16, 6, 0
    seen[0, process + user] = seen[0, traffic + user] = seen[0, traffic + server] = 1
    memory.see(seen, sleeps)
    assert memory.rows[0, 0, ALERT] == 0 and memory.rows[0, 1, ALERT] == NO_AGE
    restores = [memory.full_actions(np.full((1, 5), RESTORES + place))[0] for place in (ENTERED_1, SOURCE_1)]
    assert [tuple(BLUE_TABLE[0, action]) for action in restores] == [(RESTORE, 0, user), (RESTORE, 0, server)]
    asked = np.array([restores[0], *sleeps[1:]])
    for _ in range(5):
        assert memory.masks[0, 0, RESTORES + ENTERED_1]
        memory.see(numbers[0], asked)
    assert not memory.masks[0, 0, RESTORES + ENTERED_1] and memory.masks[0, 0, RESTORES + SOURCE_1]
    assert place_since(memory.rows, SOURCE_1)[0, 0] == 6


def test_interpreted_rules_remember_the_same():
    for (_, obs, masks, _), (_, slow_obs, slow_masks, _) in zip(
        played(4, 1, steps=4), played(4, 1, steps=4, turbo=False), strict=True
    ):
        assert (obs == slow_obs).all() and (masks == slow_masks).all()


def test_an_episode_that_begins_again_has_forgotten_the_one_before():
    lengths = [int(env.memory.records.clock[0]) for env, _, _, _ in played(24, 1, steps=12)]
    assert lengths == [*range(11), *range(11), 0, 1, 2]


def test_memories_go_on_from_a_snapshot():
    *_, (env, _, _, acting) = played(30)
    saved = env.snapshot()
    script = np.where(acting, pick_allowed(env.action_masks(), np.random.default_rng(1)), 0)
    one, _, _, _, told = env.step(script)
    other = Cage4VectorEnv(2, encoded=True, face="memory")
    other.restore(saved)
    two, _, _, _, told_again = other.step(script)
    assert (one == two).all() and (told["action_mask"] == told_again["action_mask"]).all()


def test_shares_and_what_happens_among_contractors_make_up_the_reward():
    env = Cage4VectorEnv(8)
    _, infos = env.reset(seed=0)
    random, shares, rewards = np.random.default_rng(0), [], []
    for _ in range(150):
        _, reward, _, _, infos = env.step(pick_allowed(infos["action_mask"], random))
        shares.append(env.shares)
        rewards.append(reward)
    rest = np.array(rewards) - np.array(shares).sum(axis=2)
    assert (rest <= 0).all() and (rest % 5 == 0).all() and rest.any() and np.array(shares).any(axis=(0, 1)).all()


def test_both_faces_hand_out_what_their_spaces_say():
    env = Cage4VectorEnv(2, face="memory")
    obs, infos = env.reset(seed=0)
    assert obs.shape == (2, 5, NUM_NUMBERS) and obs.dtype == np.float32 and infos["action_mask"].shape[2] == len(USEFUL)
    assert env.action_names == USEFUL and env.spaces("blue_agent_4") == env.spaces("blue_agent_0")
    with pytest.raises(RedlineError, match="Leave it out"):
        Cage4ParallelEnv(face="memory")
    with pytest.raises(RedlineError, match="face"):
        Cage4VectorEnv(1, face="round")


def test_simple_and_trained_teams_can_be_watched(tmp_path, capsys):
    assert main(["play", "cage4?steps=9", "--policy", "respond", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["length"] == 8 and set(shown["steps"][0]["facts"]) >= {"blue_agent_0", "Red", "Alarms", "Phase"}
    run = tmp_path / "run"
    small = "--num-envs 4 --num-steps 8 --minibatches 1 --total-steps 64 --hidden 8 --eval-episodes 2 -q"
    assert main(["train", "cage4?steps=9", *small.split(), "--run-dir", str(run)]) == 0
    capsys.readouterr()
    assert main(["play", str(run), "--seed", "4", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert main(["eval", str(run), "--seed", "4", "--episodes", "1", "--json"]) == 0
    assert shown["return"] == json.loads(capsys.readouterr().out)["all_rewards"]["mean"]
    assert main(["play", str(run), "--html", str(tmp_path / "page.html"), "-q"]) == 0
    assert "Operational zone A, Blue 1" in (tmp_path / "page.html").read_text()
    assert (
        "Office network" in (run / "report.html").read_text() and "graph network" in (run / "report.html").read_text()
    )
