from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from redline.learn.acting import Actor
from redline.learn.fused import infer
from redline.learn.policy import Policy
from redline.sims import rng
from redline.sims.rng import GOLDEN, unit
from redline.threads import use_threads

use_threads(1)  # as in training: networks this small gain nothing from torch's own threads

HIDDEN = [(), (8,), (5, 7, 3)]
LARGEST_UNIT = 1 - 2.0**-53
any_shape = pytest.mark.parametrize(
    ("hidden", "shared"), [(hidden, shared) for hidden in HIDDEN for shared in (False, True)]
)


def make_policy(
    hidden: tuple[int, ...] = (8,), shared: bool = False, num_actions: int = 6, scale: float = 1.0
) -> Policy:
    """A policy over four numbers with random weights, all of them multiplied by `scale`."""
    torch.manual_seed(0)
    policy = Policy(4, num_actions, hidden, shared)
    with torch.no_grad():
        policy.weights.copy_(scale * torch.randn_like(policy.weights))
    return policy


def observations(count: int, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(0).normal(size=(count, 4))).astype(np.float32)


def random_masks(count: int, num_actions: int = 6) -> np.ndarray:
    """Anything goes, as long as one action is allowed."""
    random = np.random.default_rng(1)
    masks = random.random((count, num_actions)) < 0.5
    masks[np.arange(count), random.integers(num_actions, size=count)] = True
    return masks


def by_hand(policy: Policy, obs: np.ndarray, masks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, running sums of probabilities and values, as `infer` gives them."""
    log_probs, cumulative = np.empty((len(obs), 6), np.float32), np.empty((len(obs), 6))
    allowed = None if masks is None else torch.from_numpy(masks)
    values = infer(policy.layers(policy.weights), policy.values_of(obs), allowed, log_probs, cumulative)
    return log_probs, cumulative, values.copy()


def by_torch(policy: Policy, obs: np.ndarray, masks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, probabilities and values."""
    with torch.no_grad():
        logits, values = policy(policy.values_of(obs), None if masks is None else torch.from_numpy(masks))
        return torch.log_softmax(logits, -1).numpy(), torch.softmax(logits, -1).numpy(), values.numpy()


def stream_that_draws(wanted: float) -> np.uint64:
    """The stream whose next number is `wanted`: `scramble` undone, one reversible operation after the other."""

    def undo_xor_shift(bits: int, shift: int) -> int:
        result = bits
        for _ in range(64 // shift + 1):
            result = bits ^ (result >> shift)
        return result

    def undo_multiply(bits: int, factor: np.uint64) -> int:
        return bits * pow(int(factor), -1, 1 << 64) % (1 << 64)

    bits = int(wanted * 2**53) << 11
    bits = undo_multiply(undo_xor_shift(bits, 31), rng._MIX_2)
    bits = undo_multiply(undo_xor_shift(bits, 27), rng._MIX_1)
    return np.uint64((undo_xor_shift(bits, 30) - int(GOLDEN)) % (1 << 64))


# Masks


@any_shape
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_torch_gives_a_masked_action_a_probability_of_exactly_zero(hidden, shared, scale):
    masks = random_masks(200)
    _, probs, _ = by_torch(make_policy(hidden, shared, scale=scale), observations(200), masks)
    assert (probs[~masks] == 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-6)


@any_shape
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_fused_path_gives_a_masked_action_a_probability_of_exactly_zero(hidden, shared, scale):
    masks = random_masks(200)
    _, cumulative, _ = by_hand(make_policy(hidden, shared, scale=scale), observations(200), masks)
    probs = np.diff(cumulative, axis=1, prepend=0)
    assert (probs[~masks] == 0).all()
    np.testing.assert_allclose(cumulative[:, -1], 1, rtol=1e-6)


def test_a_single_allowed_action_is_certain():
    policy = make_policy(scale=30.0)
    masks = np.eye(6, dtype=bool)
    log_probs, cumulative, _ = by_hand(policy, observations(6), masks)
    assert (cumulative[:, -1] == 1).all()
    assert (log_probs[masks] == 0).all()


@pytest.mark.parametrize("wanted", [0.0, 2.0**-53, 0.25, 0.5, LARGEST_UNIT])
def test_the_streams_made_for_these_tests_draw_what_they_are_meant_to(wanted):
    stream = np.array([stream_that_draws(wanted)])
    stream += GOLDEN
    assert unit(stream[0]) == wanted


@pytest.mark.parametrize("dedup", [True, False])
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("drawn", [0.0, 2.0**-53, 0.5, LARGEST_UNIT])
def test_a_masked_action_is_not_drawn_by_the_most_extreme_numbers(drawn, scale, dedup):
    count = 2000
    masks = random_masks(count)
    actor = Actor(make_policy(scale=scale), count, seed=0, dedup=dedup)
    actor.streams[:] = stream_that_draws(drawn)
    actor.begin(1)
    actions = actor.act(observations(count), masks).actions
    assert masks[np.arange(count), actions].all()


@pytest.mark.parametrize("dedup", [True, False])
def test_many_draws_find_all_the_allowed_actions_and_no_other(dedup):
    masks = random_masks(1000)
    obs = observations(1000)
    actor = Actor(Policy(4, 6), 1000, seed=0, dedup=dedup)
    actor.begin(200)
    drawn = np.zeros((1000, 6), bool)
    for _ in range(200):
        drawn[np.arange(1000), actor.act(obs, masks).actions] = True
    np.testing.assert_array_equal(drawn, masks)


# Shapes


@any_shape
@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_path_says_what_torch_says(hidden, shared, masked):
    policy, obs, masks = make_policy(hidden, shared), observations(50), random_masks(50) if masked else None
    log_probs, cumulative, values = by_hand(policy, obs, masks)
    expected_log_probs, expected_probs, expected_values = by_torch(policy, obs, masks)
    np.testing.assert_allclose(log_probs, expected_log_probs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.diff(cumulative, axis=1, prepend=0), expected_probs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values, expected_values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [3.0, 100.0, 10_000.0])
def test_the_fused_path_says_what_torch_says_about_huge_logits(scale):
    policy, obs = make_policy(scale=scale), observations(50)
    log_probs, _, _ = by_hand(policy, obs, None)
    expected, _, _ = by_torch(policy, obs, None)
    np.testing.assert_allclose(log_probs, expected, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_shared_policy_has_one_trunk_and_a_separate_one_two(hidden):
    def size(shared: bool) -> int:
        return make_policy(hidden, shared).weights.numel()

    trunk = sum(inputs * outputs + outputs for inputs, outputs in pairwise((4, *hidden)))
    heads = (hidden[-1] if hidden else 4) * 7 + 7
    assert size(shared=True) == trunk + heads
    assert size(shared=False) == 2 * trunk + heads


@any_shape
def test_layers_are_the_parameters_in_their_order(hidden, shared):
    policy = make_policy(hidden, shared)
    layers = policy.layers(policy.weights)
    flat = [*layers.trunk, *(layers.critic_trunk or []), layers.actor, layers.critic]
    tensors = [tensor for layer in flat for tensor in layer]
    for tensor, parameter in zip(tensors, policy.parameters(), strict=True):
        assert torch.equal(tensor, parameter)
    assert (layers.critic_trunk is None) == shared


def test_a_fresh_policy_holds_all_actions_for_nearly_equally_likely():
    _, probs, _ = by_torch(Policy(4, 6), observations(100), None)
    np.testing.assert_allclose(probs, 1 / 6, atol=0.02)


def test_observations_of_several_axes_are_flattened():
    policy = Policy(6, 2)
    assert policy.values_of(np.zeros((3, 2, 3), np.int8)).shape == (3, 6)


def test_packed_observations_are_unpacked_first():
    policy = Policy(3, 2, unpack=lambda packed: packed[:, :1] >> np.arange(3) & 1)
    assert policy.values_of(np.array([[0b110], [0b001]])).tolist() == [[0, 1, 1], [1, 0, 0]]


# One vector


def is_shared(policy: Policy) -> bool:
    """Whether writing to the vector writes to the layers, for weights and gradients alike."""
    with torch.no_grad():
        kept, kept_grad = policy.weights.clone(), policy.weights.grad.clone()
        policy.weights.fill_(0.25)
        policy.weights.grad.fill_(0.75)
        result = all((each == 0.25).all() and (each.grad == 0.75).all() for each in policy.parameters())
        policy.weights.copy_(kept)
        policy.weights.grad.copy_(kept_grad)
    return result


@any_shape
def test_the_vector_of_weights_is_shared_with_the_layers(hidden, shared):
    assert is_shared(Policy(4, 6, hidden, shared))


@any_shape
def test_the_vector_is_still_shared_after_loading_weights(hidden, shared):
    policy, other = Policy(4, 6, hidden, shared), make_policy(hidden, shared)
    vector = policy.weights
    policy.load_state_dict(other.state_dict())
    assert policy.weights is vector
    assert torch.equal(vector, other.weights)
    assert is_shared(policy)


def test_the_vector_is_still_shared_after_optimiser_steps():
    policy = make_policy()
    vector = policy.weights
    optimizer = torch.optim.Adam([vector], fused=True)
    before = vector.clone()
    for _ in range(3):
        logits, values = policy(torch.ones(2, 4))
        (logits.square().sum() + values.sum()).backward()
        optimizer.step()
    assert policy.weights is vector
    assert (vector != before).any()
    assert is_shared(policy)


def test_the_vector_takes_the_gradient_that_autograd_leaves_in_the_layers():
    policy = make_policy()
    assert not policy.weights.grad.any()
    logits, values = policy(torch.ones(2, 4))
    (logits.square().sum() + values.sum()).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in policy.parameters()])
    assert expected.any()
    assert torch.equal(policy.weights.grad, expected)


def test_a_policy_that_was_moved_gets_a_new_vector():
    policy = make_policy()
    expected = policy.weights.clone()
    policy.double()
    assert policy.weights.dtype == torch.float64
    assert torch.equal(policy.weights.float(), expected)
    assert is_shared(policy)


def test_saved_weights_have_names_and_shapes_of_layers():
    names = {name: tuple(tensor.shape) for name, tensor in Policy(4, 6, (8,)).state_dict().items()}
    assert names == {
        "trunk.0.weight": (8, 4),
        "trunk.0.bias": (8,),
        "critic_trunk.0.weight": (8, 4),
        "critic_trunk.0.bias": (8,),
        "actor.weight": (6, 8),
        "actor.bias": (6,),
        "critic.weight": (1, 8),
        "critic.bias": (1,),
    }
