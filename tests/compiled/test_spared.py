"""Rules that the types of their arguments say are never called are no part of a kernel."""

from __future__ import annotations

from typing import NamedTuple

from redline.compiled.speed import apart, interpreted, kernel, spared


class World(NamedTuple):
    """Has wings if the tuple is not empty, which its type tells."""

    wings: tuple[int, ...]
    height: int


def has_none(world: object) -> bool:
    return len(world.types[world.fields.index("wings")]) == 0  # type: ignore[attr-defined]


@apart
def flown(world, metres):
    """How high one gets by flying."""
    return world.height + metres * world.wings[0]


flown = spared(flown, has_none)


@kernel
def climb(world, metres):
    """How high one gets."""
    if len(world.wings) > 0:
        return flown(world, metres)
    return world.height


def test_a_kernel_is_compiled_without_what_its_types_rule_out():
    """With it, an empty tuple could not even be asked for its first number."""
    assert climb(World((), 5), 10) == 5
    climb.recompile()  # an earlier process may have left it on disk, whole
    assert not flown.overloads
    assert climb(World((3,), 5), 10) == 35
    climb.recompile()
    assert len(flown.overloads) == 1


def test_interpreted_it_is_the_rule_itself():
    assert interpreted(climb)(World((), 5), 10) == 5
    assert interpreted(climb)(World((3,), 5), 10) == 35
