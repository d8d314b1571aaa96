"""Proximal policy optimisation (Schulman et al., 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from redline.learn.adam import Adam
from redline.learn.batch import Batch, Gatherer, Steps, plain_batch
from redline.learn.config import PPOConfig
from redline.learn.fused import Gradient, part_gradient
from redline.learn.gae import gae, vtrace
from redline.learn.imitation import Demonstrations
from redline.learn.policy import Policy
from redline.learn.reuse import as_seen_today
from redline.learn.scale import Scale
from redline.rollout import Rollout
from redline.timing.stopwatch import Stopwatch

PART_SIZE = 2048
"""Observations that go through the network at once while learning: few enough that what it computes stays in the cache."""


class Loss(NamedTuple):
    """The parts of the PPO loss, each a mean over the steps of the batch."""

    total: Any
    policy: Any
    value: Any
    entropy: Any
    kl: Any
    clipped: Any


class TensorBatch(NamedTuple):
    """A batch on the policy's device; see `Batch`."""

    rows: Tensor
    visits: Tensor
    mean_returns: Tensor
    spread: float
    pair_rows: Tensor
    pair_actions: Tensor
    pair_log_probs: Tensor
    pair_visits: Tensor
    gains: Tensor
    losses: Tensor
    num_steps: int


def ppo_loss(logits: Tensor, values: Tensor, batch: TensorBatch, config: PPOConfig) -> Loss:
    """The clipped objective of a batch, given what the network says about its distinct observations."""
    log_probs = torch.log_softmax(logits, dim=-1)
    log_ratio = log_probs[batch.pair_rows, batch.pair_actions] - batch.pair_log_probs
    ratio = log_ratio.exp()
    # min(r A, clip(r) A) is min(r, 1 + c) A where A > 0 and max(r, 1 - c) A where A < 0
    objective = ratio.clamp(max=1 + config.clip) * batch.gains + ratio.clamp(min=1 - config.clip) * batch.losses
    policy = -objective.sum() / batch.num_steps
    errors = batch.visits * (values - batch.mean_returns) ** 2
    value = 0.5 * (errors.sum() + batch.spread) / batch.num_steps
    entropy = -(batch.visits @ (log_probs.exp() * log_probs).sum(dim=-1)) / batch.num_steps
    total = policy + config.value * value - config.entropy * entropy
    with torch.no_grad():
        kl = (batch.pair_visits @ (ratio - 1 - log_ratio)) / batch.num_steps
        clipped = (batch.pair_visits @ ((ratio - 1).abs() > config.clip).float()) / batch.num_steps
    return Loss(total, policy.detach(), value.detach(), entropy.detach(), kl, clipped)


class PPO:
    """Improves a policy from rollouts. Owns the policy's optimiser and the random order of minibatches."""

    def __init__(
        self,
        policy: Policy,
        config: PPOConfig,
        seed: int = 0,
        dedup: bool = True,
        threads: int = 1,
        fused: bool | None = None,
    ) -> None:
        """`fused` works gradients out by hand instead of by autograd; by default where that can be done, on the CPU."""
        self.policy, self.config, self.dedup = policy, config, dedup
        self.fused = policy.device.type == "cpu" if fused is None else fused
        self.optimizer = Adam(policy.weights, config.learning_rate, eps=1e-5)
        self._rng = np.random.default_rng(seed)
        self.scale = Scale()
        self._entropy = config.entropy
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "learner", torch.set_num_threads, (1,)) if threads > 1 else None

    def update(
        self,
        rollout: Rollout,
        watch: Stopwatch,
        progress: float = 0.0,
        earlier: Sequence[Rollout] = (),
        models: Demonstrations | None = None,
    ) -> dict[str, float]:
        """Learn from a rollout, again from `earlier` ones, and by imitation from `models`.

        `progress` in [0, 1] anneals what is to be annealed.
        """
        config = self.config
        left = 1 - progress
        self._entropy = config.entropy * (left if config.anneal_entropy else 1)
        self.optimizer.learning_rate = config.learning_rate * (left if config.anneal else 1)
        with watch.span("gae"):
            rollouts, steps = self._steps(rollout, earlier)
        with watch.span("batch"):
            table = self._table(rollouts)
        losses: list[Loss] = []
        imitation = float("nan")
        for batch in self._batches(steps, len(table.values), watch):
            loss = self._gradient(batch, table, watch)
            losses.append(loss)
            if config.target_kl is not None and loss.kl > config.target_kl:
                break
            if models is not None:
                with watch.span("imitate"):
                    unit = self.scale.unit / config.reward_scale
                    imitation = models.add_gradient(self.policy, config.imitation, unit, self._rng)
            with watch.span("optimizer"):
                torch.nn.utils.clip_grad_norm_(self.policy.weights, config.max_grad_norm)
                self.optimizer.step()
        with watch.span("metrics"):
            metrics = self._metrics(losses, rollouts[0], steps)
            if config.normalise_returns:
                self._rescale(steps.returns[: rollouts[0].num_steps])
            return metrics if models is None else {**metrics, "imitation": imitation}

    def _rescale(self, returns: np.ndarray) -> None:
        """Count in the returns just seen, and let the critic say the same as before in the new unit."""
        change = self.scale.see(returns)
        with torch.no_grad():
            self.policy.critic.weight.mul_(change)
            self.policy.critic.bias.mul_(change)

    def _steps(self, rollout: Rollout, earlier: Sequence[Rollout]) -> tuple[list[Rollout], Steps]:
        """The steps of all rollouts, flat, with their advantages and returns."""
        config = self.config
        gamma, lam = np.float32(config.gamma), np.float32(config.gae_lambda)
        rollouts, parts, first = [rollout], [], 0
        for k, each in enumerate((rollout, *earlier)):
            scaled = each.rewards * np.float32(config.reward_scale / self.scale.unit)
            if k == 0:
                ends = (each.terminated, each.truncated)
                advantages = gae(scaled, each.values, each.next_values, *ends, gamma, lam)
                returns = advantages + each.values
            else:
                each, weights = as_seen_today(each, self.policy)
                rollouts.append(each)
                ends = (each.terminated, each.truncated)
                advantages, returns = vtrace(scaled, each.values, each.next_values, *ends, weights, gamma, lam)
            flat = (each.rows + np.int32(first), each.actions, each.log_probs, advantages, returns)
            parts.append([each.flat(array) for array in flat])
            first += len(each.observations)
        steps = Steps(
            *(np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for arrays in zip(*parts, strict=True))
        )
        if config.normalise:
            advantages = steps.advantages
            scaled = (advantages - advantages.mean()) / (advantages.std() + np.float32(1e-8))
            steps = steps._replace(advantages=scaled)
        return rollouts, steps

    def _table(self, rollouts: list[Rollout]) -> _Table:
        """All observations the steps point to, ready for the network."""
        values = torch.cat([self.policy.values_of(each.observations) for each in rollouts])
        masks = [torch.from_numpy(each.masks) for each in rollouts if each.masks is not None]
        return _Table(values, torch.cat(masks).to(self.policy.device) if masks else None)

    def _batches(self, steps: Steps, num_rows: int, watch: Stopwatch) -> Iterator[Batch]:
        """The minibatches of all epochs."""
        size, count = len(steps.rows), self.config.minibatches
        with watch.span("batch"):
            worth_it = self.dedup and num_rows < size
            gather = Gatherer(num_rows, self.policy.num_actions).batch if worth_it else plain_batch
            whole = gather(steps, np.arange(size)) if count == 1 else None
        for _ in range(self.config.epochs):
            if whole is not None:
                yield whole
                continue
            with watch.span("batch"):
                order = self._rng.permutation(size)
            for chosen in np.array_split(order, count):
                with watch.span("batch"):
                    batch = gather(steps, chosen)
                yield batch

    def _gradient(self, batch: Batch, table: _Table, watch: Stopwatch) -> Loss:
        """Leaves the batch's gradient in the weights' `grad` and returns its loss."""
        parts = list(batch.parts(PART_SIZE))
        if self.fused:
            with watch.span("gradient"):
                return self._gradient_by_hand(parts, table, watch)
        losses = []
        self.policy.weights.grad.zero_()  # type: ignore[union-attr]
        for part in parts:
            with watch.span("loss"):
                tensors = _to_tensors(part, self.policy.device)
                masks = None if table.masks is None else table.masks[tensors.rows]
                logits, values = self.policy(table.values[tensors.rows], masks)
                loss = ppo_loss(logits, values, tensors, self._now())
            with watch.span("backward"):
                loss.total.backward()
            losses.append([float(x) for x in loss[1:]])
        return self._whole_loss(losses)

    def _gradient_by_hand(self, parts: list[Batch], table: _Table, watch: Stopwatch) -> Loss:
        """Each part gets a gradient of its own and these are added in order, so that threads change nothing but the time.

        The watch is told how long the threads were at the loss and at its gradient, on average.
        """
        layers, config = self.policy.layers(self.policy.weights.data), self._now()
        grads = torch.empty(len(parts), self.policy.weights.numel())

        def work(k: int) -> Gradient:
            rows = torch.from_numpy(parts[k].rows)
            masks = None if table.masks is None else table.masks[rows]
            part_grads = self.policy.layers(grads[k])
            return part_gradient(layers, part_grads, table.values[rows], masks, parts[k], config)

        spread = self._pool.map if self._pool is not None and len(parts) > 1 else map
        found = list(spread(work, range(len(parts))))
        torch.sum(grads, dim=0, out=self.policy.weights.grad)
        at_work = 1 if spread is map else min(self._threads, len(parts))
        watch.credit("loss", sum(each.loss_ns for each in found) / at_work)
        watch.credit("backward", sum(each.backward_ns for each in found) / at_work)
        return self._whole_loss([each.loss for each in found])

    def _whole_loss(self, parts: Sequence[Sequence[float]]) -> Loss:
        """The loss of a batch from those of its parts."""
        policy, value, entropy, kl, clipped = (sum(each) for each in zip(*parts, strict=True))
        total = policy + self.config.value * value - self._entropy * entropy
        return Loss(total, policy, value, entropy, kl, clipped)

    def _now(self) -> PPOConfig:
        """The config with what is annealed at its present value."""
        return replace(self.config, entropy=self._entropy)

    def _metrics(self, losses: list[Loss], rollout: Rollout, steps: Steps) -> dict[str, float]:
        fresh = steps.returns[: rollout.num_steps]
        variance = float(np.var(fresh))
        unexplained = float(np.var(fresh - rollout.flat(rollout.values)))
        return {
            "learning_rate": self.optimizer.learning_rate,
            "distinct": float(len(rollout.observations)),
            "explained_variance": 1 - unexplained / variance if variance else float("nan"),
            "loss": float(losses[-1].total),
            "policy_loss": float(losses[-1].policy),
            "value_loss": float(losses[-1].value),
            "entropy": float(losses[-1].entropy),
            "kl": float(losses[-1].kl),
            "clipped": float(losses[-1].clipped),
            "gradient_steps": float(len(losses)),
        }

    def snapshot_arrays(self) -> dict[str, np.ndarray]:
        """The optimiser's state, and the unit of returns."""
        return {"scale": self.scale.snapshot(), **self.optimizer.snapshot()}

    def order_state(self) -> dict[str, Any]:
        """The state of the random order of minibatches."""
        return dict(self._rng.bit_generator.state)

    def restore(self, arrays: dict[str, np.ndarray], order_state: dict[str, Any]) -> None:
        """Go on from what `snapshot_arrays` and `order_state` gave."""
        self.scale.restore(arrays.get("scale"))
        self.optimizer.restore(arrays)
        self._rng.bit_generator.state = order_state


class _Table(NamedTuple):
    """The observations of an update, as the network takes them."""

    values: Tensor
    masks: Tensor | None


def _to_tensors(batch: Batch, device: torch.device) -> TensorBatch:
    tensors: list[Any] = [torch.from_numpy(x).to(device) if isinstance(x, np.ndarray) else x for x in batch]
    return TensorBatch(*tensors)
