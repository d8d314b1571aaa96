"""What several trainings of each workflow say of it: a score, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

WIDE = 1.96  # standard deviations to each side that hold the truth 95 times in 100
GUESSES = 2
"""The first guess at the noise counts as much as so many observations of it."""


@dataclass(frozen=True)
class Evidence:
    """A score for each workflow that was trained, and its noise."""

    ids: list[int]
    scores: np.ndarray  # float64 [ids]
    counts: np.ndarray  # int [ids]: trainings
    noise: np.ndarray  # float64 [ids]: the variance of one training, divided by the number of trainings
    spare: int
    """How often the noise was observed: scores beyond those that it takes to tell workflows and replicates apart."""

    @property
    def best(self) -> int:
        """The place in `ids` of the highest score, among those with as many trainings as any, or one less.

        Who was left behind after fewer may have been lucky in them.
        """
        settled = self.counts >= self.counts.max() - 1
        return int(np.where(settled, self.scores, -np.inf).argmax())


def weigh(trainings: Mapping[int, Sequence[float]]) -> Evidence:
    """Weigh the scores of each workflow's trainings, replicate 0 first.

    All workflows have the same random numbers in the same replicate, so what is peculiar to a replicate is taken off.
    Until the noise has been observed, half of what sets workflows apart is taken for noise.
    """
    ids = sorted(trainings)
    who = np.array([place for place, id in enumerate(ids) for _ in trainings[id]], dtype=np.intp)
    when = np.array([replicate for id in ids for replicate in range(len(trainings[id]))], dtype=np.intp)
    told = np.array([score for id in ids for score in trainings[id]], dtype=np.float64)
    counts = np.bincount(who, minlength=len(ids))
    scores, luck = _taken_apart(who, when, told)
    spare = max(0, len(told) - len(scores) - len(luck) + 1)
    left_over = float(((told - scores[who] - luck[when]) ** 2).sum())
    guess = 0.5 * float(scores.var()) if len(scores) > 1 else 0.0
    of_one = (left_over + GUESSES * guess) / (spare + GUESSES)
    return Evidence(ids, scores, counts, of_one / np.maximum(counts, 1), spare)


def _taken_apart(who: np.ndarray, when: np.ndarray, told: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of workflows and luck of replicates, which is 0 on average: together the nearest to what was told."""
    if not len(told):
        return np.zeros(0), np.zeros(0)
    num_workflows, num_replicates = who.max() + 1, when.max() + 1
    design = np.zeros((len(told), num_workflows + num_replicates))
    rows = np.arange(len(told))
    design[rows, who] = 1.0
    design[rows, num_workflows + when] = 1.0
    found = np.linalg.lstsq(design, told, rcond=None)[0]
    scores, luck = found[:num_workflows], found[num_workflows:]
    return scores + luck.mean(), luck - luck.mean()
