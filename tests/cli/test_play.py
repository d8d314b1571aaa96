"""`redline play`: an episode, step by step."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from redline.cli import main
from redline.engines import vector
from redline.learn.acting import Actor
from redline.learn.evaluate import load_policy, play
from redline.learn.watching import PolicyPlayer, watch
from redline.report.episodes import watch_trained
from redline.report.film import picture_of, plain_film, play_of
from redline.worlds.python.names import KNOWN, names_of
from redline.worlds.registry import make_single, world_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on the default world."""
    folder = tmp_path_factory.mktemp("play") / "run"
    words = (
        f"train cage2 --max-steps 12 --total-steps 768 --num-envs 16 --num-steps 12 --hidden 8 --run-dir {folder} -q"
    )
    assert main([*words.split(), "--eval-episodes", "0"]) == 0
    return folder


def printed(capsys, *words: str) -> str:
    assert main(["play", *words]) == 0
    return capsys.readouterr().out


def test_a_file_gets_every_step_as_plain_text(run, capsys):
    text = printed(capsys, str(run), "--seed", "3")
    assert "The beginning" in text and "Step 12 of 12" in text and "\x1b" not in text
    assert "Blue" in text and "Red " in text and "return so far" in text


def test_the_episode_is_the_first_that_eval_plays_with_that_seed(run):
    trained = load_policy(run)
    _, episode = watch_trained(trained, seed=5)
    env = vector("cage2", 1, "vector", seed=5, infos=False, max_steps=12, encoded=True)
    returns = play(env, Actor(trained.policy, 1, 5, False), 1, 5)
    assert round(episode.total, 9) == returns[0]


def test_options_of_the_env_may_differ_from_those_it_was_trained_with(run, capsys):
    found = json.loads(printed(capsys, str(run), "--red-agent", "RedMeanderAgent", "--max-steps", "7", "--json"))
    assert found["length"] == 7
    named = json.loads(printed(capsys, str(run), "--env", "cage2?red_agent=RedMeanderAgent&max_steps=7", "--json"))
    assert found["steps"] == named["steps"]
    assert main(["play", str(run), "--rules", "leaderbord"]) == 2
    assert "Did you mean 'leaderboard'" in capsys.readouterr().err


def test_five_likeliest_actions_are_told_with_their_chances(run, capsys):
    found = json.loads(printed(capsys, str(run), "--json"))
    for step in found["steps"]:
        chances = [each["chance"] for each in step["likeliest"]]
        assert len(chances) == 5 and chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1 + 1e-6
    assert found["length"] == 12 and found["return"] == pytest.approx(sum(step["reward"] for step in found["steps"]))


def test_a_deterministic_player_takes_the_likeliest(run, capsys):
    found = json.loads(printed(capsys, str(run), "--deterministic", "--json"))
    assert all(step["action"] == step["likeliest"][0]["action"] for step in found["steps"])


def test_rewards_are_made_up_of_their_reasons():
    film = _film("cage2", "react-restore", 1)
    for frame in film.frames[1:]:
        assert frame.reward == pytest.approx(sum(points for _, points in frame.reasons))
    assert any(moment.words.startswith("first exploit") for moment in film.moments)
    restores = [frame for frame in film.frames if dict(frame.facts).get("Blue", "").startswith("Restore")]
    assert len([moment for moment in film.moments if moment.words.startswith("Restore")]) == len(restores) > 0


def _film(env: str, player: str, seed: int):
    from redline.report.episodes import watch_player

    shown, episode = watch_player(env, player, seed)
    return shown.film(episode)


def test_the_schedule_of_a_net_is_played_as_it_is_drawn():
    film = _film("petri:jobshop/ft06", "MWR", 0)
    assert "makespan" in film.title and film.moments[-1].words.startswith("6 finished")
    jobs = [shape for shape in film.frames[0].layers["tokens desk"] if getattr(shape, "words", "").isdigit()]
    assert sorted(shape.words for shape in jobs) == list("012345")


class Counter(gym.Env):
    """Somebody's own env, with pictures and names."""

    metadata = {"render_modes": ["rgb_array"]}
    action_names = ("wait", "count")

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = gym.spaces.Discrete(2, start=3)
        self.observation_space = gym.spaces.Box(0, 10, (2,), np.float32)
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert action in (3, 4)
        self.count += action - 3
        return np.array([self.count, 1], np.float32), float(action - 3), self.count == 3, False, {}

    def render(self):
        return np.full((4, 6, 3), 40 * self.count, np.uint8)


def test_any_env_gets_a_plain_film_with_its_own_pictures():
    from redline.learn.watching import Move
    from redline.report.film import rendered

    env = Counter("rgb_array")
    episode = watch(env, "mine", lambda obs, mask: Move(4, ((1, 0.75), (0, 0.25)), number=1), 0, note=rendered)
    film = plain_film(episode)
    assert [dict(frame.facts).get("action") for frame in film.frames] == [None, "count", "count", "count"]
    assert dict(film.frames[3].facts)["observation 0"] == "3"
    assert film.frames[1].likeliest[0].taken and film.frames[0].image[:4] == b"\x89PNG"


class Blind(Counter):
    """An env that says it renders, and cannot."""

    def render(self):
        raise ImportError("pip install painter")


def test_an_env_that_cannot_draw_itself_says_why(run, monkeypatch):
    from redline.report import episodes

    monkeypatch.setattr(episodes, "make_single", lambda name, **options: Blind(**options))
    play, env, why = episodes._stage("CartPole-v1", {}, None)
    assert env.render_mode is None and "pip install painter" in why
    assert play.film is plain_film


def test_names_of_well_known_envs_are_known_and_those_of_an_env_come_first():
    cart = names_of(gym.make("CartPole-v1"))
    assert cart.actions == ("push left", "push right") and cart.observations[2] == "pole angle"
    wrapped = gym.wrappers.TimeLimit(Counter(), 5)
    assert names_of(wrapped).actions == ("wait", "count") and names_of(wrapped).observations == ()


def test_every_name_we_know_fits_its_env():
    for name, known in KNOWN.items():
        versions = [spec for spec in gym.registry.values() if spec.name == name and spec.namespace is None]
        try:
            env = gym.make(max(versions, key=lambda spec: spec.version or 0))
        except gym.error.DependencyNotInstalled:
            continue
        assert not known.actions or len(known.actions) == env.action_space.n, name
        assert not known.observations or len(known.observations) == env.observation_space.shape[0], name


def test_an_observation_that_is_a_picture_is_shown_as_one():
    grey = picture_of(np.linspace(0, 1, 12), (1, 3, 4))
    assert grey.shape == (3, 4, 3) and grey[0, 0].tolist() == [0, 0, 0] and grey[2, 3].tolist() == [255, 255, 255]
    layers = np.zeros((4, 2, 2))
    layers[3, 1, 0] = 1
    shown = picture_of(layers.reshape(-1), (4, 2, 2))
    assert shown[1, 0].any() and shown.reshape(-1, 3).any(axis=1).sum() == 1
    assert picture_of(np.zeros(4), ()) is None


def test_an_attack_is_shown_on_a_map_of_its_network():
    from redline.learn.watching import Move

    env = make_single("nasim:tiny")
    shown = play_of(world_of("nasim:tiny"))
    rng = np.random.default_rng(0)
    episode = watch(
        env, "nasim:tiny", lambda obs, mask: Move(int(rng.integers(env.action_space.n))), 0, note=shown.note
    )
    film = shown.film(episode)
    for frame in film.frames[1:]:
        assert frame.reward == pytest.approx(sum(points for _, points in frame.reasons))
    assert episode.terminated and dict(film.frames[-1].facts)["goals left"] == "0"
    words = [moment.words for moment in film.moments]
    assert words[0].startswith("first foothold") and words[-1].startswith("goal: root on")
    assert len(film.frames[0].layers) == 2 * len(env.unwrapped.batch.network.hosts)


def test_a_world_without_play_is_shown_plainly():
    assert play_of(world_of("slow")).film is plain_film


def test_a_policy_plays_only_where_it_sees_what_it_was_trained_on(run, capsys):
    assert main(["play", str(run), "--env", "cage2?observation=history"]) == 2
    assert "the policy was trained on 52" in capsys.readouterr().err
    assert "RedMeanderAgent" in printed(capsys, str(run), "--env", "cage2?red_agent=RedMeanderAgent", "-q")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["cage2"],
            "who is to play? Pass the folder of a run on it, or one of its simple players: --policy sleep, random",
        ),
        (["petri:jobshop/ft06"], "--policy SPT, MWR, MOR, FIFO"),
        (["CartPole-v1"], "who is to play? Pass the folder of a run on it: redline play runs/NAME"),
        (["nowhere"], "no run or checkpoint nowhere"),
        (["slow", "--policy", "sleep"], "no players of its own"),
        (["cage2", "--policy", "slep"], "sleep"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line(words, why, capsys):
    assert main(["play", *words]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("redline:")]
    assert len(error) == 1 and why in error[0]


def test_frames_begin_with_the_step_that_was_asked_for(capsys):
    text = printed(capsys, "petri:jobshop/ft06", "--policy", "SPT", "--step", "3")
    assert "Step 3 of" in text and "Step 4 of" in text
    assert "Step 2 of" not in text and "The beginning" not in text


def test_a_terminal_gets_all_frames_through_its_pager(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "redline", "play", "petri:jobshop/ft06", "--policy", "SPT"]
    kept = tmp_path / "paged"
    env = {**os.environ, "PAGER": f"cat > {kept}", "TERM": "xterm"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env)
    os.close(theirs)
    try:
        assert process.wait(timeout=100) == 0
    finally:
        process.kill()
        os.close(ours)
    assert "The beginning" in kept.read_text() and "Step 36 of 36" in kept.read_text()


@pytest.mark.parametrize("name", ["cage2", "petri:jobshop/ft06", "nasim:tiny"])
def test_our_envs_render_as_gymnasium_asks(name):
    text = make_single(name, render_mode="ansi")
    text.reset(seed=0)
    assert "The beginning" in text.render()
    text.step(int(text.action_masks().argmax()))
    assert "Step 1" in text.render() and "return so far" in text.render()
    drawn = make_single(name, render_mode="rgb_array")
    drawn.reset(seed=0)
    dots = drawn.render()
    assert dots.dtype == np.uint8 and dots.ndim == 3 and dots.shape[2] == 3 and len(np.unique(dots)) > 10
    for _ in range(3):  # a video needs frames of one size
        drawn.step(int(drawn.action_masks().argmax()))
        assert drawn.render().shape == dots.shape
    assert make_single(name).render() is None
    assert len(drawn.action_names) == drawn.action_space.n
    assert len(drawn.observation_names) == len(drawn.observation_space.sample())
    assert drawn.batch.observation_names == drawn.observation_names and len(drawn.batch.action_names)


def test_a_player_draws_like_its_actor(run):
    trained = load_policy(run)
    player, actor = PolicyPlayer(trained.policy, 4), Actor(trained.policy, 1, 4, False)
    obs = np.zeros(trained.policy.encoding.shape, trained.policy.encoding.dtype)
    for _ in range(5):
        actor.begin(1)
        assert player(obs, None).action == actor.act(obs[None], None).actions[0]
