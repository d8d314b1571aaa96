"""Extras of some cluster tools: cleaning of idle chambers, cleaning between types of wafers, a gate for each type.

Nets that do none of it are compiled without these rules. What they need of the past is among the env's notes.
"""

from __future__ import annotations

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
def clear_notes(net, state, i):
    """A new episode: nothing was ever in a chamber, and all gates are open."""
    constants = net.constants[0]
    for j in range(constants.noted, constants.noted_end):
        notes = net.places[net.lists[j]].notes
        for n in range(NUM_NOTES):
            state.notes[i, notes + n] = 0
        state.notes[i, notes + LATEST_KIND] = NONE
    for n in range((constants.type_gates_end - constants.type_gates) // 2 * NUM_GATE_NOTES):
        state.notes[i, constants.gate_notes + n] = 0


# Cleaning


@inlined
def is_empty(place):
    """Whether nothing is in a place nor just being put there."""
    return place.marking + place.reserved == 0


@inlined
def change_ends(net, state, i, p):
    """When the clean after the latest token of `p` is over, which only stands in the way of other types; 0 if none was."""
    notes = net.places[p].notes
    if net.places[p].change_duration == 0 or state.notes[i, notes + LATEST_KIND] == NONE:
        return 0
    return state.notes[i, notes + LEFT_AT] + net.places[p].change_duration


@inlined
def idle_clean_begins(net, state, i, p):
    """When `p` will have stood empty and clean for too long; FAR if something is in it or it does not matter."""
    static = net.places[p]
    place = state.places[i, p]
    if static.idle_after == FAR or not is_empty(place):
        return FAR
    idle_from = max(state.notes[i, static.notes + LEFT_AT], place.clean_until, change_ends(net, state, i, p))
    return idle_from + static.idle_after


@for_nets(extras=1)
@apart
def begin_idle_cleans(net, state, i):
    """Clean what has been idle for too long."""
    clock = state.envs[i].clock
    for j in range(net.constants[0].noted, net.constants[0].noted_end):
        p = net.lists[j]
        if idle_clean_begins(net, state, i, p) <= clock:
            state.places[i, p].clean_until = clock + net.places[p].idle_duration
            state.notes[i, net.places[p].notes + CLEAN_BEGAN] = clock


@for_nets(extras=1)
@apart
def note_leaving(net, state, i, p):
    """A token has just left `p`, and its cleaning may have begun with that."""
    clock = state.envs[i].clock
    notes = net.places[p].notes
    state.notes[i, notes + LEFT_AT] = clock
    if state.places[i, p].left == 0:
        state.notes[i, notes + CLEAN_BEGAN] = clock


@for_nets(extras=1)
@apart
def note_coming(net, state, i, t, token):
    """A token is on its way to the target of `t`, and the latest one there."""
    if net.constants[0].noted < net.constants[0].noted_end and net.places[net.transitions[t].target].notes != NONE:
        kind = net.lists[net.constants[0].token_kinds + token]
        state.notes[i, net.places[net.transitions[t].target].notes + LATEST_KIND] = kind


@for_nets(extras=1)
@apart
def welcomes(net, state, i, p, row):
    """Whether no clean between types keeps a token at `row` out of `p`."""
    static = net.places[p]
    if static.change_duration == 0:
        return True
    latest = state.notes[i, static.notes + LATEST_KIND]
    if latest == NONE or latest == net.steps[row].kind:
        return True
    return is_empty(state.places[i, p]) and change_ends(net, state, i, p) <= state.envs[i].clock


@for_nets(extras=1)
@apart
def takes(net, state, i, t, token):
    """Whether the target of `t` welcomes `token`."""
    if net.constants[0].noted == net.constants[0].noted_end:
        return True
    return welcomes(net, state, i, net.transitions[t].target, state.tokens[i, token].row)


@for_nets(extras=1)
@apart
def will_be_shut(net, state, i, p, row, lead):
    """Whether `p` is kept from a token at `row`, or being cleaned for idleness when the token can be there: in `lead`."""
    if not welcomes(net, state, i, p, row):
        return True
    begins = idle_clean_begins(net, state, i, p)
    arrives = state.envs[i].clock + lead
    return begins <= arrives and arrives < begins + net.places[p].idle_duration


@for_nets(extras=1)
@apart
def next_of_extras(net, state, i):
    """The next instant at which an idle clean begins, a clean between types ends, or a type's own gate opens."""
    clock = state.envs[i].clock
    constants = net.constants[0]
    soonest = FAR
    for j in range(constants.noted, constants.noted_end):
        p = net.lists[j]
        soonest = min(soonest, idle_clean_begins(net, state, i, p))
        if is_empty(state.places[i, p]) and change_ends(net, state, i, p) > clock:
            soonest = min(soonest, change_ends(net, state, i, p))
    for kind in range((constants.type_gates_end - constants.type_gates) // 2):
        opens = gate_note(net, state, i, kind, OPENS)
        if opens > clock:
            soonest = min(soonest, opens)
    return soonest


@inlined
def clean_lasts(net, state, i, p):
    """How long the latest clean of `p` takes in all."""
    static = net.places[p]
    if static.notes == NONE:
        return static.clean_duration
    return state.places[i, p].clean_until - state.notes[i, static.notes + CLEAN_BEGAN]


# A gate for each type


@inlined
def gate_note(net, state, i, kind, what):
    """A note of the gate of a type."""
    return state.notes[i, net.constants[0].gate_notes + kind * NUM_GATE_NOTES + what]


@inlined
def has_type_gates(net):
    """Whether each type has its own release intervals."""
    return net.constants[0].type_gates != NONE


@for_nets(extras=1)
@apart
def own_gate_is_open(net, state, i, token):
    """Whether a token's type may be released again."""
    if not has_type_gates(net):
        return True
    kind = net.lists[net.constants[0].token_kinds + token]
    return state.envs[i].clock >= gate_note(net, state, i, kind, OPENS)


@for_nets(extras=1)
@apart
def close_own_gate(net, state, i, token):
    """A token was released: the next of its type has to wait."""
    if has_type_gates(net):
        kind = net.lists[net.constants[0].token_kinds + token]
        cell = net.constants[0].gate_notes + kind * NUM_GATE_NOTES
        state.notes[i, cell + RELEASED] += 1
        state.notes[i, cell + OPENS] = state.envs[i].clock + own_interval(net, state, i, kind)


@inlined
def own_interval(net, state, i, kind):
    """Least time between the latest release of a type and its next."""
    gate = net.constants[0].type_gates + 2 * kind
    return net.lists[net.lists[gate] + (gate_note(net, state, i, kind, RELEASED) - 1) % net.lists[gate + 1]]
