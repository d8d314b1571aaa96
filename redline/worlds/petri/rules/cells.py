"""The numbers of an observation: what each is called, and where it is.

A block of numbers is described once, by a NamedTuple whose fields name them in their order. Its instance, such as
`CHAMBER_CELLS`, holds the place of each within the block, so that rules write `obs[i, cell + CHAMBER_CELLS.progress]`;
sizes and public names follow from the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from redline.worlds.petri.rules.net import KINDS, Net, Place, Transition


class ChamberCells(NamedTuple):
    """A process chamber, its first token and its cleaning. What is left is a share of the whole."""

    occupied: int
    processing: int
    finished: int
    time_left: int
    progress: int
    time_to_leave: int
    cleaning: int
    clean_left: int
    clean_soon: int


class BufferCells(NamedTuple):
    """A buffer and its first token."""

    filled: int
    processing: int
    finished: int
    time_left: int
    time_to_leave: int


class ArmCells(NamedTuple):
    """The token an arm holds. A number for each place it may be offered to follows, one-hot."""

    ready: int
    held_too_long: int
    time_held: int
    time_to_leave: int


class RobotCells(NamedTuple):
    """A robot, behind all its arms."""

    moving: int
    time_left: int


class SourceCells(NamedTuple):
    """Where tokens come from."""

    left: int
    other_type: int
    """Whether the next token is of another type than the first of all."""


class ToolCells(NamedTuple):
    """The whole tool."""

    in_progress: int
    time_to_release: int
    done: int


class JobCells(NamedTuple):
    """A job and its next operation."""

    progress: int
    work_left: int
    running: int
    time_left: int
    next_duration: int
    next_machine_idle: int
    time_waited: int
    done: int


class MachineCells(NamedTuple):
    """A machine of a job shop."""

    busy: int
    time_left: int
    work_to_come: int


class ShopCells(NamedTuple):
    """The whole job shop."""

    done: int


class PlaceCells(NamedTuple):
    """A place of any net. A number for each transition, its time left, and the share done follow all places."""

    tokens: int
    available: int


class NodeCells(NamedTuple):
    """A place as a node of a graph. A number for each kind of place follows, one-hot."""

    tokens: int
    available: int
    coming: int
    time_left: int
    time_to_leave: int
    clean_left: int
    time_to_arrive: int
    share_of_goal: int


CHAMBER_CELLS = ChamberCells(*range(len(ChamberCells._fields)))
BUFFER_CELLS = BufferCells(*range(len(BufferCells._fields)))
ARM_CELLS = ArmCells(*range(len(ArmCells._fields)))
ROBOT_CELLS = RobotCells(*range(len(RobotCells._fields)))
SOURCE_CELLS = SourceCells(*range(len(SourceCells._fields)))
TOOL_CELLS = ToolCells(*range(len(ToolCells._fields)))
JOB_CELLS = JobCells(*range(len(JobCells._fields)))
MACHINE_CELLS = MachineCells(*range(len(MachineCells._fields)))
SHOP_CELLS = ShopCells(*range(len(ShopCells._fields)))
PLACE_CELLS = PlaceCells(*range(len(PlaceCells._fields)))
NODE_CELLS = NodeCells(*range(len(NodeCells._fields)))
NUM_KINDS = len(KINDS)


class ObservationMap(NamedTuple):
    """Where an observation of a net has what."""

    names: tuple[str, ...]
    """All numbers by name, such as `PM1.progress`."""
    places: tuple[int, ...]
    """Where the numbers of each place start; in the layout `jobs`, those of its job."""
    whole: int
    """Where the numbers of the whole net start."""


def map_observation(net: Net) -> ObservationMap:
    """The names of all numbers that a policy sees of a net, and where they start."""
    shop = net.rules.layout == "jobs"
    names = [name for j in range(len(net.operations)) for name in _named(f"job {j}", JobCells)] if shop else []
    starts = []
    for place in net.places:
        starts.append(place.job * len(JOB_CELLS) if shop and place.job >= 0 else len(names))
        names += _names_at(net, place)
    whole = len(names)
    names += _names_of_whole(net)
    return ObservationMap((*names, "clock") if net.rules.observe_clock else tuple(names), tuple(starts), whole)


def _named(owner: str, block: type[NamedTuple], more: Iterable[str] = ()) -> list[str]:
    return [f"{owner}.{name}" for name in (*block._fields, *more)]


def _names_at(net: Net, place: Place) -> list[str]:
    """The numbers of one place, as the layout has them."""
    if net.rules.layout == "places":
        return _named(place.name, PlaceCells)
    if net.rules.layout == "graph":
        return _named(place.name, NodeCells, (f"is_{kind}" for kind in KINDS))
    if net.rules.layout == "jobs":
        return _named(place.name, MachineCells) if place.kind == "machine" else []
    if place.kind == "robot":
        return _names_of_robot(net, place)
    blocks: dict[str, type[NamedTuple]] = {"process": ChamberCells, "buffer": BufferCells, "source": SourceCells}
    return _named(place.name, blocks[place.kind]) if place.kind in blocks else []


def _names_of_robot(net: Net, place: Place) -> list[str]:
    targets = [f"to_{load.outputs[0][0]}" for load in loads_of(net, place)]
    arms = [_named(f"{place.name}.arm{arm}", ArmCells, targets) for arm in range(1, (place.capacity or 0) + 1)]
    return [*(name for arm in arms for name in arm), *_named(place.name, RobotCells)]


def _names_of_whole(net: Net) -> list[str]:
    if net.rules.layout == "tool":
        return _named("tool", ToolCells)
    if net.rules.layout == "jobs":
        return _named("shop", ShopCells)
    if net.rules.layout == "places":
        return [*(f"{transition.name}.time_left" for transition in net.transitions), "net.done"]
    return []


def loads_of(net: Net, robot: Place) -> list[Transition]:
    """The transitions by which a robot puts down what it holds, in the order of its one-hot."""
    return [transition for transition in net.transitions if transition.inputs[0][0] == robot.name]
