"""Extras of some cluster tools: cleaning of idle chambers, cleaning between types of wafers, a gate for each type.

Nets that do none of it are compiled without these rules. What they need of the past is among the env's notes.
"""

from __future__ import annotations

from redline.compiled.numbers import larger, smaller
from redline.compiled.speed import apart, inlined
from redline.worlds.petri.rules.tables import (
    CLEAN_BEGAN,
    FAR,
    LATEST_KIND,
    LEFT_AT,
    NONE,
    NUM_GATE_NOTES,
    NUM_NOTES,
    OPENS,
    RELEASED,
)
from redline.worlds.petri.rules.traits import for_nets


@for_nets(extras=1)
@apart
def clear_notes(net, state):
    """A new episode: nothing was ever in a chamber, and all gates are open."""
    constants = net.constants
    for j in range(constants.noted, constants.noted_end):
        notes = net.places[net.lists[j]].notes
        for n in range(NUM_NOTES):
            state.notes[notes + n] = 0
        state.notes[notes + LATEST_KIND] = NONE
    for n in range((constants.type_gates_end - constants.type_gates) // 2 * NUM_GATE_NOTES):
        state.notes[constants.gate_notes + n] = 0


# Cleaning


@inlined
def is_empty(place):
    """Whether nothing is in a place nor just being put there."""
    return place.marking + place.reserved == 0


@inlined
def change_ends(net, state, p):
    """When the clean after the latest token of `p` is over, which only stands in the way of other types; 0 if none was."""
    notes = net.places[p].notes
    if net.places[p].change_duration == 0 or state.notes[notes + LATEST_KIND] == NONE:
        return 0
    return state.notes[notes + LEFT_AT] + net.places[p].change_duration


@inlined
def idle_clean_begins(net, state, p):
    """When `p` will have stood empty and clean for too long; FAR if something is in it or it does not matter."""
    static = net.places[p]
    place = state.places[p]
    if static.idle_after == FAR or not is_empty(place):
        return FAR
    idle_from = larger(state.notes[static.notes + LEFT_AT], larger(place.clean_until, change_ends(net, state, p)))
    return idle_from + static.idle_after


@for_nets(extras=1)
@apart
def begin_idle_cleans(net, state):
    """Clean what has been idle for too long."""
    clock = state.env.clock
    for j in range(net.constants.noted, net.constants.noted_end):
        p = net.lists[j]
        if idle_clean_begins(net, state, p) <= clock:
            state.places[p].clean_until = clock + net.places[p].idle_duration
            state.notes[net.places[p].notes + CLEAN_BEGAN] = clock


@for_nets(extras=1)
@apart
def note_leaving(net, state, p):
    """A token has just left `p`, and its cleaning may have begun with that."""
    clock = state.env.clock
    notes = net.places[p].notes
    state.notes[notes + LEFT_AT] = clock
    if state.places[p].left == 0:
        state.notes[notes + CLEAN_BEGAN] = clock


@for_nets(extras=1)
@apart
def note_coming(net, state, t, token):
    """A token is on its way to the target of `t`, and the latest one there."""
    if net.constants.noted < net.constants.noted_end and net.places[net.transitions[t].target].notes != NONE:
        kind = net.lists[net.constants.token_kinds + token]
        state.notes[net.places[net.transitions[t].target].notes + LATEST_KIND] = kind


@for_nets(extras=1)
@apart
def welcomes(net, state, p, row):
    """Whether no clean between types keeps a token at `row` out of `p`."""
    static = net.places[p]
    if static.change_duration == 0:
        return True
    latest = state.notes[static.notes + LATEST_KIND]
    if latest == NONE or latest == net.steps[row].kind:
        return True
    return is_empty(state.places[p]) and change_ends(net, state, p) <= state.env.clock


@for_nets(extras=1)
@apart
def takes(net, state, t, token):
    """Whether the target of `t` welcomes `token`."""
    if net.constants.noted == net.constants.noted_end:
        return True
    return welcomes(net, state, net.transitions[t].target, state.tokens[token].row)


@for_nets(extras=1)
@apart
def will_be_shut(net, state, p, row, lead):
    """Whether `p` is kept from a token at `row`, or being cleaned for idleness when the token can be there: in `lead`."""
    if not welcomes(net, state, p, row):
        return True
    begins = idle_clean_begins(net, state, p)
    arrives = state.env.clock + lead
    return begins <= arrives and arrives < begins + net.places[p].idle_duration


@for_nets(extras=1)
@apart
def next_of_extras(net, state):
    """The next instant at which an idle clean begins, a clean between types ends, or a type's own gate opens."""
    clock = state.env.clock
    constants = net.constants
    soonest = FAR
    for j in range(constants.noted, constants.noted_end):
        p = net.lists[j]
        soonest = smaller(soonest, idle_clean_begins(net, state, p))
        if is_empty(state.places[p]) and change_ends(net, state, p) > clock:
            soonest = smaller(soonest, change_ends(net, state, p))
    for kind in range((constants.type_gates_end - constants.type_gates) // 2):
        opens = gate_note(net, state, kind, OPENS)
        if opens > clock:
            soonest = smaller(soonest, opens)
    return soonest


@inlined
def clean_lasts(net, state, p):
    """How long the latest clean of `p` takes in all."""
    static = net.places[p]
    if static.notes == NONE:
        return static.clean_duration
    return state.places[p].clean_until - state.notes[static.notes + CLEAN_BEGAN]


# A gate for each type


@inlined
def gate_note(net, state, kind, what):
    """A note of the gate of a type."""
    return state.notes[net.constants.gate_notes + kind * NUM_GATE_NOTES + what]


@inlined
def has_type_gates(net):
    """Whether each type has its own release intervals."""
    return net.constants.type_gates != NONE


@for_nets(extras=1)
@apart
def own_gate_is_open(net, state, token):
    """Whether a token's type may be released again."""
    if not has_type_gates(net):
        return True
    kind = net.lists[net.constants.token_kinds + token]
    return state.env.clock >= gate_note(net, state, kind, OPENS)


@for_nets(extras=1)
@apart
def close_own_gate(net, state, token):
    """A token was released: the next of its type has to wait."""
    if has_type_gates(net):
        kind = net.lists[net.constants.token_kinds + token]
        cell = net.constants.gate_notes + kind * NUM_GATE_NOTES
        state.notes[cell + RELEASED] += 1
        state.notes[cell + OPENS] = state.env.clock + own_interval(net, state, kind)


@inlined
def own_interval(net, state, kind):
    """Least time between the latest release of a type and its next."""
    gate = net.constants.type_gates + 2 * kind
    return net.lists[net.lists[gate] + (gate_note(net, state, kind, RELEASED) - 1) % net.lists[gate + 1]]
