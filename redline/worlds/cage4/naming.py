"""Names of hosts and labels of actions, as the original has them."""

from __future__ import annotations

import numpy as np

from redline.worlds.cage4.rules.scenario import (
    ALLOW,
    BLOCK,
    BLUE_KINDS,
    BLUE_TABLE,
    IN,
    MONITOR,
    MOST_SERVERS,
    NUM_ACTIONS,
    ROUTER,
    SLEEP,
    ZONES,
)


def host_name(zone: int, slot: int) -> str:
    """The name of the host in a slot of a zone."""
    if slot == ROUTER:
        return "root_internet_host_0" if zone == IN else f"{ZONES[zone]}_router"
    kind, number = ("server", slot) if slot < MOST_SERVERS else ("user", slot - MOST_SERVERS)
    return f"{ZONES[zone]}_{kind}_host_{number}"


def host_names(env: np.record) -> list[str]:
    """The names of an env's hosts, in order."""
    return [host_name(int(env.host_zone[h]), int(env.host_slot[h])) for h in range(env.num_hosts)]


def networks(env: np.record) -> list[str]:
    """The addresses of an env's zones."""
    left = list(range(256))
    return [f"10.0.{left.pop(int(place))}.0/24" for place in env.zone_network]


def full_labels(env: np.record, mask: np.ndarray, b: int) -> list[str]:
    """The labels of all actions of an agent as the original has them: with addresses, and marks where a host is missing."""
    addresses = networks(env)
    return [_full_label(b, action, bool(mask[b, action]), addresses) for action in range(NUM_ACTIONS[b])]


def _full_label(b: int, action: int, allowed: bool, addresses: list[str]) -> str:
    kind, zone, other = (int(part) for part in BLUE_TABLE[b, action])
    if kind in (ALLOW, BLOCK):
        return f"{BLUE_KINDS[kind]} {ZONES[zone]} ({addresses[zone]}) <- {ZONES[other]} ({addresses[other]})"
    label = action_label(b, action)
    return label if allowed else f"[Invalid] {label}"


def action_label(b: int, action: int) -> str:
    """The label of an action of an agent, without the addresses of networks and whether the host is there."""
    if action >= NUM_ACTIONS[b]:
        return "[Padding] Sleep"
    kind, zone, target = (int(part) for part in BLUE_TABLE[b, action])
    if kind in (SLEEP, MONITOR):
        return BLUE_KINDS[kind]
    if kind in (ALLOW, BLOCK):
        return f"{BLUE_KINDS[kind]} {ZONES[zone]} <- {ZONES[target]}"
    return f"{BLUE_KINDS[kind]} {host_name(zone, target)}"
