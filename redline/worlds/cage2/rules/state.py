"""The state of CAGE-2: one record per env.

A record keeps everything one env needs side by side in memory, and a rule that gets a record gets a single pointer.
Masks have a bit per host. `scripted` envs take their random choices from `script_*` instead of drawing them: that is how
recorded episodes are replayed by the very same rules.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.rng import seed_streams
from redline.worlds.cage2.rules.scenario import NUM_HOSTS

_FIELDS: list[tuple] = [
    ("rng", np.uint64),
    ("table", np.int64),  # Blue's compromised column, at its place in the packed observation
    ("activity", np.int64),  # Blue's activity column of the latest step, likewise
    ("clock", np.int32),  # steps since reset
    ("lost", np.int32),  # tenths of a point lost since reset
    # the network
    ("seen", np.int16),  # hosts with an unprivileged Red session that Monitor reported, so that Remove finds it
    ("unseen", np.int16),  # hosts with an unprivileged Red session that Remove cannot find
    ("root", np.int16),  # hosts with a privileged Red session
    ("malware", np.int16),  # hosts where Analyse finds something
    ("dead_mail", np.int16),  # leaderboard rules: hosts whose restored mail server cannot be exploited
    ("decoys", np.int16, (NUM_HOSTS,)),  # bit per decoy
    ("ot", np.int8),  # OT service: 0 running, 1 stopped, 2 running and unstoppable
    # Red's knowledge
    ("ports", np.int16, (NUM_HOSTS,)),  # ports Red remembers of each host; 0 before the first scan
    ("known_hosts", np.int16),  # hosts whose address Red knows
    ("known_names", np.int16),  # hosts Red once held
    ("known_subnets", np.int8),
    ("knows_ot", np.int8),
    # Red's mind
    ("red_agent", np.int8),
    ("stage", np.int8),  # B_line
    ("target", np.int8),
    ("issued", np.int16),  # stages B_line has issued
    ("scan_empty", np.int8),
    ("scanned", np.int16),  # Meander
    ("exploited", np.int16),
    ("escalated", np.int16),
    ("mapped", np.int16),
    ("swept", np.int8),
    ("last_exploited", np.int8),  # the host its latest action exploited, -1 if it was another action
    ("last_escalated", np.int8),  # the host its latest action escalated or took impact on, likewise
    # what happened in the latest step
    ("blue_success", np.int8),
    ("red_kind", np.int8),
    ("red_target", np.int8),
    ("red_success", np.int8),
    ("red_exploit", np.int8),
    ("red_other", np.int8),
    ("red_top", np.int8),
    ("red_outcome", np.int8),
    ("red_detected", np.int8),
    ("red_escalation", np.int8),
    ("green_kind", np.int8),
    ("green_host", np.int8),
    # what Blue remembers
    ("last_action", np.int16),
    ("scans_noticed", np.int16),
    ("latest_scan", np.int8),
    # obedience to a workflow: this episode, and the one before it
    ("aligned", np.float64),  # alignment reward so far
    ("fixes", np.int16),
    ("complied", np.int16),  # fixes that obeyed
    ("last_aligned", np.float64),
    ("last_fixes", np.int16),
    ("last_complied", np.int16),
    # recorded choices
    ("scripted", np.int8),
    ("script_host", np.int8),
    ("script_other", np.int8),
    ("script_top", np.int8),
    ("script_detected", np.int8),
    ("script_green_kind", np.int8),
    ("script_green_host", np.int8),
    ("impossible", np.int8),  # the script asked for a choice the rules did not offer
    # what Blue remembers with the observation `memory`. Last: records of earlier versions end before it
    ("known_decoys", np.int8, (NUM_HOSTS,)),  # decoys that Red's scan of each host found
    ("was_scanned", np.int16),
    ("was_restored", np.int16),
    ("entered_unseen", np.int16),  # hosts that an exploit entered without Monitor noticing, as far as one can tell
    ("event_host", np.int8),  # the latest scan or attack, -1 before the first
    ("event_attack", np.int8),
    ("event_age", np.int8),
    ("event_again", np.int8),  # whether the one before it was on the same host
    ("event_before", np.int8),  # whether the one before it was an attack
]


RECORD = np.dtype(_FIELDS, align=True)


def new_state(num_envs: int, seed: int) -> np.recarray:
    """Records [N], seeded but not reset."""
    state = np.zeros(num_envs, RECORD).view(np.recarray)
    state.rng = seed_streams(seed, num_envs)
    return state
