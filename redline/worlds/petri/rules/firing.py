"""Firing and waiting: tokens are taken, moved, and put down; the clock goes from event to event."""

from __future__ import annotations

from redline.compiled.numbers import larger, smaller
from redline.compiled.speed import apart, inlined, rule
from redline.worlds.petri.rules.cleans import (
    begin_idle_cleans,
    close_own_gate,
    next_of_extras,
    note_coming,
    note_leaving,
)
from redline.worlds.petri.rules.enabling import able, candidate, may_fire, queue_entry
from redline.worlds.petri.rules.state import (
    DEADLOCKED,
    DONE,
    LIVELOCKED,
    OUT_OF_TIME,
    OVERFLOWED,
    RUNNING,
    SCRAPPED,
)
from redline.worlds.petri.rules.tables import (
    CT_DENSE,
    FAR,
    LOCKSTEP,
    MACHINE,
    NONE,
    PENALTY,
    PROCESS,
    RELEASE,
    ROBOT,
    SERIAL,
)
from redline.worlds.petri.rules.traits import for_nets, has_extras, is_routed, runs_by_itself

MOST_AT_ONCE = 10_000
"""Most uncontrollable firings at one instant; more count as a loop that never ends."""


@rule
def fire(net, state, t):
    """Begin a firing of `t`, which must be able to fire. The clock does not move."""
    env = state.env
    transition = net.transitions[t]
    token = candidate(net, state, t)
    note_start(net, state, t, token)
    take(net, state, t, token)
    if transition.resource != NONE:
        resource = state.resources[transition.resource]
        resource.until = env.clock + transition.duration
        resource.seconds += transition.duration
    if transition.duration == 0:
        finish(net, state, t, token)
        return
    firing = state.firings[env.underway]
    firing.transition = t
    firing.token = token
    firing.ends = env.clock + transition.duration
    env.underway += 1


@inlined
def note_start(net, state, t, token):
    """Keep the books: the log, the release gate, how close to its limit the token was taken."""
    env = state.env
    transition = net.transitions[t]
    if env.fired < len(state.log):
        line = state.log[env.fired]
        line.start = env.clock
        line.end = env.clock + transition.duration
        line.transition = t
        line.token = token
    env.fired += 1
    env.idle = 0
    if transition.guards & RELEASE:
        env.released += 1
        if net.constants.gated:
            env.gate_opens = env.clock + interval(net, env)
        if has_extras(net):
            close_own_gate(net, state, token)
    if is_routed(net):
        static = net.places[transition.source]
        if static.kind != ROBOT and static.deadline != NONE:
            note_margin(env, state.tokens[token].ready + static.deadline - env.clock)


@inlined
def interval(net, env):
    """Least time between the latest release and the next."""
    constants = net.constants
    return net.lists[constants.intervals + (env.released - 1) % constants.num_intervals]


@inlined
def note_margin(env, margin):
    """Count one token that left a place with a residency limit."""
    if env.margins == 0 or margin < env.margin_min:
        env.margin_min = margin
    env.margin_sum += margin
    env.margins += 1


@inlined
def take(net, state, t, token):
    """Inputs become unavailable but stay where they are; room for the outputs is reserved."""
    transition = net.transitions[t]
    if is_routed(net):
        state.tokens[token].moving = 1
    for a in range(transition.in_first, transition.in_last):
        arc = net.arcs[a]
        state.places[arc.place].moving += arc.weight
        if net.places[arc.place].kind == MACHINE:
            state.places[arc.place].seconds += transition.work
    for a in range(transition.out_first, transition.out_last):
        arc = net.arcs[a]
        state.places[arc.place].uses += 1
        if arc.gain > 0:
            state.places[arc.place].reserved += arc.gain
    if has_extras(net):
        note_coming(net, state, t, token)


@rule
def finish(net, state, t, token):
    """End a firing: tokens move, reservations are released."""
    transition = net.transitions[t]
    for a in range(transition.in_first, transition.in_last):
        leave(net, state, net.arcs[a].place, net.arcs[a].weight)
    for a in range(transition.out_first, transition.out_last):
        arc = net.arcs[a]
        if arc.gain > 0:
            state.places[arc.place].reserved -= arc.gain
        arrive(net, state, arc.place, arc.weight)
    if is_routed(net):
        move(net, state, transition.source, transition.target, token)


@for_nets(routed=1)
@inlined
def move(net, state, source, target, token):
    """A token goes from one place to another."""
    unlink(state, source, token)
    hand_over(net, state, target, token)


@inlined
def leave(net, state, p, weight):
    """The oldest `weight` tokens are gone from place `p`, which may be due for cleaning."""
    place = state.places[p]
    static = net.places[p]
    change_marking(net, state, p, -weight)
    place.moving -= weight
    if static.queue != NONE:
        place.queue_first = (place.queue_first + weight) % static.queue_size
    place.left += weight
    if place.left >= static.clean_after:
        place.left = 0
        place.clean_until = state.env.clock + static.clean_duration
    if has_extras(net) and static.notes != NONE:
        note_leaving(net, state, p)


@inlined
def arrive(net, state, p, weight):
    """`weight` new tokens are in place `p`."""
    env = state.env
    place = state.places[p]
    static = net.places[p]
    if static.queue != NONE:
        for n in range(weight):
            cell = (place.queue_first + place.marking + n) % static.queue_size
            state.notes[static.queue + cell] = env.clock + static.min_stay
    change_marking(net, state, p, weight)
    place.entered = env.clock
    if place.marking > FAR:
        env.outcome = OVERFLOWED


@inlined
def change_marking(net, state, p, change):
    """Count tokens, and those among them that the goal wants."""
    env = state.env
    place = state.places[p]
    goal = net.places[p].goal
    before = smaller(place.marking, goal)
    place.marking += change
    arrived = smaller(place.marking, goal) - before
    env.finished += arrived
    env.arrived += arrived


@inlined
def unlink(state, p, k):
    """Take token `k` out of the order of arrival in place `p`."""
    place = state.places[p]
    behind = state.tokens[k].next
    previous = NONE
    other = place.head
    while other != k:
        previous = other
        other = state.tokens[other].next
    if previous == NONE:
        place.head = behind
    else:
        state.tokens[previous].next = behind
    if place.tail == k:
        place.tail = previous


@inlined
def hand_over(net, state, p, k):
    """Token `k` is the latest arrival in place `p`, one step further on its route."""
    env = state.env
    token = state.tokens[k]
    stay = net.steps[token.row].stay
    link(state, p, k)
    token.row += 1
    token.moving = 0
    token.entered = env.clock
    token.ready = env.clock + stay
    if net.places[p].kind == PROCESS:
        state.places[p].seconds += stay


@inlined
def link(state, p, k):
    """Put token `k` last in the order of arrival in place `p`."""
    place = state.places[p]
    token = state.tokens[k]
    token.place = p
    token.next = NONE
    if place.head == NONE:
        place.head = k
    else:
        state.tokens[place.tail].next = k
    place.tail = k


# The clock


@inlined
def next_event(net, state):
    """The next instant at which anything can change; FAR if nothing is under way.

    A token may still be taken at its very deadline, so the deadline is an event and the instant after it another.
    """
    env = state.env
    soonest = FAR
    for f in range(env.underway):
        soonest = smaller(soonest, state.firings[f].ends)
    soonest = smaller(soonest, next_of_tokens(net, state) if is_routed(net) else next_of_queues(net, state))
    constants = net.constants
    for j in range(constants.cleaned, constants.cleaned_end):
        until = state.places[net.lists[j]].clean_until
        if until > env.clock:
            soonest = smaller(soonest, until)
    if env.gate_opens > env.clock:
        soonest = smaller(soonest, env.gate_opens)
    if has_extras(net):
        soonest = smaller(soonest, next_of_extras(net, state))
    return soonest


@for_nets(routed=1)
@inlined
def next_of_tokens(net, state):
    """When a waiting token next becomes ready, is due, or is overdue."""
    clock = state.env.clock
    soonest = FAR
    for k in range(len(state.tokens)):
        token = state.tokens[k]
        if not token.moving:
            soonest = smaller(soonest, next_of_token(clock, token.ready, net.places[token.place].deadline))
    return soonest


@for_nets(routed=0)
@inlined
def next_of_queues(net, state):
    """Likewise where tokens are counted: those of queued places."""
    soonest = FAR
    for j in range(net.constants.queued, net.constants.queued_end):
        soonest = smaller(soonest, next_of_queue(net, state, net.lists[j]))
    return soonest


@inlined
def next_of_token(clock, ready, limit):
    """When a waiting token next becomes ready, is due, or is overdue."""
    if ready > clock:
        return ready
    if limit == NONE:
        return FAR
    if ready + limit > clock:
        return ready + limit
    return clock + 1 if ready + limit == clock else FAR


@inlined
def next_of_queue(net, state, p):
    """When a waiting token of a queued place next becomes ready, is due, or is overdue."""
    clock = state.env.clock
    place = state.places[p]
    if place.moving == place.marking:
        return FAR
    soonest = next_of_token(clock, queue_entry(net, state, p, place.moving), net.places[p].deadline)
    for n in range(place.moving + 1, place.marking):
        ready = queue_entry(net, state, p, n)
        if ready > clock:
            return smaller(soonest, ready)
    return soonest


@rule
def advance(net, state, until):
    """Move the clock to `until`, no further than the next event, and let happen what is due."""
    env = state.env
    limit = net.constants.idle_limit
    until = smaller(until, net.constants.horizon)
    elapsed = until - env.clock
    if is_routed(net) and net.constants.reward == CT_DENSE:
        integrate(net, state, until)
    if is_routed(net) and net.constants.lenient:
        env.late += seconds_late(net, state, until)
    if env.idle < limit and env.idle + elapsed >= limit:
        env.idled = 1
    env.clock = until
    env.idle += elapsed
    env.elapsed += elapsed
    while end_one(net, state):
        pass
    if has_extras(net):
        begin_idle_cleans(net, state)
    if has_extras(net) and net.constants.swaps < net.constants.swaps_end:
        begin_booked(net, state)
    judge(net, state)


@for_nets(routed=1)
@apart
def seconds_late(net, state, until):
    """Seconds up to `until` that tokens spend past their deadlines."""
    late = 0
    for k in range(len(state.tokens)):
        token = state.tokens[k]
        deadline = net.places[token.place].deadline
        if deadline != NONE and not token.moving:
            late += larger(0, until - larger(token.ready + deadline, state.env.clock))
    return late


@for_nets(extras=1)
@apart
def begin_booked(net, state):
    """Fire what robots have booked that are free now; what can no longer be done is dropped."""
    for r in range(len(state.resources)):
        resource = state.resources[r]
        t = resource.booked
        if t != NONE and resource.until <= state.env.clock:
            resource.booked = NONE
            if able(net, state, t):
                fire(net, state, t)


@for_nets(routed=1)
@inlined
def integrate(net, state, until):
    """Seconds up to `until` that tokens spend processing, overstaying and on an arm for too long."""
    env = state.env
    for k in range(len(state.tokens)):
        token = state.tokens[k]
        static = net.places[token.place]
        if static.kind == PROCESS:
            env.processing += larger(0, smaller(token.ready, until) - env.clock)
            env.overstaying += larger(0, until - larger(token.ready, env.clock))
        elif static.kind == ROBOT and static.overstay == PENALTY and static.max_stay != NONE:
            env.holding += larger(0, until - larger(token.ready + static.max_stay, env.clock))


@inlined
def end_one(net, state):
    """End one firing that is due, lowest resource first, then lowest transition. Returns whether there was one."""
    env = state.env
    best = NONE
    for f in range(env.underway):
        if state.firings[f].ends <= env.clock and (best == NONE or goes_before(net, state, f, best)):
            best = f
    if best == NONE:
        return False
    t = state.firings[best].transition
    token = state.firings[best].token
    env.underway -= 1
    for f in range(best, env.underway):
        state.firings[f].transition = state.firings[f + 1].transition
        state.firings[f].token = state.firings[f + 1].token
        state.firings[f].ends = state.firings[f + 1].ends
    finish(net, state, t, token)
    return True


@inlined
def goes_before(net, state, f, other):
    """Whether firing `f` ends before firing `other` of the same instant."""
    mine = state.firings[f].transition
    its = state.firings[other].transition
    my_resource = net.transitions[mine].resource
    its_resource = net.transitions[its].resource
    return my_resource < its_resource or (my_resource == its_resource and mine < its)


@rule
def judge(net, state):
    """Whether the episode is over: everything done, a token overdue, or time up."""
    env = state.env
    if env.outcome != RUNNING:
        return
    if has_extras(net) and net.constants.scrap_place != NONE:
        discard_overdue(net, state)
    note_end(net, state)
    if env.outcome != RUNNING:
        return
    scrapped = overdue(net, state)
    if scrapped != NONE:
        env.scrapped = scrapped
        if not net.constants.lenient:
            env.outcome = SCRAPPED
            return
    if env.clock >= net.constants.horizon:
        env.outcome = OUT_OF_TIME


@inlined
def note_end(net, state):
    """End the episode if everything is done."""
    env = state.env
    if env.outcome == RUNNING and net.constants.goal > 0 and env.finished + env.gone == net.constants.goal:
        env.outcome = DONE if env.scrapped == NONE else SCRAPPED


@inlined
def overdue(net, state):
    """The first token past its deadline; where tokens are counted, its place."""
    return overdue_token(net, state) if is_routed(net) else overdue_queue(net, state)


@for_nets(routed=1)
@inlined
def overdue_token(net, state):
    """The first token past its deadline."""
    clock = state.env.clock
    for k in range(len(state.tokens)):
        token = state.tokens[k]
        deadline = net.places[token.place].deadline
        if deadline != NONE and not token.moving and token.ready + deadline < clock:
            return k
    return NONE


@for_nets(routed=0)
@inlined
def overdue_queue(net, state):
    """The first place whose oldest token is past its deadline."""
    for j in range(net.constants.queued, net.constants.queued_end):
        p = net.lists[j]
        place = state.places[p]
        deadline = net.places[p].deadline
        waiting = deadline != NONE and place.moving < place.marking
        if waiting and queue_entry(net, state, p, place.moving) + deadline < state.env.clock:
            return p
    return NONE


@for_nets(extras=1)
@apart
def discard_overdue(net, state):
    """Put every token past its deadline where scrap goes."""
    scrap = net.constants.scrap_place
    env = state.env
    k = overdue(net, state)
    while k != NONE:
        token = state.tokens[k]
        p = token.place
        state.places[p].moving += 1
        leave(net, state, p, 1)
        unlink(state, p, k)
        arrive(net, state, scrap, 1)
        link(state, scrap, k)
        env.scrapped = k
        env.gone += 1
        env.lost += 1
        env.freed += is_past_gate(net, token.row)
        k = overdue(net, state)


@inlined
def is_past_gate(net, row):
    """Whether no step to come of a token at `row` leads through the release gate."""
    while net.steps[row].first < net.steps[row].last:
        for j in range(net.steps[row].first, net.steps[row].last):
            if net.transitions[net.lists[j]].guards & RELEASE:
                return False
        row += 1
    return True


@inlined
def run_by_itself(net, state):
    """Fire uncontrollable transitions, highest priority first, until none of them can."""
    if runs_by_itself(net):
        fire_all(net, state)


@for_nets(paced=1)
@inlined
def fire_all(net, state):
    """Likewise, of a net that has some."""
    env = state.env
    count = 0
    while env.outcome == RUNNING and fire_one(net, state):
        count += 1
        if count > MOST_AT_ONCE:
            env.outcome = LIVELOCKED


@inlined
def fire_one(net, state):
    """Fire the first uncontrollable transition that may. Returns whether there was one."""
    for j in range(net.constants.own_pace, net.constants.own_pace_end):
        t = net.lists[j]
        if may_fire(net, state, t):
            begin_firing(net, state, t)
            return True
    return False


@inlined
def begin_firing(net, state, t):
    """Fire `t`, and where firings come one after the other let it end. Nothing is overdue while the clock stands still."""
    fire(net, state, t)
    note_end(net, state)
    if has_extras(net) and net.constants.clock == SERIAL:
        end_round(net, state)


@for_nets(extras=1)
@apart
def end_round(net, state):
    """Let time pass until all firings under way have ended, while nothing else begins."""
    env = state.env
    while env.outcome == RUNNING and env.underway > 0:
        advance(net, state, next_event(net, state))


@inlined
def round_is_open(net, state):
    """Whether firings have begun in lockstep that must end before anything else begins."""
    return has_extras(net) and net.constants.clock == LOCKSTEP and state.env.underway > 0


@inlined
def skip(net, state, until):
    """On to the next event, because nothing can fire before it; a net without one is deadlocked."""
    if until == FAR:
        state.env.outcome = DEADLOCKED
    elif round_is_open(net, state):
        end_round(net, state)
    else:
        advance(net, state, until)
