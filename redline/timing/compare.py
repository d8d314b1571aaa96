"""A against B with an honest interval: medians, their spread, and the speed-up as the bootstrap sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000
LEVEL = 0.95
FEW = 12
"""Turns below which the bootstrap is too sure of itself."""
STUDENTS_T = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Bounds within which 95 % of Student's t lie, for 3 to 11 turns."""


@dataclass(frozen=True)
class Spread:
    """The median of several turns, and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> Spread:
        """The spread of a list of values."""
        low, median, high = np.percentile(values, (25, 50, 75))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class SpeedUp:
    """How many times faster B is than A, with an interval. Where that contains 1 the two cannot be told apart."""

    ratio: float
    low: float
    high: float

    @property
    def within_noise(self) -> bool:
        """Whether it may be nothing at all."""
        return self.low <= 1.0 <= self.high or not np.isfinite(self.ratio)

    def __str__(self) -> str:
        if self.within_noise:
            return "within noise"
        return f"{self.ratio:.2f}x ({self.low:.2f} – {self.high:.2f})"


def speed_up(before: np.ndarray, after: np.ndarray, seed: int = 0) -> SpeedUp:
    """How much less `after` takes than `before`. Turn k of one ran next to turn k of the other: they are drawn in pairs."""
    before, after = np.asarray(before, float), np.asarray(after, float)
    if len(before) != len(after):
        raise ValueError(f"{len(before)} turns cannot be paired with {len(after)}.")
    ratio = _ratio(np.median(before), np.median(after))
    if len(before) < 3 or not np.isfinite(ratio) or min(before.min(), after.min()) <= 0:
        # too few turns for any interval, or a row that one of the two does not have
        return SpeedUp(float(ratio), 0.0, float("inf"))
    draws = np.random.default_rng(seed).integers(len(before), size=(RESAMPLES, len(before)))
    ratios = _ratio(np.median(before[draws], axis=1), np.median(after[draws], axis=1))
    tail = (1 - LEVEL) / 2
    narrow = _by_students_t(before, after) if len(before) < FEW else ()
    low, high = np.quantile(ratios[np.isfinite(ratios)], (tail, 1 - tail))
    return SpeedUp(float(ratio), float(min(low, *narrow[:1], ratio)), float(max(high, *narrow[1:], ratio)))


def _by_students_t(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """The interval of the mean ratio if its logarithm is normal: a few turns tell the bootstrap less than it believes."""
    logs = np.log(before / after)
    reach = STUDENTS_T[len(logs) - 3] * logs.std(ddof=1) / np.sqrt(len(logs))
    return float(np.exp(logs.mean() - reach)), float(np.exp(logs.mean() + reach))


def _ratio(before: np.ndarray | np.floating, after: np.ndarray | np.floating) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(before / after)
