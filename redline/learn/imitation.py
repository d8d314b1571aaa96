"""Learning from episodes that somebody else played, or that the policy played itself when it was lucky."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from redline.learn.adam import adam_for
from redline.learn.batch import Minibatch
from redline.learn.config import PPOConfig
from redline.learn.distinct import Distinct, words_of
from redline.learn.elite import Episode
from redline.learn.gradient import ByHand, Piece, Table, way_for, write_sum
from redline.learn.heads.categorical import Categorical
from redline.learn.heads.head import Distribution
from redline.learn.policy import Policy
from redline.threads import Crew

if TYPE_CHECKING:
    import torch

SAMPLE = 512
"""Steps imitated at a time."""
DECIDE = 0.75
"""The part of a run after which the policy settles for the best episode it knows."""
RESOLVE = 5.0
"""How much every step of it counts at the end."""
IMITATING = PPOConfig()
"""Settings for the gradient of a piece: of all of them only the clip range matters, which must not be empty."""
CLONING_RATE, CLONING_ROUNDS = 3e-3, 5000
ALONE = Crew(1, "imitation")


class Demonstrations:
    """The steps of episodes, ready for the network."""

    def __init__(self, policy: Policy, episodes: Sequence[Episode], gamma: float = 1.0, resolve: float = 0.0) -> None:
        """`resolve` is how much every step counts, whatever the policy expects of it."""
        self._resolve = resolve
        self._observations = np.concatenate([each.observations for each in episodes])
        self._actions = np.concatenate([each.actions for each in episodes])
        self._to_go = np.concatenate([each.to_go(gamma) for each in episodes]).astype(np.float32)
        masks = [each.masks for each in episodes if each.masks is not None]
        self._masks = np.concatenate(masks) if masks else None
        self._table = Table(policy.numbers(self._observations), self._masks)
        self._same = _first_alike(self._observations, self._masks)  # int64 [n]  the first step that saw the same

    def __len__(self) -> int:
        return len(self._actions)

    def pieces(
        self, way: ByHand, policy: Policy, weight: float, unit: float, rng: np.random.Generator
    ) -> tuple[list[Piece], float]:
        """Imitating some of the steps, as pieces of a batch for `way`; and how surprising they are.

        A step counts by how much more it came to than the policy expects of it, in the unit of its expectations
        (Oh et al., 2018): once the policy does as well by itself, it is free to try something else.
        """
        chosen = self._some(rng)
        rows, places, log_probs, values = self._asked(policy, chosen)
        better = np.maximum(self._to_go[chosen] / np.float32(unit) - values[places], 0) + np.float32(self._resolve)
        pieces = self._pieces(way, chosen, rows, places, log_probs, np.float32(weight) * better)
        return pieces, float(-log_probs.mean())

    def add_gradient(self, policy: Policy, weight: float, unit: float, rng: np.random.Generator) -> float:
        """Add the gradient of imitating some of the steps to that of the weights, by autograd. Returns likewise."""
        import torch

        chosen = self._some(rng)
        surprise, values = self._surprise(policy, chosen)
        to_go = torch.from_numpy(self._to_go[chosen]).to(policy.device)
        better = (to_go / unit - values.detach()).clamp(min=0.0)
        (weight * ((better + self._resolve) * surprise).mean()).backward()
        return float(surprise.detach().mean())

    def write_cloning_gradient(self, policy: Policy, way: ByHand | None, rng: np.random.Generator) -> None:
        """Write the gradient of imitating some of the steps, every one counting the same, to that of the weights."""
        chosen = self._some(rng)
        if way is None:
            policy.weights.grad.zero_()  # type: ignore[union-attr]
            self._surprise(policy, chosen)[0].mean().backward()
            return
        rows, places, log_probs, _ = self._asked(policy, chosen)
        pieces = self._pieces(way, chosen, rows, places, log_probs, np.ones(len(chosen), np.float32))
        write_sum(way, pieces, policy, IMITATING)

    def _some(self, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, len(self), min(SAMPLE, len(self)))

    def _asked(self, policy: Policy, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The distinct steps among those chosen, the place of each chosen one among them, its log-probability now, and
        the state values of the distinct ones.
        """
        rows, places = np.unique(self._same[chosen], return_inverse=True)
        masks = None if self._masks is None else self._masks[rows]
        if isinstance(policy.head, Categorical):
            table = policy.head.empty(len(rows))
            values = policy.infer(self._observations[rows], masks, table)
            return rows, places, table[0][places, self._actions[chosen]], values
        import torch

        with torch.inference_mode():
            distribution, known = self._told(policy, rows)
            log_probs = distribution.log_probs(torch.from_numpy(places), torch.from_numpy(self._actions[chosen]))
            return rows, places, log_probs.numpy(), known.numpy()

    def _pieces(
        self, way: ByHand, chosen: np.ndarray, rows: np.ndarray, places: np.ndarray, log_probs: np.ndarray,
        worth: np.ndarray,
    ) -> list[Piece]:  # fmt: skip
        """The chosen steps as gains under the policy as it is: the slope of PPO's objective is that of imitation there.

        No step counts as visited, so that values and entropies are left alone.
        """
        order = np.argsort(places, kind="stable")
        nothing, none = np.zeros(len(rows), np.float32), np.zeros(len(chosen), np.float32)
        return way.pieces(
            Minibatch(
                rows=rows, visits=nothing, mean_returns=nothing, spread=0.0, pair_rows=places[order],
                pair_actions=self._actions[chosen[order]], pair_log_probs=log_probs[order], pair_visits=none,
                gains=worth[order], losses=none, num_steps=len(chosen),
            ),
            self._table,
            ALONE,
        )  # fmt: skip

    def _surprise(self, policy: Policy, chosen: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """How unlikely the policy holds the chosen steps' actions to be (-log p), and the values of their states."""
        import torch

        distribution, values = self._told(policy, chosen)
        rows = torch.arange(len(chosen), device=policy.device)
        actions = torch.from_numpy(self._actions[chosen]).to(policy.device)
        return -distribution.log_probs(rows, actions), values

    def _told(self, policy: Policy, rows: np.ndarray | slice) -> tuple[Distribution, torch.Tensor]:
        """What a policy says about steps, as torch knows it."""
        import torch

        inputs = torch.from_numpy(self._table.inputs[rows]).to(policy.device)
        masks = None if self._masks is None else torch.from_numpy(self._masks[rows]).to(policy.device)
        return policy(inputs, masks)

    def are_followed(self, policy: Policy) -> bool:
        """Whether the policy's likeliest action is always the demonstrated one."""
        if isinstance(policy.head, Categorical):
            table = policy.head.empty(len(self))
            policy.infer(self._observations, self._masks, table)
            return bool((table[0].argmax(axis=1) == self._actions).all())
        import torch

        with torch.inference_mode():
            distribution, _ = self._told(policy, slice(None))
            return bool(distribution.picks(torch.from_numpy(self._actions).to(policy.device)).all())


def _first_alike(observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
    """The first step at which each was seen, with the same actions allowed, int64 [n]."""
    words = words_of(observations, masks)
    numbers = Distinct(words.shape[1]).find(words)
    return np.unique(numbers, return_index=True)[1][numbers]


def models(policy: Policy, episodes: Sequence[Episode], gamma: float, progress: float) -> Demonstrations | None:
    """The steps to imitate at a point of the run: of the best episodes, towards the end of the very best, with resolve."""
    if not episodes:
        return None
    late = RESOLVE * max(0.0, (progress - DECIDE) / (1.0 - DECIDE))
    return Demonstrations(policy, episodes[:1] if late else episodes, gamma, late)


def settle(policy: Policy, best: Episode, rng: np.random.Generator) -> None:
    """Have the policy's likeliest actions play the best episode, where it can learn to."""
    before = policy.arrays()
    model = Demonstrations(policy, [best])
    clone(policy, model, rng)
    if not model.are_followed(policy):  # what is seen does not always tell what is next in it
        policy.load(before)


def clone(policy: Policy, models: Demonstrations, rng: np.random.Generator) -> int:
    """Train the policy alone on demonstrations until it follows them, or for so many rounds. Returns the rounds."""
    optimizer, way = adam_for(policy, CLONING_RATE), way_for(policy)
    for done in range(CLONING_ROUNDS):
        if done % 50 == 0 and models.are_followed(policy):
            return done
        models.write_cloning_gradient(policy, way, rng)
        optimizer.step()
    return CLONING_ROUNDS
