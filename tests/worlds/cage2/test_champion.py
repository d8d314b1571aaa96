"""The policies that come with the package: they load at once, play well, and are what their cards say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import redline
from redline.cli import main
from redline.learn.evaluate import load_policy
from redline.learn.judge import Arena, Judge
from redline.learn.likeliest import Likeliest
from redline.worlds.cage2.memory import INPUTS, Memory
from redline.worlds.registry import shipped_policies

ROOT = Path(__file__).parents[3]
CHAMPIONS = {"champion": "leaderboard", "champion-final": "final"}
every_champion = pytest.mark.parametrize("name", CHAMPIONS)


@every_champion
def test_a_champion_is_small_and_has_a_card_with_its_scores(name):
    folder = shipped_policies()[name]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
    card = json.loads((folder / "card.json").read_text())
    assert card["rules"] == CHAMPIONS[name]
    assert f"--seed {card['seed']}" in card["command"]
    assert len(card["scores"]) == 9
    assert card["learned"]


@every_champion
def test_a_champion_scores_what_its_card_says(name):
    trained = load_policy(shipped_policies()[name])
    card = json.loads((trained.path / "card.json").read_text())
    for agent in ("B_lineAgent", "RedMeanderAgent", "SleepAgent"):
        said = {each["length"]: each for each in card["scores"] if each["red_agent"] == agent}
        judge = Judge(Arena("cage2", {**trained.config.env_options, "red_agent": agent, "tidy": 0.0}), 500, 31, (100,))
        scores = judge.scores(trained.policy)
        stderr = (said[100]["stderr"] ** 2 + scores.var(ddof=1) / len(scores)) ** 0.5
        assert abs(scores.mean() - said[100]["mean"]) <= 4 * stderr


@every_champion
def test_numpy_and_the_tracker_choose_what_the_policy_chooses(name):
    trained = load_policy(shipped_policies()[name])
    env = Arena("cage2", {**trained.config.env_options, "max_steps": 0}).make(40)
    tables = redline.make_env("cage2", 40, red_agent=env.scenario.red_agent, rules=CHAMPIONS[name], max_steps=0)
    weights = load_file(trained.path / "arrays.safetensors")
    trackers = [Memory(CHAMPIONS[name]) for _ in range(40)]
    obs, _ = env.reset(seed=4)
    tables.reset(seed=4)
    player = Likeliest(trained.policy)
    for _ in range(40):
        chosen = player.actions(obs)
        numbers = np.array([tracker.numbers for tracker in trackers], np.float32)
        assert numbers.shape == (40, len(INPUTS))
        hidden = np.tanh(numbers @ weights["policy.trunk.0.weight"].T + weights["policy.trunk.0.bias"])
        hidden = np.tanh(hidden @ weights["policy.trunk.2.weight"].T + weights["policy.trunk.2.bias"])
        by_numpy = np.argmax(hidden @ weights["policy.actor.weight"].T + weights["policy.actor.bias"], axis=1)
        assert (by_numpy == chosen).all()
        full = np.array([tracker.full_action(k) for tracker, k in zip(trackers, chosen, strict=True)])
        obs, *_ = env.step(chosen)
        shown, *_ = tables.step(full)
        for tracker, table, action in zip(trackers, shown, full, strict=True):
            tracker.see(table, action)


def columns(card: dict[str, Any], agent: str) -> str:
    """The means of an agent's columns, as the docs write them."""
    means = [each["mean"] for each in card["scores"] if each["red_agent"] == agent]
    return " / ".join(f"{mean:.2f}".replace("-", "−") for mean in means)


@every_champion
def test_the_docs_say_what_the_card_says(name):
    card = json.loads((shipped_policies()[name] / "card.json").read_text())
    total = f"{card['sum']:.1f}".replace("-", "−")
    cells = (f"**{name}**, rules `{CHAMPIONS[name]}`", columns(card, "B_lineAgent"), columns(card, "RedMeanderAgent"))
    page = (ROOT / "docs" / "champion.md").read_text()
    assert f"| {' | '.join(cells)} | **{total}** |" in page
    assert card["command"] in page
    assert all(each["episodes"] == 4000 for each in card["scores"])
    assert round(sum(each["mean"] for each in card["scores"]), 1) == pytest.approx(card["sum"], abs=0.06)
    if name == "champion":
        assert f"| {total} (best published entry −54.6) |" in (ROOT / "README.md").read_text()


def test_eval_knows_the_champions_by_name(capsys):
    assert main(["eval", "champion-final", "--episodes", "20", "--lengths", "30", "--rules", "final", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policy"] == "champion-final"
    assert [each["mean"] for each in found["scores"] if each["red_agent"] == "SleepAgent"] == [0.0]


def test_python_knows_the_champion_by_name():
    assert redline.load("champion").config.env_options["observation"] == "memory"
