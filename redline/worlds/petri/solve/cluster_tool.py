"""Cluster tools for CP-SAT: when each wafer's hops begin their pick and their place.

A wafer takes an arm from the start of its pick to the end of its place, and a chamber from the start of its place to the
end of its pick. Chambers that are alike in everything are one pool, in which only numbers count: which wafer goes into
which of them is settled afterwards. Wafers of a type keep their order as long as they go through pools only, because two
that overtake each other could as well exchange what they do from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from redline.errors import RedlineError
from redline.worlds.petri.cluster_tool import Robot, Stage, ToolPlan
from redline.worlds.petri.dispatching import insert_without_waiting
from redline.worlds.petri.rules.net import Cleaning, Net, Place
from redline.worlds.petri.rules.script import Line
from redline.worlds.petri.solve.cp_sat import Problem, Value


class Hop(NamedTuple):
    """One move of a wafer: who carries it, where it may be put down, and how long it is processed there, in ticks."""

    robot: Robot
    to: tuple[str, ...]
    stay: int


class Timed(NamedTuple):
    """A hop of a schedule: when its pick and its place begin, in ticks, and where it ends."""

    pick: int
    place: int
    to: str


TimedHops = list[list[Timed]]
"""Every hop of every wafer."""


@dataclass(frozen=True)
class Pool:
    """Chambers that some stage may choose from."""

    chambers: tuple[Place, ...]
    alike: bool
    """Whether it makes no difference which of them a wafer is in."""

    @property
    def slots(self) -> int | None:
        """How many wafers find room; None if all do."""
        capacity = self.chambers[0].capacity
        return None if capacity is None else capacity * len(self.chambers)


Stay = tuple[int, int]
"""A wafer, and the hop it is on or has ended."""


class Visit(NamedTuple):
    """A wafer's stay in a pool."""

    stay: Stay
    start: Any
    end: Any
    interval: Any


class ToolProblem(Problem[TimedHops]):
    """A cluster tool as a model."""

    def __init__(self, name: str, plan: ToolPlan, net: Net) -> None:
        if plan.options.tm1 == "rule" and "LLA" in plan.device.stations:
            raise RedlineError(f"{name} cannot be solved exactly: tm1=rule takes TM1's choices away. Try tm1=policy.")
        for option in ("idle_cleaning", "change_cleaning"):
            if (given := getattr(plan.options, option)) != "off":
                raise RedlineError(
                    f"{name} cannot be solved exactly: CP-SAT's model does not have {option}={given}. Try {option}=off."
                )
        self.plan = plan
        tick = math.gcd(*times_of(plan, net))
        self.kinds = [hops_of(plan, stages, tick) for stages in plan.types]
        """The hops of each type of wafer."""
        self.hops = [self.kinds[kind] for kind in plan.wafer_types]
        """The hops of each wafer."""
        self.places = {place.name: in_ticks(self._cleaned_when_due(name, place), tick) for place in net.places}
        self.pools = {hop.to: self._pool(hop.to) for hops in self.kinds for hop in hops}
        pairs = product(range(len(self.kinds)), repeat=2)
        self.ordered = {(kind, other): self._ordered(kind, other) for kind, other in pairs}
        """How long wafers of two types are in order."""
        first, longest = self._first(net, tick)
        super().__init__(name, net, net.rules.lower_bound or 0, first, longest, tick)
        self.picks = [[self.new_time(f"pick {w} {h}") for h in range(len(hops))] for w, hops in enumerate(self.hops)]
        self.puts = [[self.new_time(f"place {w} {h}") for h in range(len(hops))] for w, hops in enumerate(self.hops)]
        self.inside: dict[Stay, dict[str, Any]] = {}
        """Whether a wafer's hop ends in a chamber, where that matters."""
        self._share_robots()
        self._share_chambers()
        self._release()
        self._keep_order()
        self._wait_in_line()
        for w, hops in enumerate(self.hops):
            self.cp.add(self.makespan >= self.puts[w][-1] + hops[-1].robot.place)
        self._hint()

    # Answers

    def read(self, value: Value) -> TimedHops:
        """The hops of a solution."""
        starts = [
            [(value(pick), value(put)) for pick, put in zip(picks, puts, strict=True)]
            for picks, puts in zip(self.picks, self.puts, strict=True)
        ]
        chosen = {
            stay: next(name for name, inside in choices.items() if value(inside))
            for stay, choices in self.inside.items()
        }
        return self._placed(starts, chosen)

    def script(self, times: TimedHops) -> np.ndarray:
        """Hops as lines; every pick and every place names its transition."""
        index = {transition.name: t for t, transition in enumerate(self.net.transitions)}
        source = self.plan.device.station_of("source")
        lines = []
        for w, hops in enumerate(times):
            here = source
            for h, (hop, timed) in enumerate(zip(self.hops[w], hops, strict=True)):
                pick, put = index[f"u_{here}_{hop.robot.name}"], index[f"t_{hop.robot.name}_{timed.to}"]
                lines.append(Line(timed.pick * self.tick, w, transition=pick, step=2 * h))
                lines.append(Line(timed.place * self.tick, w, transition=put, step=2 * h + 1))
                here = timed.to
        return np.array(sorted(lines), np.int32)

    def makespan_of(self, times: TimedHops) -> int:
        """When the last wafer is back."""
        return self.tick * self._last(times)

    def _last(self, times: TimedHops) -> int:
        return max(hops[-1].place + self.hops[w][-1].robot.place for w, hops in enumerate(times))

    def _placed(self, starts: list[list[tuple[int, int]]], chosen: dict[Stay, str]) -> TimedHops:
        """Hops with the chambers they end in: as chosen, else the first one of the pool that is free by then."""
        free_at: dict[str, int] = {}
        to = dict(chosen)
        visits = [(put, w, h) for w, hops in enumerate(starts) for h, (_, put) in enumerate(hops) if (w, h) not in to]
        for put, w, h in sorted(visits):
            names = self.hops[w][h].to
            to[w, h] = next((name for name in names if free_at.get(name, 0) <= put), names[0])
            if h + 1 < len(starts[w]):
                leaves = starts[w][h + 1][0] + self.hops[w][h + 1].robot.pick
                free_at[to[w, h]] = leaves + self._cleaned_for(to[w, h])
        return [[Timed(*times, to[w, h]) for h, times in enumerate(hops)] for w, hops in enumerate(starts)]

    def _cleaned_for(self, chamber: str) -> int:
        """How long a chamber of a pool is cleaned after each wafer."""
        cleaning = self.places[chamber].cleaning
        return 0 if cleaning is None else cleaning.duration

    # A first schedule

    def _first(self, net: Net, tick: int) -> tuple[TimedHops | None, int]:
        """A schedule that a rule finds and its length; None and the horizon if that is shorter."""
        cleaning = any(place.cleaning for place in self.places.values())
        limited = net.rules.wip_limit is not None or intervals_of(net) or cleaning
        starts = self._one_by_one(net, tick) if limited else self._without_waiting(tick)
        found = self._placed(starts, {})
        longest = self._last(found) if net.horizon is None else net.horizon // tick
        return (found, self._last(found)) if self._last(found) <= longest else (None, longest)

    def _without_waiting(self, tick: int) -> list[list[tuple[int, int]]]:
        """Each wafer is released when it can run through unhindered."""
        return [[(pick // tick, put // tick) for pick, put in hops] for hops in insert_without_waiting(self.plan)]

    def _one_by_one(self, net: Net, tick: int) -> list[list[tuple[int, int]]]:
        """Each wafer alone in the tool, released when all is clean and every gate is open."""
        cleaning = max(self._cleaned_for(name) for name in self.places)
        pause = max((cleaning, *(interval // tick for interval in intervals_of(net))))
        starts: list[list[tuple[int, int]]] = []
        clock = 0
        for hops in self.hops:
            starts.append([])
            for hop in hops:
                starts[-1].append((clock, clock + hop.robot.pick + hop.robot.travel))
                clock += hop.robot.hop + hop.stay
            clock += pause
        return starts

    def _hint(self) -> None:
        """Where the search begins."""
        for w, hops in enumerate(self.first or []):
            for h, timed in enumerate(hops):
                self.cp.add_hint(self.picks[w][h], timed.pick)
                self.cp.add_hint(self.puts[w][h], timed.place)
                for name, inside in self.inside.get((w, h), {}).items():
                    self.cp.add_hint(inside, name == timed.to)

    # Robots

    def _share_robots(self) -> None:
        """No robot holds more wafers than it has arms, none too long; it picks or places one at a time."""
        for robot in {hop.robot: None for hops in self.hops for hop in hops}:
            mine = [(w, h) for w, hops in enumerate(self.hops) for h, hop in enumerate(hops) if hop.robot == robot]
            held = [self._hold(w, h, robot) for w, h in mine]
            if self.plan.options.arms == 1:
                self.cp.add_no_overlap(held)
                continue
            self.cp.add_cumulative(held, [1] * len(held), self.plan.options.arms)
            picks = [self.cp.new_fixed_size_interval_var(self.picks[w][h], robot.pick, "") for w, h in mine]
            puts = [self.cp.new_fixed_size_interval_var(self.puts[w][h], robot.place, "") for w, h in mine]
            self.cp.add_no_overlap(picks + puts)

    def _hold(self, w: int, h: int, robot: Robot) -> Any:
        hand = self.places[robot.name]
        most = None if hand.max_stay is None or hand.on_overstay != "fail" else robot.hop + hand.max_stay
        return self.new_interval(self.picks[w][h], self.puts[w][h] + robot.place, robot.hop, most)

    # Chambers

    def _cleaned_when_due(self, name: str, place: Place) -> Place:
        """A chamber, without its cleaning if too few wafers come for it."""
        if place.cleaning is None:
            return place
        if place.capacity != 1:
            raise RedlineError(
                f"{name} cannot be solved exactly: {place.name} is cleaned and has room for {place.capacity}. "
                "Try cleaning=off."
            )
        visits = sum(place.name in hop.to for hops in self.hops for hop in hops)
        return place if visits > place.cleaning.after_wafers else replace(place, cleaning=None)

    def _pool(self, names: tuple[str, ...]) -> Pool:
        chambers = tuple(self.places[name] for name in names)
        ways = {hop.to for hops in self.hops for hop in hops}
        closed = all(set(way) == set(names) for way in ways if set(way) & set(names))
        kinds = {(place.capacity, place.max_stay, place.on_overstay, place.cleaning) for place in chambers}
        one_each = len(chambers) == 1 or chambers[0].capacity == 1
        counted = chambers[0].cleaning is not None and chambers[0].cleaning.after_wafers > 1
        return Pool(chambers, closed and len(kinds) == 1 and one_each and not counted)

    def _share_chambers(self) -> None:
        """No chamber holds more wafers than it has room for, and none too long."""
        visits: dict[tuple[str, ...], list[Visit]] = {}
        for w, hops in enumerate(self.hops):
            for h in range(len(hops) - 1):
                visits.setdefault(hops[h].to, []).append(self._visit(w, h))
        for names, here in visits.items():
            if self.pools[names].alike:
                self._share_pool(self.pools[names], here)
        choosy = [visit for names, here in visits.items() if not self.pools[names].alike for visit in here]
        for visit in choosy:
            self._choose(visit)
        for name in {name: None for visit in choosy for name in self._to(visit.stay)}:
            self._share_chamber(self.places[name], [visit for visit in choosy if name in self._to(visit.stay)])

    def _to(self, stay: Stay) -> tuple[str, ...]:
        return self.hops[stay[0]][stay[1]].to

    def _visit(self, w: int, h: int) -> Visit:
        hop, following = self.hops[w][h], self.hops[w][h + 1]
        start, end = self.puts[w][h], self.picks[w][h + 1] + following.robot.pick
        least = hop.robot.place + hop.stay + following.robot.pick
        limits = [self._limit(place) for place in self.pools[hop.to].chambers]
        most = None if None in limits else least + max(limit for limit in limits if limit is not None)
        return Visit((w, h), start, end, self.new_interval(start, end, least, most))

    @staticmethod
    def _limit(place: Place) -> int | None:
        """How long a finished wafer may stay."""
        return place.max_stay if place.on_overstay == "fail" else None

    def _share_pool(self, pool: Pool, visits: list[Visit]) -> None:
        cleaning = self._cleaned_for(pool.chambers[0].name)
        if pool.slots is None:
            return
        if cleaning:
            visits = [visit._replace(interval=self._lengthened(visit, cleaning)) for visit in visits]
        if pool.slots == 1:
            self.cp.add_no_overlap([visit.interval for visit in visits])
        elif self._in_one_line(visits):
            for visit, later in zip(visits, visits[pool.slots :], strict=False):
                self.cp.add(later.start >= visit.end + cleaning)
        else:
            self.cp.add_cumulative([visit.interval for visit in visits], [1] * len(visits), pool.slots)

    def _lengthened(self, visit: Visit, by: int) -> Any:
        size = visit.interval.size_expr()
        return self.cp.new_interval_var(visit.start, size + by, visit.end + by, "")

    def _in_one_line(self, visits: list[Visit]) -> bool:
        """Whether all come and leave in the order in which they are listed."""
        return all(self._in_order(one.stay, other.stay, 2) for one, other in pairwise(visits))

    def _choose(self, visit: Visit) -> None:
        """A wafer is in exactly one of its chambers, and bound by that one's limit."""
        w, h = visit.stay
        inside = {name: self.cp.new_bool_var("") for name in self._to(visit.stay)}
        self.cp.add_exactly_one(inside.values())
        self.inside[visit.stay] = inside
        ready = visit.start + self.hops[w][h].robot.place + self.hops[w][h].stay
        for name, here in inside.items():
            limit = self._limit(self.places[name])
            if limit is not None:
                self.cp.add(self.picks[w][h + 1] <= ready + limit).only_enforce_if(here)

    def _share_chamber(self, place: Place, visits: list[Visit]) -> None:
        """One chamber among others that are not like it, or one whose visits are counted until it is cleaned."""
        here = [self.inside[visit.stay][place.name] for visit in visits]
        ends = [visit.end for visit in visits]
        if place.cleaning is not None:
            ends = self._clean(place.cleaning, visits, here)
        sizes = [self.cp.new_int_var(1, self.longest + self._cleaned_for(place.name), "") for _ in visits]
        intervals = [
            self.cp.new_optional_interval_var(visit.start, size, end, inside, "")
            for visit, size, end, inside in zip(visits, sizes, ends, here, strict=True)
        ]
        if place.capacity == 1:
            self.cp.add_no_overlap(intervals)
        elif place.capacity is not None:
            self.cp.add_cumulative(intervals, [1] * len(intervals), place.capacity)

    def _clean(self, cleaning: Cleaning, visits: list[Visit], here: list[Any]) -> list[Any]:
        """When a chamber can be used again after each visit: if enough wafers have left it, one cleaning later."""
        ends = []
        for visit, rank in zip(visits, self._ranks(visits, here), strict=True):
            due = self.cp.new_bool_var("")
            rounds = self.cp.new_int_var(0, len(visits), "")
            since = self.cp.new_int_var(0, cleaning.after_wafers - 1, "")
            self.cp.add(rank + 1 == cleaning.after_wafers * rounds + since)
            self.cp.add(since >= 1).only_enforce_if(~due)
            ends.append(self.cp.new_int_var(0, self.longest + cleaning.duration, ""))
            self.cp.add(ends[-1] == visit.end + cleaning.duration * due)
        return ends

    def _ranks(self, visits: list[Visit], here: list[Any]) -> list[Any]:
        """How many visits to a chamber come before each of them."""
        earlier: list[list[Any]] = [[] for _ in visits]
        for one, other in combinations(range(len(visits)), 2):
            for first, second in ((one, other), (other, one)):
                before = self.cp.new_bool_var("")
                self.cp.add_implication(before, here[first])
                self.cp.add_implication(before, here[second])
                self.cp.add(visits[second].start >= visits[first].end).only_enforce_if(before)
                earlier[second].append(before)
            self.cp.add_bool_or(earlier[one][-1], earlier[other][-1], ~here[one], ~here[other])
        return [sum(before) for before in earlier]

    # Order

    def _release(self) -> None:
        """Release gates, and the limit to the work in progress."""
        rules = self.net.rules
        gates = {t.inputs[0][0] for t in self.net.transitions if "release" in t.guards}
        released = [(w, h) for w in range(len(self.hops)) for h in self._hops_from(w, gates)]
        if rules.wip_limit is not None:
            spans = [
                self.new_interval(self.picks[w][h], self.puts[w][-1] + self.hops[w][-1].robot.place)
                for w, h in released
            ]
            self.cp.add_cumulative(spans, [1] * len(spans), rules.wip_limit)
        if rules.release_intervals:
            self._space_out(released, rules.release_intervals)
        for kind, intervals in enumerate(rules.type_intervals):
            self._space_out([(w, h) for w, h in released if self.plan.wafer_types[w] == kind], intervals)

    def _space_out(self, released: list[Stay], intervals: tuple[int, ...]) -> None:
        """Keep the least time between one release and the next."""
        for k, ((w, h), (after, its)) in enumerate(pairwise(released)):
            if not self._in_order((w, h), (after, its), 0):
                raise RedlineError(f"{self.name} cannot be solved exactly: its order of release is open. Try gate=off.")
            pause = intervals[k % len(intervals)] // self.tick
            self.cp.add(self.picks[after][its] >= self.picks[w][h] + pause)

    def _hops_from(self, w: int, stations: set[str]) -> Iterator[int]:
        """The hops of a wafer that begin at one of these stations."""
        here: tuple[str, ...] = (self.plan.device.station_of("source"),)
        for h, hop in enumerate(self.hops[w]):
            if stations & set(here):
                yield h
            here = hop.to

    def _ordered(self, kind: int, other: int) -> int:
        """How many picks and places wafers of two types begin in the order of their numbers.

        They do until their ways part, or until one can overtake the other and that might be of use. From a place with
        room for several they are taken in the order in which they came.
        """
        count = 0
        for mine, its in zip(self.kinds[kind], self.kinds[other], strict=False):
            if mine.robot != its.robot:
                return count
            if mine.to != its.to:
                return count + 1
            count += 2
            pool = self.pools[mine.to]
            queue = len(pool.chambers) == 1 and (pool.slots == 1 or mine.stay == its.stay)
            if not queue and not (kind == other and pool.alike):
                return count
        return count

    def _in_order(self, one: Stay, other: Stay, until: int) -> bool:
        """Whether two wafers make a hop in order: its pick (0), its place (1), and the next pick (2)."""
        (w, h), (v, g) = one, other
        return h == g and self.ordered[self.plan.wafer_types[w], self.plan.wafer_types[v]] > 2 * h + until

    def _keep_order(self) -> None:
        """Wafers leave the source by number, and go on in that order as far as it is kept."""
        wafers = range(len(self.hops))
        lines = [[w for w in wafers if self.plan.wafer_types[w] == kind] for kind in range(len(self.plan.types))]
        for line in (list(wafers), *lines):
            for w, later in pairwise(line):
                for count in range(self.ordered[self.plan.wafer_types[w], self.plan.wafer_types[later]]):
                    h, robot = count // 2, self.hops[w][count // 2].robot
                    if self.plan.options.arms == 1:
                        self.cp.add(self.picks[later][h] >= self.puts[w][h] + robot.place)
                    elif count % 2 == 0:
                        self.cp.add(self.picks[later][h] >= self.picks[w][h] + robot.pick)
                    else:
                        self.cp.add(self.puts[later][h] >= self.puts[w][h] + robot.place)

    def _wait_in_line(self) -> None:
        """Of tokens in one place that the same transition could take, the first to come is the first to leave."""
        everything = [(w, h) for w, hops in enumerate(self.hops) for h in range(len(hops))]
        for robot in {hop.robot: None for hops in self.hops for hop in hops}:
            if self.plan.options.arms > 1:
                self._queue_in_hand([(w, h) for w, h in everything if self.hops[w][h].robot == robot])
        for name, place in self.places.items():
            if place.kind in ("process", "buffer") and place.capacity != 1:
                self._queue_in(name, [(w, h) for w, h in everything if name in self.hops[w][h].to])

    def _queue_in_hand(self, held: list[Stay]) -> None:
        for one, other in self._unordered_pairs(held, 1):
            common = [name for name in self._to(one) if name in self._to(other)]
            if not common:
                continue
            for sooner, (w, h), (v, g) in self._either_way(one, other):
                self.cp.add(self.picks[w][h] < self.picks[v][g]).only_enforce_if(sooner)
                chosen = self.inside.get((v, g))
                for goes in [[chosen[name]] for name in common] if chosen else [[]]:
                    self.cp.add(self.puts[w][h] < self.puts[v][g]).only_enforce_if(sooner, *goes)

    def _queue_in(self, name: str, stays: list[Stay]) -> None:
        for one, other in self._unordered_pairs(stays, 2):
            if self._taken_by(one) != self._taken_by(other):
                continue
            both = [self.inside[each][name] for each in (one, other) if each in self.inside]
            for sooner, (w, h), (v, g) in self._either_way(one, other):
                hop, unready = self.hops[w][h], self.cp.new_bool_var("")
                ready = self.puts[w][h] + hop.robot.place + hop.stay
                leaves, other_leaves = self.picks[w][h + 1], self.picks[v][g + 1]
                self.cp.add(self.puts[w][h] < self.puts[v][g]).only_enforce_if(sooner, *both)
                self.cp.add(other_leaves < ready).only_enforce_if(unready)
                self.cp.add(leaves < other_leaves).only_enforce_if(sooner, ~unready, *both)

    def _unordered_pairs(self, stays: list[Stay], until: int) -> Iterator[tuple[Stay, Stay]]:
        """Pairs of different wafers, but for those that come and leave in order anyway."""
        for one, other in combinations(stays, 2):
            if one[0] != other[0] and not self._in_order(one, other, until):
                yield one, other

    def _either_way(self, one: Stay, other: Stay) -> tuple[tuple[Any, Stay, Stay], ...]:
        """Both orders of two stays, each with the literal that says it is the case."""
        sooner = self.cp.new_bool_var("")
        return (sooner, one, other), (~sooner, other, one)

    def _taken_by(self, stay: Stay) -> Robot:
        return self.hops[stay[0]][stay[1] + 1].robot


def times_of(plan: ToolPlan, net: Net) -> list[int]:
    """Every time that decides when something can happen."""
    robots = [time for robot in plan.device.robots.values() for time in (robot.pick, robot.travel, robot.place)]
    limits = [place.max_stay or 0 for place in net.places]
    cleanings = [place.cleaning.duration for place in net.places if place.cleaning]
    stays = [stage.process_time for stages in plan.types for stage in stages]
    return [*robots, *limits, *cleanings, *stays, *intervals_of(net)]


def intervals_of(net: Net) -> list[int]:
    """All release intervals, of all types."""
    return [*net.rules.release_intervals, *chain(*net.rules.type_intervals)]


def in_ticks(place: Place, tick: int) -> Place:
    """A place whose times are counted in ticks."""
    cleaning = place.cleaning and replace(place.cleaning, duration=place.cleaning.duration // tick)
    return replace(place, max_stay=None if place.max_stay is None else place.max_stay // tick, cleaning=cleaning)


def hops_of(plan: ToolPlan, stages: tuple[Stage, ...], tick: int) -> tuple[Hop, ...]:
    """The hops of a route. Refuses one whose robots depend on which chamber a wafer is in."""
    hops: list[Hop] = []
    here = stages[0].at
    for stage in stages[1:]:
        robots = {robot for name in here if (robot := plan.robot_for(name, stage)) is not None}
        if len(robots) != 1:
            raise RedlineError(
                f"Route {plan.route.name!r} cannot be solved exactly: from {' or '.join(here)} to {' or '.join(stage.at)} "
                f"a wafer is carried by {' or '.join(sorted(robot.name for robot in robots))}. Try stages with one robot."
            )
        (robot,) = robots
        here = tuple(sorted({name for name in stage.at if plan.device.can_load(robot, name)}))
        quick = replace(robot, pick=robot.pick // tick, travel=robot.travel // tick, place=robot.place // tick)
        hops.append(Hop(quick, here, stage.process_time // tick))
    return tuple(hops)
