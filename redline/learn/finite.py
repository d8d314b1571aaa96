"""What is done when learning comes to a number that is none: it stops before the weights are spoiled."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from redline.errors import RedlineError
from redline.learn.config import PPOConfig
from redline.rollout import Rollout

LARGE = 1e6
"""Rewards whose scaled size is beyond this are taken for the reason."""


class NotFinite(RedlineError):
    """Learning has come to NaN or infinity. The command line prints it as one line and exits with code 1."""

    exit_code = 1


def require_finite(what: str, numbers: Iterable[float], rollout: Rollout, config: PPOConfig) -> None:
    """Stop learning from a rollout if one of the numbers is not finite."""
    wrong = next((number for number in numbers if not math.isfinite(number)), None)
    if wrong is not None:
        raise NotFinite(f"{what} came to {wrong:g}, so learning stops. {_advice(rollout, config)}")


def require_finite_array(what: str, numbers: np.ndarray, rollout: Rollout, config: PPOConfig) -> None:
    """Likewise, for an array."""
    if not np.isfinite(numbers).all():
        require_finite(what, numbers[~np.isfinite(numbers)][:1].tolist(), rollout, config)


def _advice(rollout: Rollout, config: PPOConfig) -> str:
    largest = float(np.abs(rollout.flat(rollout.rewards)).max())
    if not math.isfinite(largest):
        return "The env gives rewards that are not finite, or too large for 32 bits: have it give smaller ones."
    if largest * config.reward_scale > LARGE:
        return f"Rewards are as large as {largest:.3g}: try --normalise-returns, or --reward-scale {1 / largest:.0e}."
    return f"Try a smaller step size: --learning-rate {config.learning_rate / 10:.0e}."
