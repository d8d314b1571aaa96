"""Weights for an observation that has grown: what was learned stays, what is new counts for nothing at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from redline.errors import RedlineError
from redline.learn.policy import Policy


def grow(policy: Policy, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> None:
    """Give a policy the weights `arrays` of one that sees the numbers called `names`.

    Inputs are matched by their names. One that the old policy did not have begins with weight zero, so that the new one
    plays as the old one did; one that is gone takes its weights with it.
    """
    now = list(getattr(policy.encoding, "names", ()))
    if not now or not names:
        raise RedlineError("Observations without names cannot be matched. Begin anew, without weights to grow.")
    fresh = policy.arrays()
    for name, array in fresh.items():
        old = arrays.get(name)
        if old is None or old.ndim != array.ndim or len(old) != len(array):
            raise RedlineError(f"The old policy's {name} does not fit the new one. Use the same actions and --hidden.")
        fits = array.ndim == 2 and array.shape[1] == len(now) and old.shape[1] == len(names)
        if not fits and old.shape != array.shape:
            raise RedlineError(f"The old policy's {name} does not fit the new one. Use the same --hidden.")
        fresh[name] = _matched(old, names, now) if fits else old
    policy.load(fresh)


def _matched(weights: np.ndarray, then: Sequence[str], now: Sequence[str]) -> np.ndarray:
    """The columns of a first layer, in the order of the new inputs."""
    place = {name: k for k, name in enumerate(then)}
    grown = np.zeros((len(weights), len(now)), weights.dtype)
    for k, name in enumerate(now):
        if name in place:
            grown[:, k] = weights[:, place[name]]
    return grown
