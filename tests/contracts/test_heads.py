"""What every head promises; see `redline.learn.heads.head`. A new kind of action adds a space to `SPACES`."""

from __future__ import annotations

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

from redline.compiled.rng import seed_streams
from redline.learn.batch import Minibatch, to_tensors
from redline.learn.config import PPOConfig
from redline.learn.heads import head_for
from redline.learn.heads.head import DrawTable, Head
from redline.learn.loss import total
from redline.learn.torch_loss import ppo_loss
from redline.rollout import stored_actions

SPACES = [
    gym.spaces.Discrete(6),
    gym.spaces.Discrete(2, start=3),
    gym.spaces.Discrete(1),
    gym.spaces.MultiDiscrete([2, 5, 3]),
    gym.spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [0, 2]]),
    gym.spaces.MultiDiscrete([300, 2]),
    gym.spaces.MultiBinary(3),
    gym.spaces.MultiBinary((2, 2)),
    gym.spaces.Box(-1, 1, (3,), np.float32),
    gym.spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, np.inf]), dtype=np.float64),
    gym.spaces.Box(0, 9, (2, 1), np.int64),
]
COUNT = 40
HEADS = [head_for(space) for space in SPACES]
any_head = pytest.mark.parametrize("head", HEADS, ids=str)
masked_head = pytest.mark.parametrize("head", [head for head in HEADS if not head.num_free], ids=str)


def outputs(head: Head) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(COUNT, head.num_outputs)).astype(np.float32)


def filled(head: Head) -> DrawTable:
    table = head.empty(COUNT)
    head.fill(outputs(head), None, table)
    return table


def drawn(head: Head, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An action for every row, and its log-probability."""
    return head.draw(filled(head), np.arange(COUNT, dtype=np.int32), seed_streams(seed, COUNT), np.arange(COUNT))


def minibatch(head: Head) -> Minibatch[np.ndarray]:
    """Three actions for every row, some of them with ratios outside of the clip range."""
    random = np.random.default_rng(2)
    several = [drawn(head, seed) for seed in (0, 100, 200)]
    log_probs = np.concatenate([each[1] for each in several])
    advantages = random.normal(size=len(log_probs)).astype(np.float32)
    visits = random.integers(1, 4, size=len(log_probs)).astype(np.float32)
    rows = np.tile(np.arange(COUNT), 3)
    return Minibatch(
        rows=np.arange(COUNT),
        visits=np.bincount(rows, visits).astype(np.float32),
        mean_returns=np.zeros(COUNT, np.float32),
        spread=0.0,
        pair_rows=rows,
        pair_actions=np.concatenate([each[0] for each in several]),
        pair_log_probs=log_probs + random.normal(scale=0.3, size=len(log_probs)).astype(np.float32),
        pair_visits=visits,
        gains=advantages.clip(min=0),
        losses=advantages.clip(max=0),
        num_steps=int(visits.sum()),
    )


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_actions_have_the_shape_and_type_of_their_space(space):
    head = head_for(space)
    actions, log_probs = drawn(head)
    stored = (space.shape, np.float32 if isinstance(space, gym.spaces.Box) else space.dtype)
    assert (actions.shape, actions.dtype) == ((COUNT, *stored[0]), stored[1])
    assert (head.action_shape, head.action_dtype) == stored == stored_actions(space)
    assert (log_probs.shape, log_probs.dtype) == ((COUNT,), np.float32)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_is_played_lies_in_the_space(space):
    head = head_for(space)
    played = head.played(head.draw(filled(head), np.arange(COUNT), seed_streams(0, COUNT), np.arange(COUNT))[0])
    assert played.dtype == space.dtype
    assert all(space.contains(each) for each in played)


@any_head
def test_numpy_fills_a_table_with_the_same_distributions(head):
    table = head.empty(COUNT)
    head.fill_in_numpy(outputs(head), None, table)
    for found, expected in zip(table, filled(head), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@any_head
def test_draws_and_autograd_know_the_same_log_probabilities(head):
    actions, log_probs = drawn(head)
    distribution = head.distribution(torch.from_numpy(outputs(head)), None)
    found = distribution.log_probs(torch.arange(COUNT), torch.from_numpy(actions)).numpy()
    np.testing.assert_allclose(found, log_probs, rtol=1e-5, atol=1e-5)


@any_head
def test_entropy_is_the_mean_surprise_of_many_draws(head):
    distribution = head.distribution(torch.from_numpy(outputs(head)), None)
    surprises = -np.stack([drawn(head, seed)[1] for seed in range(0, 400 * COUNT, COUNT)])
    slack = 5 * surprises.std(axis=0) / 20 + 1e-5  # five standard errors
    assert (np.abs(distribution.entropies().numpy() - surprises.mean(axis=0)) < slack).all()


@any_head
def test_an_env_draws_the_same_whoever_plays_beside_it(head):
    table, (actions, log_probs) = filled(head), drawn(head)
    for i in (0, 7, COUNT - 1):
        streams = seed_streams(0, COUNT)
        alone = head.draw(table, np.array([i], np.int32), streams, np.array([i]))
        np.testing.assert_array_equal(alone[0][0], actions[i])
        assert alone[1][0] == log_probs[i]
        assert (streams != seed_streams(0, COUNT)).nonzero()[0].tolist() == [i]


@any_head
def test_nothing_is_likelier_than_the_likeliest_action(head):
    actions, log_probs = head.likeliest(filled(head), np.arange(COUNT))
    distribution = head.distribution(torch.from_numpy(outputs(head)), None)
    assert distribution.picks(torch.from_numpy(actions)).all()
    found = distribution.log_probs(torch.arange(COUNT), torch.from_numpy(actions)).numpy()
    np.testing.assert_allclose(found, log_probs, rtol=1e-5, atol=1e-5)
    for seed in range(20):
        assert (drawn(head, seed)[1] <= log_probs).all()


@any_head
def test_actions_have_the_same_number_just_if_they_are_equal(head):
    if head.num_choices is None:
        pytest.skip("actions cannot be counted")
    actions, _ = drawn(head)
    numbers = head.choices(actions)
    assert numbers.dtype == np.int64
    assert ((numbers >= 0) & (numbers < head.num_choices)).all()
    for one, number in zip(actions, numbers, strict=True):
        same = [np.array_equal(one, other) for other in actions]
        np.testing.assert_array_equal(numbers == number, same)


@any_head
@pytest.mark.parametrize("entropy", [0.0, 0.3])
def test_the_gradient_by_hand_is_that_of_autograd(head, entropy):
    batch, config = minibatch(head), PPOConfig(clip=0.2, entropy=entropy, value=0.0)
    at_outputs = torch.from_numpy(outputs(head)).requires_grad_()
    all_allowed = None if head.num_free else torch.ones(at_outputs.shape, dtype=torch.bool)
    loss = ppo_loss(
        head.distribution(at_outputs, all_allowed), torch.zeros(COUNT), to_tensors(batch, torch.device("cpu")), config
    )
    total(loss, config).backward()
    expected, found = at_outputs.grad.numpy(), np.full(at_outputs.shape, np.nan, np.float32)
    masks = None if all_allowed is None else all_allowed.numpy()
    sums = head.gradient(outputs(head), masks, batch, np.float32(0.2), np.float32(entropy), found)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(np.abs(expected).max(), 0.01))
    assert -sums.objective / batch.num_steps == pytest.approx(loss.policy.item(), rel=1e-5)
    assert sums.entropy / batch.num_steps == pytest.approx(loss.entropy.item(), rel=1e-5, abs=1e-6)
    assert sums.kl / batch.num_steps == pytest.approx(loss.kl.item(), rel=1e-4)
    assert sums.clipped / batch.num_steps == pytest.approx(loss.clipped.item(), rel=1e-5)
    assert 0.1 < loss.clipped.item() < 0.9


def test_heads_travel_to_where_there_is_no_torch():
    assert pickle.loads(pickle.dumps(HEADS)) == HEADS
    script = f"import pickle, sys; pickle.loads({pickle.dumps(HEADS)!r}); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "False"


def sizes_of(head: Head) -> tuple[int, ...]:
    return getattr(head, "sizes", (head.num_outputs,))


def random_masks(head: Head) -> np.ndarray:
    """Anything goes, as long as one choice of each component is allowed."""
    random = np.random.default_rng(3)
    parts = []
    for size in sizes_of(head):
        part = random.random((COUNT, size)) < 0.5
        part[np.arange(COUNT), random.integers(size, size=COUNT)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1)


@masked_head
def test_no_choice_that_a_mask_forbids_is_ever_drawn(head):
    masks, table = random_masks(head), head.empty(COUNT)
    head.fill(outputs(head), masks, table)
    firsts = np.cumsum([0, *sizes_of(head)])[:-1]
    for seed in range(50):
        actions, log_probs = head.draw(table, np.arange(COUNT), seed_streams(seed, COUNT), np.arange(COUNT))
        places = actions.reshape(COUNT, -1) + firsts
        assert np.take_along_axis(masks, places, axis=1).all()
        assert (log_probs <= 1e-6).all() and (log_probs > -100).all()


@masked_head
def test_masks_mean_the_same_to_autograd_and_by_hand(head):
    masks, table = random_masks(head), head.empty(COUNT)
    head.fill(outputs(head), masks, table)
    actions, log_probs = head.draw(table, np.arange(COUNT), seed_streams(0, COUNT), np.arange(COUNT))
    ones, advantages = np.ones(COUNT, np.float32), np.random.default_rng(0).normal(size=COUNT).astype(np.float32)
    batch = Minibatch(
        rows=np.arange(COUNT), visits=ones, mean_returns=0 * ones, spread=0.0, pair_rows=np.arange(COUNT),
        pair_actions=actions, pair_log_probs=log_probs + np.float32(0.1), pair_visits=ones,
        gains=advantages.clip(min=0), losses=advantages.clip(max=0), num_steps=COUNT,
    )  # fmt: skip
    config = PPOConfig(clip=0.2, entropy=0.1, value=0.0)
    at_outputs = torch.from_numpy(outputs(head)).requires_grad_()
    distribution = head.distribution(at_outputs, torch.from_numpy(masks))
    total(ppo_loss(distribution, torch.zeros(COUNT), to_tensors(batch, torch.device("cpu")), config), config).backward()
    found = np.full(at_outputs.shape, np.nan, np.float32)
    head.gradient(outputs(head), masks, batch, np.float32(0.2), np.float32(0.1), found)
    np.testing.assert_allclose(found, at_outputs.grad.numpy(), atol=1e-5)
