"""Which workflow to try next: GP-UCB, and one after another to compare it with.

Both are asked for workflow ids and told what came of them. What they answer depends on the seed and on what is known
at that moment (values, infeasible workflows, picks still pending), never on the order in which it became known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redline.search.gp import WorkflowGP


@dataclass
class Trials:
    """All that is known of each of `count` workflows, by id."""

    count: int
    values: dict[int, float] = field(default_factory=dict)
    """The newest value of each workflow that has one: training one further replaces its value."""
    pending: set[int] = field(default_factory=set)
    """Asked for and not yet told."""
    infeasible: set[int] = field(default_factory=set)
    retired: set[int] = field(default_factory=set)
    """Not to be picked again, though their values still count."""

    @property
    def touched(self) -> set[int]:
        """Every workflow that was ever picked or told."""
        return self.values.keys() | self.pending | self.infeasible | self.retired

    @property
    def barred(self) -> set[int]:
        """Workflows that must not be picked now."""
        return self.pending | self.infeasible | self.retired

    def tell(self, id: int, value: float) -> None:
        """A value for a workflow, in place of any older one.

        One that was picked again and got no better is retired: a search told the same again would pick the same again.
        """
        self._check_id(id)
        if not np.isfinite(value):
            raise ValueError(f"The value of workflow {id} is {value}: it must be a finite number.")
        if id in self.pending and value <= self.values.get(id, -np.inf):
            self.retired.add(id)
        self.values[id] = float(value)
        self.pending.discard(id)

    def tell_infeasible(self, id: int) -> None:
        """A workflow that cannot be obeyed. It is never picked again; a value it got before still counts."""
        self._check_id(id)
        self.infeasible.add(id)
        self.pending.discard(id)

    def retire(self, id: int) -> None:
        """A workflow with no budget left."""
        self._check_id(id)
        self.retired.add(id)
        self.pending.discard(id)

    def _check_id(self, id: int) -> None:
        if not 0 <= id < self.count:
            raise ValueError(f"{id} is no workflow id: they go from 0 to {self.count - 1}.")

    def to_json(self) -> dict[str, Any]:
        """Plain lists, sorted."""
        return {
            "values": [[id, value] for id, value in sorted(self.values.items())],
            "pending": sorted(self.pending),
            "infeasible": sorted(self.infeasible),
            "retired": sorted(self.retired),
        }

    @classmethod
    def from_json(cls, count: int, saved: Mapping[str, Any]) -> Trials:
        """The trials `to_json` wrote."""
        values = {int(id): float(value) for id, value in saved["values"]}
        found = cls(count, values, set(saved["pending"]), set(saved["infeasible"]), set(saved["retired"]))
        if not all(type(id) is int and 0 <= id < count for id in found.touched):
            raise ValueError(f"workflows are counted from 0 to {count - 1}")
        if not np.isfinite(list(values.values())).all():
            raise ValueError("a value is no number")
        return found


class GPUCB:
    """Picks the workflow with the highest `mean + beta * std` of a Gaussian process.

    The first pick is random, the second the farthest from it. Until something was observed, later ones keep far from all
    before them. A workflow with a value may be picked again, for as long as that makes it better.
    """

    def __init__(self, distances: np.ndarray, seed: int = 0, beta: float = 2.0) -> None:
        self._distances = distances
        self.beta = beta
        self.trials = Trials(len(distances))
        self._gp: WorkflowGP | None = None  # fitted to all values, or not yet
        self._sow(seed)

    def ask(self, count: int = 1) -> list[int]:
        """Up to `count` different workflows to try at once, fewer when no more may be picked; pending until told."""
        picks: list[int] = []
        while len(picks) < count and len(self.trials.barred) < len(self._distances):
            picks.append(self._best())
            self.trials.pending.add(picks[-1])
        return picks

    def tell(self, id: int, value: float) -> None:
        """A workflow's value: more is better. It replaces the older one of a workflow that was trained further."""
        self.trials.tell(id, value)
        self._gp = None

    def tell_infeasible(self, id: int) -> None:
        """A workflow that cannot be obeyed: it is never picked again."""
        self.trials.tell_infeasible(id)

    def retire(self, id: int) -> None:
        """A workflow with no budget left: it is never picked again, and its value still counts."""
        self.trials.retire(id)

    def acquisition(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, std and UCB of all workflows, each [n], from the values told so far: pending picks change nothing."""
        mean, std = self._fitted().predict()
        return mean, std, mean + self.beta * std

    def snapshot(self) -> dict[str, Any]:
        """All that `restore` needs to go on exactly like this, ready for JSON."""
        return {"seed": self.seed, "beta": self.beta, **self.trials.to_json()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Become the search that made this snapshot. What it had asked for is still pending."""
        self.beta = float(saved["beta"])
        self.trials = Trials.from_json(len(self._distances), saved)
        self._sow(int(saved["seed"]))

    def _sow(self, seed: int) -> None:
        self.seed = seed
        self._lots = np.random.default_rng(seed).permutation(len(self._distances))  # equal scores: the highest lot wins
        self._gp = None

    def _fitted(self) -> WorkflowGP:
        if self._gp is None:
            self._gp = WorkflowGP(self._distances, self.seed)
            self._gp.fit(list(self.trials.values), list(self.trials.values.values()))
        return self._gp

    def _best(self) -> int:
        scores = self._scores()
        scores[list(self.trials.barred)] = -np.inf
        # Scores that are equal by symmetry differ in their last bits, and not in the same way on every machine.
        ties = scores >= scores.max() - 1e-9 * max(1.0, abs(scores.max()))
        return int(np.argmax(np.where(ties, self._lots, -1)))

    def _scores(self) -> np.ndarray:
        touched = sorted(self.trials.touched)
        if not touched:
            return np.zeros(len(self._distances))
        if len(touched) == 1 or not self.trials.values:
            return self._distances[touched].min(axis=0)
        mean, std = self._fitted().predict(sorted(self.trials.pending))
        return mean + self.beta * std


class OneByOne:
    """Picks each workflow once: in an order drawn from the seed, or in order of id without one."""

    def __init__(self, count: int, seed: int | None = None) -> None:
        self.seed = seed
        self.trials = Trials(count)

    def ask(self, count: int = 1) -> list[int]:
        """The next `count` workflows, fewer when they run out."""
        ids = np.arange(self.trials.count)
        order = ids if self.seed is None else np.random.default_rng(self.seed).permutation(ids)
        touched = self.trials.touched
        picks = [id for id in order.tolist() if id not in touched][:count]
        self.trials.pending.update(picks)
        return picks

    def tell(self, id: int, value: float) -> None:
        """A workflow's value; the order does not care."""
        self.trials.tell(id, value)

    def tell_infeasible(self, id: int) -> None:
        """A workflow that cannot be obeyed."""
        self.trials.tell_infeasible(id)

    def retire(self, id: int) -> None:
        """A workflow with no budget left."""
        self.trials.retire(id)

    def acquisition(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is known stands; nothing is guessed."""
        mean = np.full(self.trials.count, np.nan)
        mean[list(self.trials.values)] = list(self.trials.values.values())
        return mean, np.zeros_like(mean), mean

    def snapshot(self) -> dict[str, Any]:
        """All that `restore` needs to go on exactly like this, ready for JSON."""
        return {"seed": self.seed, **self.trials.to_json()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Become the search that made this snapshot."""
        self.seed = saved["seed"]
        self.trials = Trials.from_json(self.trials.count, saved)
