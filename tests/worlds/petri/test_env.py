"""What Gymnasium's face of a net promises on top of what every world does (see contracts/test_worlds.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from redline.engines.lockstep import Lockstep
from redline.errors import RedlineError
from redline.testing.contract import chosen, plain
from redline.worlds.batch import BatchEnv
from redline.worlds.petri.env import PetriEnv, PetriVectorEnv, parse_petri
from redline.worlds.registry import make_env, register_envs
from tests.worlds.petri.playing import complaint

register_envs()
PRESS = Path(__file__).parents[2] / "data" / "petri" / "pnml" / "weighted_press_3.pnml"
CASES: list[tuple[str, dict[str, Any]]] = [
    ("petri:cluster/S-0?wafers=2", {}),
    ("petri:cluster/S-0?wafers=2", {"turbo": False}),
    ("petri:cluster/1-4", {"arms": 2, "wafers": 3, "reward": "ct_dense"}),
    ("petri:cluster/2-2?cleaning=on&gate=route&wip_limit=route&device=cascade_full&tm1=rule", {"wafers": 3}),
    ("petri:jobshop/ft06", {}),
    ("petri:cluster/J-0?layout=graph&wafers=3&stop_on_scrap=off", {}),
    ("petri:jobshop/ft06?actions=operations&non_delay=on", {}),
    (f"petri:{PRESS}?goal=Unit:2&max_steps=15&default_duration=2", {}),
]
every_env = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=["tool", "interpreted", "two arms", "full", "jobs", "graph", "operations", "pnml"]
)
STEPS = 40


def play(env: BatchEnv, num_steps: int = STEPS) -> list[Any]:
    return [plain(env.step(chosen(env, t))) for t in range(num_steps)]


@every_env
def test_every_episode_begins_alike(name, options):
    env = make_env(name, 3, **options)
    first_obs, infos = env.reset(seed=0)
    first_mask, ends = infos["action_mask"], 0
    for t in range(6 * STEPS if options.get("turbo", True) else STEPS):
        obs, _, terminated, truncated, infos = env.step(chosen(env, t))
        ended = terminated | truncated
        assert (obs[ended] == first_obs[ended]).all()
        assert (infos["action_mask"][ended] == first_mask[ended]).all()
        ends += ended.sum()
    assert ends


@every_env
def test_seeds_are_taken_and_change_nothing(name, options):
    env = make_env(name, 3, **options)
    plays = []
    for seed in (5, np.int64(5), [1, 2, 3], None):
        env.reset(seed=seed)
        plays.append(play(env, 10))
    assert all(each == plays[0] for each in plays)


@pytest.mark.parametrize(
    "other", [("petri:cluster/J-0?wafers=5", 2), ("petri:cluster/J-0?wafers=4", 3), ("petri:jobshop/ft06", 2)]
)
def test_a_snapshot_of_another_kind_of_env_is_refused(other):
    env, stranger = make_env("petri:cluster/J-0?wafers=4", 2), make_env(*other)
    env.reset(seed=0)
    with pytest.raises(RedlineError, match="cannot go on"):
        stranger.restore(env.snapshot())  # type: ignore[attr-defined]


def test_gymnasium_makes_it_by_id():
    env = gym.make("redline/Petri-v0", name="petri:jobshop/ft06")
    obs, info = env.reset(seed=0)
    assert obs in env.observation_space
    assert info["action_mask"].sum() == 6


def test_an_engine_collects_from_it_with_masks():
    env = make_env("petri:jobshop/ft06", 4)
    engine = Lockstep(env, seed=0)
    assert engine._masks is not None
    assert engine._masks.shape == (4, 7)


def test_what_an_episode_came_to_is_told():
    env = PetriEnv("petri:cluster/S-0?wafers=1", log_size=20)
    _, info = env.reset()
    names = env.net.action_names
    for name in ("u_LP_TM1", "t_TM1_PM1", "u_PM1_TM1", "t_TM1_PM3", "u_PM3_TM1", "t_TM1_LP_done"):
        *_, terminated, _, info = env.step(names.index(name))
    assert terminated
    assert info["action_mask"].tolist() == [True] + [False] * (len(info["action_mask"]) - 1)
    assert (info["outcome"], info["completed"], info["end_time"], info["finished"]) == ("done", 1, 445, 1)
    assert (info["margin_min"], info["margin_mean"]) == (15, 15)
    assert info["episode"]["r"] == pytest.approx(0)  # one wafer flows as fast as the bound says
    starts = [(int(start), names[t]) for start, _, t, _ in env.firings()]
    assert starts[:3] == [(0, "u_LP_TM1"), (10, "t_TM1_PM1"), (115, "u_PM1_TM1")]


def test_work_is_counted_in_seconds():
    env = PetriVectorEnv(1, "petri:cluster/S-0?wafers=1")
    env.reset()
    for name in ("u_LP_TM1", "t_TM1_PM1", "u_PM1_TM1", "t_TM1_PM3", "u_PM3_TM1", "t_TM1_LP_done"):
        *_, infos = env.step(np.array([env.net.action_names.index(name)]))
    assert infos["resource_seconds"].tolist() == [[30]]
    work = dict(zip((place.name for place in env.net.places), infos["place_seconds"][0].tolist(), strict=True))
    assert (work["PM1"], work["PM3"], work["PM4"]) == (100, 300, 0)


# What is refused


def test_an_illegal_action_is_refused_and_changes_nothing():
    env = make_env("petri:cluster/J-0", 2)
    _, infos = env.reset(seed=0)
    before = env.snapshot()  # type: ignore[attr-defined]
    line = complaint(lambda: env.step(np.array([0, 5])))
    assert line.startswith(
        "Env 1 does not allow action 5 (u_LLC_TM2) now: choose by infos['action_mask'], e.g. 0 (u_LP_TM2)"
    )
    after = env.snapshot()  # type: ignore[attr-defined]
    assert all((before[part] == after[part]).all() for part in before)
    assert infos["action_mask"][0].sum() == 1


def test_an_illegal_action_can_be_ignored():
    env = make_env("petri:cluster/J-0", 1, illegal="ignore")
    first, _ = env.reset(seed=0)
    obs, rewards, terminated, truncated, infos = env.step(np.array([5]))
    assert (obs == first).all()
    assert (rewards[0], terminated[0], truncated[0]) == (0, False, False)
    assert infos["action_mask"][0].sum() == 1


@pytest.mark.parametrize(
    ("actions", "words"),
    [(np.array([0.5, 1]), "type float64"), (np.array([0]), "shape (1,)"), (np.array([0, 99]), "must be 0 to 35")],
)
def test_actions_that_do_not_fit_are_refused(actions, words):
    env = make_env("petri:cluster/J-0", 2)
    env.reset()
    assert words in complaint(lambda: env.step(actions))


def test_other_mistakes_are_said_in_a_line():
    assert "Call reset first" in complaint(lambda: make_env("petri:cluster/J-0", 1).step(np.array([0])))
    assert "0 envs cannot be stepped" in complaint(lambda: PetriVectorEnv(0))
    assert "illegal actions 'igore'" in complaint(lambda: make_env("petri:cluster/J-0", 1, illegal="igore"))
    assert "There is no cluster option 'wafer'" in complaint(lambda: make_env("petri:cluster/J-0", 1, wafer=3))
    assert "reset mask" in complaint(lambda: make_env("petri:cluster/J-0", 1).reset(options={"reset_mask": True}))
    assert "2 seeds" in complaint(lambda: make_env("petri:cluster/J-0", 1).reset(seed=[1, 2]))
    assert "seed of -1" in complaint(lambda: make_env("petri:cluster/J-0", 1).reset(seed=-1))


def test_options_can_be_given_in_the_name_or_beside_it():
    assert parse_petri("cluster/J-0?wafers=3&arms=2").net == parse_petri("petri:cluster/J-0", wafers=3, arms=2).net
    assert parse_petri("cluster/J-0", cleaning=True).options == parse_petri("cluster/J-0?cleaning=on").options
    assert "wafers=1.5 is no whole number" in complaint(lambda: parse_petri("cluster/J-0", wafers=1.5))
    assert "wafers=on is no whole number" in complaint(lambda: parse_petri("cluster/J-0", wafers=True))
    assert "Try cluster/1-1." in complaint(lambda: parse_petri("cluster/J-0", route="1-1"))


def test_the_arcs_of_a_net_are_told():
    env = gym.make("redline/Petri-v0", name=f"petri:{PRESS}?layout=graph")
    net, arcs = env.unwrapped.net, env.unwrapped.arcs  # type: ignore[attr-defined]
    assert env.observation_space.shape == (len(net.places) * 15,)
    assert (arcs.dtype, arcs.shape) == (np.int32, (sum(len(t.inputs) + len(t.outputs) for t in net.transitions), 3))
    for t, transition in enumerate(net.transitions):
        taken = {net.places[p].name: -weight for _, p, weight in arcs[arcs[:, 0] == t].tolist() if weight < 0}
        assert taken == dict(transition.inputs)
