from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from redline.errors import RedlineError
from redline.learn.acting import Actor, ActorParameters
from redline.learn.heads.categorical import Categorical
from redline.learn.network import steady_pass
from redline.learn.network.inputs import FEW, seen
from redline.learn.numpy_policy import NumpyPolicy
from redline.learn.policy import Policy, copy_of
from redline.threads import use_threads
from redline.worlds.encoding import Encoding, Field, OneHot, Words, plain
from tests.learn.masks import random_masks

use_threads(1)  # as in training: networks this small gain nothing from torch's own threads

FOUR = plain((4,), np.float32)
any_shape = pytest.mark.parametrize(
    ("hidden", "shared"), [(hidden, shared) for hidden in [(), (8,), (5, 7, 3)] for shared in (False, True)]
)


def make_policy(
    hidden: tuple[int, ...] = (8,), shared: bool = False, encoding: Encoding = FOUR, scale: float = 1.0
) -> Policy:
    """A policy of six actions with random weights, all of them multiplied by `scale`."""
    torch.manual_seed(0)
    policy = Policy(encoding, Categorical(6), hidden, shared)
    with torch.no_grad():
        policy.weights.copy_(scale * torch.randn_like(policy.weights))
    return policy


def observations(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


def inferred(
    policy: Policy | NumpyPolicy, obs: np.ndarray, masks: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, probabilities and values, as a policy gives them to an actor."""
    table = policy.head.empty(len(obs))
    values = policy.infer(obs, masks, table).copy()
    return table[0], np.diff(table[1], axis=1, prepend=0), values


def by_torch(policy: Policy, obs: np.ndarray, masks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, probabilities and values, as autograd sees them."""
    rows, actions = torch.arange(len(obs))[:, None].expand(-1, 6), torch.arange(6).expand(len(obs), -1)
    with torch.no_grad():
        distribution, values = policy(policy.inputs(obs), None if masks is None else torch.from_numpy(masks))
        log_probs = distribution.log_probs(rows, actions)
    return log_probs.numpy(), log_probs.exp().numpy(), values.numpy()


def without_torch(policy: Policy) -> NumpyPolicy:
    return NumpyPolicy(pickle.loads(pickle.dumps(policy.parameters())), policy.encoding)


# Ways to ask


@any_shape
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("twin", [lambda policy: policy, without_torch], ids=["compiled", "numpy"])
def test_all_ways_to_ask_a_policy_give_the_same(hidden, shared, masked, twin):
    policy, obs, masks = make_policy(hidden, shared), observations(50), random_masks(50) if masked else None
    for found, expected in zip(inferred(twin(policy), obs, masks), by_torch(policy, obs, masks), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [3.0, 100.0, 10_000.0])
@pytest.mark.parametrize("twin", [lambda policy: policy, without_torch], ids=["compiled", "numpy"])
def test_all_ways_give_the_same_for_huge_logits(scale, twin):
    policy, obs = make_policy(scale=scale), observations(50)
    log_probs, _, _ = inferred(twin(policy), obs, None)
    expected, _, _ = by_torch(policy, obs, None)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-5, atol=1e-5 * scale)


@any_shape
def test_state_values_are_those_that_come_with_the_distributions(hidden, shared):
    policy, obs = make_policy(hidden, shared), observations(50)
    expected = by_torch(policy, obs, None)[2]
    np.testing.assert_array_equal(policy.state_values(obs), inferred(policy, obs, None)[2])
    np.testing.assert_allclose(policy.state_values(obs), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(without_torch(policy).state_values(obs), expected, rtol=1e-5, atol=1e-5)


@any_shape
@pytest.mark.parametrize("masked", [False, True])
def test_an_answer_is_the_same_whatever_else_is_asked(hidden, shared, masked):
    policy, obs, masks = make_policy(hidden, shared), observations(70), random_masks(70) if masked else None
    whole = inferred(policy, obs, masks)
    for size in (*range(1, 20), 63, 64, 65):
        for part in (slice(size), slice(70 - size, None)):
            some = inferred(policy, obs[part], None if masks is None else masks[part])
            for found, expected in zip(some, whole, strict=True):
                np.testing.assert_array_equal(found, expected[part])


def test_an_answer_is_the_same_with_and_without_the_zeros_of_what_is_seen(monkeypatch):
    policy, obs = make_policy((16, 9), False), observations(70)
    obs[np.random.default_rng(1).random(obs.shape) < 0.9] = 0.0
    without = inferred(policy, obs, None)
    assert seen(obs, FEW).is_sparse
    monkeypatch.setattr(steady_pass, "FEW", 0.0)
    for found, expected in zip(inferred(policy, obs, None), without, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(policy.state_values(obs), without[2])


def test_a_fresh_policy_holds_all_actions_for_nearly_equally_likely():
    _, probs, _ = by_torch(Policy(FOUR, Categorical(6)), observations(100), None)
    np.testing.assert_allclose(probs, 1 / 6, atol=0.02)


# Weights


@any_shape
def test_weights_are_loaded_by_the_names_they_were_given_by(hidden, shared):
    policy, other = Policy(FOUR, Categorical(6), hidden, shared), make_policy(hidden, shared)
    arrays = other.arrays()
    policy.load(arrays)
    assert torch.equal(policy.weights, other.weights)
    other.weights.zero_()
    assert all(array.any() for array in arrays.values())


def test_parameters_are_not_touched_by_what_is_learned_later():
    policy = make_policy()
    parameters = policy.parameters()
    policy.weights.zero_()
    assert parameters.weights.all()


# Encodings


def test_observations_of_several_axes_are_flattened():
    policy = make_policy(encoding=plain((2, 3), np.int8))
    assert policy.inputs(np.zeros((3, 2, 3), np.int8)).shape == (3, 6)


def test_words_are_decoded_first():
    policy = make_policy(encoding=Words([Field("a", 0, 0), Field("b", 0, 1), Field("c", 0, 2)]))
    assert policy.inputs(np.array([[0b110], [0b001]])).tolist() == [[0, 1, 1], [1, 0, 0]]


def test_numbers_of_states_become_rows_with_a_single_one():
    policy = make_policy(encoding=OneHot(3, 5, np.dtype(np.int64)))
    assert policy.inputs(np.array([7, 5])).tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    ("encoding", "wrong"),
    [
        (Words([Field("a", 0, 0), Field("b", 1, 1)]), np.zeros((3, 2), np.int8)),
        (Words([Field("a", 0, 0), Field("b", 1, 1)]), np.zeros((3, 4), np.int64)),
        (FOUR, np.zeros((3, 4), np.float64)),
        (FOUR, np.zeros((3, 2, 2), np.float32)),
        (FOUR, np.zeros((3, 1), np.int64)),
    ],
    ids=["numbers for words", "too many words", "other type", "other shape", "words for numbers"],
)
def test_observations_in_another_form_are_refused(encoding, wrong):
    policy = make_policy(encoding=encoding)
    for ask in (
        lambda: policy.inputs(wrong),
        lambda: policy.state_values(wrong),
        lambda: inferred(policy, wrong, None),
        lambda: inferred(without_torch(policy), wrong, None),
        lambda: Actor(policy, 3, seed=0).act(wrong, None),
    ):
        with pytest.raises(RedlineError, match="Pass them as the env hands them out"):
            ask()


# Another process


class Env:
    """Hands out what `FOUR` describes."""

    encoding = FOUR


def test_an_actor_made_of_parameters_goes_on_with_its_streams():
    policy, obs = make_policy(), observations(3)
    actor, here = Actor(policy, 3, seed=7), Actor(policy, 3, seed=7)
    actor.version = 5
    parameters: ActorParameters = pickle.loads(pickle.dumps(actor.parameters()))
    away = None
    for version in (5, 6):
        away = pickle.loads(pickle.dumps(parameters)).actor(3, Env(), None, before=away)
        assert away.version == 5
        here.version = version
        for each in (here, away):
            each.begin(1)
        decision, expected = away.act(obs, None), here.act(obs, None)
        np.testing.assert_array_equal(decision.actions, expected.actions)
        np.testing.assert_array_equal(away.streams, here.streams)
        np.testing.assert_allclose(decision.log_probs, expected.log_probs, rtol=1e-5, atol=1e-5)


def test_parameters_can_be_handed_on():
    actor = Actor(make_policy(), 3, seed=7, dedup=False, deterministic=True)
    actor.version = 2
    again = actor.parameters().actor(3, Env(), None).parameters()
    assert (again.version, again.seed, again.dedup, again.deterministic) == (2, 7, False, True)
    np.testing.assert_array_equal(again.policy.weights, actor.policy.weights.numpy())


def test_a_worker_acts_without_torch(tmp_path):
    (tmp_path / "actor").write_bytes(pickle.dumps(Actor(make_policy(), 3, seed=7).parameters()))
    script = f"""
import pickle, sys, numpy, gymnasium
with open({str(tmp_path / "actor")!r}, "rb") as file:
    actor = pickle.load(file).actor(3, None, gymnasium.spaces.Box(-1, 1, (4,), numpy.float32))
actor.begin(1)
actor.act(numpy.zeros((3, 4), numpy.float32), None)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("activation", "normalise"), [("tanh", False), ("relu", False), ("tanh", True)])
def test_a_copy_plays_alike(activation: str, normalise: bool) -> None:
    policy = Policy(FOUR, Categorical(6), (8,), activation=activation, normalise=normalise, seed=3)
    rows = observations(50)
    if policy.normaliser is not None:
        policy.normaliser.see(5 * rows + 1, np.ones(len(rows)))
    copy = copy_of(policy)
    for one, same in zip(answers(policy, rows), answers(copy, rows), strict=True):
        np.testing.assert_array_equal(one, same)


def answers(policy: Policy, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    table = policy.head.empty(len(rows))
    values = policy.infer(rows, None, table)
    return (values, *table)


def test_torch_works_in_the_same_memory() -> None:
    policy = Policy(FOUR, Categorical(6), (8,))
    policy.vector[3] = 7.0
    assert float(policy.weights[3]) == 7.0
    with torch.no_grad():
        policy.weights[4] = 8.0
        policy.weights.grad[5] = 9.0  # type: ignore[index]
    assert policy.vector[4] == 8.0 and policy.gradient[5] == 9.0
    assert policy.to("cpu").vector is policy.vector


def test_outputs_and_values_are_scaled_alike_wherever_the_weights_are() -> None:
    """Weights that torch holds, as on another device, and those that numpy does."""
    rows, found = observations(20), []
    for held_by_torch in (False, True):
        policy = Policy(FOUR, Categorical(6), (8,), seed=3)
        if held_by_torch:
            policy.network.to("cpu")
            policy._vector = None
        policy.scale_outputs(0.5)
        policy.scale_values(4.0)
        found.append(answers(policy, rows))
        np.testing.assert_array_equal(policy.arrays()["critic.weight"], policy.layers().critic.weight)
    for numpys, torchs in zip(*found, strict=True):
        np.testing.assert_array_equal(numpys, torchs)
