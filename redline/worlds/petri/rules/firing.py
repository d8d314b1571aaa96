"""Firing and waiting: tokens are taken, moved, and put down; the clock goes from event to event."""

from __future__ import annotations

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
    LOG,
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
def fire(net, state, i, t):
    """Begin a firing of `t`, which must be able to fire. The clock does not move."""
    env = state.envs[i]
    transition = net.transitions[t]
    token = candidate(net, state, i, t)
    note_start(net, state, i, t, token)
    take(net, state, i, t, token)
    if transition.resource != NONE:
        resource = state.resources[i, transition.resource]
        resource.until = env.clock + transition.duration
        resource.seconds += transition.duration
    if transition.duration == 0:
        finish(net, state, i, t, token)
        return
    firing = state.firings[i, env.underway]
    firing.transition = t
    firing.token = token
    firing.ends = env.clock + transition.duration
    env.underway += 1


@inlined
def note_start(net, state, i, t, token):
    """Keep the books: the log, the release gate, how close to its limit the token was taken."""
    env = state.envs[i]
    transition = net.transitions[t]
    if env.fired < state.log.shape[1]:
        state.log[i, env.fired, LOG.start] = env.clock
        state.log[i, env.fired, LOG.end] = env.clock + transition.duration
        state.log[i, env.fired, LOG.transition] = t
        state.log[i, env.fired, LOG.token] = token
    env.fired += 1
    env.idle = 0
    if transition.guards & RELEASE:
        env.released += 1
        if net.constants[0].gated:
            env.gate_opens = env.clock + interval(net, env)
        if has_extras(net):
            close_own_gate(net, state, i, token)
    if is_routed(net):
        static = net.places[transition.source]
        if static.kind != ROBOT and static.deadline != NONE:
            note_margin(env, state.tokens[i, token].ready + static.deadline - env.clock)


@inlined
def interval(net, env):
    """Least time between the latest release and the next."""
    constants = net.constants[0]
    return net.lists[constants.intervals + (env.released - 1) % constants.num_intervals]


@inlined
def note_margin(env, margin):
    """Count one token that left a place with a residency limit."""
    if env.margins == 0 or margin < env.margin_min:
        env.margin_min = margin
    env.margin_sum += margin
    env.margins += 1


@inlined
def take(net, state, i, t, token):
    """Inputs become unavailable but stay where they are; room for the outputs is reserved."""
    transition = net.transitions[t]
    if is_routed(net):
        state.tokens[i, token].moving = 1
    for a in range(transition.in_first, transition.in_last):
        arc = net.arcs[a]
        state.places[i, arc.place].moving += arc.weight
        if net.places[arc.place].kind == MACHINE:
            state.places[i, arc.place].seconds += transition.work
    for a in range(transition.out_first, transition.out_last):
        arc = net.arcs[a]
        state.places[i, arc.place].uses += 1
        if arc.gain > 0:
            state.places[i, arc.place].reserved += arc.gain
    if has_extras(net):
        note_coming(net, state, i, t, token)


@rule
def finish(net, state, i, t, token):
    """End a firing: tokens move, reservations are released."""
    transition = net.transitions[t]
    for a in range(transition.in_first, transition.in_last):
        leave(net, state, i, net.arcs[a].place, net.arcs[a].weight)
    for a in range(transition.out_first, transition.out_last):
        arc = net.arcs[a]
        if arc.gain > 0:
            state.places[i, arc.place].reserved -= arc.gain
        arrive(net, state, i, arc.place, arc.weight)
    if is_routed(net):
        move(net, state, i, transition.source, transition.target, token)


@for_nets(routed=1)
@inlined
def move(net, state, i, source, target, token):
    """A token goes from one place to another."""
    unlink(state, i, source, token)
    hand_over(net, state, i, target, token)


@inlined
def leave(net, state, i, p, weight):
    """The oldest `weight` tokens are gone from place `p`, which may be due for cleaning."""
    place = state.places[i, p]
    static = net.places[p]
    change_marking(net, state, i, p, -weight)
    place.moving -= weight
    if static.queue != NONE:
        place.queue_first = (place.queue_first + weight) % static.queue_size
    place.left += weight
    if place.left >= static.clean_after:
        place.left = 0
        place.clean_until = state.envs[i].clock + static.clean_duration
    if has_extras(net) and static.notes != NONE:
        note_leaving(net, state, i, p)


@inlined
def arrive(net, state, i, p, weight):
    """`weight` new tokens are in place `p`."""
    env = state.envs[i]
    place = state.places[i, p]
    static = net.places[p]
    if static.queue != NONE:
        for n in range(weight):
            cell = (place.queue_first + place.marking + n) % static.queue_size
            state.notes[i, static.queue + cell] = env.clock + static.min_stay
    change_marking(net, state, i, p, weight)
    place.entered = env.clock
    if place.marking > FAR:
        env.outcome = OVERFLOWED


@inlined
def change_marking(net, state, i, p, change):
    """Count tokens, and those among them that the goal wants."""
    env = state.envs[i]
    place = state.places[i, p]
    goal = net.places[p].goal
    before = min(place.marking, goal)
    place.marking += change
    arrived = min(place.marking, goal) - before
    env.finished += arrived
    env.arrived += arrived


@inlined
def unlink(state, i, p, k):
    """Take token `k` out of the order of arrival in place `p`."""
    place = state.places[i, p]
    behind = state.tokens[i, k].next
    previous = NONE
    other = place.head
    while other != k:
        previous = other
        other = state.tokens[i, other].next
    if previous == NONE:
        place.head = behind
    else:
        state.tokens[i, previous].next = behind
    if place.tail == k:
        place.tail = previous


@inlined
def hand_over(net, state, i, p, k):
    """Token `k` is the latest arrival in place `p`, one step further on its route."""
    env = state.envs[i]
    token = state.tokens[i, k]
    stay = net.steps[token.row].stay
    link(state, i, p, k)
    token.row += 1
    token.moving = 0
    token.entered = env.clock
    token.ready = env.clock + stay
    if net.places[p].kind == PROCESS:
        state.places[i, p].seconds += stay


@inlined
def link(state, i, p, k):
    """Put token `k` last in the order of arrival in place `p`."""
    place = state.places[i, p]
    token = state.tokens[i, k]
    token.place = p
    token.next = NONE
    if place.head == NONE:
        place.head = k
    else:
        state.tokens[i, place.tail].next = k
    place.tail = k


# The clock


@inlined
def next_event(net, state, i):
    """The next instant at which anything can change; FAR if nothing is under way.

    A token may still be taken at its very deadline, so the deadline is an event and the instant after it another.
    """
    env = state.envs[i]
    soonest = FAR
    for f in range(env.underway):
        soonest = min(soonest, state.firings[i, f].ends)
    soonest = min(soonest, next_of_tokens(net, state, i) if is_routed(net) else next_of_queues(net, state, i))
    constants = net.constants[0]
    for j in range(constants.cleaned, constants.cleaned_end):
        until = state.places[i, net.lists[j]].clean_until
        if until > env.clock:
            soonest = min(soonest, until)
    if env.gate_opens > env.clock:
        soonest = min(soonest, env.gate_opens)
    if has_extras(net):
        soonest = min(soonest, next_of_extras(net, state, i))
    return soonest


@for_nets(routed=1)
@inlined
def next_of_tokens(net, state, i):
    """When a waiting token next becomes ready, is due, or is overdue."""
    clock = state.envs[i].clock
    soonest = FAR
    for k in range(state.tokens.shape[1]):
        token = state.tokens[i, k]
        if not token.moving:
            soonest = min(soonest, next_of_token(clock, token.ready, net.places[token.place].deadline))
    return soonest


@for_nets(routed=0)
@inlined
def next_of_queues(net, state, i):
    """Likewise where tokens are counted: those of queued places."""
    soonest = FAR
    for j in range(net.constants[0].queued, net.constants[0].queued_end):
        soonest = min(soonest, next_of_queue(net, state, i, net.lists[j]))
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
def next_of_queue(net, state, i, p):
    """When a waiting token of a queued place next becomes ready, is due, or is overdue."""
    clock = state.envs[i].clock
    place = state.places[i, p]
    if place.moving == place.marking:
        return FAR
    soonest = next_of_token(clock, queue_entry(net, state, i, p, place.moving), net.places[p].deadline)
    for n in range(place.moving + 1, place.marking):
        ready = queue_entry(net, state, i, p, n)
        if ready > clock:
            return min(soonest, ready)
    return soonest


@rule
def advance(net, state, i, until):
    """Move the clock to `until`, no further than the next event, and let happen what is due."""
    env = state.envs[i]
    limit = net.constants[0].idle_limit
    until = min(until, net.constants[0].horizon)
    elapsed = until - env.clock
    if is_routed(net) and net.constants[0].reward == CT_DENSE:
        integrate(net, state, i, until)
    if is_routed(net) and net.constants[0].lenient:
        env.late += seconds_late(net, state, i, until)
    if env.idle < limit and env.idle + elapsed >= limit:
        env.idled = 1
    env.clock = until
    env.idle += elapsed
    env.elapsed += elapsed
    while end_one(net, state, i):
        pass
    if has_extras(net):
        begin_idle_cleans(net, state, i)
    if has_extras(net) and net.constants[0].swaps < net.constants[0].swaps_end:
        begin_booked(net, state, i)
    judge(net, state, i)


@for_nets(routed=1)
@apart
def seconds_late(net, state, i, until):
    """Seconds up to `until` that tokens spend past their deadlines."""
    late = 0
    for k in range(state.tokens.shape[1]):
        token = state.tokens[i, k]
        deadline = net.places[token.place].deadline
        if deadline != NONE and not token.moving:
            late += max(0, until - max(token.ready + deadline, state.envs[i].clock))
    return late


@for_nets(extras=1)
@apart
def begin_booked(net, state, i):
    """Fire what robots have booked that are free now; what can no longer be done is dropped."""
    for r in range(state.resources.shape[1]):
        resource = state.resources[i, r]
        t = resource.booked
        if t != NONE and resource.until <= state.envs[i].clock:
            resource.booked = NONE
            if able(net, state, i, t):
                fire(net, state, i, t)


@for_nets(routed=1)
@inlined
def integrate(net, state, i, until):
    """Seconds up to `until` that tokens spend processing, overstaying and on an arm for too long."""
    env = state.envs[i]
    for k in range(state.tokens.shape[1]):
        token = state.tokens[i, k]
        static = net.places[token.place]
        if static.kind == PROCESS:
            env.processing += max(0, min(token.ready, until) - env.clock)
            env.overstaying += max(0, until - max(token.ready, env.clock))
        elif static.kind == ROBOT and static.overstay == PENALTY and static.max_stay != NONE:
            env.holding += max(0, until - max(token.ready + static.max_stay, env.clock))


@inlined
def end_one(net, state, i):
    """End one firing that is due, lowest resource first, then lowest transition. Returns whether there was one."""
    env = state.envs[i]
    best = NONE
    for f in range(env.underway):
        if state.firings[i, f].ends <= env.clock and (best == NONE or goes_before(net, state, i, f, best)):
            best = f
    if best == NONE:
        return False
    t = state.firings[i, best].transition
    token = state.firings[i, best].token
    env.underway -= 1
    for f in range(best, env.underway):
        state.firings[i, f].transition = state.firings[i, f + 1].transition
        state.firings[i, f].token = state.firings[i, f + 1].token
        state.firings[i, f].ends = state.firings[i, f + 1].ends
    finish(net, state, i, t, token)
    return True


@inlined
def goes_before(net, state, i, f, other):
    """Whether firing `f` ends before firing `other` of the same instant."""
    mine = state.firings[i, f].transition
    its = state.firings[i, other].transition
    my_resource = net.transitions[mine].resource
    its_resource = net.transitions[its].resource
    return my_resource < its_resource or (my_resource == its_resource and mine < its)


@rule
def judge(net, state, i):
    """Whether the episode is over: everything done, a token overdue, or time up."""
    env = state.envs[i]
    if env.outcome != RUNNING:
        return
    if has_extras(net) and net.constants[0].scrap_place != NONE:
        discard_overdue(net, state, i)
    note_end(net, state, i)
    if env.outcome != RUNNING:
        return
    scrapped = overdue(net, state, i)
    if scrapped != NONE:
        env.scrapped = scrapped
        if not net.constants[0].lenient:
            env.outcome = SCRAPPED
            return
    if env.clock >= net.constants[0].horizon:
        env.outcome = OUT_OF_TIME


@inlined
def note_end(net, state, i):
    """End the episode if everything is done."""
    env = state.envs[i]
    if env.outcome == RUNNING and net.constants[0].goal > 0 and env.finished + env.gone == net.constants[0].goal:
        env.outcome = DONE if env.scrapped == NONE else SCRAPPED


@inlined
def overdue(net, state, i):
    """The first token past its deadline; where tokens are counted, its place."""
    return overdue_token(net, state, i) if is_routed(net) else overdue_queue(net, state, i)


@for_nets(routed=1)
@inlined
def overdue_token(net, state, i):
    """The first token past its deadline."""
    clock = state.envs[i].clock
    for k in range(state.tokens.shape[1]):
        token = state.tokens[i, k]
        deadline = net.places[token.place].deadline
        if deadline != NONE and not token.moving and token.ready + deadline < clock:
            return k
    return NONE


@for_nets(routed=0)
@inlined
def overdue_queue(net, state, i):
    """The first place whose oldest token is past its deadline."""
    for j in range(net.constants[0].queued, net.constants[0].queued_end):
        p = net.lists[j]
        place = state.places[i, p]
        deadline = net.places[p].deadline
        waiting = deadline != NONE and place.moving < place.marking
        if waiting and queue_entry(net, state, i, p, place.moving) + deadline < state.envs[i].clock:
            return p
    return NONE


@for_nets(extras=1)
@apart
def discard_overdue(net, state, i):
    """Put every token past its deadline where scrap goes."""
    scrap = net.constants[0].scrap_place
    env = state.envs[i]
    k = overdue(net, state, i)
    while k != NONE:
        token = state.tokens[i, k]
        p = token.place
        state.places[i, p].moving += 1
        leave(net, state, i, p, 1)
        unlink(state, i, p, k)
        arrive(net, state, i, scrap, 1)
        link(state, i, scrap, k)
        env.scrapped = k
        env.gone += 1
        env.lost += 1
        env.freed += is_past_gate(net, token.row)
        k = overdue(net, state, i)


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
def run_by_itself(net, state, i):
    """Fire uncontrollable transitions, highest priority first, until none of them can."""
    if runs_by_itself(net):
        fire_all(net, state, i)


@for_nets(paced=1)
@inlined
def fire_all(net, state, i):
    """Likewise, of a net that has some."""
    env = state.envs[i]
    count = 0
    while env.outcome == RUNNING and fire_one(net, state, i):
        count += 1
        if count > MOST_AT_ONCE:
            env.outcome = LIVELOCKED


@inlined
def fire_one(net, state, i):
    """Fire the first uncontrollable transition that may. Returns whether there was one."""
    for j in range(net.constants[0].own_pace, net.constants[0].own_pace_end):
        t = net.lists[j]
        if may_fire(net, state, i, t):
            begin_firing(net, state, i, t)
            return True
    return False


@inlined
def begin_firing(net, state, i, t):
    """Fire `t`, and where firings come one after the other let it end. Nothing is overdue while the clock stands still."""
    fire(net, state, i, t)
    note_end(net, state, i)
    if has_extras(net) and net.constants[0].clock == SERIAL:
        end_round(net, state, i)


@for_nets(extras=1)
@apart
def end_round(net, state, i):
    """Let time pass until all firings under way have ended, while nothing else begins."""
    env = state.envs[i]
    while env.outcome == RUNNING and env.underway > 0:
        advance(net, state, i, next_event(net, state, i))


@inlined
def round_is_open(net, state, i):
    """Whether firings have begun in lockstep that must end before anything else begins."""
    return has_extras(net) and net.constants[0].clock == LOCKSTEP and state.envs[i].underway > 0


@inlined
def skip(net, state, i):
    """On to the next event, because nothing can fire before it; a net without one is deadlocked."""
    until = next_event(net, state, i)
    if until == FAR:
        state.envs[i].outcome = DEADLOCKED
    elif round_is_open(net, state, i):
        end_round(net, state, i)
    else:
        advance(net, state, i, until)
