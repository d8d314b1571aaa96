"""Distillation: a policy is taught what to do in information states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from redline.learn.adam import Adam
from redline.learn.heads.categorical import MASKED
from redline.learn.improvement import Switch
from redline.learn.moments import Moments
from redline.learn.policy import Policy

SAMPLE = 1024
"""Information states that are taught at a time, beside those that have changed."""
DECIDED = 0.9
"""The probability that an action gets which turned out better."""


def distil(
    policy: Policy, moments: Moments, switches: Sequence[Switch], lessons: int, rng: np.random.Generator
) -> None:
    """Teach a policy the switches, and to do everything else as before."""
    masks = None if moments.masks is None else torch.from_numpy(moments.masks)
    targets = probabilities(policy, moments.observations, masks)
    for each in switches:
        targets[each.state] *= 1 - DECIDED
        targets[each.state, each.new] += DECIDED
    changed = np.array([each.state for each in switches], np.int64)
    teach(policy, policy.inputs(moments.observations), masks, targets, moments.visits, changed, lessons, rng)


def probabilities(policy: Policy, observations: np.ndarray, masks: torch.Tensor | None) -> torch.Tensor:
    """The probability [S, actions] of every action in every state."""
    with torch.no_grad():
        return _log_probs(policy, policy.inputs(observations), masks).exp()


def teach(
    policy: Policy,
    inputs: torch.Tensor,
    masks: torch.Tensor | None,
    targets: torch.Tensor,
    visits: np.ndarray,
    always: np.ndarray,
    lessons: int,
    rng: np.random.Generator,
) -> None:
    """Teach a policy probabilities [S, actions] for its states; those in `always` are part of every lesson."""
    # rare states count more than their share: they are many, and some of them matter
    shares = visits.astype(np.float64) ** 0.7
    shares /= shares.sum()
    optimizer = Adam(policy.weights, 2e-3)
    for lesson in range(lessons):
        optimizer.learning_rate = 2e-3 * (1 - lesson / lessons)
        chosen = torch.from_numpy(np.concatenate([rng.choice(len(shares), SAMPLE, p=shares), always]))
        log_probs = _log_probs(policy, inputs[chosen], None if masks is None else masks[chosen])
        loss = -(targets[chosen] * log_probs).sum(dim=1).mean()
        policy.weights.grad.zero_()  # type: ignore[union-attr]
        loss.backward()
        optimizer.step()


def _log_probs(policy: Policy, inputs: torch.Tensor, masks: torch.Tensor | None) -> torch.Tensor:
    logits, _ = policy.network(inputs)
    return (logits if masks is None else logits.masked_fill(~masks, MASKED)).log_softmax(dim=1)
