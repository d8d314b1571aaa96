"""Whoever is scored draws from streams that the envs know nothing of."""

from __future__ import annotations

import numpy as np
import pytest

from redline.compiled.rng import actor_seed, seed_streams
from redline.learn import evaluate
from redline.learn.acting import Actor
from redline.learn.policy import Policy
from redline.learn.train import Trainer
from redline.search import training
from redline.worlds.cage2 import protocol
from redline.worlds.cage2.rules.scenario import Scenario
from redline.worlds.petri import scores
from redline.worlds.petri.instances import parse_petri
from tests.learn.test_train import tiny

EPISODES = 1000


@pytest.fixture(scope="module")
def uniform() -> Trainer:
    """A policy that thinks nothing of what it sees."""
    trainer = Trainer(tiny())
    trainer.policy.weights.data.zero_()
    return trainer


def test_the_first_action_tells_nothing_about_the_target_that_red_hides(uniform, monkeypatch):
    """With a shared stream it told all: action and target followed from the same number."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def play_two_steps(env, policy, episodes, seed):
        obs, _ = env.reset(seed=seed)
        policy.begin(2)
        first = policy.act(obs, None).actions
        obs, *_ = env.step(first)
        env.step(policy.act(obs, None).actions)
        seen.append((first, env.true_state().red_action[:, 1].astype(int)))
        return np.zeros(episodes)

    monkeypatch.setattr(protocol, "play", play_two_steps)
    setting = Scenario(red_agent="RedMeanderAgent")
    for seed in range(4):
        found = {"episodes": EPISODES, "lengths": [30], "red_agents": ["RedMeanderAgent"], "rule_sets": ["final"]}
        protocol.evaluate_cage2(uniform.policy, setting, seed=seed, **found)
    first, target = (np.concatenate(each) for each in zip(*seen, strict=True))
    assert guessed(first, target) < guessed(np.roll(first, 1), target) + 0.05


def guessed(actions: np.ndarray, targets: np.ndarray) -> float:
    """How often the target is the one that went with an action most often in the first half of the episodes."""
    half = len(actions) // 2
    common = {a: np.bincount(targets[:half][actions[:half] == a]).argmax() for a in set(actions[:half].tolist())}
    return float(np.mean([common.get(a, -1) == b for a, b in zip(actions[half:], targets[half:], strict=True)]))


@pytest.mark.parametrize("seed", [0, 1, 7, 1_000_003, 2**32])
def test_an_actor_has_no_stream_that_an_env_can_have(seed):
    near = {int(each) for begin in (seed, seed + 1, seed + 1000) for each in seed_streams(begin, 1000)}
    assert near.isdisjoint(seed_streams(actor_seed(seed), 1000).tolist())


@pytest.fixture
def acted(monkeypatch) -> list[np.ndarray]:
    """The streams of all actors that were made, as they began."""
    streams: list[np.ndarray] = []

    class Watched(Actor):
        def __init__(self, policy: Policy, num_envs: int, seed: int, *rest, **more) -> None:
            super().__init__(policy, num_envs, seed, *rest, **more)
            streams.append(self.streams.copy())

    for module in (evaluate, training, protocol, scores):
        monkeypatch.setattr(module, "Actor", Watched)
    return streams


def assert_independent(acted: list[np.ndarray], seed: int) -> None:
    envs = set(seed_streams(seed, 5000).tolist())
    assert acted
    assert all(envs.isdisjoint(each.tolist()) for each in acted)


def test_no_way_to_be_scored_shares_a_stream(uniform, acted, tmp_path):
    trained = evaluate.Trained(uniform.policy, uniform.config, tmp_path, 0)
    evaluate.evaluate_env(trained, 3, 5, False)
    protocol.grade(trained, 3, 5)
    net = Trainer(tiny(env="petri:jobshop/ft06", env_options={}))
    scores.play_policy(net.policy, parse_petri("petri:jobshop/ft06"), 2, 5)
    options = {"workflow": "user,op_host,op_server,enterprise,defender", "max_steps": 20}
    config = training.workflow_config(tiny(), options, 0)
    done = training.train_workflow(training.Task(0, config, 0.5, 1, str(tmp_path), episode_steps=20))
    training.play_workflow(tmp_path / done.checkpoint, 3, 5)
    assert len(acted) == 5
    assert_independent(acted, 5)
