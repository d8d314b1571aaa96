"""What Gymnasium's face of a net promises: the promises of every env, and legal actions on top."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, VectorEnv

from redline.engines.lockstep import Lockstep
from redline.envs import make_env
from redline.envs.petri import PetriEnv, PetriVectorEnv, parse_petri
from redline.errors import RedlineError

PRESS = Path(__file__).parents[1] / "data" / "petri" / "pnml" / "weighted_press_3.pnml"
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


def choose(infos: dict[str, Any], seed: int) -> np.ndarray:
    """A legal action for each env, the same for the same mask and seed."""
    rng = np.random.default_rng(seed)
    weights = rng.random(infos["action_mask"].shape[1])
    return np.argmax(np.where(infos["action_mask"], weights, -1.0), axis=1)


def plain(answer: Any) -> Any:
    """Nested lists and dicts, which compare with `==`. Rows of `final_obs` that no mask vouches for are dropped."""
    if isinstance(answer, dict):
        kept = {key: value[answer["_final_obs"]] if key == "final_obs" else value for key, value in answer.items()}
        return {key: plain(value) for key, value in kept.items()}
    return [plain(part) for part in answer] if isinstance(answer, tuple) else answer.tolist()


def play(env: VectorEnv, infos: dict[str, Any], num_steps: int = STEPS) -> list[Any]:
    answers = []
    for t in range(num_steps):
        answer = env.step(choose(infos, t))
        infos = answer[-1]
        answers.append(plain(answer))
    return answers


@every_env
def test_answers_have_the_promised_shapes_and_types(name, options):
    env = make_env(name, 3, **options)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, infos = env.reset(seed=0)
    actions = int(env.single_action_space.n)  # type: ignore[attr-defined]
    for t in range(STEPS):
        assert obs in env.observation_space
        assert all(row in env.single_observation_space for row in obs)
        mask = infos["action_mask"]
        assert (mask.shape, mask.dtype) == ((3, actions), np.bool_)
        assert mask.any(axis=1).all()
        obs, rewards, terminated, truncated, infos = env.step(choose(infos, t))
        assert (rewards.shape, rewards.dtype) == ((3,), np.float64)
        for flags in (terminated, truncated):
            assert (flags.shape, flags.dtype) == ((3,), np.bool_)
        assert not (terminated & truncated).any()


@every_env
def test_an_answer_is_not_overwritten_by_the_next_one(name, options):
    env = make_env(name, 2, **options)
    _, infos = env.reset(seed=0)
    raw, kept = [], []
    for t in range(STEPS):
        raw.append(env.step(choose(infos, t)))
        kept.append(plain(raw[-1]))
        infos = raw[-1][-1]
    assert [plain(answer) for answer in raw] == kept


@every_env
def test_an_ended_episode_begins_again_in_the_same_step(name, options):
    env = make_env(name, 3, **options)
    first_obs, infos = env.reset(seed=0)
    first_mask, returns, lengths, ends = infos["action_mask"], np.zeros(3), np.zeros(3, int), 0
    for t in range(6 * STEPS if options.get("turbo", True) else STEPS):
        obs, rewards, terminated, truncated, infos = env.step(choose(infos, t))
        returns += rewards
        lengths += 1
        ended = terminated | truncated
        assert ended.any() == ("final_obs" in infos) == ("episode" in infos)
        if not ended.any():
            continue
        ends += 1
        assert infos["_final_obs"].tolist() == infos["_episode"].tolist() == ended.tolist()
        np.testing.assert_allclose(infos["episode"]["r"][ended], returns[ended], atol=1e-9)
        assert infos["episode"]["l"].tolist() == np.where(ended, lengths, 0).tolist()
        assert (obs[ended] == first_obs[ended]).all()
        assert (infos["action_mask"][ended] == first_mask[ended]).all()
        assert all(values.shape == (3,) for values in infos["episode_metrics"].values())
        returns[ended], lengths[ended] = 0, 0
    assert ends


@every_env
def test_seeds_are_taken_and_change_nothing(name, options):
    env = make_env(name, 3, **options)
    plays = [play(env, env.reset(seed=seed)[1], 10) for seed in (5, np.int64(5), [1, 2, 3], None)]
    assert all(each == plays[0] for each in plays)


@every_env
def test_a_reset_mask_leaves_the_other_envs_alone(name, options):
    env = make_env(name, 3, **options)
    first, infos = env.reset(seed=5)
    play(env, infos, 5)
    before, _ = env.reset(options={"reset_mask": np.zeros(3, np.bool_)})
    obs, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert (obs[1] == first[1]).all()
    assert (obs[[0, 2]] == before[[0, 2]]).all()


@every_env
def test_a_restored_snapshot_goes_on_as_if_nothing_had_happened(name, options):
    env = make_env(name, 3, **options)
    _, infos = env.reset(seed=5)
    for t in range(9):
        obs, *_, infos = env.step(choose(infos, t))
    snapshot = env.snapshot()  # type: ignore[attr-defined]
    rest = play(env, infos, 15)
    for other in (env, make_env(name, 3, **options)):
        assert other.restore(snapshot).tolist() == obs.tolist()  # type: ignore[attr-defined]
        assert play(other, infos, 15) == rest


@pytest.mark.parametrize(
    "other", [("petri:cluster/J-0?wafers=5", 2), ("petri:cluster/J-0?wafers=4", 3), ("petri:jobshop/ft06", 2)]
)
def test_a_snapshot_of_another_kind_of_env_is_refused(other):
    env, stranger = make_env("petri:cluster/J-0?wafers=4", 2), make_env(*other)
    env.reset(seed=0)
    with pytest.raises(RedlineError, match="cannot go on"):
        stranger.restore(env.snapshot())  # type: ignore[attr-defined]


@every_env
def test_the_single_env_plays_what_the_batch_plays(name, options):
    batch, alone = make_env(name, 1, **options), PetriEnv(name, **options)
    (obs, infos), (its_obs, info) = batch.reset(seed=0), alone.reset(seed=0)
    for t in range(STEPS):
        assert (obs[0] == its_obs).all()
        assert (infos["action_mask"][0] == info["action_mask"]).all()
        [action] = choose(infos, t)
        obs, rewards, terminated, truncated, infos = batch.step(np.array([action]))
        its_obs, reward, is_terminated, is_truncated, info = alone.step(action)
        assert (rewards[0], terminated[0], truncated[0]) == (reward, is_terminated, is_truncated)
        if terminated[0] or truncated[0]:
            assert (infos["final_obs"][0] == its_obs).all()
            assert info["episode"]["l"] == infos["episode"]["l"][0]
            assert info["action_mask"].tolist() == [True] + [False] * (len(info["action_mask"]) - 1)
            its_obs, info = alone.reset()


@pytest.mark.filterwarnings("ignore:.*render.*")
@every_env
def test_gymnasium_finds_nothing_wrong_with_it(name, options):
    check_env(PetriEnv(name, illegal="ignore", **options), skip_render_check=True)


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
    names = env.net.actions
    for name in ("u_LP_TM1", "t_TM1_PM1", "u_PM1_TM1", "t_TM1_PM3", "u_PM3_TM1", "t_TM1_LP_done"):
        *_, terminated, _, info = env.step(names.index(name))
    assert terminated
    assert (info["outcome"], info["completed"], info["end_time"], info["finished"]) == ("done", 1, 445, 1)
    assert (info["margin_min"], info["margin_mean"]) == (15, 15)
    assert info["episode"]["r"] == pytest.approx(0)  # one wafer flows as fast as the bound says
    starts = [(int(start), names[t]) for start, _, t, _ in env.firings()]
    assert starts[:3] == [(0, "u_LP_TM1"), (10, "t_TM1_PM1"), (115, "u_PM1_TM1")]


def test_work_is_counted_in_seconds():
    env = PetriVectorEnv(1, "petri:cluster/S-0?wafers=1")
    env.reset()
    for name in ("u_LP_TM1", "t_TM1_PM1", "u_PM1_TM1", "t_TM1_PM3", "u_PM3_TM1", "t_TM1_LP_done"):
        *_, infos = env.step(np.array([env.net.actions.index(name)]))
    assert infos["resource_seconds"].tolist() == [[30]]
    work = dict(zip((place.name for place in env.net.places), infos["place_seconds"][0].tolist(), strict=True))
    assert (work["PM1"], work["PM3"], work["PM4"]) == (100, 300, 0)


# What is refused


def complaint(call: Callable[[], Any]) -> str:
    with pytest.raises(RedlineError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    return line


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


def test_the_arcs_of_a_net_are_told():
    env = gym.make("redline/Petri-v0", name=f"petri:{PRESS}?layout=graph")
    net, arcs = env.unwrapped.net, env.unwrapped.arcs  # type: ignore[attr-defined]
    assert env.observation_space.shape == (len(net.places) * 15,)
    assert (arcs.dtype, arcs.shape) == (np.int32, (sum(len(t.inputs) + len(t.outputs) for t in net.transitions), 3))
    for t, transition in enumerate(net.transitions):
        taken = {net.places[p].name: -weight for _, p, weight in arcs[arcs[:, 0] == t].tolist() if weight < 0}
        assert taken == dict(transition.inputs)
