"""How much better than expected each action was."""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import kernel


@kernel
def vtrace(rewards, values, next_values, terminated, truncated, weights, gamma, lam):
    """Advantages and value targets, float32 [T, N], of steps that other weights took (Espeholt et al., 2018).

    `weights` [T, N] are importance weights already truncated at 1. A terminated step has no future, so its next value
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
            credit[i] = weights[t, i] * (surprise + (gamma * lam * credit[i] if goes_on else np.float32(0.0)))
            advantages[t, i] = credit[i]
            targets[t, i] = values[t, i] + credit[i]
    return advantages, targets


@kernel
def gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    """Generalised advantage estimates, float32 [T, N]: what V-trace gives for steps that today's weights took."""
    return vtrace(rewards, values, next_values, terminated, truncated, np.ones_like(rewards), gamma, lam)[0]
