"""Proximal policy optimisation (Schulman et al., 2017)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.learn.adam import adam_for
from redline.learn.batch import (
    Gatherer,
    Minibatch,
    Steps,
    cut_between_observations,
    plain_batch,
)
from redline.learn.config import PPOConfig
from redline.learn.finite import require_finite, require_finite_array
from redline.learn.gae import gae, normalised, vtrace
from redline.learn.gradient import ByHand, Piece, Table, by_hand_way
from redline.learn.imitation import IMITATING, Demonstrations
from redline.learn.loss import Loss, TimedLoss, added_up, total
from redline.learn.policy import Policy
from redline.learn.reuse import as_seen_today
from redline.learn.scale import Scale
from redline.learn.sequences import SequenceBatch, Sequences
from redline.learn.summing import sum_up
from redline.rollout import Rollout
from redline.threads import Crew
from redline.timing.stopwatch import Stopwatch

_Batch = Minibatch[np.ndarray] | SequenceBatch
LEAST_RATE, MOST_RATE, ADAPTION = 1e-5, 1e-2, 1.5
"""Bounds of a learning rate that adapts itself, and the factor it changes by."""


class PPO:
    """Improves a policy from rollouts. Owns the policy's optimiser and the random order of minibatches."""

    def __init__(
        self,
        policy: Policy,
        config: PPOConfig,
        seed: int = 0,
        dedup: bool = True,
        threads: int = 1,
        by_hand: bool | None = None,
        schedule: Callable[[float], float] | None = None,
    ) -> None:
        """`by_hand` works gradients out without autograd; by default where that can be done, on the CPU.

        `schedule` turns progress in [0, 1] into a factor of the learning rate, in place of `config.anneal`.
        """
        self.policy, self.config, self.dedup = policy, config, dedup
        self.by_hand = policy.by_hand if by_hand is None else by_hand
        self._way = by_hand_way(policy) if self.by_hand else None
        self._cut: tuple[object, list[Piece]] | None = None
        self._grads = np.empty((0, 0), np.float32)  # of every piece; kept, since fresh memory costs more than its use
        self.optimizer = adam_for(policy, config.learning_rate, eps=1e-5)
        self._rng = np.random.default_rng(seed)
        self.scale = Scale()
        self._settings = config  # with what is annealed at its present value
        self._schedule = schedule
        self._rate = config.learning_rate  # as it was adapted
        self._crew = Crew(threads, "learner")

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
        self.optimizer.learning_rate = self._learning_rate(progress)
        self._settings = replace(config, entropy=config.entropy * (1 - progress)) if config.anneal_entropy else config
        lesson = self._summed_up(rollout, earlier, watch) or self._shuffled(rollout, earlier, watch)
        with watch.span("batch"):
            table = self._table(lesson.rollouts)
            autograd = None if self._way is not None else self._autograd(table)
        losses: list[Loss[float]] = []
        imitation = float("nan")
        for batch in lesson.batches:
            beside: list[Piece] = []
            if models is not None and self._way is not None:
                with watch.span("imitate"):
                    unit = self.scale.unit / config.reward_scale
                    beside, imitation = models.pieces(self._way, self.policy, config.imitation, unit, self._rng)
            if self._way is None:
                assert autograd is not None
                loss = autograd(batch, watch)
            else:
                loss = self._gradient(self._way, batch, table, watch, beside)
            require_finite("The loss", loss, rollout, config)
            losses.append(loss)
            self._adapt(loss.kl)
            if config.target_kl is not None and loss.kl > config.target_kl:
                break
            if models is not None and self._way is None:
                with watch.span("imitate"):
                    unit = self.scale.unit / config.reward_scale
                    imitation = models.add_gradient(self.policy, config.imitation, unit, self._rng)
            with watch.span("optimizer"):
                length = self.optimizer.clip(config.max_grad_norm)
                require_finite("The gradient", [length], rollout, config)
                self.optimizer.step()
        with watch.span("metrics"):
            metrics = self._metrics(losses, lesson)
            self.policy.see(rollout)
            if config.normalise_returns:
                self._rescale(lesson.returns(), (rollout, *earlier))
            return metrics if models is None else {**metrics, "imitation": imitation}

    def _rescale(self, returns: np.ndarray, rollouts: Sequence[Rollout]) -> None:
        """Count in the returns just seen, and let the critic estimate the same as before in the new unit.

        So do the estimates that rollouts hold, which may be learned from again.
        """
        change = self.scale.see(returns)
        for rollout in rollouts:
            rollout.values *= np.float32(change)
            rollout.next_values *= np.float32(change)
        self.policy.scale_values(change)

    def _summed_up(self, rollout: Rollout, earlier: Sequence[Rollout], watch: Stopwatch) -> _Lesson | None:
        """All steps as one batch for every epoch, where observations repeat and nothing asks for another order."""
        config, head = self.config, self.policy.head
        repeats = self.dedup and len(rollout.observations) < rollout.rows.size and head.num_choices is not None
        cut = config.minibatches > 1 and not config.whole_observations
        if not repeats or earlier or cut or rollout.held is not None or rollout.memories is not None:
            return None
        with watch.span("gae"):
            gamma, lam = np.float32(config.gamma), np.float32(config.gae_lambda)
            summed = sum_up(rollout, self._scaled(rollout.rewards), gamma, lam, config.normalise, head)
            self._require_finite_returns(summed.extremes, rollout)
        variances = summed.spread.return_variance, summed.spread.advantage_variance
        batches = self._cut_up(summed.batch, watch)
        return _Lesson([rollout], batches, *variances, lambda: (summed.advantages + rollout.values.T).reshape(-1))

    def _cut_up(self, batch: Minibatch[np.ndarray], watch: Stopwatch) -> Iterator[Minibatch[np.ndarray]]:
        """The minibatches of all epochs, of whole observations in random order; all of the batch where it is not cut."""
        count = self.config.minibatches
        if count == 1:
            yield from itertools.repeat(batch, self.config.epochs)
            return
        for _ in range(self.config.epochs):
            with watch.span("batch"):
                order = self._rng.permutation(len(batch.rows))
                found = list(cut_between_observations(batch, order, min(count, len(order))))
            yield from found

    def _shuffled(self, rollout: Rollout, earlier: Sequence[Rollout], watch: Stopwatch) -> _Lesson:
        """The steps of all rollouts, in minibatches."""
        with watch.span("gae"):
            rollouts, steps = self._steps(rollout, earlier)
            fresh = steps.returns[: rollout.num_steps]
            missed = fresh - rollout.flat(rollout.values)
        num_rows = sum(len(each.observations) for each in rollouts)
        batches = self._all_batches(rollout, steps, num_rows, watch)
        return _Lesson(rollouts, batches, float(np.var(fresh)), float(np.var(missed)), lambda: fresh)

    def _require_finite_returns(self, returns: np.ndarray, rollout: Rollout) -> None:
        with np.errstate(over="ignore"):
            require_finite_array("A squared return", np.square(returns), rollout, self.config)

    def _steps(self, rollout: Rollout, earlier: Sequence[Rollout]) -> tuple[list[Rollout], Steps]:
        """The steps of all rollouts, flat, with their advantages and returns."""
        config = self.config
        gamma, lam = np.float32(config.gamma), np.float32(config.gae_lambda)
        rollouts, parts, all_weights, first = [rollout], [], [], 0
        for k, each in enumerate((rollout, *earlier)):
            scaled = self._scaled(each.rewards)
            if k == 0:
                weights = np.ones_like(scaled)
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
            all_weights.append(each.flat(weights))
            first += len(each.observations)
        steps = Steps(
            *(np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for arrays in zip(*parts, strict=True))
        )
        self._require_finite_returns(steps.returns, rollout)
        importance = np.concatenate(all_weights) if earlier else None
        if config.normalise:
            steps = steps._replace(advantages=normalised(steps.advantages, importance))
        elif importance is not None:
            steps = steps._replace(advantages=steps.advantages * importance)
        return rollouts, steps

    def _scaled(self, rewards: np.ndarray) -> np.ndarray:
        """Rewards in the unit that is learned in."""
        with np.errstate(over="ignore"):  # whoever sees what comes of it says so
            if self.config.normalise_returns:
                return self.scale.scaled(rewards, self.config.reward_scale)
            return np.asarray(rewards * np.float32(self.config.reward_scale))

    def _table(self, rollouts: list[Rollout]) -> Table[np.ndarray]:
        """All observations the steps point to, ready for the network."""
        inputs = [self.policy.numbers(each.observations) for each in rollouts]
        masks = [each.masks for each in rollouts if each.masks is not None]
        return Table(_joined(inputs), _joined(masks) if masks else None)

    def _learning_rate(self, progress: float) -> float:
        """The step size at a point of the run."""
        config = self.config
        if config.adaptive_kl is not None:
            return self._rate
        if self._schedule is None:
            return config.learning_rate * (1 - progress if config.anneal else 1)
        factor = float(self._schedule(progress))
        if not 0.0 <= factor < float("inf"):
            raise RedlineError(f"The schedule gives {factor} at progress {progress:g}. Return a number from 0 to 1.")
        return config.learning_rate * factor

    def _adapt(self, kl: float) -> None:
        """Take smaller steps where the policy moves twice as far as it should, larger ones where not half as far."""
        target = self.config.adaptive_kl
        if target is None:
            return
        if kl > 2 * target:
            self._rate = max(LEAST_RATE, self._rate / ADAPTION)
        elif 0 < kl < target / 2:
            self._rate = min(MOST_RATE, self._rate * ADAPTION)
        self.optimizer.learning_rate = self._rate

    def _all_batches(self, rollout: Rollout, steps: Steps, num_rows: int, watch: Stopwatch) -> Iterator[_Batch]:
        """The minibatches of all epochs: of steps, or of whole sequences for a policy that remembers."""
        if rollout.memories is None:
            yield from self._batches(steps, num_rows, watch)
            return
        with watch.span("batch"):
            sequences = Sequences(rollout, steps)
        num_envs = rollout.rows.shape[1]
        for _ in range(self.config.epochs):
            order = self._rng.permutation(num_envs)
            for envs in np.array_split(order, min(self.config.minibatches, num_envs)):
                with watch.span("batch"):
                    batch = sequences.batch(envs)
                yield batch

    def _batches(self, steps: Steps, num_rows: int, watch: Stopwatch) -> Iterator[Minibatch[np.ndarray]]:
        """The minibatches of all epochs."""
        size, count, head = len(steps.rows), self.config.minibatches, self.policy.head
        with watch.span("batch"):
            worth_it = self.dedup and num_rows < size and head.num_choices is not None
            gather = Gatherer(num_rows, head).batch if worth_it else plain_batch
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

    def _autograd(self, table: Table[np.ndarray]) -> Callable[[_Batch, Stopwatch], Loss[float]]:
        """What writes the gradients of an update by autograd. Torch is loaded for it, and only then."""
        from redline.learn.autograd import Autograd

        return Autograd(self.policy, table, self._settings).write

    def _gradient(
        self, way: ByHand, batch: _Batch, table: Table[np.ndarray], watch: Stopwatch, beside: list[Piece]
    ) -> Loss[float]:
        """Leaves the batch's gradient in the policy's, with that of pieces `beside` it; returns the batch's loss."""
        assert isinstance(batch, Minibatch), "what remembers learns by autograd"
        if self._cut is None or self._cut[0] is not batch:  # the same in every epoch, if there are no minibatches
            with watch.span("batch"):
                self._cut = batch, way.pieces(batch, table, self._crew)
        with watch.span("gradient"):
            return self._gradient_by_hand(way, self._cut[1], watch, beside)

    def _gradient_by_hand(self, way: ByHand, batch: list[Piece], watch: Stopwatch, beside: list[Piece]) -> Loss[float]:
        """Each piece gets a gradient of its own and these are added in order, so that threads change nothing but the time.

        The watch is told how long the threads were at the loss and at its gradient, on average, and at what stands
        `beside` the batch.
        """
        pieces = [*batch, *beside]
        weights, gradient, config = self.policy.vector, self.policy.gradient, self._settings
        single = len(pieces) == 1
        grads = gradient[None] if single else self._room_for(len(pieces))
        settings = [config] * len(batch) + [IMITATING] * len(beside)

        def write(k: int) -> TimedLoss:
            return way.write(pieces[k], weights, grads[k], settings[k])

        found = self._crew.map(write, range(len(pieces)))
        if not single:
            np.add.reduce(grads, axis=0, out=gradient)
        at_work = min(self._crew.threads, len(pieces))
        if beside:
            watch.credit("imitate", sum(sum(each[1:]) for each in found[len(batch) :]) / at_work)
        found = found[: len(batch)]
        spent = zip(*(each[1:] for each in found), strict=True)
        for name, nanoseconds in zip(("loss", "backward", "both"), spent, strict=True):
            if any(nanoseconds):
                watch.credit(name, sum(nanoseconds) / at_work)
        return added_up([each.loss for each in found])

    def _room_for(self, pieces: int) -> np.ndarray:
        """A gradient for each piece, yet to be written."""
        if len(self._grads) < pieces:
            self._grads = np.empty((pieces, len(self.policy.vector)), np.float32)
        return self._grads[:pieces]

    def _metrics(self, losses: list[Loss[float]], lesson: _Lesson) -> dict[str, float]:
        last = losses[-1]
        return {
            "learning_rate": self.optimizer.learning_rate,
            "distinct": float(len(lesson.rollouts[0].observations)),
            "explained_variance": 1 - lesson.unexplained / lesson.variance if lesson.variance else float("nan"),
            "loss": total(last, self._settings),
            "policy_loss": last.policy,
            "value_loss": last.value,
            "entropy": last.entropy,
            "kl": last.kl,
            "clipped": last.clipped,
            "gradient_steps": float(len(losses)),
        }

    def snapshot_arrays(self) -> dict[str, np.ndarray]:
        """The optimiser's state, and the unit of returns."""
        rate = {} if self.config.adaptive_kl is None else {"rate": np.array([self._rate])}
        return {"scale": self.scale.snapshot(), **rate, **self.optimizer.snapshot()}

    def order_state(self) -> dict[str, Any]:
        """The state of the random order of minibatches."""
        return dict(self._rng.bit_generator.state)

    def restore(self, arrays: dict[str, np.ndarray], order_state: dict[str, Any]) -> None:
        """Go on from what `snapshot_arrays` and `order_state` gave."""
        self.scale.restore(arrays.get("scale"))
        if "rate" in arrays:
            self._rate = float(arrays["rate"][0])
        self.optimizer.restore(arrays)
        self._rng.bit_generator.state = order_state


class _Lesson(NamedTuple):
    """What an update learns from."""

    rollouts: list[Rollout]
    batches: Iterable[_Batch]  # those of all epochs
    variance: float  # of the returns of the newest rollout
    unexplained: float  # of what the state values missed of them
    returns: Callable[[], np.ndarray]  # they themselves, in any order


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
