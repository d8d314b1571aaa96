from __future__ import annotations

import numpy as np
import pytest
import torch

from redline.compiled import rng
from redline.compiled.lookup import GUIDES
from redline.compiled.rng import GOLDEN, unit
from redline.learn.batch import Minibatch, to_tensors
from redline.learn.config import PPOConfig
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.head import DrawTable
from redline.learn.loss import total
from redline.learn.torch_loss import ppo_loss
from tests.learn.streams import LARGEST_UNIT, stream_that_draws

HEAD = Categorical(6)
either_fill = pytest.mark.parametrize("fill", [HEAD.fill, HEAD.fill_in_numpy], ids=["compiled", "numpy"])
scales = pytest.mark.parametrize("scale", [1.0, 30.0, 10_000.0])


def logits(count: int = 200, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(0).normal(size=(count, 6))).astype(np.float32)


def random_masks(count: int = 200) -> np.ndarray:
    """Anything goes, as long as one action is allowed."""
    random = np.random.default_rng(1)
    masks = random.random((count, 6)) < 0.5
    masks[np.arange(count), random.integers(6, size=count)] = True
    return masks


def filled(fill, outputs: np.ndarray, masks: np.ndarray | None = None) -> DrawTable:
    """Log-probabilities, running sums of probability, and guides."""
    table = HEAD.empty(len(outputs))
    fill(outputs.copy(), masks, table)
    return table


# Distributions


@either_fill
@scales
@pytest.mark.parametrize("masked", [False, True])
def test_distributions_are_those_of_the_textbook(fill, scale, masked):
    outputs, masks = logits(scale=scale), random_masks() if masked else None
    exact = outputs.astype(np.float64)
    if masks is not None:
        exact[~masks] = -np.inf
    exact -= exact.max(axis=1, keepdims=True)
    expected = exact - np.log(np.exp(exact).sum(axis=1, keepdims=True))
    log_probs, cumulative, _ = filled(fill, outputs, masks)
    allowed = np.isfinite(expected)
    np.testing.assert_allclose(log_probs[allowed], expected[allowed], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(cumulative, np.exp(expected).cumsum(axis=1), rtol=1e-5, atol=1e-6)


@either_fill
@scales
def test_a_masked_action_has_a_probability_of_exactly_zero(fill, scale):
    masks = random_masks()
    _, cumulative, _ = filled(fill, logits(scale=scale), masks)
    assert (np.diff(cumulative, axis=1, prepend=0)[~masks] == 0).all()
    np.testing.assert_allclose(cumulative[:, -1], 1, rtol=1e-6)


@scales
def test_autograd_gives_a_masked_action_a_probability_of_exactly_zero(scale):
    masks = random_masks()
    distribution = HEAD.distribution(torch.from_numpy(logits(scale=scale)), torch.from_numpy(masks))
    rows, actions = torch.from_numpy(np.argwhere(~masks)).unbind(dim=1)
    assert (distribution.log_probs(rows, actions).exp() == 0).all()


@either_fill
def test_a_single_allowed_action_is_certain(fill):
    masks = np.eye(6, dtype=bool)
    log_probs, cumulative, _ = filled(fill, logits(6, scale=30.0), masks)
    assert (cumulative[:, -1] == 1).all()
    assert (log_probs[masks] == 0).all()


def test_torch_knows_the_same_distributions():
    outputs, masks = logits(), random_masks()
    log_probs, _, _ = filled(HEAD.fill, outputs, masks)
    distribution = HEAD.distribution(torch.from_numpy(outputs), torch.from_numpy(masks))
    rows, actions = np.argwhere(masks).T
    found = distribution.log_probs(torch.from_numpy(rows), torch.from_numpy(actions)).numpy()
    np.testing.assert_allclose(found, log_probs[rows, actions], rtol=1e-5, atol=1e-5)
    probs = np.exp(log_probs)
    np.testing.assert_allclose(distribution.entropies().numpy(), -(probs * log_probs).sum(axis=1), rtol=1e-4, atol=1e-5)


def test_the_likeliest_action_is_picked():
    outputs, masks = logits(), random_masks()
    table, rows = filled(HEAD.fill, outputs, masks), np.arange(200)
    actions, log_probs = HEAD.likeliest(table, rows)
    assert masks[rows, actions].all()
    np.testing.assert_array_equal(log_probs, table[0].max(axis=1))
    distribution = HEAD.distribution(torch.from_numpy(outputs), torch.from_numpy(masks))
    assert distribution.picks(torch.from_numpy(actions)).all()
    assert not distribution.picks(torch.from_numpy((actions + 1) % 6)).any()


# Draws


@pytest.mark.parametrize("wanted", [0.0, 2.0**-53, 0.25, 0.5, LARGEST_UNIT])
def test_the_streams_made_for_these_tests_draw_what_they_are_meant_to(wanted):
    stream = np.array([stream_that_draws(wanted)])
    stream += GOLDEN
    assert unit(stream[0]) == wanted


@either_fill
@scales
@pytest.mark.parametrize("drawn", [0.0, 2.0**-53, 0.5, LARGEST_UNIT])
def test_a_masked_action_is_not_drawn_by_the_most_extreme_numbers(fill, scale, drawn):
    masks, rows = random_masks(2000), np.arange(2000, dtype=np.int32)
    table = filled(fill, logits(2000, scale), masks)
    actions, log_probs = HEAD.draw(table, rows, np.full(2000, stream_that_draws(drawn)), rows.astype(np.int64))
    assert masks[rows, actions].all()
    np.testing.assert_array_equal(log_probs, table[0][rows, actions])


def test_many_draws_find_all_the_allowed_actions_and_no_other():
    masks, rows = random_masks(1000), np.arange(1000, dtype=np.int32)
    table, streams = filled(HEAD.fill, np.zeros((1000, 6), np.float32), masks), rng.seed_streams(0, 1000)
    drawn = np.zeros((1000, 6), bool)
    for _ in range(200):
        drawn[rows, HEAD.draw(table, rows, streams, rows.astype(np.int64))[0]] = True
    np.testing.assert_array_equal(drawn, masks)


@either_fill
@scales
def test_a_guide_leads_to_the_very_action_that_a_search_finds(fill, scale):
    count, rows = 3000, np.arange(3000, dtype=np.int32)
    table, streams = filled(fill, logits(count, scale), random_masks(count)), rng.seed_streams(5, count)
    edges = [stream_that_draws(part / GUIDES) for part in range(GUIDES)]  # where a guide begins, and just before
    edges += [stream_that_draws((part + 1) / GUIDES - 2.0**-53) for part in range(GUIDES)]
    streams[: len(edges)] = edges
    with np.errstate(over="ignore"):
        units = [rng.unit(stream + rng.GOLDEN) for stream in streams]
    expected = [
        np.searchsorted(sums[:-1], unit * sums[-1], "right") for sums, unit in zip(table[1], units, strict=True)
    ]
    actions, _ = HEAD.draw(table, rows, streams, rows.astype(np.int64))
    np.testing.assert_array_equal(actions, expected)


# Gradients


def minibatch() -> Minibatch[np.ndarray]:
    """Twenty observations with five pairs each, some outside of the clip range."""
    random = np.random.default_rng(2)
    advantages = random.normal(size=(2, 100)).astype(np.float32)
    visits = random.integers(1, 4, size=100).astype(np.float32)
    rows = np.repeat(np.arange(20), 5)
    return Minibatch(
        rows=np.arange(20), visits=np.bincount(rows, visits).astype(np.float32), mean_returns=np.zeros(20, np.float32),
        spread=0.0, pair_rows=rows, pair_actions=np.tile(np.arange(5), 20),
        pair_log_probs=(-1.8 + random.normal(size=100)).astype(np.float32), pair_visits=visits,
        gains=advantages[0].clip(min=0), losses=advantages[1].clip(max=0), num_steps=int(visits.sum()),
    )  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_by_hand_is_that_of_autograd(masked):
    batch, config = minibatch(), PPOConfig(clip=0.2, entropy=0.3, value=0.0)
    masks = np.ones((20, 6), bool)
    masks[::2, 5] = not masked
    outputs = torch.from_numpy(logits(20)).requires_grad_()
    distribution = HEAD.distribution(outputs, torch.from_numpy(masks))
    expected = ppo_loss(distribution, torch.zeros(20), to_tensors(batch, torch.device("cpu")), config)
    total(expected, config).backward()
    gradient = np.full((20, 6), np.nan, np.float32)
    sums = HEAD.gradient(logits(20), masks, batch, np.float32(0.2), np.float32(0.3), gradient)
    np.testing.assert_allclose(gradient, outputs.grad.numpy(), atol=1e-5 * np.abs(gradient).max())
    assert -sums.objective / batch.num_steps == pytest.approx(expected.policy.item(), rel=1e-5)
    assert sums.entropy / batch.num_steps == pytest.approx(expected.entropy.item(), rel=1e-5)
    assert sums.kl / batch.num_steps == pytest.approx(expected.kl.item(), rel=1e-4)
    assert sums.clipped / batch.num_steps == pytest.approx(expected.clipped.item(), rel=1e-5)
    assert 0.2 < expected.clipped.item() < 0.95


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("count", [1, 3, 4, 9, 70])
def test_drawing_once_gives_the_very_actions_that_a_table_does(count, masked):
    random, head = np.random.default_rng(count), Categorical(21)
    logits, masks = 3 * random.standard_normal((count, 21)).astype(np.float32), random.random((count, 21)) < 0.5
    masks[:, 5] = True
    streams, envs = random.integers(0, 1 << 63, count, dtype=np.uint64), random.permutation(count)
    given, table, others = masks if masked else None, head.empty(count), streams.copy()
    head.fill(logits.copy(), given, table)
    actions, log_probs = head.draw(table, np.arange(count), others, envs)
    found, found_log_probs = head.draw_once(logits.copy(), given, streams, envs)
    np.testing.assert_array_equal(found, actions)
    np.testing.assert_array_equal(streams, others)
    np.testing.assert_allclose(found_log_probs, log_probs, rtol=1e-6, atol=1e-6)
