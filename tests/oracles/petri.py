"""The slow, obvious twin of the net kernel: objects, lists and names, written from the rules and not from the kernel.

It reads a `Net` as it was built. Every token is an object, also where the kernel only counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redline.worlds.petri.rules.net import Net, Place, Swap, Transition

FOREVER = 10**12


@dataclass(eq=False)
class Token:
    number: int
    route: int
    step: int = 0
    entered: int = 0
    ready: int = 0
    moving: bool = False
    released: bool = False


@dataclass
class Firing:
    transition: Transition
    ends: int
    tokens: dict[str, list[Token]]


@dataclass
class Oracle:
    net: Net
    now: int = 0
    outcome: str = "running"
    where: dict[str, list[Token]] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    firings: list[Firing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.place = {place.name: place for place in self.net.places}
        self.transition = {transition.name: transition for transition in self.net.transitions}
        self.reset()

    # Episodes

    def reset(self) -> None:
        self.now, self.outcome, self.firings = 0, "running", []
        self.where = {name: [] for name in self.place}
        self.reserved = dict.fromkeys(self.place, 0)
        self.uses = dict.fromkeys(self.place, 0)
        self.left = dict.fromkeys(self.place, 0)
        self.clean_until = dict.fromkeys(self.place, 0)
        self.last_entered = dict.fromkeys(self.place, 0)
        self.work = dict.fromkeys(self.place, 0)
        self.booked: dict[str, Transition] = {}  # robot: what it fires as soon as it is free
        self.emptied = dict.fromkeys(self.place, 0)  # when the latest token left
        self.visitor: dict[str, int] = {}  # place: type of the latest token that was put there
        self.releases: list[tuple[int, int]] = []  # (time, type) of every release
        self.released, self.gate_opens, self.idle, self.steps = 0, 0, 0, 0
        self.was_late = False
        types = iter(self.net.token_types)
        number = 0
        for place in self.net.places:
            for _ in range(place.tokens):
                token = Token(number, next(types) if self.net.routes else 0, ready=place.min_stay)
                self.where[place.name].append(token)
                number += 1
        names = ("time", "processing", "overstay", "hold", "idle", "arrived", "scrap", "late")
        self.account = dict.fromkeys(names, 0)
        self._check_end()
        self._settle()

    def finished(self) -> int:
        return sum(min(len(self.where[name]), count) for name, count in self.net.goal.items())

    def step(self, action: int) -> float:
        assert self.mask()[action]
        self.steps += 1
        if self.outcome == "running":
            self._act(self.net.action_names[action])
            self._settle()
        if self.outcome == "running" and self.net.max_steps is not None and self.steps >= self.net.max_steps:
            self.outcome = "step limit"
        reward = self._reward()
        self.account = dict.fromkeys(self.account, 0)
        return reward

    def _act(self, name: str) -> None:
        if name.startswith("wait"):
            if self.net.rules.clock == "lockstep" and self.firings:
                self._finish_moves()
                return
            length = int(name.split()[1]) if " " in name else FOREVER
            self._pass_time(min(self.next_event(), self.now + length))
            return
        for swap in self.net.swaps:
            if swap.name == name:
                pick = self.transition[swap.first]
                self.booked[pick.resource or ""] = self.transition[swap.second]
                self._start_and_check(pick)
                return
        for transition in self.net.transitions:
            if (transition.action or transition.name) == name and transition.controllable and self.enabled(transition):
                self._start_and_check(transition)
                return

    def _settle(self) -> None:
        while self.outcome == "running":
            self._fire_uncontrollable()
            if self.outcome != "running" or any(self.enabled(t) for t in self.net.transitions if t.controllable):
                return
            event = self.next_event()
            if event == FOREVER:
                self.outcome = "deadlock"
            elif self.net.rules.skip_forced_waits and self.net.rules.clock == "lockstep" and self.firings:
                self._finish_moves()
            elif self.net.rules.skip_forced_waits:
                self._pass_time(event)
            else:
                return

    def _fire_uncontrollable(self) -> None:
        own = sorted((t for t in self.net.transitions if not t.controllable), key=lambda t: -t.priority)
        while self.outcome == "running":
            ready = [t for t in own if self.enabled(t)]
            if not ready:
                return
            self._start_and_check(ready[0])

    def _start_and_check(self, transition: Transition) -> None:
        self._start(transition)
        self._check_end()
        if self.net.rules.clock == "serial":
            self._finish_moves()

    def _finish_moves(self) -> None:
        """Second by second, until no robot is at work."""
        while self.outcome == "running" and self.firings:
            self._pass_time(self.now + 1)

    # What is legal

    def mask(self) -> list[bool]:
        names = self.net.action_names
        if self.outcome != "running":
            return [k == 0 for k in range(len(names))]
        can = {t.action or t.name for t in self.net.transitions if t.controllable and self.enabled(t)}
        can |= {swap.name for swap in self.net.swaps if swap.first in can and self._can_swap(swap)}
        return [self._wait_is_legal(name, bool(can)) if name.startswith("wait") else name in can for name in names]

    def _wait_is_legal(self, name: str, can_fire: bool) -> bool:
        event, rules = self.next_event(), self.net.rules
        if event == FOREVER or (rules.non_delay and can_fire):
            return False
        if rules.clock == "lockstep" and self.firings:
            return name == self.net.action_names[len(self.net.action_names) - len(rules.waits)]
        length = int(name.split()[1]) if " " in name else event - self.now
        return rules.urgent_wait is None or length <= rules.urgent_wait or not self._urgent()

    def _can_swap(self, swap: Swap) -> bool:
        """The robot holds a wafer for the chamber that will have travelled when the chamber is empty and not dirty."""
        pick = self.transition[swap.first]
        [(chamber, _)], [(hand, _)] = pick.inputs, pick.outputs
        place = self.place[chamber]
        if place.cleaning and self.left[chamber] + 1 == place.cleaning.after_wafers:
            return False
        others = len(self.where[chamber]) - 1 + self.reserved[chamber]
        return others < (place.capacity or FOREVER) and any(
            token.ready <= self.now + pick.duration
            and chamber in self._targets(token, 0, hand)
            and (place.change_cleaning is None or self.visitor[chamber] == token.route)
            for token in self.where[hand]
            if not token.moving
        )

    def _urgent(self) -> bool:
        for name, tokens in self.where.items():
            if self.place[name].kind == "robot" and tokens:
                return True
            if self.place[name].kind == "process" and any(not t.moving and t.ready <= self.now for t in tokens):
                return True
        return False

    def enabled(self, transition: Transition) -> bool:
        if transition.resource and any(f.transition.resource == transition.resource for f in self.firings):
            return False
        tokens = self._taken(transition)
        if tokens is None:
            return False
        taken = dict(transition.inputs)
        for name, weight in transition.outputs:
            if weight > taken.get(name, 0) and not self._room(name, weight - taken.get(name, 0)):
                return False
            if any(not self._clean_for(name, token) for each in tokens.values() for token in each):
                return False
        return self._guards(transition)

    def _taken(self, transition: Transition) -> dict[str, list[Token]] | None:
        """The tokens a firing would take, oldest first; None if there are not enough."""
        taken = {}
        for name, weight in transition.inputs:
            fit = [t for t in self.where[name] if not t.moving and t.ready <= self.now and self._may(t, transition)]
            if len(fit) < weight:
                return None
            taken[name] = fit[:weight]
        return taken

    def _options(self, token: Token, ahead: int = 0) -> list[Transition]:
        """The transitions that may move a token now, or `ahead` moves later."""
        route = self.net.routes[token.route]
        step = token.step + ahead
        return [self.transition[name] for name in route[step].transitions] if step < len(route) else []

    def _may(self, token: Token, transition: Transition) -> bool:
        return not self.net.routes or transition in self._options(token)

    def _room(self, name: str, weight: int = 1) -> bool:
        capacity = self.place[name].capacity
        fits = capacity is None or len(self.where[name]) + self.reserved[name] + weight <= capacity
        return fits and self.clean_until[name] <= self.now

    # Cleaning of idle chambers, and between types

    def _is_empty(self, name: str) -> bool:
        return not self.where[name] and self.reserved[name] == 0

    def _change_ends(self, name: str) -> int:
        """When the clean after the latest token of a place is over, FOREVER if that is there still, 0 without one."""
        seconds = self.place[name].change_cleaning
        if seconds is None or name not in self.visitor:
            return 0
        return self.emptied[name] + seconds if self._is_empty(name) else FOREVER

    def _clean_for(self, name: str, token: Token) -> bool:
        return self.visitor.get(name) == token.route or self._change_ends(name) <= self.now

    def _goes_idle(self, name: str) -> int:
        """When a place will be cleaned for idleness, if nothing is put there before."""
        rule = self.place[name].idle_cleaning
        if rule is None or not self._is_empty(name):
            return FOREVER
        return max(self.emptied[name], self.clean_until[name], self._change_ends(name)) + rule.after

    def _shut_at(self, name: str, instant: int) -> bool:
        """Whether a place will be in the middle of a clean for idleness."""
        rule, begins = self.place[name].idle_cleaning, self._goes_idle(name)
        return rule is not None and begins <= instant < begins + rule.duration

    def _clean_idle_places(self) -> None:
        for place in self.net.places:
            if place.idle_cleaning and self._goes_idle(place.name) <= self.now:
                self.clean_until[place.name] = self.now + place.idle_cleaning.duration

    # Guards

    def _gate_opens(self, token: Token | None) -> int:
        """When the next release is due: of anything, or where each type has its own gate, of the token's type."""
        if token is None or not self.net.rules.type_intervals:
            return self.gate_opens
        mine, intervals = self._released_of(token.route), self.net.rules.type_intervals[token.route]
        return mine[-1] + intervals[(len(mine) - 1) % len(intervals)] if mine else 0

    def _released_of(self, kind: int) -> list[int]:
        return [time for time, each in self.releases if each == kind]

    def _guards(self, transition: Transition) -> bool:
        rules, guards = self.net.rules, transition.guards
        if transition.room_at and not self._room(transition.room_at):
            return False
        if "release" in guards:
            wip = self.released - self.finished() - sum(token.released for token in self._scrap())
            first = self._taken(transition)[transition.inputs[0][0]][0] if self.net.routes else None  # type: ignore[index]
            if self.now < self._gate_opens(first) or (rules.wip_limit is not None and wip >= rules.wip_limit):
                return False
        if not guards or not self.net.routes:
            return True
        [(origin, _)], [(target, _)] = transition.inputs, transition.outputs
        [token] = self._taken(transition)[origin]  # type: ignore[index]
        if "least_used" in guards and self._offered(token, origin) is not transition:
            return False
        free = [q for q in self._targets(token, 1, target) if self._room(q) and self._clean_for(q, token)]
        if "free_slot" in guards and not free:
            return False
        arms = self.place[target].capacity or 1
        if "lookahead" in guards and not self._gets_away(token, 1, target, origin, arms > 1):
            return False
        if "arm_lock" in guards:
            for held in self.where[target]:
                stuck = not self._gets_away(held, 0, target, origin, False)
                if stuck and origin not in self._targets(held, 0, target):
                    return False
        return True

    def _targets(self, token: Token, ahead: int, hand: str) -> list[str]:
        """Places a token can be put into from a robot's hand."""
        return [t.outputs[0][0] for t in self._options(token, ahead) if t.inputs[0][0] == hand]

    def _offered(self, token: Token, hand: str) -> Transition | None:
        """Of the places with room the least used, ties to the first listed."""
        loads = [t for t in self._options(token) if t.inputs[0][0] == hand and self._room(t.outputs[0][0])]
        loads = [t for t in loads if self._clean_for(t.outputs[0][0], token)]
        return min(loads, key=lambda t: self.uses[t.outputs[0][0]], default=None)

    def _gets_away(self, token: Token, ahead: int, hand: str, origin: str, swaps: bool) -> bool:
        travel = self.net.routes[token.route][token.step].stay
        arrives = self.now + self._pick_time(origin, hand) + travel if ahead else self.now
        for q in self._targets(token, ahead, hand):
            if self.clean_until[q] > self.now or not self._clean_for(q, token) or self._shut_at(q, arrives):
                continue
            if self._room(q):
                return True
            carrier = self._carrier(q)
            if carrier is None:
                continue
            if carrier == hand:
                if swaps:
                    return True
            elif not self._circle(carrier, hand, origin):
                return True
        return False

    def _pick_time(self, origin: str, hand: str) -> int:
        ways = ((t.inputs[0][0], t.outputs[0][0], t.duration) for t in self.net.transitions)
        return next(duration for source, target, duration in ways if (source, target) == (origin, hand))

    def _carrier(self, name: str) -> str | None:
        """The robot that will take away what stands in a place, or is being put there."""
        if self.where[name]:
            occupant, ahead = self.where[name][0], 0
        else:
            coming = [
                tokens[0] for f in self.firings if f.transition.outputs[0][0] == name for tokens in f.tokens.values()
            ]
            if not coming:
                return None
            occupant, ahead = coming[0], 1
        ways = [t.outputs[0][0] for t in self._options(occupant, ahead) if t.inputs[0][0] == name]
        return ways[0] if ways else None

    def _circle(self, other: str, hand: str, origin: str) -> bool:
        """Whether the other robot is full of wafers that all wait for this one."""
        if len(self.where[other]) + self.reserved[other] < (self.place[other].capacity or FOREVER):
            return False
        held = [(token, 0) for token in self.where[other]]
        coming = [f for f in self.firings if f.transition.outputs[0][0] == other]
        held += [(tokens[0], 1) for f in coming for tokens in f.tokens.values()]
        for token, ahead in held:
            if token.moving and ahead == 0:
                return False
            for q in self._targets(token, ahead, other):
                if q == origin or self._room(q) or self._carrier(q) != hand:
                    return False
        return True

    # What happens

    def _start(self, transition: Transition) -> None:
        taken = self._taken(transition)
        assert taken is not None
        for tokens in taken.values():
            for token in tokens:
                token.moving = True
        for name, _ in transition.inputs:
            if self.place[name].kind == "machine":
                self.work[name] += transition.duration if transition.work is None else transition.work
        given = dict(transition.inputs)
        for name, weight in transition.outputs:
            self.uses[name] += 1
            self.reserved[name] += max(0, weight - given.get(name, 0))
            if self.net.routes:
                [token] = next(iter(taken.values()))
                self.visitor[name] = token.route
        self.idle = 0
        if "release" in transition.guards:
            intervals = self.net.rules.release_intervals
            if intervals:
                self.gate_opens = self.now + intervals[self.released % len(intervals)]
            self.released += 1
            for tokens in taken.values():
                tokens[0].released = True
                self.releases.append((self.now, tokens[0].route))
        firing = Firing(transition, self.now + transition.duration, taken)
        if transition.duration == 0:
            self._end(firing)
        else:
            self.firings.append(firing)

    def _end(self, firing: Firing) -> None:
        transition, before = firing.transition, self.finished()
        for name, tokens in firing.tokens.items():
            for token in tokens:
                self.where[name].remove(token)
            self._count_leaving(self.place[name], len(tokens))
        given = dict(transition.inputs)
        for name, weight in transition.outputs:
            self.reserved[name] -= max(0, weight - given.get(name, 0))
            self.last_entered[name] = self.now
            if self.net.routes:
                [token] = next(iter(firing.tokens.values()))
                stay = self.net.routes[token.route][token.step].stay
                token.step, token.moving, token.entered, token.ready = token.step + 1, False, self.now, self.now + stay
                self.where[name].append(token)
            else:
                stay = self.place[name].min_stay
                self.where[name] += [Token(-1, 0, 0, self.now, self.now + stay) for _ in range(weight)]
        self.account["arrived"] += self.finished() - before

    def _count_leaving(self, place: Place, count: int) -> None:
        self.emptied[place.name] = self.now
        self.left[place.name] += count
        if place.cleaning and self.left[place.name] >= place.cleaning.after_wafers:
            self.left[place.name] = 0
            self.clean_until[place.name] = self.now + place.cleaning.duration

    # Time

    def _deadlines(self) -> list[tuple[int, Token, str]]:
        """(deadline, token, place) of all that must be taken in time."""
        found = []
        for place in self.net.places:
            if place.max_stay is not None and place.on_overstay == "fail":
                found += [(t.ready + place.max_stay, t, place.name) for t in self.where[place.name] if not t.moving]
        return found

    def next_event(self) -> int:
        times = [firing.ends for firing in self.firings]
        times += [token.ready for tokens in self.where.values() for token in tokens if not token.moving]
        times += [*self.clean_until.values(), self.gate_opens]
        times += [time for name in self.place for time in (self._goes_idle(name), self._change_ends(name))]
        times += [
            self._gate_opens(token)
            for tokens in self.where.values()
            for token in tokens
            if self.net.rules.type_intervals
        ]
        times += [deadline for deadline, token, _ in self._deadlines() if token.ready <= self.now]
        times += [self.now + 1 for deadline, token, _ in self._deadlines() if deadline == self.now]
        return min((time for time in times if time > self.now), default=FOREVER)

    def _pass_time(self, until: int) -> None:
        until = until if self.net.horizon is None else min(until, self.net.horizon)
        for second in range(self.now, until):
            self._charge(second)
        length = until - self.now
        stays = [step.stay for route in self.net.routes for step in route]
        limit = max(stays + [t.duration for t in self.net.transitions]) + 30
        if self.idle < limit <= self.idle + length:
            self.account["idle"] += 1
        self.idle += length
        self.account["time"] += length
        self.now = until
        resources = list(self.net.resources)
        order = {t.name: k for k, t in enumerate(self.net.transitions)}
        due = [f for f in self.firings if f.ends <= self.now]
        self.firings = [f for f in self.firings if f.ends > self.now]
        due.sort(
            key=lambda f: (
                resources.index(f.transition.resource) if f.transition.resource else -1,
                order[f.transition.name],
            )
        )
        for firing in due:
            self._end(firing)
        self._clean_idle_places()
        for robot in resources:
            busy = any(firing.transition.resource == robot for firing in self.firings)
            if robot in self.booked and not busy:
                put = self.booked.pop(robot)
                chamber, taken = put.outputs[0][0], self._taken(put)
                [held] = taken[robot] if taken else [None]
                if held is not None and self._room(chamber) and self._clean_for(chamber, held):
                    self._start(put)
        self._check_end()

    def _charge(self, second: int) -> None:
        """One second of what is paid by the second, the obvious way."""
        self.account["late"] += sum(second >= deadline for deadline, _, _ in self._deadlines())
        for name, tokens in self.where.items():
            place = self.place[name]
            for token in tokens:
                if place.kind == "process":
                    self.account["processing" if second < token.ready else "overstay"] += 1
                elif place.kind == "robot" and place.on_overstay == "penalty" and place.max_stay is not None:
                    self.account["hold"] += second >= token.ready + place.max_stay

    def _check_end(self) -> None:
        if self.outcome != "running":
            return
        if self.net.rules.scrap_place:
            self._throw_away()
        if self._scrap() and self.finished() + len(self._scrap()) == sum(self.net.goal.values()):
            self.outcome = "scrap"
        elif self.net.goal and all(len(self.where[name]) >= count for name, count in self.net.goal.items()):
            self.outcome = "scrap" if self.was_late else "done"
        elif not self.net.rules.lenient and self._somebody_is_late():
            self.outcome = "scrap"
        elif self.net.horizon is not None and self.now >= self.net.horizon:
            self.outcome = "time limit"
        self.was_late = self.was_late or self._somebody_is_late()

    def _somebody_is_late(self) -> bool:
        return any(deadline < self.now for deadline, _, _ in self._deadlines())

    def _scrap(self) -> list[Token]:
        return self.where.get(self.net.rules.scrap_place or "", [])

    def _throw_away(self) -> None:
        for deadline, token, name in self._deadlines():
            if deadline < self.now:
                self.where[name].remove(token)
                self._count_leaving(self.place[name], 1)
                self._scrap().append(token)
                self.account["scrap"] += 1

    # What it pays

    def _reward(self) -> float:
        if not self.net.goal:
            return 0.0
        goal, rules = sum(self.net.goal.values()), self.net.rules
        gone = len(self._scrap())
        if rules.lenient:
            return self._timely(goal, gone, self.outcome == "deadlock") - self._lateness()
        return self._timely(
            goal, gone, self.outcome == "deadlock" or (self.outcome == "scrap" and not rules.scrap_place)
        )

    def _lateness(self) -> float:
        scrap, seconds = self.outcome == "scrap", self.account["late"]
        if self.net.rules.reward == "makespan":
            return 2.0 * seconds / (self.net.rules.lower_bound or 1) + (0.03 if scrap else 0.0)
        return 20.0 * seconds + (4000.0 if scrap else 0.0)

    def _timely(self, goal: int, gone: int, failed: bool) -> float:
        rules, account = self.net.rules, self.account
        if rules.reward == "makespan":
            bound = rules.lower_bound or self.net.horizon or 1
            reward = account["arrived"] / goal - account["time"] / bound
            if failed:
                reward -= 2 + 2 * (goal - self.finished() - gone) / goal
            return reward - 4 * account["scrap"] / goal
        reward = (
            -10.0 * account["time"] + 5.0 * account["processing"] - 4.0 * account["overstay"] - 6.0 * account["hold"]
        )
        reward += 500.0 * account["arrived"] - 1000.0 * account["idle"] - 4000.0 * account["scrap"]
        ends = {"done": 3000.0, "time limit": -100.0}
        return reward + (-4000.0 if failed else ends.get(self.outcome, 0.0))
