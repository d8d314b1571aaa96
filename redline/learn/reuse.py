"""Learning again from rollouts that older weights collected.

Each step is weighted by how likely today's policy is to have taken it, truncated at 1 (V-trace), and the clipped
objective is anchored at today's policy, as it is for fresh steps.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from redline.learn.policy import Policy
from redline.rollout import Rollout


def as_seen_today(rollout: Rollout, policy: Policy) -> tuple[Rollout, np.ndarray]:
    """An old rollout with today's log-probabilities and values, and its importance weights [T, N], at most 1.

    The value of a state that an episode was cut in keeps its old estimate, since that state is not among the rows.
    """
    import torch

    with torch.inference_mode():
        masks = None if rollout.masks is None else torch.from_numpy(rollout.masks).to(policy.device)
        distribution, row_values = policy(policy.inputs(rollout.observations), masks)
        rows = torch.from_numpy(rollout.rows.astype(np.int64)).to(policy.device)
        actions = torch.from_numpy(rollout.actions).to(policy.device)
        log_probs = distribution.log_probs(rows, actions).cpu().numpy()
    values = row_values.cpu().numpy()[rollout.rows]
    weights = np.exp(np.minimum(log_probs - rollout.log_probs, 0.0))
    next_values = rollout.next_values.copy()
    goes_on = ~(rollout.terminated | rollout.truncated)[:-1]
    next_values[:-1][goes_on] = values[1:][goes_on]
    today = dataclasses.replace(rollout, log_probs=log_probs, values=values, next_values=next_values)
    return today, weights
