"""Masks of six actions for tests."""

from __future__ import annotations

import numpy as np


def random_masks(count: int) -> np.ndarray:
    """Masks bool [count, 6]: anything goes, as long as one action is allowed."""
    random = np.random.default_rng(1)
    masks = random.random((count, 6)) < 0.5
    masks[np.arange(count), random.integers(6, size=count)] = True
    return masks
