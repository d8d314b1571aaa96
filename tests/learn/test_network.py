"""One network, three passes: torch, compiled and numpy."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from redline.learn.network import compiled_pass, numpy_pass
from redline.learn.network.layers import ACTIVATIONS, Network
from redline.learn.network.start import ACTOR, first_weights
from redline.learn.network.torch_pass import TorchNetwork
from redline.threads import use_threads
from tests.oracles.rounding import Bounded, as_bounded, through

use_threads(1)  # as in training: networks this small gain nothing from torch's own threads

HIDDEN = [(), (8,), (5, 7, 3)]
NETWORKS = [
    Network(4, 6, hidden, shared, num_free) for hidden in HIDDEN for shared in (False, True) for num_free in (0, 2)
]
NETWORKS += [Network(4, 6, (5, 3), shared, activation=name) for name in ACTIVATIONS[1:] for shared in (False, True)]
NETWORKS += [Network(2 * 64, 6, (5,), shared, 2, picture=(2, 8, 8)) for shared in (False, True)]
NETWORKS += [Network(12 * 13, 6, (5,), picture=(1, 12, 13)), Network(3 * 36 * 40, 6, (5,), picture=(3, 36, 40))]
any_network = pytest.mark.parametrize("sizes", NETWORKS, ids=str)


def make_network(sizes: Network, scale: float = 1.0) -> TorchNetwork:
    """A network with random weights, all of them multiplied by `scale`."""
    weights = np.float32(scale) * np.random.default_rng(0).standard_normal(sizes.num_weights, np.float32)
    return TorchNetwork(sizes, weights, np.zeros_like(weights))


def fresh(sizes: Network) -> TorchNetwork:
    """A network as a run begins with it."""
    weights = first_weights(sizes, 0)
    return TorchNetwork(sizes, weights, np.zeros_like(weights))


def inputs(sizes: Network, count: int = 50) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(count, sizes.num_inputs)).astype(np.float32))


def by_torch(network: TorchNetwork) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and state values."""
    with torch.no_grad():
        outputs, values = network(inputs(network.sizes))
    return outputs.numpy(), values.numpy()


def by_hand(network: TorchNetwork) -> tuple[np.ndarray, np.ndarray]:
    passed = compiled_pass.forward(network.sizes, network.layers(), inputs(network.sizes))
    return passed.outputs.numpy().copy(), passed.values.numpy()[:, 0].copy()


def by_numpy(network: TorchNetwork) -> tuple[np.ndarray, np.ndarray]:
    layers = network.sizes.layers(network.weights.detach().numpy())
    return numpy_pass.forward(network.sizes, layers, inputs(network.sizes).numpy())


# The passes


def bounds(network: TorchNetwork) -> tuple[Bounded, Bounded]:
    """Outputs and state values in float64, with the error that float32 may make on any CPU."""
    precise = copy.deepcopy(network).double()
    seen = as_bounded(inputs(network.sizes))
    if precise.convs is not None:
        picture = as_bounded(seen.exact.reshape(-1, *network.sizes.picture))
        seen = through(nn.Sequential(precise.convs, nn.Flatten()), picture)
    features = through(precise.trunk, seen)
    outputs = through(precise.actor, features)
    if network.sizes.num_free:
        free = precise.free[0].expand(len(outputs.exact), -1)
        outputs = Bounded(torch.cat([outputs.exact, free], 1), torch.cat([outputs.error, 0 * free], 1))
    critic_features = features
    if precise.critic_trunk is not None:
        critic_features = through(precise.critic_trunk, seen)
    values = through(precise.critic, critic_features)
    return outputs, Bounded(values.exact.squeeze(-1), values.error.squeeze(-1))


def assert_within(found: np.ndarray, bounded: Bounded) -> None:
    exact, error = (each.detach().numpy() for each in bounded)
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= error).all()


PASSES = [by_torch, by_hand, by_numpy]


@any_network
@pytest.mark.parametrize("one_pass", PASSES)
def test_all_passes_give_the_outputs_and_values_that_rounding_allows(sizes, one_pass):
    network = make_network(sizes, 0.02 if sizes.picture else 1.0)  # larger ones would saturate tanh
    for found, bounded in zip(one_pass(network), bounds(network), strict=True):
        assert bounded.error.max() < 1e-3  # or the bound would allow anything
        assert_within(found, bounded)


@pytest.mark.parametrize("scale", [3.0, 100.0, 10_000.0])
@pytest.mark.parametrize("one_pass", PASSES)
def test_the_same_holds_for_huge_weights(scale, one_pass):
    network = make_network(Network(4, 6, (8,)), scale)
    for found, bounded in zip(one_pass(network), bounds(network), strict=True):
        assert_within(found, bounded)


@any_network
def test_numpy_gives_the_same_values_without_the_outputs(sizes):
    network = make_network(sizes)
    layers = sizes.layers(network.weights.detach().numpy())
    np.testing.assert_array_equal(numpy_pass.state_values(sizes, layers, inputs(sizes).numpy()), by_numpy(network)[1])


@pytest.mark.parametrize("sizes", [sizes for sizes in NETWORKS if sizes.by_hand], ids=str)
def test_the_gradient_by_hand_is_that_of_autograd(sizes):
    network = make_network(sizes, 0.1 if sizes.picture else 1.0)  # behind convolutions tanh would be saturated
    rng = np.random.default_rng(1)
    outputs_grad = torch.from_numpy(rng.normal(size=(50, 6)).astype(np.float32))
    values_grad = torch.from_numpy(rng.normal(size=50).astype(np.float32))
    outputs, values = network(inputs(network.sizes))
    ((outputs * outputs_grad).sum() + values @ values_grad).backward()
    found = torch.full((sizes.num_weights,), np.nan)
    passed = compiled_pass.forward(network.sizes, network.layers(), inputs(network.sizes))
    grads = sizes.layers(found)
    compiled_pass.backward(sizes, network.layers(), grads, passed, outputs_grad.clone(), values_grad.unsqueeze(1))
    expected = network.weights.grad
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_free_outputs_are_the_same_whatever_is_seen():
    network = make_network(Network(4, 6, (8,), num_free=2))
    outputs, _ = by_torch(network)
    assert (outputs[:, 4:] == network.weights[-2:].numpy()).all()
    assert (outputs[:, :4].std(axis=0) > 0).all()


# Layers


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_shared_network_has_one_trunk_and_a_separate_one_two(hidden):
    trunk = sum(inputs * outputs + outputs for inputs, outputs in pairwise((4, *hidden)))
    ends = (hidden[-1] if hidden else 4) * 7 + 7
    assert Network(4, 6, hidden, shared=True).num_weights == trunk + ends
    assert Network(4, 6, hidden, shared=False).num_weights == 2 * trunk + ends


@any_network
def test_a_vector_has_as_many_weights_as_the_layers(sizes):
    assert make_network(sizes).weights.numel() == sizes.num_weights


@any_network
def test_layers_are_the_parameters_in_their_order(sizes):
    network = make_network(sizes)
    layers = network.layers()
    flat = [*layers.convs, *layers.trunk, *(layers.critic_trunk or []), layers.actor, layers.critic]
    tensors = [tensor for layer in flat for tensor in layer] + ([layers.free] if sizes.num_free else [])
    for tensor, parameter in zip(tensors, network.parameters(), strict=True):
        assert torch.equal(tensor, parameter)
    assert (layers.critic_trunk is None) == sizes.shared


def test_layers_of_numpy_and_of_torch_are_cut_alike():
    sizes = Network(4, 6, (8, 3), num_free=2)
    numbers = np.arange(sizes.num_weights, dtype=np.float32)
    ours, others = sizes.layers(numbers), sizes.layers(torch.from_numpy(numbers))
    np.testing.assert_array_equal(ours.critic_trunk[1].weight, others.critic_trunk[1].weight.numpy())
    np.testing.assert_array_equal(ours.actor.bias, others.actor.bias.numpy())
    assert ours.free.tolist() == others.free.tolist() == [sizes.num_weights - 2, sizes.num_weights - 1]


# One vector


def is_shared(network: TorchNetwork) -> bool:
    """Whether writing to the vector writes to the layers, for weights and gradients alike."""
    with torch.no_grad():
        kept, kept_grad = network.weights.clone(), network.weights.grad.clone()
        network.weights.fill_(0.25)
        network.weights.grad.fill_(0.75)
        result = all((each == 0.25).all() and (each.grad == 0.75).all() for each in network.parameters())
        network.weights.copy_(kept)
        network.weights.grad.copy_(kept_grad)
    return result


@any_network
def test_the_vector_of_weights_is_shared_with_the_layers(sizes):
    assert is_shared(fresh(sizes))


@any_network
def test_the_vector_is_still_shared_after_loading_weights(sizes):
    network, other = fresh(sizes), make_network(sizes)
    vector = network.weights
    network.load_state_dict(other.state_dict())
    assert network.weights is vector
    assert torch.equal(vector, other.weights)
    assert is_shared(network)


def test_the_vector_is_still_shared_after_optimiser_steps():
    network = make_network(Network(4, 6, (8,)))
    vector = network.weights
    optimizer = torch.optim.Adam([vector], fused=True)
    before = vector.clone()
    for _ in range(3):
        outputs, values = network(torch.ones(2, 4))
        (outputs.square().sum() + values.sum()).backward()
        optimizer.step()
    assert network.weights is vector
    assert (vector != before).any()
    assert is_shared(network)


def test_the_vector_takes_the_gradient_that_autograd_leaves_in_the_layers():
    network = make_network(Network(4, 6, (8,)))
    assert not network.weights.grad.any()
    outputs, values = network(torch.ones(2, 4))
    (outputs.square().sum() + values.sum()).backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in network.parameters()])
    assert expected.any()
    assert torch.equal(network.weights.grad, expected)


def test_a_network_that_was_moved_gets_a_new_vector():
    network = make_network(Network(4, 6, (8,)))
    expected = network.weights.clone()
    network.double()
    assert network.weights.dtype == torch.float64
    assert torch.equal(network.weights.float(), expected)
    assert is_shared(network)


def test_saved_weights_have_names_and_shapes_of_layers():
    names = {name: tuple(tensor.shape) for name, tensor in fresh(Network(4, 6, (8,))).state_dict().items()}
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


@any_network
def test_layers_have_the_same_names_with_and_without_torch(sizes):
    network = make_network(sizes)
    named = sizes.by_name(network.weights.detach().numpy())
    assert list(named) == list(network.state_dict())
    for name, tensor in network.state_dict().items():
        np.testing.assert_array_equal(named[name], tensor.numpy())


@any_network
def test_layers_are_orthogonal_at_first_and_actions_about_equally_likely(sizes):
    layers = sizes.layers(first_weights(sizes, 3))
    for layer in (*layers.convs, *layers.trunk, *(layers.critic_trunk or ())):
        assert _gain(layer.weight) == pytest.approx(2.0, rel=1e-5)
        assert not layer.bias.any()
    assert _gain(layers.actor.weight) == pytest.approx(ACTOR**2, rel=1e-5)
    assert _gain(layers.critic.weight) == pytest.approx(1.0, rel=1e-5)


def _gain(weight: np.ndarray) -> float:
    """By how much rows, or columns where these are fewer, stretch; all the same, and none like another."""
    flat = weight.reshape(len(weight), -1)
    flat = flat if len(flat) <= flat.shape[1] else flat.T
    products = flat @ flat.T
    np.testing.assert_allclose(products, products[0, 0] * np.eye(len(flat)), atol=1e-5 * products[0, 0])
    return float(products[0, 0])


def test_seeds_draw_other_weights():
    sizes = Network(4, 6, (8,))
    assert (first_weights(sizes, 1) == first_weights(sizes, 1)).all()
    assert (first_weights(sizes, 1) != first_weights(sizes, 2)).any()
