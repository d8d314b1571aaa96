"""Workflows under other names for their types."""

from __future__ import annotations

from collections.abc import Sequence

from redline.worlds.cage2.workflow import Workflow


def relabel(workflow: Workflow, permutation: Sequence[int]) -> Workflow:
    """The same order with type `t` called `permutation[t]`. Distances do not notice."""
    return Workflow(tuple(int(permutation[kind]) for kind in workflow.order))
