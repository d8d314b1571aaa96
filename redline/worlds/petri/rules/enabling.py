"""Which transitions can fire now: tokens, room, robots and routes (`able`), and the guards on top (`enabled`)."""

from __future__ import annotations

from redline.compiled.speed import apart, inlined, rule
from redline.worlds.petri.rules.cleans import own_gate_is_open, takes, welcomes, will_be_shut
from redline.worlds.petri.rules.tables import ARM_LOCK, FREE_SLOT, LEAST_USED, LOOKAHEAD, NONE, RELEASE
from redline.worlds.petri.rules.traits import for_nets, has_extras, is_routed


@inlined
def queue_entry(net, state, p, n):
    """When the `n`-th oldest token of a queued place is ready."""
    place = net.places[p]
    return state.notes[place.queue + (state.places[p].queue_first + n) % place.queue_size]


@inlined
def candidate(net, state, t):
    """The token `t` would take: the earliest arrival that is ready and whose route allows `t`; NONE if there is none.

    Where tokens are counted, 0 says that all inputs have enough of them.
    """
    if is_routed(net):
        return first_movable(net, state, t)
    return 0 if has_tokens(net, state, t) else NONE


@for_nets(routed=1)
@inlined
def first_movable(net, state, t):
    """The earliest arrival at the source of `t` that is ready and whose route allows `t`; NONE if there is none."""
    clock = state.env.clock
    k = state.places[net.transitions[t].source].head
    while k >= 0:
        token = state.tokens[k]
        if not token.moving and token.ready <= clock and allows(net, token.row, t):
            return k
        k = token.next
    return NONE


@inlined
def allows(net, row, t):
    """Whether a route's step names transition `t`."""
    for j in range(net.steps[row].first, net.steps[row].last):
        if net.lists[j] == t:
            return True
    return False


@for_nets(routed=0)
@inlined
def has_tokens(net, state, t):
    """Whether every input place has the arc's weight in tokens that are ready and not being moved."""
    transition = net.transitions[t]
    for a in range(transition.in_first, transition.in_last):
        arc = net.arcs[a]
        place = state.places[arc.place]
        if place.marking - place.moving < arc.weight:
            return False
        queued = net.places[arc.place].queue != NONE
        if queued and queue_entry(net, state, arc.place, place.moving + arc.weight - 1) > state.env.clock:
            return False
    return True


@inlined
def has_room(net, state, p, gain):
    """Whether place `p` can take `gain` more tokens: neither full, nor spoken for, nor being cleaned."""
    place = state.places[p]
    return place.marking + place.reserved + gain <= net.places[p].capacity and place.clean_until <= state.env.clock


@inlined
def outputs_have_room(net, state, t):
    """Whether all that `t` puts down finds room."""
    transition = net.transitions[t]
    for a in range(transition.out_first, transition.out_last):
        arc = net.arcs[a]
        if arc.gain > 0 and not has_room(net, state, arc.place, arc.gain):
            return False
    return True


@inlined
def is_at_work(net, state, t):
    """Whether the resource of `t` is in the middle of a firing, or no further firing can be kept."""
    transition = net.transitions[t]
    if transition.resource != NONE and state.resources[transition.resource].until > state.env.clock:
        return True
    return transition.duration > 0 and state.env.underway >= len(state.firings)


@inlined
def movable(net, state, t):
    """The token that `t` can move now, guards aside; NONE if there is none."""
    if is_at_work(net, state, t):
        return NONE
    token = candidate(net, state, t)
    if token == NONE or not outputs_have_room(net, state, t):
        return NONE
    if has_extras(net) and not takes(net, state, t, token):
        return NONE
    return token


@inlined
def able(net, state, t):
    """Whether `t` can fire, guards aside."""
    return movable(net, state, t) != NONE


@inlined
def enabled(net, state, t):
    """Whether `t` may fire now."""
    token = movable(net, state, t)
    if token == NONE:
        return False
    transition = net.transitions[t]
    if transition.guards == 0 and transition.room_at == NONE:
        return True
    return permitted(net, state, t, token)


@apart
def may_fire(net, state, t):
    """The same where it is not asked of many, in one copy."""
    return enabled(net, state, t)


@inlined
def permitted(net, state, t, token):
    """Whether all guards of `t` let it take `token`."""
    transition = net.transitions[t]
    guards = transition.guards
    row = state.tokens[token].row if guards & (LEAST_USED | FREE_SLOT) else NONE
    if guards & LEAST_USED and preferred(net, state, row, transition.source) != t:
        return False
    if guards & RELEASE and not gate_is_open(net, state, token):
        return False
    if guards & FREE_SLOT and preferred(net, state, row + 1, transition.target) == NONE:
        return False
    if guards & LOOKAHEAD and not finds_target(net, state, t, token):
        return False
    if guards & ARM_LOCK and not keeps_an_arm(net, state, t):
        return False
    return transition.room_at == NONE or has_room(net, state, transition.room_at, 1)


@for_nets(extras=1)
@apart
def can_swap(net, state, pick, put):
    """Whether the robot holds what can be put down as soon as `pick`, which may fire, has emptied its place."""
    move = net.transitions[pick]
    place = state.places[move.source]
    static = net.places[move.source]
    if place.marking + place.reserved > static.capacity or place.left + 1 >= static.clean_after:
        return False
    k = state.places[move.target].head
    while k >= 0:
        token = state.tokens[k]
        in_time = not token.moving and token.ready <= state.env.clock + move.duration
        # what the pick leaves behind is kept from all types that the chamber, still occupied, does not welcome
        if in_time and allows(net, token.row, put) and welcomes(net, state, move.source, token.row):
            return True
        k = token.next
    return False


@inlined
def gate_is_open(net, state, token):
    """Whether the release interval is over and the work in progress allows one more."""
    env = state.env
    if has_extras(net) and not own_gate_is_open(net, state, token):
        return False
    return env.clock >= env.gate_opens and in_progress(env) < net.constants.wip_limit


@inlined
def in_progress(env):
    """Tokens between the release gate and the goal."""
    return env.released - env.finished - env.freed


@for_nets(routed=1)
@inlined
def preferred(net, state, row, hand):
    """The load from the robot's place `hand` that a token at `row` is offered: of those with room the least used."""
    best = NONE
    fewest = 0
    for j in range(net.steps[row].first, net.steps[row].last):
        load = net.lists[j]
        if net.transitions[load].source == hand:
            target = net.transitions[load].target
            uses = state.places[target].uses
            if has_extras(net) and not welcomes(net, state, target, row):
                continue
            if (best == NONE or uses < fewest) and has_room(net, state, target, 1):
                best = load
                fewest = uses
    return best


@for_nets(routed=1)
@inlined
def finds_target(net, state, t, token):
    """Look-ahead: whether what `t` picks can be put down again, if need be by a second arm that empties its target."""
    pick = net.transitions[t]
    swaps = net.places[pick.target].capacity > 1
    row = state.tokens[token].row
    lead = pick.duration + net.steps[row].stay if has_extras(net) else 0
    return gets_away(net, state, row + 1, pick.target, pick.resource, pick.source, swaps, lead)


@rule
def gets_away(net, state, row, hand, robot, p, swaps, lead):
    """Whether a token at `row` in the `hand` of `robot`, which is about to pick from `p`, will find room.

    Some target has room, or another robot will empty it (unless they would wait for each other), or, if the robot
    `swaps`, it does so itself. With extras the token is expected at its target after `lead`.
    """
    for j in range(net.steps[row].first, net.steps[row].last):
        load = net.transitions[net.lists[j]]
        if load.source != hand or state.places[load.target].clean_until > state.env.clock:
            continue
        if has_extras(net) and will_be_shut(net, state, load.target, row, lead):
            continue
        if has_room(net, state, load.target, 1):
            return True
        carrier = occupant_carrier(net, state, load.target)
        if carrier == NONE:
            continue
        if net.transitions[carrier].resource == robot:
            if swaps:
                return True
        elif not closes_circle(net, state, net.transitions[carrier].target, robot, p):
            return True
    return False


@inlined
def occupant_carrier(net, state, p):
    """The transition that will take away what stands in `p`, or is just being put there; NONE if there is none."""
    head = state.places[p].head
    if head >= 0:
        return way_out(net, state.tokens[head].row, p)
    for f in range(state.env.underway):
        firing = state.firings[f]
        if net.transitions[firing.transition].target == p:
            return way_out(net, state.tokens[firing.token].row + 1, p)
    return NONE


@inlined
def way_out(net, row, p):
    """The transition that takes a token at `row` out of place `p`."""
    for j in range(net.steps[row].first, net.steps[row].last):
        t = net.lists[j]
        if net.transitions[t].source == p:
            return t
    return NONE


@inlined
def closes_circle(net, state, hand, robot, p):
    """Hand-over lock: whether the robot at `hand` has no free arm and all it holds waits for `robot`.

    Taking the token out of `p` does not make anybody wait for `p`.
    """
    place = state.places[hand]
    if place.marking + place.reserved < net.places[hand].capacity:
        return False
    k = place.head
    while k >= 0:
        token = state.tokens[k]
        if token.moving or not waits_for(net, state, token.row, hand, robot, p):
            return False
        k = token.next
    for f in range(state.env.underway):
        firing = state.firings[f]
        coming = net.transitions[firing.transition].target == hand
        if coming and not waits_for(net, state, state.tokens[firing.token].row + 1, hand, robot, p):
            return False
    return True


@inlined
def waits_for(net, state, row, hand, robot, p):
    """Whether every target of a token at `row` in `hand` is full of what `robot` has to carry away."""
    for j in range(net.steps[row].first, net.steps[row].last):
        load = net.transitions[net.lists[j]]
        if load.source == hand:
            if load.target == p or has_room(net, state, load.target, 1):
                return False
            carrier = occupant_carrier(net, state, load.target)
            if carrier == NONE or net.transitions[carrier].resource != robot:
                return False
    return True


@for_nets(routed=1)
@inlined
def keeps_an_arm(net, state, t):
    """Two-arm lock: if only this robot can make room for what it holds, the next pick must be from that very target."""
    pick = net.transitions[t]
    k = state.places[pick.target].head
    while k >= 0:
        token = state.tokens[k]
        leads_here = leads_to(net, token.row, pick.target, pick.source)
        if not (leads_here or gets_away(net, state, token.row, pick.target, pick.resource, pick.source, False, 0)):
            return False
        k = token.next
    return True


@inlined
def leads_to(net, row, hand, p):
    """Whether place `p` is a target of a token at `row` in `hand`."""
    for j in range(net.steps[row].first, net.steps[row].last):
        load = net.transitions[net.lists[j]]
        if load.source == hand and load.target == p:
            return True
    return False
