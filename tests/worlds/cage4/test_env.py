"""The faces of CAGE-4: batches of a team, one defender, PettingZoo."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import redline
from redline.cli import main
from redline.errors import RedlineError
from redline.testing.contract import assert_same, plain
from redline.worlds.cage4.baselines import make_baseline
from redline.worlds.cage4.env import SLEEPS, Cage4VectorEnv
from redline.worlds.cage4.rules.scenario import BLUE_AGENTS, BLUE_DURATION, NUM_ACTIONS, RESTORE, EnterpriseOptions
from redline.worlds.cage4.rules.state import record_type
from redline.worlds.cage4.single import Cage4Env

DATA = Path(__file__).parents[2] / "data" / "cage4"
STEPS = 12
SLEEP = np.array(SLEEPS)


def make(num_envs: int = 3, **options) -> Cage4VectorEnv:
    return redline.make_env("cage4", num_envs, **{"steps": STEPS, **options})


def chosen(num_envs: int, t: int) -> np.ndarray:
    return np.random.default_rng(t).integers(0, NUM_ACTIONS, (num_envs, 5))


def going_on(env: Cage4VectorEnv, first: int = 0, num_steps: int = 2 * STEPS) -> list:
    return [plain(env.step(chosen(env.num_envs, t))) for t in range(first, first + num_steps)]


def test_arrays_have_an_axis_of_agents_and_there_is_one_reward():
    env = make()
    obs, infos = env.reset(seed=0)
    assert obs.shape == (3, 5, 210) and obs in env.observation_space
    assert infos["action_mask"].shape == (3, 5, 242) and infos["acting"].all()
    obs, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
    assert (rewards.shape, terminated.any(), truncated.any(), infos["acting"].shape) == ((3,), False, False, (3, 5))
    sizes = [(env.spaces(agent).observation.shape[0], env.spaces(agent).action.n) for agent in env.agents]
    assert sizes == [(92, 82)] * 4 + [(210, 242)] and env.agents == BLUE_AGENTS


def test_an_episode_ends_one_step_early_and_begins_again_at_once():
    env = make(2)
    env.reset(seed=0)
    returns = np.zeros(2)
    for _ in range(STEPS - 1):
        _, rewards, terminated, truncated, infos = env.step(chosen(2, 1))
        returns += rewards
    assert truncated.all() and not terminated.any() and (env.state.clock == 0).all()
    assert infos["episode"]["r"].tolist() == returns.tolist() and (infos["episode"]["l"] == STEPS - 1).all()
    assert infos["episode_metrics"]["official"].tolist() == (returns - rewards).tolist()


def test_an_env_does_not_notice_its_neighbours():
    crowd, alone = make(3), make(1)
    (obs, _), (same, _) = crowd.reset(seed=5), alone.reset(seed=7)
    assert (obs[2] == same[0]).all()
    for t in range(2 * STEPS):
        actions = chosen(3, t)
        obs, rewards, *_ = crowd.step(actions)
        same, own, *_ = alone.step(actions[2:])
        assert (obs[2] == same[0]).all() and rewards[2] == own[0]
    assert (crowd.state[2:] == alone.state).all()


def test_some_envs_are_reset_and_seeded_alone():
    env, other = make(3), make(1)
    env.reset(seed=0)
    env.step(chosen(3, 0))
    before = env.state.copy()
    obs, _ = env.reset(seed=[4, None, 9], options={"reset_mask": np.array([False, False, True])})
    assert (env.state[:2] == before[:2]).all() and (obs[2] == other.reset(seed=9)[0][0]).all()


def test_a_restored_snapshot_goes_on_as_if_nothing_had_happened():
    env = make()
    env.reset(seed=1)
    going_on(env, num_steps=STEPS // 2)
    snapshot = env.snapshot()
    rest = going_on(env, 100)
    for again in (env, make()):
        again.restore(snapshot)
        assert (again.acting == snapshot["acting"]).all()
        assert_same(going_on(again, 100), rest)
    with pytest.raises(RedlineError, match="acting does not fit"):
        env.restore({name: array for name, array in snapshot.items() if name != "acting"})


def test_compiled_and_interpreted_rules_play_the_same():
    fast, slow = make(2, steps=8), make(2, steps=8, turbo=False)
    assert_same(plain(slow.reset(seed=3)), plain(fast.reset(seed=3)))
    assert_same(going_on(slow, num_steps=9), going_on(fast, num_steps=9))
    assert (fast.state.view(np.ndarray) == slow.state.view(np.ndarray)).all()


def test_encoded_observations_decode_to_those_that_are_handed_out():
    env, encoded = make(), make(encoded=True)
    (obs, _), (stored, _) = env.reset(seed=2), encoded.reset(seed=2)
    for t in range(STEPS):
        assert stored.shape == (3, 5, 4) and (encoded.encoding.decode(stored) == obs.reshape(3, -1)).all()
        obs, stored = env.step(chosen(3, t))[0], encoded.step(chosen(3, t))[0]


def test_who_is_busy_is_not_heard_but_asking_for_repairs_costs():
    env = make(1, red_agent="SleepAgent", green_agent="SleepAgent")
    _, infos = env.reset(seed=0)
    restore = next(a for a in range(82) if a >= 33 and infos["action_mask"][0, 0, a])  # Restore of a host that is there
    actions = SLEEP[None].copy()
    actions[0, 0] = restore
    acting = []
    for _ in range(int(BLUE_DURATION[RESTORE])):
        _, rewards, _, _, infos = env.step(actions)
        assert rewards[0] == -1.0
        acting.append(bool(infos["acting"][0, 0]))
    assert acting == [False] * 4 + [True] and infos["acting"][0, 1:].all()


def test_messages_reach_the_four_others_in_the_same_step_and_only_in_that():
    env = make(1)
    env.reset(seed=0)
    env.messages = np.zeros((1, 5, 8))
    env.messages[0, 2] = [1, 0, 1, 1, 0, 0, 0, 1]
    obs = env.step(SLEEP[None])[0]
    for b, place in ((0, 1), (1, 1), (3, 2)):
        assert obs[0, b, 60:92].reshape(4, 8)[place].tolist() == [1, 0, 1, 1, 0, 0, 0, 1]
    assert not obs[0, 2, 60:92].any()
    assert not env.step(SLEEP[None])[0][0, :, 60:92][0].any()
    env.messages = np.zeros((1, 5, 3))
    with pytest.raises(RedlineError, match=r"pass \[1, 5, 8\] bits"):
        env.step(SLEEP[None])


def test_actions_that_do_not_fit_are_refused_and_change_nothing():
    env = make()
    with pytest.raises(RedlineError, match="Call reset first"):
        env.step(np.zeros((3, 5), np.int64))
    env.reset(seed=0)
    before = env.state.copy()
    for wrong in (np.zeros(3, np.int64), np.zeros((3, 5)), np.full((3, 5), 82), np.full((3, 5), -1)):
        with pytest.raises(RedlineError):
            env.step(wrong)
    assert (env.state == before).all()


@pytest.mark.parametrize(
    "options", [{"red_agent": "Nobody"}, {"green_agent": "x"}, {"steps": 1}, {"room": 0}, {"o": 1}]
)
def test_options_that_cannot_be_played_are_refused(options):
    with pytest.raises(RedlineError) as refusal:
        make(1, **options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("pool", ["items", "sessions", "used ports"])
def test_an_episode_that_outgrows_its_room_says_so(pool):
    env = make(1, steps=500)
    env.reset(seed=0)
    if pool == "items":
        env.state.free[0] = 0
    elif pool == "sessions":
        env.state.session_first[0, 1:] = env.state.session_id.shape[1]
    else:
        for k, router in enumerate(env.state.zone_first[0, :7]):  # nobody else has room beside them
            env.state.used_first[0, router], env.state.used_width[0, router] = k * 43 * 120, 120 if k < 6 else 116
        env.state.used_end[0] = 43 * (6 * 120 + 116)
    with pytest.raises(RedlineError, match=r"outgrown the room.*room=2"):
        for t in range(400):
            env.step(chosen(1, t))


def test_more_room_changes_nothing_else():
    env, roomy = make(1), make(1, room=2, turbo=False)
    env.reset(seed=1)
    roomy.reset(seed=1)
    assert record_type(2).itemsize > record_type(1).itemsize
    assert_same(going_on(roomy, num_steps=5), going_on(env, num_steps=5))


def test_the_true_state_tells_what_blue_cannot_see():
    env = make(2, steps=200)
    env.reset(seed=0)
    truth = env.true_state()
    assert [[session.agent for session in each] for each in truth.sessions] == [[0], [0]]
    assert truth.access.sum() == 2 and (truth.reliability[truth.host_zone == 0] == 100).all()
    for _ in range(150):
        env.step(np.tile(SLEEP, (2, 1)))
    truth = env.true_state()
    assert (
        (truth.access == 2).any() and (truth.clock == 150).all() and (truth.phase == 2).all() and not truth.blocks.any()
    )


# One of the five


def test_one_of_five_plays_while_others_are_played_for():
    asked = []

    def other(obs: np.ndarray, mask: np.ndarray) -> int:
        asked.append((obs.shape, mask.shape))
        return int(mask.argmax())

    one = Cage4Env("blue_agent_4", {"blue_agent_1": other}, steps=STEPS)
    team = make(1)
    (obs, info), (all_obs, _) = one.reset(seed=3), team.reset(seed=3)
    for action in range(150, 150 + STEPS - 1):
        assert (obs == all_obs[0, 4]).all() and info["action_mask"].shape == (242,)
        actions = SLEEP[None].copy()
        actions[0, 1], actions[0, 4] = team.action_masks()[0, 1].argmax(), action
        all_obs, rewards, _, truncated, infos = team.step(actions)
        obs, reward, _, is_over, info = one.step(action)
        assert (reward, is_over) == (rewards[0], truncated[0])
    assert is_over and (obs == infos["final_obs"][0, 4]).all() and set(asked) == {((92,), (82,))}
    with pytest.raises(RedlineError, match="no agent red"):
        Cage4Env("red")


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_finds_nothing_wrong_with_it():
    check_env(Cage4Env(steps=STEPS), skip_render_check=True)


# Teams and commands


def command(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_simple_teams_are_scored_by_the_official_protocol(capsys):
    found = command(capsys, "eval", "cage4?steps=12", "--episodes", "3", "--seed", "5")
    assert [each["policy"] for each in found["scores"]] == ["sleep", "random", "react", "repair", "respond"]
    assert all(each["episodes"] == 3 and each["all_rewards"]["mean"] <= each["mean"] for each in found["scores"])
    [one] = command(capsys, "eval", "cage4?steps=12", "--policy", "react", "--episodes", "3", "--seed", "5")["scores"]
    assert one == found["scores"][2]
    assert main(["eval", "cage4", "--policy", "nobody"]) == 2


def test_the_reacting_team_repairs_what_is_noticed_and_puts_traffic_right():
    env = Cage4VectorEnv(1, EnterpriseOptions())
    obs, infos = env.reset(seed=0)
    react = make_baseline("react", 0)
    obs[0, 0, 1 + 27 + 6] = 1  # a process on the first host of users
    kinds = {int(react(obs, infos["action_mask"], infos["acting"])[0, 0]) for _ in range(40)}
    assert kinds == {17 + 6, 33 + 6}  # Remove and Restore of that host
    quiet = {int(react(obs, infos["action_mask"], infos["acting"])[0, 1]) for _ in range(60)}
    assert any(58 <= action < 66 for action in quiet) and any(action >= 66 for action in quiet)


def test_bench_sim_steps_a_team(capsys):
    arguments = ("--batch-sizes", "2", "--threads", "1", "--seconds", "0.01", "--turns", "1", "--no-start-up")
    found = command(capsys, "bench", "sim", "cage4?steps=12", *arguments)
    assert {row["speed"] for row in found["rates"]} == {"compiled", "interpreted"}
