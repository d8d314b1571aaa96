"""Playing a script: lines that say when each token is moved, in place of a policy that decides step by step.

The rules are the kernel's own; only the guards, which advise a policy, are off.
"""

from __future__ import annotations

from typing import NamedTuple

from redline.compiled.numbers import smaller
from redline.compiled.rows import light, one_of
from redline.compiled.speed import inlined, kernel, rule
from redline.worlds.petri.rules.enabling import able, candidate, preferred, way_out
from redline.worlds.petri.rules.firing import advance, fire, judge, next_event, run_by_itself
from redline.worlds.petri.rules.state import RUNNING, EnvState
from redline.worlds.petri.rules.tables import FAR, NONE


class Line(NamedTuple):
    """One line of a script. What is NONE is left open."""

    time: int
    token: int
    transition: int
    step: int
    """Of the token's route, counted from 0."""


LINE = Line(*range(len(Line._fields)))
"""The column of each number in a script."""


@rule
def wait_until(net, state, until):
    """Let time pass up to `until`, or to the end of the episode if that comes first."""
    env = state.env
    while env.outcome == RUNNING and env.clock < until:
        run_by_itself(net, state)
        if env.outcome == RUNNING:
            advance(net, state, smaller(until, next_event(net, state)))


@inlined
def wanted(net, state, token, t):
    """The transition a line of a script means: the one it names, or the token's next on its route."""
    if t != NONE:
        return t
    place = state.tokens[token].place
    row = state.tokens[token].row
    way = preferred(net, state, row, place)
    return way if way != NONE else way_out(net, row, place)


@inlined
def comes_too_soon(net, state, token, step):
    """Whether a line is for a later step of its token's route than the one it is at, because an earlier line is late."""
    return token != NONE and step != NONE and state.tokens[token].row != first_row(net, token) + step


@inlined
def first_row(net, token):
    """Where a token's route begins."""
    return net.lists[net.constants.token_rows + token]


@inlined
def finish_by_itself(net, state):
    """Let time pass until nothing more happens by itself."""
    env = state.env
    while env.outcome == RUNNING:
        run_by_itself(net, state)
        until = next_event(net, state)
        if env.outcome != RUNNING or until == FAR:
            return
        advance(net, state, until)


@kernel
def follow(tables, states, i, script):
    """Play a script int32 [lines, columns], one `Line` after another. Returns the number of lines played.

    Without a transition (NONE) the token's next is meant. A line that cannot be played at its time, or would move
    another token, stops it; one whose token is not there yet is passed over, and its token is moved no more.
    """
    net, state = light(tables), one_of(states, i, EnvState)
    for n in range(script.shape[0]):
        token = script[n, LINE.token]
        wait_until(net, state, script[n, LINE.time])
        run_by_itself(net, state)
        if state.env.outcome != RUNNING or state.env.clock > script[n, LINE.time]:
            return n
        if comes_too_soon(net, state, token, script[n, LINE.step]):
            continue
        t = wanted(net, state, token, script[n, LINE.transition])
        if t == NONE or not able(net, state, t) or (token != NONE and candidate(net, state, t) != token):
            return n
        fire(net, state, t)
        judge(net, state)
    finish_by_itself(net, state)
    return script.shape[0]
