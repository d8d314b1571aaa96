"""How much better than expected each action was."""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import kernel

_TINY = np.float32(1e-8)


@kernel
def vtrace(rewards, values, next_values, terminated, truncated, weights, gamma, lam):
    """Advantages and value targets, float32 [T, N], of steps that other weights took (Espeholt et al., 2018).

    `weights` [T, N] are importance weights already truncated at 1. Advantages leave out the step's own, which says how
    much of them is to count (`normalised`). A terminated step has no future, so its next value
    counts as zero. A truncated step has one we did not get to see, so it bootstraps. Credit from the next episode never
    reaches either.
    """
    num_steps, num_envs = rewards.shape
    advantages = np.empty((num_steps, num_envs), np.float32)
    targets = np.empty((num_steps, num_envs), np.float32)
    credit = np.zeros(num_envs, np.float32)
    for t in range(num_steps - 1, -1, -1):
        for i in range(num_envs):
            future = np.float32(0.0) if terminated[t, i] else next_values[t, i]
            surprise = rewards[t, i] + gamma * future - values[t, i]
            goes_on = not (terminated[t, i] or truncated[t, i])
            advantages[t, i] = surprise + (gamma * lam * credit[i] if goes_on else np.float32(0.0))
            credit[i] = weights[t, i] * advantages[t, i]
            targets[t, i] = values[t, i] + credit[i]
    return advantages, targets


@kernel
def gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    """Generalised advantage estimates, float32 [T, N]: what V-trace gives for steps that today's weights took."""
    return vtrace(rewards, values, next_values, terminated, truncated, np.ones_like(rewards), gamma, lam)[0]


def normalised(advantages: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Advantages scaled to mean 0 and deviation 1, each then counting by its importance weight, if there are any.

    Mean and deviation are those of steps that count by their weights. The mean goes first: taken off afterwards, it would
    make much of steps that hardly count.
    """
    if weights is None:
        scaled = (advantages - advantages.mean()) / (advantages.std() + _TINY)
        return np.asarray(scaled)
    mean = np.average(advantages, weights=weights)
    deviation = np.average((advantages - mean) ** 2, weights=weights) ** 0.5
    return np.asarray(weights * (advantages - mean) / (deviation + _TINY), np.float32)
