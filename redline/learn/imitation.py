"""Learning from episodes that somebody else played, or that the policy played itself when it was lucky."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from redline.learn.adam import Adam
from redline.learn.elite import Episode
from redline.learn.policy import Policy

SAMPLE = 512
"""Steps imitated at a time."""
DECIDE = 0.75
"""The part of a run after which the policy settles for the best episode it knows."""
RESOLVE = 5.0
"""How much every step of it counts at the end."""
CLONING_RATE, CLONING_ROUNDS = 3e-3, 5000


class Demonstrations:
    """The steps of episodes, ready for the network."""

    def __init__(self, policy: Policy, episodes: Sequence[Episode], gamma: float = 1.0, resolve: float = 0.0) -> None:
        """`resolve` is how much every step counts, whatever the policy expects of it."""
        self._resolve = resolve
        to_go = np.concatenate([each.to_go(gamma) for each in episodes])
        masks = [each.masks for each in episodes if each.masks is not None]
        self._inputs = policy.inputs(np.concatenate([each.observations for each in episodes]))
        self._masks = torch.from_numpy(np.concatenate(masks)).to(policy.device) if masks else None
        self._actions = torch.from_numpy(np.concatenate([each.actions for each in episodes])).to(policy.device)
        self._to_go = torch.from_numpy(to_go.astype(np.float32)).to(policy.device)

    def __len__(self) -> int:
        return len(self._actions)

    def add_gradient(self, policy: Policy, weight: float, unit: float, rng: np.random.Generator) -> float:
        """Add the gradient of imitating some of the steps to that of the weights. Returns how surprising they are.

        A step counts by how much more it came to than the policy expects of it, in the unit of its expectations
        (Oh et al., 2018): once the policy does as well by itself, it is free to try something else.
        """
        chosen = self._some(rng)
        surprise, values = self._surprise(policy, chosen)
        better = (self._to_go[chosen] / unit - values.detach()).clamp(min=0.0)
        (weight * ((better + self._resolve) * surprise).mean()).backward()
        return float(surprise.detach().mean())

    def add_cloning_gradient(self, policy: Policy, rng: np.random.Generator) -> None:
        """Likewise, with every step counting the same."""
        surprise, _ = self._surprise(policy, self._some(rng))
        surprise.mean().backward()

    def _some(self, rng: np.random.Generator) -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, len(self), min(SAMPLE, len(self))))

    def _surprise(self, policy: Policy, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """How unlikely the policy holds the chosen steps' actions to be (-log p), and the values of their states."""
        masks = None if self._masks is None else self._masks[chosen]
        distribution, values = policy(self._inputs[chosen], masks)
        rows = torch.arange(len(chosen), device=policy.device)
        return -distribution.log_probs(rows, self._actions[chosen]), values

    def are_followed(self, policy: Policy) -> bool:
        """Whether the policy's likeliest action is always the demonstrated one."""
        with torch.inference_mode():
            distribution, _ = policy(self._inputs, self._masks)
            return bool(distribution.picks(self._actions).all())


def models(policy: Policy, episodes: Sequence[Episode], gamma: float, progress: float) -> Demonstrations | None:
    """The steps to imitate at a point of the run: of the best episodes, towards the end of the very best, with resolve."""
    if not episodes:
        return None
    late = RESOLVE * max(0.0, (progress - DECIDE) / (1.0 - DECIDE))
    return Demonstrations(policy, episodes[:1] if late else episodes, gamma, late)


def settle(policy: Policy, best: Episode, rng: np.random.Generator) -> None:
    """Have the policy's likeliest actions play the best episode, where it can learn to."""
    before = policy.weights.detach().clone()
    model = Demonstrations(policy, [best])
    clone(policy, model, rng)
    if not model.are_followed(policy):  # what is seen does not always tell what is next in it
        with torch.no_grad():
            policy.weights.copy_(before)


def clone(policy: Policy, models: Demonstrations, rng: np.random.Generator) -> int:
    """Train the policy alone on demonstrations until it follows them, or for so many rounds. Returns the rounds."""
    optimizer = Adam(policy.weights, CLONING_RATE)
    for done in range(CLONING_ROUNDS):
        if done % 50 == 0 and models.are_followed(policy):
            return done
        policy.weights.grad.zero_()  # type: ignore[union-attr]
        models.add_cloning_gradient(policy, rng)
        optimizer.step()
    return CLONING_ROUNDS
