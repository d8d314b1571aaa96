"""The gradient of a batch in one compiled call is that by torch's products, with and without the zeros of its inputs."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from redline.learn.batch import Minibatch
from redline.learn.by_torch import ByTorch
from redline.learn.config import PPOConfig
from redline.learn.gradient import InOneCall, Table, by_hand_way
from redline.learn.heads import head_for
from redline.learn.heads.categorical import Categorical
from redline.learn.network.inputs import NEVER, seen
from redline.learn.policy import Policy
from redline.threads import Crew
from redline.worlds.encoding import plain

COUNT, NUM_INPUTS, NUM_ACTIONS = 45, 20, 7
CONFIG = PPOConfig(entropy=0.1)


def make_policy(hidden: tuple[int, ...], shared: bool) -> Policy:
    policy = Policy(plain((NUM_INPUTS,), np.float32), Categorical(NUM_ACTIONS), hidden, shared)
    policy.vector[:] = 0.3 * np.random.default_rng(0).normal(size=len(policy.vector))
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
    table = Table(observations(filled), masks if masked else None)
    found = []
    for way in (InOneCall(policy.sizes), ByTorch(policy)):
        (piece,) = way.pieces(batch, table, Crew(1, "learner"))
        gradient = np.full_like(policy.vector, np.nan)
        found.append((way.write(piece, policy.vector, gradient, CONFIG).loss, gradient))
    (loss, gradient), (expected_loss, expected) = found
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_leaving_zeros_out_changes_no_bit():
    policy, batch, numbers = make_policy((16, 9), False), minibatch(), observations(0.1)
    way = InOneCall(policy.sizes)
    (piece,) = way.pieces(batch, Table(numbers, None), Crew(1, "learner"))
    assert len(piece.inputs.starts) and not len(piece.inputs.dense)
    sparse, dense = np.empty_like(policy.vector), np.empty_like(policy.vector)
    way.write(piece, policy.vector, sparse, CONFIG)
    way.write(piece._replace(inputs=seen(numbers[batch.rows], NEVER)), policy.vector, dense, CONFIG)
    np.testing.assert_array_equal(sparse, dense)


def test_inputs_are_seen_without_their_zeros_where_few_are_left():
    numbers = np.array([[0, 3, 0, 0], [0, 0, 0, 0], [1, 0, 0, 2]], np.float32)
    few = seen(numbers, 0.25)
    assert few.is_sparse and few.num_rows == 3
    np.testing.assert_array_equal(few.starts, [0, 1, 1, 3])
    np.testing.assert_array_equal(few.columns, [1, 0, 3])
    np.testing.assert_array_equal(few.numbers, [3, 1, 2])
    many = seen(numbers, 0.2)
    assert not many.is_sparse and many.num_rows == 3
    np.testing.assert_array_equal(many.dense, numbers)


def test_pieces_hold_what_is_seen_of_their_rows_in_any_order():
    policy, batch, numbers = make_policy((8,), False), minibatch(), observations(1.0)
    way = InOneCall(policy.sizes)
    way.PIECE = 16
    for rows in (batch.rows, np.sort(batch.rows)):
        table, crew = Table(numbers, None), Crew(2, "learner")
        pieces = way.pieces(batch._replace(rows=rows), table, crew)
        np.testing.assert_array_equal(np.concatenate([piece.inputs.dense for piece in pieces]), numbers[rows])


def test_other_heads_and_bare_networks_are_left_to_torch():
    assert isinstance(by_hand_way(make_policy((8,), False)), InOneCall)
    assert isinstance(by_hand_way(make_policy((), False)), ByTorch)
    space = plain((NUM_INPUTS,), np.float32)
    assert isinstance(by_hand_way(Policy(space, head_for(Box(-1.0, 1.0, (2,))))), ByTorch)
