"""Masks: actions that are not allowed get a logit so low that their probability is exactly zero."""

from __future__ import annotations

import numpy as np

from redline.learn.loops import loop

MASKED = -1e9
"""Logit of an action that is not allowed: far enough down that its probability is exactly zero."""
_MASKED = np.float32(MASKED)


def rule_out(logits: np.ndarray, masks: np.ndarray | None) -> None:
    """Write over the logits of actions that are not allowed."""
    if masks is not None:
        mask(logits, masks)


@loop
def mask(logits, masks):
    """Write over the logits of actions that `masks` do not allow."""
    for i in range(logits.shape[0]):
        for a in range(logits.shape[1]):
            logits[i, a] = logits[i, a] if masks[i, a] else _MASKED
