"""The states that a CAGE-4 env can be in: the range of each field of its record, and what must stand beside what.

Rules walk along lists, index with hosts and zones, and draw one of so many: all of these must be there. What stands behind
the last host, session or item that is in use is left over from earlier episodes, and only its range is looked at.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from redline.errors import RedlineError
from redline.worlds.cage4.rules.lists import KIND_BITS
from redline.worlds.cage4.rules.mind import BREAK_IN, NO_ACTION, NOTHING, ZONE
from redline.worlds.cage4.rules.scenario import (
    ALLOW,
    APACHE,
    BLOCK,
    BLUE_DURATION,
    BLUE_KINDS,
    CN,
    IN,
    MESSAGE_BITS,
    MONITOR,
    MOST_GREEN,
    MOST_HOSTS,
    MOST_SERVERS,
    MOST_USERS,
    NUM_RED,
    NUM_ZONES,
    RED_DURATION,
    RED_KINDS,
    RED_REACH,
    ROUTER,
    SLEEP,
    STATES,
    SWEEP,
    VSFTPD,
    EnterpriseSettings,
)
from redline.worlds.cage4.rules.used_ports import SHELVES, WIDEST
from redline.worlds.ranges import WAY_OUT, Range, bits

MOST_POINTS = 1e9
FLAGS = (
    "has_half", "foreign", "ot_off", "blue_due", "active", "waiting", "dropped", "had_turn", "opened", "changed",
    "doubtful", "known_name", "session_root", "session_abstract",
)  # fmt: skip
HOSTS = (
    "green_host",
    "served",
    "red_target",
    "told_target",
    "told_source",
    "received_host",
    "known_host",
    "session_host",
)
WORDS = ("state_high", "state_low", "increment_high", "increment_low")
PLACES = ("process_first", "process_last", "suspicious_first", "suspicious_last", "session_ports", "free", "next")


def field_ranges(dtype: np.dtype, settings: EnterpriseSettings) -> dict[str, Range]:
    """By field of the record."""
    room = {name: dtype[name].shape[-1] for name in ("next", "ids", "session_id", "used", "known_host")}
    number = (0, int(np.iinfo(np.int16).max))
    kinds, item = (NO_ACTION, len(RED_KINDS) - 1), (0, settings.highest_pid << KIND_BITS | (1 << KIND_BITS) - 1)
    return {
        **dict.fromkeys(WORDS, bits(64)),
        **dict.fromkeys(FLAGS, (0, 1)),
        **dict.fromkeys(HOSTS, (0, MOST_HOSTS - 1)),
        **dict.fromkeys(PLACES, (0, room["next"])),
        **dict.fromkeys(("top", "decoy_pid", "session_pid"), (0, settings.highest_pid)),
        **dict.fromkeys(("connection", "creation"), bits(ROUTER + 1)),
        **dict.fromkeys(("red_kind", "due_kind", "told_kind"), kinds),
        **dict.fromkeys(("ids", "session_id", "red_session", "fresh_id", "backup_pid"), number),
        **dict.fromkeys(("reliability", "decoy_reliability"), (0, 100)),
        **dict.fromkeys(("score", "early_score"), (-MOST_POINTS, MOST_POINTS)),
        **dict.fromkeys(("blue_target", "fresh_host"), (-1, MOST_HOSTS - 1)),
        **dict.fromkeys(("num_hosts", "zone_first"), (0, MOST_HOSTS)),
        **dict.fromkeys(("host_zone", "blue_other"), (0, NUM_ZONES - 1)),
        **dict.fromkeys(("held",), (0, room["session_id"])),
        "half": bits(32),
        "clock": (0, settings.last_step),
        "phase": (0, 2),
        "outgrown": (0, 0),
        "num_green": (0, MOST_GREEN),
        "zone_network": (0, 255),
        "zone_users": (0, MOST_USERS),
        "zone_servers": (0, MOST_SERVERS),
        "host_slot": (0, ROUTER),
        "served_count": (0, 8 * MOST_SERVERS),
        "services": bits(4),
        "real_services": (0, 5),
        "decoys": (0, 4),
        "decoy_kind": (0, VSFTPD),
        "backup_count": (0, 127),
        "blocks": bits(NUM_ZONES),
        "blue_left": (0, int(BLUE_DURATION.max())),
        "blue_kind": (0, len(BLUE_KINDS) - 1),
        "message": bits(MESSAGE_BITS),
        "green_choice": (0, 2),
        "red_left": (0, int(RED_DURATION.max())),
        "told": (0, 3),
        "told_show": (0, ZONE),
        "received": (0, NUM_RED),
        "known_zones": (1, (1 << IN) - 1),
        "known": (0, room["known_host"]),
        "known_state": (0, len(STATES) - 1),
        "known_at": (0, room["known_host"]),
        "num_ids": (0, room["ids"]),
        "session_first": (0, room["session_id"]),
        "value": item,
        "used_end": (0, room["used"]),
        "used_first": (0, room["used"]),
        "used_width": (0, WIDEST),
        "used": bits(8),
    }


def require_consistent(envs: np.ndarray) -> None:
    """Refuse records whose fields are all in range, but cannot stand beside each other."""
    require_streams(envs["increment_low"])
    _require_network(envs)
    _require_actions(envs)
    _require_sessions(envs)
    _require_minds(envs)
    _require_lists(envs)
    _require_shelves(envs)


def require_streams(increment_low: np.ndarray) -> None:
    """Refuse generators that repeat themselves at once: rules that draw until something fits would never end."""
    _require("increment_low", increment_low & np.uint64(1) == 1)


def _require_network(envs: np.ndarray) -> None:
    """Hosts of a zone stand side by side: router, users, servers; users sit at their own."""
    users, servers = envs["zone_users"].astype(np.int64), envs["zone_servers"].astype(np.int64)
    _require("zone_users", (users[:, IN] == 0) & (users[:, :IN] > 0).all(axis=1))
    _require("zone_servers", (servers[:, IN] == 0) & (servers[:, :IN] > 0).all(axis=1))
    first = np.concatenate([np.zeros((len(envs), 1), np.int64), np.cumsum(1 + users + servers, axis=1)], axis=1)
    _require("zone_first", envs["zone_first"] == first)
    _require("num_hosts", envs["num_hosts"] == first[:, -1])
    host = np.arange(MOST_HOSTS)
    there = host < first[:, -1:]
    zone = np.minimum((host[:, None] >= first[:, None, 1:]).sum(axis=2), IN)
    _require("host_zone", (envs["host_zone"] == zone) | ~there)
    behind = host - np.take_along_axis(first, zone, axis=1)
    own = np.take_along_axis(users, zone, axis=1)
    slot = np.where(behind == 0, ROUTER, np.where(behind <= own, MOST_SERVERS + behind - 1, behind - 1 - own))
    _require("host_slot", (envs["host_slot"] == slot) | ~there)
    _require("num_green", envs["num_green"] == users.sum(axis=1))
    _require_hosts(envs, "green_host", envs["green_host"], np.arange(MOST_GREEN) < envs["num_green"][:, None])
    served = np.arange(envs["served"].shape[-1]) < envs["served_count"][..., None]
    _require_hosts(envs, "served", envs["served"], served)
    _require("ot_off", (envs["ot_off"] <= envs["real_services"]) | ~there)
    _require_decoys(envs, there)


def _require_decoys(envs: np.ndarray, there: np.ndarray) -> None:
    """A host has each kind of decoy once."""
    used = (np.arange(envs["decoy_kind"].shape[-1]) < envs["decoys"][..., None]) & there[..., None]
    kinds = np.where(used, envs["decoy_kind"], -1)
    _require("decoy_kind", ~used | (kinds >= APACHE))
    same = (kinds[..., :, None] == kinds[..., None, :]) & used[..., :, None] & used[..., None, :]
    _require("decoy_kind", same.sum(axis=(2, 3)) == used.sum(axis=2))


def _require_actions(envs: np.ndarray) -> None:
    """Actions under way, and those that Red was told of, are on a zone or a host that is there."""
    left, kind, target = envs["blue_left"] > 0, envs["blue_kind"], envs["blue_target"]
    on_zone = left & ((kind == ALLOW) | (kind == BLOCK))
    _require("blue_target", ~on_zone | ((target >= 0) & (target < NUM_ZONES)))
    on_host = left & ~on_zone & (kind != SLEEP) & (kind != MONITOR)
    _require("blue_target", ~on_host | (target >= 0))
    _require_hosts(envs, "blue_target", np.maximum(target, 0), on_host)
    _require_red_target(envs, "red_target", (envs["red_left"] > 0) & (envs["red_kind"] != NO_ACTION), envs["red_kind"])
    show, told = envs["told_show"], envs["told_kind"]
    asked = (told != NO_ACTION) | (show != NOTHING)
    _require("told_show", ~asked | ((show == ZONE) <= (told == SWEEP)))
    _require("told_show", ~asked | (told != SWEEP) | (show == ZONE) | (show == NOTHING))
    _require_red_target(envs, "told_target", asked, told)
    _require_hosts(envs, "told_source", envs["told_source"], show == BREAK_IN)


def _require_red_target(envs: np.ndarray, name: str, counts: np.ndarray, kind: np.ndarray) -> None:
    swept = counts & (kind == SWEEP)
    _require(name, ~swept | (envs[name] < IN))
    _require_hosts(envs, name, envs[name], counts & ~swept)


def _require_sessions(envs: np.ndarray) -> None:
    """Sessions of an agent stand side by side, on hosts of its own zones. The foothold, which nobody can end, is there."""
    first = envs["session_first"].astype(np.int64)
    _require("session_first", (first[:, 0] == 0) & (np.diff(first, axis=1) >= 0).all(axis=1))
    place = np.arange(envs["session_host"].shape[-1])
    used = place < first[:, -1:]
    _require_hosts(envs, "session_host", envs["session_host"], used)
    agent = np.minimum((place[:, None] >= first[:, None, 1:]).sum(axis=2), NUM_RED - 1)
    zone = np.take_along_axis(envs["host_zone"], envs["session_host"].astype(np.int64), axis=1)
    _require("session_host", ~used | ((RED_REACH[agent] >> zone) & 1 == 1))
    _require("session_host", (used & (zone == CN)).any(axis=1))
    _require("active", envs["active"] == (np.diff(first, axis=1) > 0))
    held = np.zeros((len(envs), MOST_HOSTS), np.int64)
    env = np.broadcast_to(np.arange(len(envs))[:, None], used.shape)
    np.add.at(held, (env[used], envs["session_host"][used]), 1)
    there = np.arange(MOST_HOSTS) < envs["num_hosts"][:, None]
    _require("held", (envs["held"] == held) | ~there)


def _require_minds(envs: np.ndarray) -> None:
    """Each agent finds the hosts it knows, and who acts knows a host of its own zones, or is about to meet one."""
    known = np.arange(envs["known_host"].shape[-1]) < envs["known"][..., None]
    _require_hosts(envs, "known_host", envs["known_host"], known)
    env, agent, place = np.nonzero(known)
    at = np.zeros(envs["known_at"].shape, np.int64)
    np.add.at(at, (env, agent, envs["known_host"][known]), place + 1)
    _require("known_at", envs["known_at"] == at)
    flat = envs["known_host"].reshape(len(envs), -1).astype(np.int64)
    zone = np.take_along_axis(envs["host_zone"], flat, axis=1).reshape(known.shape)
    own = known & ((RED_REACH[:, None] >> zone) & 1 == 1)
    foreign_and_held = len(STATES) - 1
    _require("known_state", ~own | (envs["known_state"] != foreign_and_held))
    _require("known_host", (envs["active"] == 0) | (envs["opened"] == 1) | own.any(axis=2))
    received = np.arange(NUM_RED) < envs["received"][..., None]
    _require_hosts(envs, "received_host", envs["received_host"], received)


def _require_lists(envs: np.ndarray) -> None:
    """No item is in two lists or twice in one, so that all of them end; processes are of a kind that there is."""
    there = np.arange(MOST_HOSTS) < envs["num_hosts"][:, None]
    used = np.arange(envs["session_ports"].shape[-1]) < envs["session_first"][:, -1:]
    for i in range(len(envs)):
        _require_lists_of(envs[i], there[i], used[i])


def _require_lists_of(env: np.void, there: np.ndarray, used: np.ndarray) -> None:
    following, met = env["next"].tolist(), set[int]()
    for name in ("process", "suspicious"):
        last = _walk(following, np.where(there, env[f"{name}_first"], 0).tolist(), met)
        _require(f"{name}_last", (env[f"{name}_last"] == last) | ~there)
        if name == "process":
            kinds = env["value"][np.array(list(met), np.int64) - 1] & ((1 << KIND_BITS) - 1)
            _require("value", kinds <= VSFTPD)
    _walk(following, np.where(used, env["session_ports"], 0).tolist(), met)
    _walk(following, [int(env["free"])], met)


def _walk(following: list[int], first: list[int], met: set[int]) -> list[int]:
    """Follow lists that begin at places `first`, adding all places to those that were `met`. Returns the last of each.

    Item by item, in plain Python: lists are of all lengths, and most envs have a few long ones.
    """
    ends = []
    for place in first:
        last = 0
        while place:
            if place in met:
                _refuse("next")
            met.add(place)
            last, place = place, following[place - 1]
        ends.append(last)
    return ends


def _require_shelves(envs: np.ndarray) -> None:
    """The used ports of hosts stand apart from each other, and no shelf holds more than it is wide."""
    there = np.arange(MOST_HOSTS) < envs["num_hosts"][:, None]
    width = np.where(there, envs["used_width"], 0).astype(np.int64)
    first = np.where(width > 0, envs["used_first"], 0).astype(np.int64)
    end = first + SHELVES * width
    _require("used_first", end <= np.maximum(envs["used_end"][:, None], 0))
    order = np.argsort(np.where(width > 0, first, np.iinfo(np.int64).max), axis=1, kind="stable")
    first_in_order, end_in_order = (np.take_along_axis(each, order, axis=1) for each in (first, end))
    there_in_order = np.take_along_axis(width > 0, order, axis=1)
    _require("used_first", ~there_in_order[:, 1:] | (first_in_order[:, 1:] >= end_in_order[:, :-1]))
    shelf = first[..., None] + np.arange(SHELVES) * width[..., None]
    counts = np.take_along_axis(envs["used"], shelf.reshape(len(envs), -1), axis=1).reshape(shelf.shape)
    _require("used", (counts < width[..., None]) | (width == 0)[..., None])


def _require_hosts(envs: np.ndarray, name: str, hosts: np.ndarray, counts: np.ndarray) -> None:
    """Where it `counts`, a host is one that is there, and not the internet's."""
    last = envs["zone_first"][:, IN].astype(np.int64).reshape(-1, *[1] * (hosts.ndim - 1))
    _require(name, ~counts | (hosts < last))


def _require(name: str, holds: np.ndarray) -> None:
    if not np.all(holds):
        _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise RedlineError(f"The saved {name} cannot be: what it says does not fit the rest of the state. {WAY_OUT}")
