"""Policies that remember: sequences stay whole, episodes stay apart, and learning sees what acting saw."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from redline.engines import ENGINES, Collecting
from redline.errors import RedlineError
from redline.learn.config import PPOConfig, TrainConfig
from redline.learn.network.layers import Network
from redline.learn.network.recurrent import Cut, MemoryStack, RecurrentNetwork
from redline.learn.sequences import Sequences
from redline.learn.train import Trainer

TOYS = "external:tests.contracts.toys:"
kinds = pytest.mark.parametrize("kind", ["gru", "lstm"])


def config(env: str = f"{TOYS}Memory", kind: str = "gru", **more: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "num_envs": 6, "num_steps": 17, "hidden": (8,), "engine": "vector", "device": "cpu", "seed": 5, "threads": 1,
        "ppo": PPOConfig(minibatches=2, epochs=2), "recurrent": kind, "total_steps": 10**9,
    }  # fmt: skip
    return TrainConfig(env, **{**settings, **more})


def trained(asked: TrainConfig, updates: int = 2) -> np.ndarray:
    trainer = Trainer(asked)
    for _ in range(updates):
        trainer.update()
    trainer.close()
    return trainer.policy.weights.detach().numpy().copy()


@kinds
@pytest.mark.parametrize("hidden", [(), (5,), (5, 7)])
@pytest.mark.parametrize(("picture", "shared"), [((), False), ((), True), ((2, 6, 6), False)])
def test_steps_in_numpy_and_sequences_in_torch_agree(kind, hidden, picture, shared):
    torch.manual_seed(0)
    sizes = Network(72 if picture else 4, 6, hidden, shared, num_free=2, recurrent=kind, picture=picture)
    network, random = RecurrentNetwork(sizes), np.random.default_rng(0)
    inputs = random.normal(size=(9, 3, sizes.num_inputs)).astype(np.float32)
    begins = random.random((9, 3)) < 0.3
    begins[0] = False
    first = random.normal(size=(3, network.memory_size)).astype(np.float32)
    memories, outputs, values = first.copy(), [], []
    for t in range(9):
        memories[begins[t]] = 0.0
        found, value, memories = network.step(inputs[t], memories)
        outputs.append(found)
        values.append(value)
    again = network(torch.from_numpy(inputs), torch.from_numpy(first), begins)
    np.testing.assert_allclose(again[0].detach().numpy(), np.concatenate(outputs), atol=2e-5)
    np.testing.assert_allclose(again[1].detach().numpy(), np.concatenate(values), atol=2e-5)


@kinds
def test_loops_and_torch_find_the_same_gradient(kind):
    torch.manual_seed(0)
    stack, random = MemoryStack(Network(4, 6, (7,), recurrent=kind)), np.random.default_rng(0)
    for weights in stack.memory.parameters():
        torch.nn.init.normal_(weights, std=0.5)
    begins = random.random((11, 3)) < 0.2
    begins[0] = False
    memories = torch.from_numpy(random.normal(size=(3, stack.memory_size)).astype(np.float32))
    numbers = random.normal(size=(33, 7)).astype(np.float32)
    wanted = torch.from_numpy(random.normal(size=(33, 7)).astype(np.float32))
    found = []
    for run in (stack.by_loops, stack.by_torch):
        hidden = torch.from_numpy(numbers).requires_grad_()
        stack.memory.zero_grad()
        result = run(hidden, memories, begins)
        (result * wanted).sum().backward()
        found.append([result.detach(), hidden.grad, *(weights.grad.clone() for weights in stack.memory.parameters())])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=2e-5 * max(1.0, float(theirs.abs().max())))


def test_a_cut_puts_every_step_where_it_belongs():
    begins = np.array([[False, False], [True, False], [False, False], [True, True]])
    cut = Cut(begins)
    assert list(zip(cut.envs, cut.firsts, strict=True)) == [(0, 0), (0, 1), (0, 3), (1, 0), (1, 3)]
    assert cut.padded.reshape(-1)[cut.places].tolist() == list(range(8))


@kinds
@pytest.mark.parametrize("env", [f"{TOYS}Memory", f"{TOYS}SeveralMasked", f"{TOYS}Levers", "cage2"])
def test_replaying_a_rollout_gives_the_log_probabilities_of_acting(env, kind):
    options = {"env_options": {"max_steps": 7}} if env == "cage2" else {}
    trainer = Trainer(config(env, kind, **options))
    for _ in range(2):
        trainer.actor.version += 1
        rollout = trainer.engine.collect(trainer.actor, 17, trainer.watch)
        _, steps = trainer.ppo._steps(rollout, ())
        batch = Sequences(rollout, steps).batch(np.arange(6))
        assert batch.begins.any()
        masks = None if rollout.masks is None else torch.from_numpy(rollout.masks)[batch.rows.reshape(-1)]
        inputs = trainer.policy.inputs(rollout.observations)[torch.from_numpy(batch.rows)]
        with torch.no_grad():
            distribution, values = trainer.policy.replay(inputs, masks, torch.from_numpy(batch.memories), batch.begins)
            actions = torch.from_numpy(rollout.actions.reshape(-1, *rollout.actions.shape[2:]))
            log_probs = distribution.log_probs(torch.arange(len(actions)), actions)
        np.testing.assert_allclose(log_probs.numpy(), rollout.log_probs.reshape(-1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(values.numpy(), rollout.values.reshape(-1), rtol=1e-4, atol=1e-5)
        trainer.ppo.update(rollout, trainer.watch)
    assert rollout.memories.any()
    trainer.close()


@kinds
def test_lockstep_engines_train_the_very_same_recurrent_policy(kind):
    expected = trained(config(kind=kind, engine="serial"))
    for name in [name for name, engine in ENGINES.items() if engine.is_lockstep and name != "serial"]:
        np.testing.assert_array_equal(
            trained(config(kind=kind, engine=name, collecting=Collecting(workers=2))), expected
        )


@kinds
def test_a_recurrent_run_goes_on_as_if_nothing_had_happened(kind):
    asked = config("cage2", kind, env_options={"max_steps": 12}, normalise_observations=True)
    whole = Trainer(asked)
    whole.update()
    arrays, values = whole.snapshot()
    assert arrays["actor.memories"].any()
    whole.update()
    resumed = Trainer(asked)
    assert resumed.restore(arrays, values)
    resumed.update()
    np.testing.assert_array_equal(resumed.policy.weights.detach().numpy(), whole.policy.weights.detach().numpy())
    whole.close()
    resumed.close()


@pytest.mark.parametrize("engine", ["ready", "pool"])
def test_engines_that_cannot_carry_a_memory_say_so(engine):
    trainer = Trainer(config(engine=engine, collecting=Collecting(workers=2)))
    with pytest.raises(RedlineError, match="Try --engine shared") as refused:
        trainer.update()
    assert "\n" not in str(refused.value)
    trainer.close()


@pytest.mark.parametrize("more", [{"reuse": 1}, {"ppo": PPOConfig(elite=2)}, {"network": "a:b"}])
def test_what_a_recurrent_policy_cannot_do_is_refused(more):
    with pytest.raises(RedlineError, match="recurrent"):
        config(**more)


def test_a_recurrent_policy_learns_what_another_cannot():
    asked = config(
        num_envs=32,
        num_steps=24,
        hidden=(16,),
        ppo=PPOConfig(minibatches=4, epochs=4, learning_rate=5e-3, anneal=False),
    )
    returns = {}
    for kind in ("gru", None):
        trainer = Trainer(dataclasses.replace(asked, recurrent=kind))
        returns[kind] = [trainer.update().metrics["return"] for _ in range(20)][-1]
        trainer.close()
    assert returns["gru"] > 1.3 * returns[None]
