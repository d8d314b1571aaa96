"""What a PPO loss consists of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from redline.learn.config import PPOConfig

if TYPE_CHECKING:
    from torch import Tensor

Number = TypeVar("Number", float, "Tensor")


class Loss(NamedTuple, Generic[Number]):
    """The parts of the PPO loss, each a mean over the steps of the batch."""

    policy: Number
    value: Number
    entropy: Number
    kl: Number
    clipped: Number


def total(loss: Loss[Number], config: PPOConfig) -> Number:
    """The weighted sum that is to become less."""
    return loss.policy + config.value * loss.value - config.entropy * loss.entropy


class TimedLoss(NamedTuple):
    """A loss whose gradient was written, and the nanoseconds of the two halves of that, or of both in one call."""

    loss: Loss[float]
    loss_ns: int
    backward_ns: int
    both_ns: int = 0


def added_up(losses: Sequence[Loss[float]]) -> Loss[float]:
    """The loss of a batch from those of its parts."""
    return Loss(*(sum(each) for each in zip(*losses, strict=True)))
