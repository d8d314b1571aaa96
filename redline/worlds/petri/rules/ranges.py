"""The states that a net can be in: the range of each number, and what must stand beside what.

Tokens of nets with identity are kept in lists, one per place, in order of arrival. Rules walk along them and rely on each
token standing in exactly one.
"""

from __future__ import annotations

import numpy as np

from redline.errors import RedlineError
from redline.worlds.petri.rules.state import ENV, OVERFLOWED, PLACE_STATE, RESOURCE_STATE
from redline.worlds.petri.rules.tables import FAR, NONE, NetTables, Sizes
from redline.worlds.ranges import WAY_OUT, Ranges

AMOUNT = (0, 2 * FAR - 1)
SIGNED = (-2 * FAR, 2 * FAR - 1)
"""Margins and lateness may be negative."""
MOST_FIRED = 2**30
"""Firings of an episode: the log is indexed with their number, which must not run over."""


def field_ranges(net: NetTables, sizes: Sizes) -> dict[str, Ranges]:
    """By part of the state and field."""
    token, transition = (NONE, sizes.tokens - 1), (NONE, len(net.transitions) - 1)
    whole = [name for name in ENV.names or () if ENV[name].kind == "i"]
    return {
        "envs": {
            **dict.fromkeys(whole, AMOUNT),
            **dict.fromkeys(("margin_min", "margin_sum"), SIGNED),
            "outcome": (0, OVERFLOWED),
            "fired": (0, MOST_FIRED),
            "underway": (0, sizes.firings),
            "scrapped": (NONE, max(sizes.tokens, sizes.places)),
        },
        "tokens": {
            "place": (0, sizes.places - 1),
            "next": token,
            "row": (0, max(0, len(net.steps) - 1)),
            "entered": AMOUNT,
            "ready": AMOUNT,
            "moving": (0, 1),
        },
        "places": {**dict.fromkeys(PLACE_STATE.names or (), AMOUNT), "head": token, "tail": token},
        "resources": {**dict.fromkeys(RESOURCE_STATE.names or (), AMOUNT), "booked": transition},
        "firings": {
            "transition": SIGNED,
            "token": SIGNED,
            "ends": SIGNED,
        },  # beyond those under way: whatever was there
        "queues": {"": (NONE, 2 * FAR - 1)},
    }


def require_consistent(net: NetTables, arrays: dict[str, np.ndarray]) -> None:
    """Refuse a state in which tokens are not where their lists say, or firings move what they cannot."""
    queue = net.places["queue"] != NONE
    rings = np.where(queue, net.places["queue_size"], 1)
    _require("places.queue_first", (arrays["places"]["queue_first"] < rings) | ~queue)
    _require("places.marking", (arrays["places"]["marking"] <= rings) | ~queue)
    _require("places.moving", arrays["places"]["moving"] <= arrays["places"]["marking"])
    _require_firings(net, arrays)
    if net.traits.routed:
        _require_lists(arrays)


def _require_firings(net: NetTables, arrays: dict[str, np.ndarray]) -> None:
    """Those under way name a transition, and where tokens have identity the one token that it moves."""
    firings, envs = arrays["firings"], arrays["envs"]
    under_way = np.arange(firings.shape[1]) < envs["underway"][:, None]
    transition = np.where(under_way, firings["transition"], 0)
    _require("firings.transition", (transition >= 0) & (transition < len(net.transitions)))
    _require("firings.ends", ~under_way | (firings["ends"] >= envs["clock"][:, None]))
    if net.traits.routed and firings.shape[1]:
        _require_moved(net, arrays, under_way, transition)


def _require_moved(
    net: NetTables, arrays: dict[str, np.ndarray], under_way: np.ndarray, transition: np.ndarray
) -> None:
    tokens, token = arrays["tokens"], np.where(under_way, arrays["firings"]["token"], 0)
    _require("firings.token", (token >= 0) & (token < tokens.shape[1]))
    moved = np.take_along_axis(tokens, token, axis=1)
    _require("firings.token", ~under_way | (moved["moving"] == 1))
    _require("firings.token", ~under_way | (moved["place"] == net.transitions["source"][transition]))
    count = np.zeros(tokens.shape, np.int64)
    np.add.at(count, (np.broadcast_to(np.arange(len(token))[:, None], token.shape)[under_way], token[under_way]), 1)
    _require("tokens.moving", count == tokens["moving"])
    may_move = np.zeros((len(net.steps), len(net.transitions)), np.bool_)
    for row in range(len(net.steps)):
        may_move[row, net.lists[net.steps["first"][row] : net.steps["last"][row]]] = True
    _require("tokens.row", ~under_way | may_move[moved["row"], transition])


def _require_lists(arrays: dict[str, np.ndarray]) -> None:
    """Each token is in the list of its place once, and all lists end."""
    tokens, places = arrays["tokens"], arrays["places"]
    num_envs, num_tokens = tokens.shape
    env = np.arange(num_envs)[:, None]
    met = np.zeros((num_envs, num_tokens + 1), np.int64)  # the last counts those that are none
    at = places["head"].astype(np.int64)
    last = np.full(at.shape, NONE)
    for _ in range(num_tokens + 1):
        np.add.at(met, (np.broadcast_to(env, at.shape), at), 1)
        there = at >= 0
        here = tokens["place"][env, at] == np.arange(places.shape[1])
        _require("tokens.place", ~there | here)
        last = np.where(there, at, last)
        at = np.where(there, tokens["next"][env, at], NONE)
    _require("tokens.next", met[:, :num_tokens] == 1)
    _require("places.tail", places["tail"] == last)


def _require(name: str, holds: np.ndarray) -> None:
    if not holds.all():
        raise RedlineError(f"The saved {name} cannot be: what it says does not fit the rest of the state. {WAY_OUT}")
