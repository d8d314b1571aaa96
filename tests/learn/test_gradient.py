"""The gradient of a batch in one compiled call is that by torch's products, with and without the zeros of its inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from redline.learn.batch import Minibatch
from redline.learn.config import PPOConfig
from redline.learn.gradient import ByTorch, InOneCall, Table, by_hand_way
from redline.learn.heads import head_for
from redline.learn.heads.categorical import Categorical
from redline.learn.network.inputs import dense_inputs, some_rows, sparse_inputs
from redline.learn.policy import Policy
from redline.worlds.encoding import plain

COUNT, NUM_INPUTS, NUM_ACTIONS = 45, 20, 7
CONFIG = PPOConfig(entropy=0.1)


def make_policy(hidden: tuple[int, ...], shared: bool) -> Policy:
    torch.manual_seed(0)
    policy = Policy(plain((NUM_INPUTS,), np.float32), Categorical(NUM_ACTIONS), hidden, shared)
    with torch.no_grad():
        policy.weights.copy_(0.3 * torch.randn_like(policy.weights))
    return policy


def observations(filled: float) -> np.ndarray:
    random = np.random.default_rng(1)
    return (random.normal(size=(COUNT, NUM_INPUTS)) * (random.random((COUNT, NUM_INPUTS)) < filled)).astype(np.float32)


def minibatch() -> Minibatch[np.ndarray]:
    random = np.random.default_rng(2)
    pairs, visits = 4 * COUNT, random.integers(1, 9, COUNT).astype(np.float32)
    return Minibatch(
        rows=random.permutation(COUNT), visits=visits, mean_returns=random.normal(size=COUNT).astype(np.float32),
        spread=3.0, pair_rows=np.repeat(np.arange(COUNT), 4), pair_actions=random.integers(0, NUM_ACTIONS, pairs),
        pair_log_probs=(-2 + random.normal(size=pairs)).astype(np.float32),
        pair_visits=random.random(pairs).astype(np.float32), gains=random.random(pairs).astype(np.float32),
        losses=-random.random(pairs).astype(np.float32), num_steps=int(visits.sum()),
    )  # fmt: skip


@pytest.mark.parametrize("filled", [0.1, 1.0], ids=["sparse", "dense"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("hidden", "shared"), [((16, 9), False), ((16, 9), True), ((8,), False), ((9, 8, 7), False)])
def test_both_ways_by_hand_lead_to_the_same(hidden, shared, masked, filled):
    policy, batch = make_policy(hidden, shared), minibatch()
    masks = np.random.default_rng(3).random((COUNT, NUM_ACTIONS)) < 0.7
    masks[batch.rows[batch.pair_rows], batch.pair_actions] = True
    table = Table(torch.from_numpy(observations(filled)), torch.from_numpy(masks) if masked else None)
    found = []
    for way in (InOneCall(policy.network.sizes), ByTorch(policy)):
        (piece,) = way.pieces(batch, table)
        gradient = torch.full_like(policy.weights, torch.nan)
        found.append((way.write(piece, policy.weights, gradient, CONFIG).loss, gradient))
    (loss, gradient), (expected_loss, expected) = found
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


def test_leaving_zeros_out_changes_no_bit():
    policy, batch, numbers = make_policy((16, 9), False), minibatch(), observations(0.1)
    way = InOneCall(policy.network.sizes)
    (piece,) = way.pieces(batch, Table(torch.from_numpy(numbers), None))
    assert len(piece.inputs.starts) and not len(piece.inputs.dense)
    sparse, dense = torch.empty_like(policy.weights), torch.empty_like(policy.weights)
    way.write(piece, policy.weights, sparse, CONFIG)
    way.write(piece._replace(inputs=dense_inputs(numbers[batch.rows])), policy.weights, dense, CONFIG)
    assert sparse.equal(dense)


def test_rows_are_taken_out_of_inputs_without_their_zeros():
    numbers, rows = observations(0.1), np.array([3, 44, 0, 7])
    whole, some = sparse_inputs(numbers, 0.5), sparse_inputs(numbers[rows], 0.5)
    assert whole is not None and some is not None
    for found, expected in zip(some_rows(whole, rows), some, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert sparse_inputs(observations(1.0), 0.5) is None


def test_other_heads_and_bare_networks_are_left_to_torch():
    assert isinstance(by_hand_way(make_policy((8,), False)), InOneCall)
    assert isinstance(by_hand_way(make_policy((), False)), ByTorch)
    space = plain((NUM_INPUTS,), np.float32)
    assert isinstance(by_hand_way(Policy(space, head_for(Box(-1.0, 1.0, (2,))))), ByTorch)
