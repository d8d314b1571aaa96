"""Learning from episodes, and returns in a unit that is found on the way."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from redline.errors import RedlineError
from redline.learn import imitation
from redline.learn.config import PPOConfig, TrainConfig, recipe
from redline.learn.elite import Episode
from redline.learn.gradient import InOneCall, way_for, write_sum
from redline.learn.heads.categorical import Categorical
from redline.learn.imitation import DECIDE, IMITATING, Demonstrations, clone, models, settle
from redline.learn.policy import Policy
from redline.learn.ppo import PPO
from redline.learn.scale import Scale
from redline.learn.train import Trainer
from redline.threads import use_threads
from redline.timing.stopwatch import Stopwatch
from redline.worlds.encoding import plain
from redline.worlds.petri.warm_start import demonstrate
from tests.learn.test_ppo import make_policy, random_rollout

use_threads(1)
DATA = Path(__file__).parents[1] / "data" / "petri" / "schedules"
PNML = DATA.parent / "pnml" / "philosophers_5.pnml"


def episode(policy: Policy, length: int = 30, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    num_actions = policy.head.num_outputs
    masks = rng.random((length, num_actions)) < 0.7
    actions = rng.integers(0, num_actions, length)
    masks[np.arange(length), actions] = True
    seen = rng.normal(size=(length, policy.encoding.size)).astype(np.float32)
    return Episode(seen, masks, actions, rng.normal(size=length).astype(np.float32))


def test_a_step_counts_by_how_much_better_it_was_than_expected():
    policy, unit, weight = make_policy(), 2.0, 0.3
    model = episode(policy)
    policy.weights.grad.zero_()
    Demonstrations(policy, [model], gamma=0.9).add_gradient(policy, weight, unit, Everything(len(model.actions)))
    found = policy.weights.grad.clone()
    policy.weights.grad.zero_()
    logits, values = policy.network(torch.from_numpy(model.observations))
    allowed = logits.masked_fill(~torch.from_numpy(model.masks), -1e9)
    log_probs = torch.log_softmax(allowed, -1)[torch.arange(len(model.actions)), torch.from_numpy(model.actions)]
    better = (torch.from_numpy(model.to_go(0.9) / unit).float() - values.detach()).clamp(min=0)
    (-weight * (better * log_probs).mean()).backward()
    assert better.max() > 0
    torch.testing.assert_close(found, policy.weights.grad)


@pytest.mark.parametrize("activation", ["tanh", "relu"], ids=["in one call", "by torch"])
@pytest.mark.parametrize("resolve", [0.0, 5.0])
@pytest.mark.parametrize(("size", "count"), [(100, 1), (50, 2), (10, 6)])
def test_imitation_by_hand_is_imitation_by_autograd(activation, resolve, size, count, monkeypatch):
    torch.manual_seed(0)
    policy, unit, weight = Policy(plain((20,), np.float32), Categorical(7), (16, 9), activation=activation), 2.0, 0.3
    shown = [episode(policy), episode(policy, 20, seed=1), episode(policy)]  # of which two see the same
    model = Demonstrations(policy, shown, gamma=0.9, resolve=resolve)
    policy.weights.grad.zero_()
    surprise = model.add_gradient(policy, weight, unit, Everything(len(model)))
    way, expected = way_for(policy), policy.gradient.copy()
    monkeypatch.setattr(type(way), "PIECE", size)
    pieces, found_surprise = model.pieces(way, policy, weight, unit, Everything(len(model)))
    write_sum(way, pieces, policy, IMITATING)
    assert len(pieces) == count
    assert sum(len(piece.batch.rows) for piece in pieces) == 50 < len(model)
    assert found_surprise == pytest.approx(surprise, rel=1e-5)
    np.testing.assert_allclose(policy.gradient, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_cloning_by_hand_is_cloning_by_autograd():
    policy = make_policy()
    model = Demonstrations(policy, [episode(policy)])
    found = []
    for way in (None, way_for(policy)):
        model.write_cloning_gradient(policy, way, np.random.default_rng(0))
        found.append(policy.weights.grad.clone())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("by_hand", "size"), [(True, 512), (True, 8), (False, 512)])
def test_an_update_imitates_beside_every_batch(by_hand, size, monkeypatch):
    """The gradient of an update with models is that without them and that of imitation added up."""
    monkeypatch.setattr(InOneCall, "PIECE", size)
    config, found = PPOConfig(learning_rate=0.0, epochs=1, max_grad_norm=1e9, imitation=0.7, clip=0.0), []
    for shown in (False, True):
        policy = make_policy()
        model = Demonstrations(policy, [episode(policy)])
        learner = PPO(policy, config, seed=0, by_hand=by_hand)
        learner._rng = Everything(len(model))
        metrics = learner.update(random_rollout(policy), Stopwatch(), models=model if shown else None)
        found.append(policy.weights.grad.clone())
    policy.weights.grad.zero_()
    surprise = model.add_gradient(policy, 0.7, 1 / config.reward_scale, Everything(len(model)))
    assert metrics["imitation"] == pytest.approx(surprise, rel=1e-5)
    torch.testing.assert_close(found[1] - found[0], policy.weights.grad, rtol=1e-3, atol=1e-6)


class Everything:
    """Draws every step once, in order."""

    def __init__(self, count: int) -> None:
        self.count = count

    def integers(self, low: int, high: int, size: int) -> np.ndarray:
        return np.arange(self.count)


def test_a_cloned_policy_follows_its_model():
    policy = make_policy()
    models_ = Demonstrations(policy, [episode(policy)])
    assert not models_.are_followed(policy)
    clone(policy, models_, np.random.default_rng(0))
    assert models_.are_followed(policy)


def test_a_policy_settles_for_the_best_episode():
    policy = make_policy()
    best = episode(policy, 10)
    settle(policy, best, np.random.default_rng(0))
    assert Demonstrations(policy, [best]).are_followed(policy)


def test_a_policy_stays_as_it_is_where_it_cannot_follow(monkeypatch):
    monkeypatch.setattr(imitation, "CLONING_ROUNDS", 60)
    policy = make_policy()
    best = episode(policy, 10)
    twice = Episode(*(np.concatenate([part, part]) for part in best))
    twice.actions[0] = next(a for a in np.flatnonzero(best.masks[0]) if a != best.actions[0])
    before = policy.weights.detach().clone()
    settle(policy, twice, np.random.default_rng(0))
    assert policy.weights.equal(before)


def test_towards_the_end_the_best_episode_is_imitated_alone():
    policy = make_policy()
    episodes = [episode(policy, 30), episode(policy, 20, seed=1)]
    assert models(policy, [], 1.0, 0.5) is None
    assert len(models(policy, episodes, 1.0, DECIDE)) == 50
    assert len(models(policy, episodes, 1.0, DECIDE + 0.01)) == 30


# Units


def test_the_unit_is_the_deviation_of_all_returns_so_far():
    rng, scale, seen = np.random.default_rng(0), Scale(), []
    for size in (5, 100, 17):
        returns = rng.normal(300, 50, size)
        seen.append(returns)
        before = scale.unit
        change = scale.see(returns / before)
        assert change == before / scale.unit
    assert scale.unit == pytest.approx(np.concatenate(seen).std())


def test_a_critic_says_the_same_in_another_unit():
    policy = make_policy()
    learner = PPO(policy, PPOConfig(learning_rate=0.0, normalise_returns=True), seed=0)
    rollout = random_rollout(policy)
    before = policy.state_values(rollout.observations) * learner.scale.unit
    learner.update(rollout, Stopwatch())
    assert learner.scale.unit != 1.0
    np.testing.assert_allclose(
        policy.state_values(rollout.observations) * learner.scale.unit, before, rtol=1e-5, atol=1e-6
    )


def test_the_size_of_rewards_does_not_matter_in_the_long_run():
    """Once the unit is known, rewards a thousand times as large teach the same."""
    gradients = []
    for factor in (1.0, 1000.0):
        policy = make_policy()
        learner = PPO(policy, PPOConfig(learning_rate=0.0, epochs=1, normalise_returns=True, max_grad_norm=1e9), seed=0)
        rollout = random_rollout(policy)
        rollout.rewards *= np.float32(factor)
        rollout.values[:] = rollout.next_values[:] = 0
        learner.update(rollout, Stopwatch())
        with torch.no_grad():
            policy.network.critic.weight.zero_()
            policy.network.critic.bias.zero_()
        learner.update(rollout, Stopwatch())
        gradients.append(policy.weights.grad.clone())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)


# Warm starts


@pytest.mark.parametrize(
    ("env", "rule", "makespan"),
    [("petri:jobshop/ft06", "SPT", 88), ("petri:jobshop/ft06", "best", 59), ("petri:cluster/S-0", "insertion", 2225)],
)
def test_a_rule_is_a_first_episode(env, rule, makespan):
    config = dataclasses.replace(recipe(env), env_options={}, warm_start=rule)
    found = demonstrate(config)
    bound = {"petri:jobshop/ft06": 52, "petri:cluster/S-0": 2095}[env]
    assert found.total == pytest.approx(1 - makespan / bound, abs=1e-4)
    assert found.masks[np.arange(len(found.actions)), found.actions].all()


def test_a_schedule_from_a_file_is_a_first_episode(tmp_path):
    data = json.loads((DATA / "cascade_core_J-0_n4_arms1.json").read_text())
    (tmp_path / "best.json").write_text(json.dumps(data))
    config = TrainConfig("petri:cluster/J-0", {"wafers": 4}, warm_start=str(tmp_path / "best.json"))
    assert demonstrate(config).total == pytest.approx(1 - 1010 / 930, abs=1e-4)


def test_a_net_without_rules_begins_without():
    config = TrainConfig(f"petri:{PNML}", {"max_steps": 50}, num_envs=2, num_steps=4, warm_start="best")
    assert demonstrate(config) is None
    assert Trainer(config).elite.episodes == []


@pytest.mark.parametrize(
    ("env", "warm_start", "words"),
    [
        ("cage2", "best", "cage2 has none"),
        ("petri:jobshop/ft06", "insertion", "Known: SPT"),
        ("petri:cluster/J-0", "SPT", "Known: insertion"),
        ("petri:cluster/J-0", "none.json", "There is no schedule at none.json"),
    ],
)
def test_a_warm_start_that_cannot_be_is_refused(env, warm_start, words):
    with pytest.raises(RedlineError, match=words):
        Trainer(TrainConfig(env, num_envs=2, num_steps=4, warm_start=warm_start))


def test_a_cloned_trainer_plays_what_it_was_shown():
    config = dataclasses.replace(
        recipe("petri:cluster/S-0"),
        env_options={"wafers": 3, "lenient": True},
        num_envs=2,
        num_steps=8,
        warm_start="best",
        clone=True,
    )
    trainer = Trainer(config)
    assert Demonstrations(trainer.policy, trainer.elite.episodes).are_followed(trainer.policy)


def test_a_clone_of_nothing_is_refused():
    with pytest.raises(RedlineError, match="nothing to follow"):
        TrainConfig("petri:cluster/S-0", clone=True)


def test_it_learns_to_schedule_a_job_shop():
    """Better than every dispatching rule, of which the best needs 59."""
    config = dataclasses.replace(recipe("petri:jobshop/ft06"), total_steps=150_000, num_envs=64, num_steps=64, seed=1)
    trainer = Trainer(config)
    best = min(update.metrics["makespan_min"] for update in trainer)
    trainer.close()
    assert best < 59
