"""A policy's network as bare layers, and what masking means."""

from __future__ import annotations

from typing import Any, NamedTuple

MASKED = -1e9
"""Logit of an action that is not allowed: far enough down that its probability is exactly zero."""


class Layer(NamedTuple):
    """Weight [outputs, inputs] and bias [outputs] of a linear layer."""

    weight: Any
    bias: Any


class Layers(NamedTuple):
    """The linear layers of a policy as bare tensors or arrays. A shared policy has no critic trunk."""

    trunk: list[Layer]
    critic_trunk: list[Layer] | None
    actor: Layer
    critic: Layer
