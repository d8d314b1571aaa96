"""Blue's observation: packed into words, and how to decode it.

All observations are small integers, packed into 64-bit words. Word 0 is the table: bit `4h..4h+3` of host `h` holds
A1, A0 (activity: none 00, scan 10, exploit 11) and C1, C0 (compromised: no 00, unknown 10, user 01, privileged 11), in
the order of the 52 values. `table+scan` adds a word with two bits for each of ten hosts; `history` keeps older tables in
the words that follow, then two words of decoys and one with Blue's last action. `memory` and `truth` have their own files.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import kernel
from redline.worlds.cage2.rules.draws import count_bits
from redline.worlds.cage2.rules.memory import pack_memory, remember
from redline.worlds.cage2.rules.remembered import MEMORY_WORDS, PLACES
from redline.worlds.cage2.rules.scenario import (
    BLUE_ANALYSE,
    DECOYS,
    HISTORY,
    HOSTS,
    MEMORY,
    NUM_DECOYS,
    NUM_HOSTS,
    SPECIAL_PORT,
    TABLE_SCAN,
    TRUTH,
    TYPES,
    Scenario,
    parse_order,
)
from redline.worlds.cage2.rules.truth import pack_truth, truth_fields
from redline.worlds.encoding import Field, Words

QUIET, SCAN, ATTACK = 0b00, 0b01, 0b11  # activity, as bits A1 + 2 A0
NO, UNKNOWN_ACCESS, USER_ACCESS, PRIVILEGED = 0b0000, 0b0100, 0b1000, 0b1100  # compromised, as bits 4 C1 + 8 C0
COMPROMISED_BITS = 0b1100
TABLE_SIZE = 4 * NUM_HOSTS

SCAN_HOSTS = np.array([0, 1, 2, 3, 7, 8, 9, 10, 11, 12], np.int8)  # Op_Host0-2 are left out
ALL_SCAN = sum(1 << (4 * h) for h in range(NUM_HOSTS))  # the A1 bit of every host
DECOYS_PER_WORD = 7  # hosts whose eight decoy bits share a word
NUM_KINDS = 4 + NUM_DECOYS + 1  # Sleep, Monitor, Analyse, Remove, eight decoys, Restore


@kernel
def activity(decoy_deployed, events, ports, cw2):
    """The table's entry for the traffic on one host. A decoy deployed in the same step distorts it, as it always did."""
    if events == 0:
        return QUIET
    connections = events + decoy_deployed
    distinct = count_bits(ports)
    if connections >= 3 and distinct >= 3:
        return SCAN
    if ports & SPECIAL_PORT:
        return ATTACK
    if connections >= 3 and distinct == 1:
        return ATTACK
    if decoy_deployed and not cw2:
        return QUIET
    return SCAN


@kernel
def show_activity(env, host, decoy_deployed, events, ports, cw2):
    """Enter the traffic on `host` in Blue's table; an exploit also marks the host as held at user level."""
    shown = activity(decoy_deployed, events, ports, cw2)
    env.activity |= shown << (4 * host)
    if shown == ATTACK:
        mark(env, host, USER_ACCESS)


@kernel
def mark(env, host, access):
    """Set the compromised column of `host`."""
    env.table = (env.table & ~(COMPROMISED_BITS << (4 * host))) | (access << (4 * host))


@kernel
def marked(env, host):
    """The compromised column of `host`."""
    return (env.table >> (4 * host)) & COMPROMISED_BITS


@kernel
def notice_scan(env):
    """Remember the first host, in table order, that shows a scan: it is now the latest one scanned."""
    scans = env.activity & ~(env.activity >> 1) & ALL_SCAN
    if scans == 0:
        return
    for k in range(len(SCAN_HOSTS)):
        if (scans >> (4 * SCAN_HOSTS[k])) & 1:
            env.scans_noticed |= 1 << k
            env.latest_scan = k
            return


@kernel
def pack_scans(env):
    """Two bits per host: 0 never scanned, 1 scanned before, 2 the latest."""
    word = 0
    for k in range(len(SCAN_HOSTS)):
        if k == env.latest_scan:
            word |= 2 << (2 * k)
        else:
            word |= ((int(env.scans_noticed) >> k) & 1) << (2 * k)
    return word


@kernel
def pack_decoys(env, first, last):
    """Eight decoy bits for each of the hosts `first` up to `last`."""
    word = 0
    for host in range(first, last):
        word |= int(env.decoys[host]) << (NUM_DECOYS * (host - first))
    return word


@kernel
def pack_action(action):
    """One bit for the kind of Blue's last action, one for its host; nothing before the first."""
    if action < 0:
        return 0
    if action < BLUE_ANALYSE:
        return 1 << action
    kind = BLUE_ANALYSE + (action - BLUE_ANALYSE) // NUM_HOSTS
    host = (action - BLUE_ANALYSE) % NUM_HOSTS
    return (1 << kind) | (1 << (NUM_KINDS + host))


@kernel
def observe(env, settings, packed, i):
    """Write env `i`'s packed observation after a step. `packed` [N, words] still holds the one before it."""
    if settings.observation == HISTORY:
        tables = packed.shape[1] - 3
        for k in range(tables - 1, 0, -1):
            packed[i, k] = packed[i, k - 1]
        packed[i, tables] = pack_decoys(env, 0, DECOYS_PER_WORD)
        packed[i, tables + 1] = pack_decoys(env, DECOYS_PER_WORD, NUM_HOSTS)
        packed[i, tables + 2] = pack_action(int(env.last_action))
    elif settings.observation == TABLE_SCAN:
        notice_scan(env)
        packed[i, 1] = pack_scans(env)
    elif settings.observation == MEMORY:
        remember(env, settings.leaderboard)
        pack_memory(env, packed, i)
    if settings.observation == TRUTH:
        pack_truth(env, packed, i)
    else:
        packed[i, 0] = env.table | env.activity
    if settings.observation == MEMORY:
        for k in range(MEMORY_WORDS):
            packed[i, k] &= settings.kept[k]


@kernel
def observe_nothing(packed, i):
    """Write what Blue sees when an episode begins."""
    for k in range(packed.shape[1]):
        packed[i, k] = 0


def encoding_of(scenario: Scenario) -> Words:
    """Where each number of an observation sits in its words. A workflow, the same in all of them, takes no room there."""
    return Words(_fields(scenario), _workflow_values(scenario))


def _workflow_values(scenario: Scenario) -> list[tuple[str, int]]:
    """The workflow as a 5x5 one-hot: row is the position, column the type. Nothing without a workflow."""
    if not scenario.workflow:
        return []
    rows = np.eye(len(TYPES), dtype=np.int8)[list(parse_order(scenario.workflow))].reshape(-1).tolist()
    return [(f"workflow[{k // 5}].{TYPES[k % 5]}", value) for k, value in enumerate(rows)]


def _fields(scenario: Scenario) -> list[Field]:
    """All numbers that sit in the words, in order."""
    columns = ("A1", "A0", "C1", "C0")
    table = [Field(f"{host}.{columns[c]}", 0, 4 * h + c) for h, host in enumerate(HOSTS) for c in range(4)]
    if scenario.observation == "table":
        return table
    if scenario.observation == "memory":
        return [Field(*place) for place in PLACES]
    if scenario.observation == "truth":
        return truth_fields()
    if scenario.observation == "table+scan":
        return table + [Field(f"{HOSTS[h]}.scanned", 1, 2 * k, 2, high=2) for k, h in enumerate(SCAN_HOSTS)]
    tables = scenario.history
    fields = [Field(f"{each.name}[-{k}]" if k else each.name, k, each.shift) for k in range(tables) for each in table]
    for h, host in enumerate(HOSTS):
        word, place = tables + h // DECOYS_PER_WORD, h % DECOYS_PER_WORD
        fields += [Field(f"{host}.{decoy}", word, NUM_DECOYS * place + d) for d, decoy in enumerate(DECOYS)]
    kinds = ("Sleep", "Monitor", "Analyse", "Remove", *DECOYS, "Restore", *HOSTS)
    return fields + [Field(f"last.{name}", tables + 2, k) for k, name in enumerate(kinds)]
