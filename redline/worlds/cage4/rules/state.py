"""The state of CAGE-4: one record per env.

What has no bound in the original (processes, suspicious pids, remembered and used ports, sessions) lives in pools of the
record. An env whose episode outgrows one of them is marked `outgrown`, and says so.
"""

from __future__ import annotations

import functools

import numpy as np

from redline.worlds.cage4.rules.scenario import MOST_GREEN, MOST_HOSTS, MOST_SERVERS, NUM_BLUE, NUM_RED, NUM_ZONES

KNOWN = 64
"""Hosts that a Red agent can know: those of its own zones, at most 48, and the first servers of linked ones."""
NODES, SESSIONS, IDS, USED_PORTS = 1600, 192, 96, 36_000
"""Room for list items, sessions of all Red agents, session ids that one of them knows, and used ports in bytes."""


@functools.cache
def record_type(room: int) -> np.dtype:
    """The record of an env, with so many times the usual room in its pools."""
    number = np.int16 if room == 1 else np.int32
    hosts, red = (MOST_HOSTS,), (NUM_RED,)
    fields: list[tuple] = [
        # the generator
        ("state_high", np.uint64), ("state_low", np.uint64),
        ("increment_high", np.uint64), ("increment_low", np.uint64),
        ("half", np.uint64), ("has_half", np.int64),
        # the episode
        ("score", np.float64),  # sum of rewards since reset
        ("early_score", np.float64),  # the same without the latest reward
        ("clock", np.int32),  # steps since reset
        ("phase", np.int32),
        ("outgrown", np.int32),
        # the network: hosts of a zone stand side by side: router, users, servers
        ("num_hosts", np.int32), ("num_green", np.int32),
        ("zone_network", np.int16, (NUM_ZONES,)),  # its place among those that were left
        ("zone_first", np.int16, (NUM_ZONES + 1,)),
        ("zone_users", np.int16, (NUM_ZONES,)),
        ("zone_servers", np.int16, (NUM_ZONES,)),
        ("host_zone", np.int8, hosts),
        ("host_slot", np.int8, hosts),  # servers 0 to 5, users 6 to 15, routers 16
        ("green_host", np.int16, (MOST_GREEN,)),
        ("served_count", np.int16, (8,)),  # servers that the users of a zone work with in this phase
        ("served", np.int16, (8, 8 * MOST_SERVERS)),
        # services: those of the backup are equally reliable, as they fail together
        ("services", np.int8, hosts),  # bits of real services besides ssh
        ("real_services", np.int8, hosts),  # how many
        ("ot_off", np.int8, hosts),
        ("reliability", np.int8, hosts),
        ("decoys", np.int8, hosts),  # decoy services, in the order in which they were deployed first
        ("decoy_kind", np.int8, (MOST_HOSTS, 4)),
        ("decoy_reliability", np.int8, (MOST_HOSTS, 4)),
        ("decoy_pid", number, (MOST_HOSTS, 4)),  # above the backup's highest pid
        # processes: pids that come and go are counted from the highest of the backup
        ("backup_pid", np.int16, hosts),  # the highest
        ("backup_count", np.int8, hosts),
        ("top", number, hosts),  # the highest pid now
        ("process_first", np.int16, hosts), ("process_last", np.int16, hosts),
        ("suspicious_first", np.int16, hosts), ("suspicious_last", np.int16, hosts),
        ("held", np.int16, hosts),  # sessions of Red
        ("connection", np.int32, (NUM_ZONES,)), ("creation", np.int32, (NUM_ZONES,)),  # events of this step: masks of slots
        # Blue
        ("blocks", np.int16, (NUM_ZONES,)),  # mask of zones in the order of their names
        ("blue_left", np.int8, (NUM_BLUE,)),  # steps until the action under way takes effect, 0 where none is
        ("blue_kind", np.int8, (NUM_BLUE,)), ("blue_target", np.int16, (NUM_BLUE,)),
        ("blue_other", np.int8, (NUM_BLUE,)), ("blue_due", np.int8, (NUM_BLUE,)),
        ("message", np.int16, (NUM_BLUE,)),  # eight bits that each sent in this step
        ("green_choice", np.int8, (MOST_GREEN,)),
        # Red's actions: kind -1 is none
        ("active", np.int8, red),
        ("red_left", np.int8, red), ("red_kind", np.int8, red), ("red_target", np.int16, red),
        ("red_session", np.int32, red),
        ("due_kind", np.int8, red), ("waiting", np.int8, red), ("dropped", np.int8, red),
        ("fresh_id", np.int32, red), ("fresh_host", np.int16, red),  # the session that this step's exploit opened
        ("foreign", np.int32),  # whether a session was opened outside of its agent's zones
        # what Red was told at the end of the latest step
        ("told", np.int8, red), ("told_kind", np.int8, red), ("told_target", np.int16, red),
        ("told_show", np.int8, red), ("told_source", np.int16, red),
        ("received", np.int8, red), ("received_host", np.int16, (NUM_RED, NUM_RED)),
        # Red's mind
        ("had_turn", np.int8, red),
        ("opened", np.int8, red),  # whether a session was opened since its latest turn
        ("changed", np.int8, red),  # whether one was opened, ended or renumbered since it looked after them
        ("doubtful", np.int8, red),  # whether a host may have been lost since its latest turn
        ("known_zones", np.int16, red),
        ("known", np.int16, red),
        ("known_host", np.int16, (NUM_RED, KNOWN)),
        ("known_state", np.int8, (NUM_RED, KNOWN)),
        ("known_name", np.int8, (NUM_RED, KNOWN)),
        ("known_at", np.int8, (NUM_RED, MOST_HOSTS)),  # place in known_host, from 1; 0 if it is not there
        ("num_ids", np.int16, red),
        ("ids", np.int16, (NUM_RED, IDS * room)),
        # Red's sessions: those of an agent stand side by side, in order
        ("session_first", np.int16, (NUM_RED + 1,)),
        ("session_id", np.int16, (SESSIONS * room,)),
        ("session_host", np.int16, (SESSIONS * room,)),
        ("session_root", np.int8, (SESSIONS * room,)),
        ("session_abstract", np.int8, (SESSIONS * room,)),
        ("session_pid", number, (SESSIONS * room,)),
        ("session_ports", np.int16, (SESSIONS * room,)),  # list of hosts and the ports remembered of each
        # list items: processes, suspicious pids, remembered ports
        ("free", np.int32),
        ("value", number, (NODES * room,)),
        ("next", np.int16, (NODES * room,)),
        # ports that each host has used: see rules/used_ports.py
        ("used_end", np.int32),
        ("used_first", np.int32, hosts),
        ("used_width", np.int8, hosts),
        ("used", np.uint8, (USED_PORTS * room,)),
    ]  # fmt: skip
    return np.dtype(fields, align=True)


def new_state(num_envs: int, room: int) -> np.recarray:
    """Records [N], neither seeded nor reset."""
    return np.zeros(num_envs, record_type(room)).view(np.recarray)
