"""Networks, schedules and step sizes of one's own."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from redline.engines import Collecting
from redline.errors import RedlineError
from redline.learn.config import PPOConfig, TrainConfig, config_from_json, config_to_json
from redline.learn.train import Trainer

HERE = "tests.learn.test_own_network"


class Net(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 16), nn.LayerNorm(16), nn.ReLU())
        self.actor, self.critic = nn.Linear(16, outputs), nn.Linear(16, 1)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(inputs)
        return self.actor(features), self.critic(features)


class Mute(Net):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.actor(self.body(inputs))


class Wrong(Net):
    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(inputs)[::-1]


def config(env: str = "CartPole-v1", **more: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "num_envs": 4, "num_steps": 16, "engine": "vector", "device": "cpu", "seed": 5, "total_steps": 10**9,
        "ppo": PPOConfig(minibatches=2, epochs=2),
    }  # fmt: skip
    return TrainConfig(env, **{**settings, **more})


def trained(asked: TrainConfig, updates: int = 2) -> Trainer:
    trainer = Trainer(asked)
    for _ in range(updates):
        trainer.update()
    trainer.close()
    return trainer


def weights(trainer: Trainer) -> np.ndarray:
    return trainer.policy.weights.detach().numpy()


@pytest.mark.parametrize("env", ["CartPole-v1", "external:tests.contracts.toys:Levers"])
def test_a_network_is_found_by_its_name_or_given_from_python(env):
    by_name = trained(config(env, network=f"{HERE}:Net"))
    given = trained(config(env, make_network=Net))
    np.testing.assert_array_equal(weights(by_name), weights(given))
    assert by_name.policy.gradient_plan == "gradient by autograd: a network of your own (Net)"
    assert not by_name.ppo.by_hand


def test_a_module_is_copied_and_left_alone():
    torch.manual_seed(0)
    module = Net(4, 2)
    before = module.actor.weight.clone()
    trainer = trained(config(make_network=module))
    assert torch.equal(module.actor.weight, before)
    assert not torch.equal(trainer.policy.network.module.actor.weight, before)


def test_a_run_remembers_the_name_of_its_network():
    asked = config(make_network=Net, schedule=lambda progress: 1.0)
    stored = config_to_json(asked)
    assert stored["network"] == f"{HERE}:Net"
    assert config_from_json(stored) == dataclasses.replace(
        asked, make_network=None, schedule=None, network=f"{HERE}:Net"
    )


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (f"{HERE}:Nat", "Did you mean 'Net'"),
        (f"{HERE}:Mute", "answers with a Tensor"),
        (f"{HERE}:Wrong", "Return .outputs .n, 2., values .n.."),
        ("builtins:print", "print cannot be made|not a torch.nn.Module"),
        ("nowhere:Net", "There is no module 'nowhere'"),
        ("torch.nn:Identity", "no weights"),
    ],
)
def test_a_network_that_cannot_work_is_refused_in_one_line(network, why, capsys):
    with pytest.raises(RedlineError, match=why) as refused:
        Trainer(config(network=network))
    assert "\n" not in str(refused.value)


def test_workers_without_torch_cannot_act_with_a_network_of_ones_own():
    trainer = Trainer(config(network=f"{HERE}:Net", engine="pool", collecting=Collecting(workers=2)))
    with pytest.raises(RedlineError, match="Try --engine shared"):
        trainer.update()
    trainer.close()


def test_a_network_of_ones_own_keeps_its_values_when_their_unit_changes():
    trainer = Trainer(config(network=f"{HERE}:Net"))
    obs = np.ones((3, 4), np.float32)
    before = trainer.policy.state_values(obs)
    trainer.policy.network.scale_values(0.5)
    np.testing.assert_allclose(trainer.policy.state_values(obs), 0.5 * before, rtol=1e-6)
    trainer.close()


@pytest.mark.parametrize(
    ("more", "plan"),
    [
        ({}, "gradient by hand"),
        ({"activation": "relu"}, "gradient by hand"),
        ({"activation": "gelu"}, "gradient by autograd: activation gelu"),
        ({"recurrent": "lstm"}, "gradient by autograd: a recurrent network (lstm)"),
    ],
)
def test_a_policy_says_how_its_gradient_is_found(more, plan):
    trainer = Trainer(config(**more))
    trainer.close()
    assert trainer.policy.gradient_plan == plan
    assert trainer.ppo.by_hand == (plan == "gradient by hand")


@pytest.mark.parametrize("activation", ["relu", "elu"])
def test_by_hand_and_by_autograd_learn_the_same(activation):
    one = Trainer(config(activation=activation))
    other = Trainer(config(activation=activation))
    other.ppo.by_hand = False
    for trainer in (one, other):
        trainer.update()
        trainer.close()
    np.testing.assert_allclose(weights(one), weights(other), atol=1e-4)


# Step sizes


def test_a_schedule_is_any_function_of_progress():
    trainer = Trainer(config(schedule=lambda progress: 1.0 if progress < 0.5 else 0.25, total_steps=128))
    rates = [update.metrics["learning_rate"] / trainer.config.ppo.learning_rate for update in trainer]
    trainer.close()
    assert rates == [1.0, 0.25]


def test_a_schedule_that_gives_nonsense_is_refused():
    trainer = Trainer(config(schedule=lambda progress: float("nan")))
    with pytest.raises(RedlineError, match="The schedule gives nan"):
        trainer.update()
    trainer.close()


@pytest.mark.parametrize(("target", "moves"), [(1e-9, "down"), (1e3, "up")])
def test_the_step_size_follows_how_far_the_policy_moves(target, moves):
    ppo = PPOConfig(minibatches=2, epochs=2, adaptive_kl=target, learning_rate=1e-3)
    trainer = trained(config(ppo=ppo), 1)
    rate = trainer.ppo.optimizer.learning_rate
    assert rate < 1e-3 if moves == "down" else rate > 1e-3


def test_an_adapted_step_size_is_kept_in_checkpoints():
    ppo = PPOConfig(minibatches=2, epochs=2, adaptive_kl=1e-9, learning_rate=1e-3)
    asked = config("cage2", env_options={"max_steps": 12}, ppo=ppo)
    whole = Trainer(asked)
    whole.update()
    arrays, values = whole.snapshot()
    whole.update()
    resumed = Trainer(asked)
    resumed.restore(arrays, values)
    resumed.update()
    np.testing.assert_array_equal(weights(resumed), weights(whole))
    whole.close()
    resumed.close()
