"""Makespans that no schedule can beat, quick to compute: what every wafer, chamber, robot, job and machine needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from redline.worlds.petri.cluster_tool import Robot, Stage, ToolPlan


class StageVisit(NamedTuple):
    """One stage of one wafer type, as seen from its chambers."""

    at: frozenset[str]
    work: int
    """Time a chamber is taken: from the start of placing to the end of picking."""
    head: int
    """Least time before that."""
    tail: int
    """Least time after that."""
    gap: int
    """Time a chamber stands empty between two wafers, because one one-armed robot has to fetch the next."""


def tool_bound(plan: ToolPlan) -> int:
    """No schedule of the planned cluster tool is shorter than this."""
    counts = [plan.wafer_types.count(kind) for kind in range(len(plan.types))]
    present = [(stages, count) for stages, count in zip(plan.types, counts, strict=True) if count]
    visits = [(visit, count) for stages, count in present for visit in _visits(plan, stages)]
    flows = [flow(plan, stages) for stages, _ in present]
    chambers = [_chamber_bound(plan, group) for group in _groups(visits)]
    return max([1, *flows, *chambers, *_robot_bounds(plan, present)])


def flow(plan: ToolPlan, stages: Sequence[Stage]) -> int:
    """Time one wafer takes when it never waits."""
    return sum(robot.hop for robot in carriers(plan, stages)) + sum(stage.process_time for stage in stages[1:-1])


def carriers(plan: ToolPlan, stages: Sequence[Stage]) -> list[Robot]:
    """The robot of each hop."""
    robots = [plan.robot_for(stage.at[0], following) for stage, following in pairwise(stages)]
    return [robot for robot in robots if robot is not None]


def _visits(plan: ToolPlan, stages: Sequence[Stage]) -> list[StageVisit]:
    robots = carriers(plan, stages)
    visits = []
    for k in range(1, len(stages) - 1):
        filler, emptier = robots[k - 1], robots[k]
        before = sum(robot.hop for robot in robots[:k]) + sum(stage.process_time for stage in stages[1:k])
        after = sum(robot.hop for robot in robots[k:]) + sum(stage.process_time for stage in stages[k + 1 : -1])
        alone = plan.options.arms == 1 and filler.name == emptier.name
        visits.append(
            StageVisit(
                frozenset(stages[k].at),
                filler.place + stages[k].process_time + emptier.pick,
                before - filler.place,
                after - emptier.pick,
                emptier.travel + emptier.place + filler.pick + filler.travel if alone else 0,
            )
        )
    return visits


def _groups(visits: list[tuple[StageVisit, int]]) -> list[list[tuple[StageVisit, int]]]:
    """Visits that share chambers, directly or through others, together."""
    groups: list[list[tuple[StageVisit, int]]] = []
    for each in visits:
        touching = [group for group in groups if any(each[0].at & other.at for other, _ in group)]
        groups = [group for group in groups if group not in touching]
        groups.append([*(one for group in touching for one in group), each])
    return groups


def _chamber_bound(plan: ToolPlan, group: list[tuple[StageVisit, int]]) -> int:
    names = frozenset().union(*(visit.at for visit, _ in group))
    slots = sum(plan.device.stations[name].capacity or 1 for name in names)
    head = min(visit.head for visit, _ in group)
    tail = min(visit.tail for visit, _ in group)
    if len(group) == 1:
        visit, count = group[0]
        rounds = math.ceil(count / slots)
        return head + rounds * visit.work + (rounds - 1) * visit.gap + tail
    return head + math.ceil(sum(visit.work * count for visit, count in group) / slots) + tail


def _robot_bounds(plan: ToolPlan, present: list[tuple[tuple[Stage, ...], int]]) -> list[int]:
    """Least time for the hops of each robot. An arm is taken for whole hops; two arms still pick and place one at a time."""
    bounds = []
    for robot in plan.device.robots.values():
        hops = sum(carriers(plan, stages).count(robot) * count for stages, count in present)
        if plan.options.arms == 1:
            bounds.append(hops * robot.hop)
        elif hops:
            bounds.append(hops * (robot.pick + robot.place) + min(robot.travel, _idle_start(plan, robot, present)))
    return bounds


def _idle_start(plan: ToolPlan, robot: Robot, present: list[tuple[tuple[Stage, ...], int]]) -> int:
    """Time a two-armed robot must idle before any wafer is through its first stage: it can fill that and its own arms."""
    firsts = [stages[1] for stages, _ in present if plan.robot_for(stages[0].at[0], stages[1]) == robot]
    if len(firsts) < len(present):
        return robot.travel  # it waits until another robot has brought it a wafer
    wafers = sum(count for _, count in present)
    slots = sum(
        plan.device.stations[name].capacity or wafers for name in {name for stage in firsts for name in stage.at}
    )
    soonest = robot.hop + min(stage.process_time for stage in firsts)
    busy = min(wafers, slots + plan.options.arms) * robot.pick + min(wafers, slots) * robot.place
    return max(0, soonest - busy)


def shop_bound(jobs: Sequence[Sequence[tuple[int, int]]], releases: Sequence[int] | None = None) -> int:
    """No schedule of a job shop is shorter: the longest job, and each machine's work with the least around it.

    A job is a list of (machine, duration).
    """
    releases = releases or [0] * len(jobs)
    longest = max(start + sum(time for _, time in job) for start, job in zip(releases, jobs, strict=True))
    work: dict[int, int] = {}
    heads: dict[int, int] = {}
    tails: dict[int, int] = {}
    for start, job in zip(releases, jobs, strict=True):
        head, left = start, sum(time for _, time in job)
        for machine, time in job:
            left -= time
            work[machine] = work.get(machine, 0) + time
            heads[machine] = min(heads.get(machine, head), head)
            tails[machine] = min(tails.get(machine, left), left)
            head += time
    return max([1, longest, *(heads[machine] + work[machine] + tails[machine] for machine in work)])
