"""Rules of the observation `memory`: what Blue keeps in mind from step to step, and how that is packed."""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import kernel
from redline.worlds.cage2.rules.draws import count_bits
from redline.worlds.cage2.rules.remembered import (
    AGAIN_AT,
    AGE_AT,
    ATTACK_AT,
    BEFORE_AT,
    DECOYS_AT,
    EVENT_HOST_AT,
    FIRST_USER,
    KNOWN_AT,
    MISSED_AT,
    OLDEST,
    OP_SERVER0,
    RESTORED_AT,
    SCANNED_AT,
    USER1,
    USER3,
)
from redline.worlds.cage2.rules.scenario import BLUE_RESTORE, DECOY_ROOM, MAIL_SERVERS, NUM_HOSTS

SHOWN_SCAN, SHOWN_ATTACK = 0b01, 0b11  # activity, as bits A1 + 2 A0
COUNTED = np.array(list(DECOY_ROOM), np.int8)
ROOM = np.array(list(DECOY_ROOM.values()), np.int8)


@kernel
def forget(env):
    """Remember nothing, as when an episode begins."""
    env.was_scanned = env.was_restored = env.entered_unseen = 0
    env.event_host = -1
    env.event_attack = env.event_again = env.event_before = 0
    env.event_age = OLDEST
    for host in range(NUM_HOSTS):
        env.known_decoys[host] = 0


@kernel
def remember(env, leaderboard):
    """Take note of Blue's own action and of what the table shows about this step."""
    action = int(env.last_action)
    if action >= BLUE_RESTORE:
        env.was_restored |= 1 << (action - BLUE_RESTORE)
        env.entered_unseen &= ~(1 << (action - BLUE_RESTORE))
    quiet = True
    for host in range(NUM_HOSTS):
        shown = (env.activity >> (4 * host)) & 3
        if shown == 0:
            continue
        if shown == SHOWN_SCAN:
            note_scan(env, host, leaderboard)
        else:
            env.entered_unseen &= ~(1 << host)
        note_event(env, host, int(shown == SHOWN_ATTACK))
        quiet = False
    if quiet and env.event_age < OLDEST:
        env.event_age += 1


@kernel
def note_scan(env, host, leaderboard):
    """A scan: how many decoys it found is what Red knows of them.

    Red scans a User host once, so that a second one is an exploit. One that shows as a scan and met no decoy has come
    through without being noticed, unless it was aimed at a mail server that is dead.
    """
    bit = 1 << host
    decoys = count_bits(int(env.decoys[host]))
    if int(env.was_scanned) & bit == 0:
        env.known_decoys[host] = decoys
    elif host < FIRST_USER:
        # under the rules `leaderboard` Red adds to what it knew, under `final` it forgets
        env.known_decoys[host] = max(int(env.known_decoys[host]), decoys) if leaderboard else decoys
    elif host > FIRST_USER and decoys == 0 and not mail_is_dead(env, host, leaderboard):
        env.entered_unseen |= bit
    env.was_scanned |= bit


@kernel
def mail_is_dead(env, host, leaderboard):
    """Whether Red's favourite exploit of `host` cannot work any more."""
    return leaderboard and (MAIL_SERVERS >> host) & 1 == 1 and (int(env.was_restored) >> host) & 1 == 1


@kernel
def note_event(env, host, attack):
    """The latest event, beside the one before it."""
    env.event_again = int(env.event_host == host)
    env.event_before = env.event_attack
    env.event_host = host
    env.event_attack = attack
    env.event_age = 0


@kernel
def thermometer(count, room):
    """The first `count` bits set, of `room`."""
    return (1 << min(count, room)) - 1


@kernel
def pack_memory(env, packed, i):
    """Write env `i`'s memory into the words behind its table."""
    decoys = known = place = 0
    for k in range(len(COUNTED)):
        host, room = int(COUNTED[k]), int(ROOM[k])
        decoys |= thermometer(count_bits(int(env.decoys[host])), room) << place
        known |= thermometer(int(env.known_decoys[host]), room) << place
        place += room
    restored = ((int(env.was_restored) >> USER3) & 3) | (((int(env.was_restored) >> OP_SERVER0) & 1) << 2)
    event = (1 << int(env.event_host)) if env.event_host >= 0 else 0
    packed[i, 1] = (decoys << DECOYS_AT[1]) | (int(env.was_scanned) << SCANNED_AT[1]) | (restored << RESTORED_AT[1])
    packed[i, 2] = (
        (known << KNOWN_AT[1]) | (event << EVENT_HOST_AT[1]) | (int(env.event_attack) << ATTACK_AT[1])
        | (thermometer(int(env.event_age), OLDEST) << AGE_AT[1]) | (int(env.event_again) << AGAIN_AT[1])
        | (int(env.event_before) << BEFORE_AT[1]) | ((int(env.entered_unseen) >> USER1) << MISSED_AT[1])
    )  # fmt: skip
