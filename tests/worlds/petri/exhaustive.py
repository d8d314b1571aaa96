"""Whether a small net can be done sooner, by trying everything that the kernel allows at every instant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from redline.worlds.petri.dispatching import Game
from redline.worlds.petri.rules.net import Net
from redline.worlds.petri.rules.state import OUTCOMES, NetState

TOKEN = ["place", "next", "row", "ready", "moving"]
PLACE = ["marking", "moving", "reserved", "head", "queue_first", "left", "clean_until"]


def can_be_done_before(net: Net, makespan: int, tick: int = 1) -> bool:
    """Whether any episode ends before `makespan` in which all begins at multiples of `tick`.

    Guards are off, but for the release gate. What cannot be done in time any more is not followed up.
    """
    game = Game(_without_advice(net, tick))
    first_rows = game.state.tokens[0].row.copy()
    waiting = [(_copy(game.state), game.mask[0].copy())]
    seen = {_key(game.state)}
    while waiting:
        state, mask = waiting.pop()
        for action in np.flatnonzero(mask):
            _restore(game, state, mask)
            game.step(int(action))
            outcome = OUTCOMES[game.state.envs[0].outcome]
            if outcome == "done" and game.clock < makespan:
                return True
            if outcome == "running" and game.clock + _left(net, game.state, first_rows) < makespan:
                key = _key(game.state)
                if key not in seen:
                    seen.add(key)
                    waiting.append((_copy(game.state), game.mask[0].copy()))
    return False


def _without_advice(net: Net, tick: int) -> Net:
    transitions = tuple(
        replace(each, guards=tuple(guard for guard in each.guards if guard == "release")) for each in net.transitions
    )
    return replace(net, transitions=transitions, rules=replace(net.rules, waits=(tick,), urgent_wait=None))


def _left(net: Net, state: NetState, first_rows: np.ndarray) -> int:
    """Time that is needed at least: by the token with the longest way to go, and by robots for what they have to do."""
    durations = {transition.name: transition.duration for transition in net.transitions}
    longest = work = 0
    for kind, first, token in zip(net.token_types, first_rows, state.tokens[0], strict=True):
        steps = net.routes[kind][token.row - first :]
        firing = sum(durations[step.transitions[0]] for step in steps[1 if token.moving else 0 :])
        longest = max(longest, firing + sum(step.stay for step in steps[:-1]))
        work += firing
    return max(longest, work // max(1, len(net.resources)))


def _copy(state: NetState) -> NetState:
    return NetState(*(each.copy() for each in state))


def _restore(game: Game, state: NetState, mask: np.ndarray) -> None:
    game.mask[0] = mask
    for mine, its in zip(game.state, state, strict=True):
        mine[...] = its


def _key(state: NetState) -> bytes:
    """All that the future depends on."""
    env = state.envs[0]
    counts = np.array([env.clock, env.released, env.finished, max(env.clock, env.gate_opens)])
    busy = np.maximum(state.resources[0]["until"], env.clock)
    firings = np.sort(state.firings[0, : env.underway], order=["transition", "token", "ends"])
    tables = state.tokens[0][TOKEN], state.places[0][PLACE]
    return b"".join(each.tobytes() for each in (counts, busy, firings, state.notes[0], *tables))
