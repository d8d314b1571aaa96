"""What a net does at all, told by the types of its tables: known when a kernel is compiled, so that it contains no rule
that the net has no use for. Kernels are compiled apart for nets that differ in this.

How long a tuple is belongs to its type. A rule that only some nets use is marked with `for_nets`, and called where the
same question is asked of the net.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from redline.compiled.speed import inlined, spared


class Traits(NamedTuple):
    """Of each the length counts."""

    extras: tuple[int, ...]  # 1 where rules are used that most nets do without
    routed: tuple[int, ...]  # 1 where tokens have routes, 0 where they are counted
    paced: tuple[int, ...]  # 1 where transitions fire by themselves
    layout: tuple[int, ...]  # the number of the layout of observations


@inlined
def has_extras(net):
    """Whether rarely used rules apply."""
    return len(net.traits.extras) > 0


@inlined
def is_routed(net):
    """Whether each token has an identity and a route."""
    return len(net.traits.routed) > 0


@inlined
def runs_by_itself(net):
    """Whether some transitions fire without being chosen."""
    return len(net.traits.paced) > 0


@inlined
def layout_of(net):
    """Which layout observations have."""
    return len(net.traits.layout)


def for_nets(**wanted: int) -> Callable[[Any], Any]:
    """Marks a rule for nets with traits of that length: `for_nets(routed=1)`. Kernels for others are compiled without."""

    def mark(rule: Any) -> Any:
        return spared(rule, lambda net: any(_length(net, name) != length for name, length in wanted.items()))

    return mark


def _length(net: Any, name: str) -> int:
    """Of a trait, as the compiler knows it."""
    traits = net.types[net.fields.index("traits")]
    return len(traits.types[traits.fields.index(name)])
