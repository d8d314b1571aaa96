"""Which workflow to train next: top-two Thompson sampling, with several trainings of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redline.search.evidence import WIDE, Evidence, weigh

GROUNDS = 2
"""Observations of the noise that it takes to call a search settled."""
FEWEST = 2
"""Trainings before a workflow is ruled out. Orders that are nearly alike make the noise of one look smaller than it is."""
DRAWS = 1000
CHALLENGES = 100
"""Draws in which another workflow than the leader may come out on top."""


class Groups:
    """Workflows that are alike: those of a group judge every act the same, so one of them stands for all."""

    def __init__(self, distances: np.ndarray, members: np.ndarray | None = None, seed: int = 0) -> None:
        """`members` is the group of each workflow [n]; who stands for a group is drawn from the seed."""
        random = np.random.default_rng(seed)
        self.of = np.arange(len(distances)) if members is None else np.asarray(members, dtype=np.intp)
        self.first = np.array([random.choice(np.flatnonzero(self.of == k)) for k in range(int(self.of.max()) + 1)])
        self.distances = distances[np.ix_(self.first, self.first)]

    def __len__(self) -> int:
        return len(self.first)

    def alike(self, id: int) -> list[int]:
        """All workflows of the group of `id`, itself included."""
        return [int(k) for k in np.flatnonzero(self.of == self.of[id])]


class Posterior:
    """A normal distribution for each group: what the trainings of some workflows say of all of them.

    A group that was never trained has the mean of the others, and a variance that covers their spread and the noise.
    """

    def __init__(self, groups: Groups, trainings: Mapping[int, list[float]]) -> None:
        self.groups = groups
        self.evidence: Evidence = weigh({int(groups.of[id]): each for id, each in trainings.items()})
        self.mean, self.variance = self._prior()  # float64 [groups]
        self.mean[self.evidence.ids] = self.evidence.scores
        self.variance[self.evidence.ids] = self.evidence.noise

    def _prior(self) -> tuple[np.ndarray, np.ndarray]:
        evidence = self.evidence
        mean = 0.0
        variance = 1.0
        if evidence.ids:
            mean = float(evidence.scores.mean())
        if len(evidence.ids) > 1:
            variance = float(evidence.scores.var() + evidence.noise.mean())
        return np.full(len(self.groups), mean), np.full(len(self.groups), variance)

    def of_all(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of every workflow, each [n]."""
        group = self.groups.of
        return self.mean[group], np.sqrt(self.variance)[group]

    def tied(self, best: int) -> np.ndarray:
        """Whether each group is statistically tied with that of `best`, [groups].

        The 95 % interval of the difference then holds 0.
        """
        k = int(self.groups.of[best])
        lost = self.mean[k] - self.mean
        return lost <= WIDE * np.sqrt(self.variance + self.variance[k])

    def draws(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Values of all groups, drawn `count` times, [count, groups]."""
        standard = random.standard_normal((count, len(self.groups)))
        return self.mean + standard * np.sqrt(self.variance)


class TopTwo:
    """Draws two workflows that may be the best, and picks one of the two.

    A workflow may be picked until it has `most` trainings or can be told from the best. What is picked depends on the
    seed and on what is known.
    """

    def __init__(self, distances: np.ndarray, seed: int = 0, most: int = 5) -> None:
        self.groups = Groups(distances)
        self.seed = seed
        self.most = most
        self.trainings: dict[int, list[float]] = {}
        self.infeasible: set[int] = set()
        self._pending: list[int] = []  # groups
        self._posterior: Posterior | None = None

    def group(self, members: np.ndarray, distances: np.ndarray) -> None:
        """Learn which workflows are alike, and how far apart the others are."""
        self.groups, self._posterior = Groups(distances, members, self.seed), None

    def ask(self, count: int = 1) -> list[int]:
        """Up to `count` different workflows to train once more, fewer when no more may be picked."""
        picks: list[int] = []
        while len(picks) < count and (open_groups := self._open()):
            k = self._choose(open_groups)
            self._pending.append(k)
            picks.append(int(self.groups.first[k]))
        return picks

    def forget_asked(self) -> None:
        """What was asked for will not be told of; it may be asked for again, with the same answer."""
        self._pending.clear()

    def tell(self, id: int, value: float) -> None:
        """The score of a workflow's next training: more is better."""
        if not np.isfinite(value):
            raise ValueError(f"The value of workflow {id} is {value}: it must be a finite number.")
        first = int(self.groups.first[self.groups.of[id]])
        self.trainings.setdefault(first, []).append(float(value))
        self._settle(id)

    def tell_infeasible(self, id: int) -> None:
        """A workflow that was not obeyed: it is never picked again."""
        first = int(self.groups.first[self.groups.of[id]])
        self.infeasible.add(first)
        self.trainings.pop(first, None)
        self._settle(id)

    def retire(self, id: int) -> None:
        """Nothing to do: who has `most` trainings is not picked again."""

    def replicate(self, id: int) -> int:
        """The number of a workflow's next training."""
        return len(self.trainings.get(int(self.groups.first[self.groups.of[id]]), ()))

    @property
    def posterior(self) -> Posterior:
        """What is known by now."""
        if self._posterior is None:
            self._posterior = Posterior(self.groups, self.trainings)
        return self._posterior

    def acquisition(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, standard deviation and upper end of the 95 % interval of all workflows, each [n]."""
        mean, std = self.posterior.of_all()
        return mean, std, mean + WIDE * std

    def regret(self) -> float:
        """What settling for the best by now is expected to lose against the true best; infinite while noise is unknown."""
        if self.posterior.evidence.spare < GROUNDS:
            return float("inf")
        draws = self.posterior.draws(DRAWS, np.random.default_rng(self.seed))
        feasible = self._feasible()
        best = int(self.groups.of[self.answer()])
        return float((draws[:, feasible].max(axis=1) - draws[:, best]).mean())

    def answer(self) -> int:
        """The best workflow that was trained, as far as is known."""
        evidence = self.posterior.evidence
        return int(self.groups.first[evidence.ids[evidence.best]])

    def best_score(self) -> float:
        """The mean of the best workflow that was trained."""
        return float(self.posterior.of_all()[0][self.answer()]) if self.trainings else float("nan")

    def snapshot(self) -> dict[str, Any]:
        """All that `restore` needs to go on exactly like this, ready for JSON."""
        trainings = [[id, scores] for id, scores in sorted(self.trainings.items())]
        return {"seed": self.seed, "most": self.most, "trainings": trainings, "infeasible": sorted(self.infeasible)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Become the search that made this snapshot."""
        self.seed, self.most = int(saved["seed"]), int(saved["most"])
        self.trainings = {int(id): [float(score) for score in scores] for id, scores in saved["trainings"]}
        self.infeasible = {int(id) for id in saved["infeasible"]}
        self._posterior = None
        self._pending.clear()

    def _settle(self, id: int) -> None:
        k = int(self.groups.of[id])
        if k in self._pending:
            self._pending.remove(k)
        self._posterior = None

    def _feasible(self) -> list[int]:
        barred = {int(self.groups.of[id]) for id in self.infeasible}
        return [k for k in range(len(self.groups)) if k not in barred]

    def _open(self) -> list[int]:
        """Groups that may be picked now: of those that may be the best, the ones with the fewest trainings.

        So a replicate is begun when nobody who matters lacks the one before it. Nobody is ruled out before the noise has
        been observed, nor by a single training, and nobody is picked once a single one is left.
        """
        counts = {k: self.replicate(int(self.groups.first[k])) for k in self._feasible() if k not in self._pending}
        if self.posterior.evidence.spare >= GROUNDS:
            tied = self.posterior.tied(self.answer())
            several = tied[self._feasible()].sum() > 1
            counts = {k: count for k, count in counts.items() if count < FEWEST or (tied[k] and several)}
        fewest = min(counts.values(), default=self.most)
        return [k for k, count in counts.items() if count == fewest and fewest < self.most]

    def _choose(self, open_groups: list[int]) -> int:
        told = sum(map(len, self.trainings.values())) + len(self.infeasible)
        random = np.random.default_rng([self.seed, told, len(self._pending)])
        touched = [int(self.groups.of[id]) for id in [*self.trainings, *self.infeasible]] + self._pending
        if not touched:
            return int(random.choice(open_groups))
        if len(self.trainings) < 2:
            apart = self.groups.distances[touched].min(axis=0)[open_groups]
            return int(random.choice(np.array(open_groups)[apart >= apart.max() - 1e-9]))
        return self._drawn(open_groups, random)

    def _drawn(self, open_groups: list[int], random: np.random.Generator) -> int:
        """The leader of a draw, or as often the one that leads another draw in its place."""
        draws = self.posterior.draws(CHALLENGES, random)
        draws += 1e-6 * draws.std() * random.permutation(draws.shape[1])  # of equals, any
        feasible = np.array(self._feasible())
        leads = feasible[draws[:, feasible].argmax(axis=1)]
        leader = int(leads[0])
        challenger = next((int(k) for k in leads if k != leader), leader)
        first, second = (leader, challenger) if random.random() < 0.5 else (challenger, leader)
        at_last = open_groups[int(draws[0, open_groups].argmax())]
        return next((k for k in (first, second) if k in open_groups), at_last)


class InTurn(TopTwo):
    """Picks every workflow once, then every one a second time, until all have `most` trainings."""

    def group(self, members: np.ndarray, distances: np.ndarray) -> None:
        """Take no workflow for another."""

    def regret(self) -> float:
        """All are trained, whatever comes of it."""
        return float("inf")

    def acquisition(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is known stands; nothing is guessed."""
        mean = np.full(len(self.groups), np.nan)
        for id, scores in self.trainings.items():
            mean[id] = np.mean(scores)
        return mean, np.zeros_like(mean), mean

    def _open(self) -> list[int]:
        counts = {k: len(self.trainings.get(k, ())) for k in range(len(self.groups)) if k not in self._pending}
        fewest = min(counts.values(), default=self.most)
        return [k for k, count in counts.items() if count == fewest and fewest < self.most]

    def _choose(self, open_groups: list[int]) -> int:
        return open_groups[0]
