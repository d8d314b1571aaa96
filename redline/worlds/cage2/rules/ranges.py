"""The states that a CAGE-2 env can be in: the range of each field of its record, and what must stand beside what."""

from __future__ import annotations

import numpy as np

from redline.errors import RedlineError
from redline.worlds.cage2.rules.obedience import MOST_FIXES
from redline.worlds.cage2.rules.observe import SCAN_HOSTS, TABLE_SIZE
from redline.worlds.cage2.rules.red import ATTACK, FIRST_SCAN, INEFFECTIVE
from redline.worlds.cage2.rules.remembered import OLDEST
from redline.worlds.cage2.rules.scenario import (
    B_LINE,
    FAVOURITE,
    IMPACT,
    NUM_ACTIONS,
    NUM_DECOYS,
    NUM_HOSTS,
    RED_AGENTS,
    RED_PORTS,
    SUBNET_MEMBERS,
    USER_TARGETS,
)
from redline.worlds.ranges import WAY_OUT, Range, bits

MOST = 2**31 - 1
HOSTS = (
    "seen", "unseen", "root", "malware", "dead_mail", "known_hosts", "known_names", "scanned", "exploited", "escalated",
    "mapped", "was_scanned", "was_restored", "entered_unseen",
)  # fmt: skip
"""Masks with a bit per host."""
A_HOST = (
    "target",
    "last_exploited",
    "last_escalated",
    "red_target",
    "green_host",
    "script_host",
    "script_green_host",
    "event_host",
)
"""A host, or -1."""
FLAGS = (
    "knows_ot", "scan_empty", "scripted", "green_kind", "impossible", "event_attack", "event_again", "event_before",
)  # fmt: skip
SIGNS = (
    "red_top", "red_detected", "script_top", "script_detected", "script_green_kind",
)  # fmt: skip
"""-1 for nothing, 0 or 1."""


def field_ranges(last_clock: int) -> dict[str, Range]:
    """By field of the record, where no episode under way is past `last_clock`."""
    subnets, others = len(SUBNET_MEMBERS), 8
    return {
        **dict.fromkeys(HOSTS, bits(NUM_HOSTS)),
        **dict.fromkeys(A_HOST, (-1, NUM_HOSTS - 1)),
        **dict.fromkeys(FLAGS, (0, 1)),
        **dict.fromkeys(SIGNS, (-1, 1)),
        **dict.fromkeys(("table", "activity"), bits(TABLE_SIZE)),
        **dict.fromkeys(("known_subnets", "swept"), bits(subnets)),
        **dict.fromkeys(("fixes", "complied", "last_fixes", "last_complied"), (0, MOST_FIXES)),
        **dict.fromkeys(("red_exploit", "red_other", "script_other"), (-1, others - 1)),
        **dict.fromkeys(("blue_success", "red_success"), (-1, 3)),
        "clock": (0, last_clock),
        "lost": (0, MOST),
        "decoys": bits(NUM_DECOYS),
        "known_decoys": (0, NUM_DECOYS),
        "event_age": (0, OLDEST),
        "ports": (0, RED_PORTS),
        "ot": (0, 2),
        "red_agent": (0, len(RED_AGENTS) - 1),
        "stage": (0, len(ATTACK) - 1),
        "issued": bits(len(ATTACK)),
        "red_kind": (0, IMPACT),
        "red_outcome": (-1, INEFFECTIVE),
        "red_escalation": (-1, 2),
        "last_action": (-1, NUM_ACTIONS - 1),
        "scans_noticed": bits(len(SCAN_HOSTS)),
        "latest_scan": (-1, len(SCAN_HOSTS) - 1),
    }


def require_possible_red(records: np.ndarray) -> None:
    """Refuse a B_line that is past its first scan without one of the hosts it draws from, and ports that no exploit fits."""
    target = records["target"].astype(np.int64)
    drawn = (target >= 0) & (USER_TARGETS >> np.maximum(target, 0) & 1 != 0)
    needed = (records["red_agent"] == B_LINE) & (records["stage"] >= FIRST_SCAN)
    if (needed & ~drawn).any() or ((target >= 0) & ~drawn).any():
        raise RedlineError(f"The saved records.target is no host that Red draws. {WAY_OUT}")
    if ((records["ports"] != 0) & (FAVOURITE[records["ports"]] < 0)).any():
        raise RedlineError(f"The saved records.ports are such as no host has. {WAY_OUT}")
