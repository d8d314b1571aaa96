"""The slow, obvious twins of the learner: advantages as sums over the future, the PPO loss as the paper has it.

Everything is in double precision. Every step counts for itself: nothing is deduplicated, gathered or cut into parts.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from redline.learn.config import PPOConfig
from redline.learn.network.torch_pass import TorchNetwork
from redline.learn.policy import Policy
from redline.rollout import Rollout


def surprise(rewards, values, next_values, terminated, t, i, gamma):
    """δ: what step `t` of env `i` brought, less what was expected of it."""
    future = 0.0 if terminated[t, i] else float(next_values[t, i])
    return float(rewards[t, i]) + gamma * future - float(values[t, i])


def rest_of_episode(terminated, truncated, t, i):
    """The steps of env `i` from `t` to the last of the same episode, or of the rollout."""
    steps = []
    for later in range(t, len(terminated)):
        steps.append(later)
        if terminated[later, i] or truncated[later, i]:
            break
    return steps


def gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    """A_t = Σ_k (γλ)^(k-t) δ_k over the rest of the episode."""
    advantages = np.empty(rewards.shape)
    for t, i in np.ndindex(rewards.shape):
        advantages[t, i] = sum(
            (gamma * lam) ** (k - t) * surprise(rewards, values, next_values, terminated, k, i, gamma)
            for k in rest_of_episode(terminated, truncated, t, i)
        )
    return advantages


def vtrace_targets(rewards, values, next_values, terminated, truncated, weights, gamma, lam):
    """v_t = V_t + Σ_k γ^(k-t) (Π_{j=t}^{k-1} c_j) ρ_k δ_k with c = λρ (Espeholt et al., 2018, equation 1)."""
    targets = np.empty(rewards.shape)
    for t, i in np.ndindex(rewards.shape):
        targets[t, i] = float(values[t, i]) + sum(
            gamma ** (k - t)
            * np.prod([lam * float(weights[j, i]) for j in range(t, k)])
            * float(weights[k, i])
            * surprise(rewards, values, next_values, terminated, k, i, gamma)
            for k in rest_of_episode(terminated, truncated, t, i)
        )
    return targets


class Loss(NamedTuple):
    """The parts of the PPO loss."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    clipped: Tensor


def ppo_loss(network: TorchNetwork, rollout: Rollout, config: PPOConfig, weights: np.ndarray | None = None) -> Loss:
    """The loss of all steps of a rollout, each by itself. The network is in double precision, and its outputs are logits.

    With importance `weights` the returns are V-trace targets, and advantages the way from the values to them.
    """
    scaled = config.reward_scale * rollout.rewards.astype(np.float64)
    steps = (scaled, rollout.values, rollout.next_values, rollout.terminated, rollout.truncated)
    if weights is None:
        advantages = gae(*steps, config.gamma, config.gae_lambda)
    else:
        advantages = vtrace_targets(*steps, weights, config.gamma, config.gae_lambda) - rollout.values
    returns = torch.from_numpy(advantages + rollout.values).reshape(-1)
    if config.normalise:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    advantages = torch.from_numpy(advantages).reshape(-1)
    rows, actions = rollout.rows.reshape(-1), torch.from_numpy(rollout.actions).reshape(-1)
    observations = torch.from_numpy(rollout.observations[rows]).double().flatten(1)

    logits, values = network(observations)
    if rollout.masks is not None:
        logits = logits.masked_fill(~torch.from_numpy(rollout.masks[rows]), -1e9)
    log_probs = torch.log_softmax(logits, dim=-1)
    chosen = log_probs.gather(1, actions[:, None])[:, 0]
    log_ratios = chosen - torch.from_numpy(rollout.log_probs).double().reshape(-1)
    ratios = log_ratios.exp()
    clipped_ratios = ratios.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.minimum(ratios * advantages, clipped_ratios * advantages).mean()
    value_loss = 0.5 * ((values - returns) ** 2).mean()
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1).mean()
    total = policy_loss + config.value * value_loss - config.entropy * entropy
    kl = (ratios - 1 - log_ratios).mean()
    clipped = ((ratios - 1).abs() > config.clip).double().mean()
    return Loss(total, policy_loss, value_loss, entropy, kl, clipped)


def in_double(policy: Policy) -> TorchNetwork:
    """A copy of a policy's network in double precision."""
    return TorchNetwork(policy.sizes, policy.vector.copy(), np.zeros_like(policy.vector)).double()


def ppo_gradient(policy: Policy, rollout: Rollout, config: PPOConfig, weights: np.ndarray | None = None) -> np.ndarray:
    """The gradient of the loss, as one vector in the order of the policy's parameters."""
    twin = in_double(policy)
    ppo_loss(twin, rollout, config, weights).total.backward()
    return np.concatenate([parameter.grad.numpy().reshape(-1) for parameter in twin.parameters()])
