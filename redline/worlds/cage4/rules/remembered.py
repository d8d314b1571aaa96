"""What a defender remembers of an episode, from its own observations and its own actions alone.

Of every host: when something was last noticed there, and what was last done about it. From that follow a few `places`, the
host that matters most in each of several ways, and a few useful actions on them. A policy that sees places need not learn
anew what an alarm means for each of 48 hosts.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import kernel, rule
from redline.worlds.cage4.rules.observe import (
    CONNECTION_SHIFT,
    CREATION_SHIFT,
    PHASE_MASK,
    SLOT_MASK,
)
from redline.worlds.cage4.rules.scenario import (
    BLUE_DURATION,
    BLUE_TABLE,
    BLUE_ZONES,
    MOST_SERVERS,
    NUM_BLUE,
    REMOVE,
    RESTORE,
    SLEEP,
    SLOTS,
)

NUM_AREAS = sum(map(len, BLUE_ZONES))
"""Zones that a defender looks after, all five together, in the order of their observations."""
FIRST_AREA = np.cumsum([0, *map(len, BLUE_ZONES)])
_AREA_ZONE = np.array([zone for zones in BLUE_ZONES for zone in zones])
_FIRST_ACTION = np.array([[int(np.argmax(BLUE_TABLE[b, :, 0] == kind)) for kind in range(8)] for b in range(NUM_BLUE)])

# When something last happened on a host, -1 if not since it was restored; and a count since then
CREATED, TOUCHED, SOURCE, ENTERED, REMOVED, RESTORED, ALARMS = range(7)
NEVER = -1

PLACES = ("entered", "entered before", "source", "source before", "created", "touched", "stalest")
"""Hosts that matter: those broken into last, from which it was done, where a process or traffic was noticed last, and
the host of users that was restored longest ago."""
ENTERED_1, ENTERED_2, SOURCE_1, SOURCE_2, CREATED_1, TOUCHED_1, STALEST = range(len(PLACES))
NUM_RESTORES, NUM_REMOVES = STALEST + 1, TOUCHED_1 + 1
USEFUL = (
    "Sleep",
    *(f"Restore {name}" for name in PLACES[:NUM_RESTORES]),
    *(f"Remove {name}" for name in PLACES[:NUM_REMOVES]),
)
"""The useful actions, by name. Decoys and blocked traffic are not among them: they take time, and make Red harder to see."""
NUM_USEFUL = len(USEFUL)
WAIT, RESTORES, REMOVES = 0, 1, 1 + NUM_RESTORES

# A row of bytes: three of each place, then what there is to say of the agent and its zones
AGE, SINCE, MARKS = range(3)
PLACE_BYTES = 3
AGENT = PLACE_BYTES * len(PLACES)
(
    PHASE, CLOCK, ALERT, BREAK_INS, COUNT_ENTERED, COUNT_SOURCE, COUNT_CREATED, COUNT_TOUCHED, USERS, SERVERS,
) = range(AGENT + 1, AGENT + 11)  # fmt: skip
ROW_BYTES = AGENT + 11
NO_AGE, OLDEST = 255, 254
_SERVER, _REMOVED, _ALARM_SHIFT, _FEW = 1, 2, 2, 3

MEMORY = np.dtype(
    [
        ("clock", np.int32),
        ("alert", np.int32, (NUM_BLUE,)),  # when an agent last saw a break-in, NEVER if it did not
        ("break_ins", np.int32, (NUM_BLUE,)),
        ("left", np.int8, (NUM_BLUE,)),  # steps until its action takes effect, 0 where none is under way
        ("kind", np.int8, (NUM_BLUE,)), ("area", np.int8, (NUM_BLUE,)), ("slot", np.int8, (NUM_BLUE,)),
        ("there", np.int32, (NUM_AREAS,)),  # hosts that there are, as a mask of slots
        ("seen", np.int32, (NUM_AREAS, SLOTS, 7)),
        ("meant", np.int16, (NUM_BLUE, NUM_USEFUL)),  # all actions: which one each useful one is now, -1 if none
    ],
    align=True,
)  # fmt: skip
"""The memory of a team, per env."""


@rule
def begin_memory(memory, mask, i):
    """An episode begins: all hosts are as they should be, and the masks tell which there are."""
    memory.clock = 0
    for b in range(NUM_BLUE):
        memory.alert[b], memory.break_ins[b], memory.left[b] = NEVER, 0, 0
        for area in range(FIRST_AREA[b], FIRST_AREA[b + 1]):
            there, first = 0, int(_FIRST_ACTION[b, RESTORE]) + SLOTS * (area - int(FIRST_AREA[b]))
            for slot in range(SLOTS):
                there |= int(mask[i, b, first + slot]) << slot
                forget(memory, area, slot)
            memory.there[area] = there


@rule
def forget(memory, area, slot):
    """A host is as its backup has it."""
    for what in range(RESTORED):
        memory.seen[area, slot, what] = NEVER
    memory.seen[area, slot, RESTORED] = memory.clock
    memory.seen[area, slot, ALARMS] = 0


@rule
def act(memory, b, action):
    """An agent asks for an action, which begins if none is under way; a step passes, and what is due takes effect."""
    if memory.left[b] == 0:
        kind, zone, slot = int(BLUE_TABLE[b, action, 0]), int(BLUE_TABLE[b, action, 1]), int(BLUE_TABLE[b, action, 2])
        memory.kind[b], memory.slot[b] = kind, slot
        memory.left[b] = BLUE_DURATION[kind]
        for area in range(FIRST_AREA[b], FIRST_AREA[b + 1]):
            if _AREA_ZONE[area] == zone:
                memory.area[b] = area
    memory.left[b] -= 1
    if memory.left[b] > 0:
        return
    kind, area, slot = int(memory.kind[b]), int(memory.area[b]), int(memory.slot[b])
    if kind == RESTORE:
        forget(memory, area, slot)
    elif kind == REMOVE:
        memory.seen[area, slot, REMOVED] = memory.clock


@rule
def notice(memory, words, i, b):
    """An agent sees what happened. Traffic where a process began is a break-in; traffic elsewhere, then, is its source."""
    now, broken = int(memory.clock), 0
    first, last = int(FIRST_AREA[b]), int(FIRST_AREA[b + 1])
    for area in range(first, last):
        word = int(words[i, b, area - first])
        broken |= (word >> CREATION_SHIFT) & (word >> CONNECTION_SHIFT) & SLOT_MASK
    if broken:
        memory.alert[b] = now
        memory.break_ins[b] += 1
    for area in range(first, last):
        word = int(words[i, b, area - first])
        created, touched = (word >> CREATION_SHIFT) & SLOT_MASK, (word >> CONNECTION_SHIFT) & SLOT_MASK
        if created | touched:
            for slot in range(SLOTS):
                began, talked = (created >> slot) & 1, (touched >> slot) & 1
                if began:
                    memory.seen[area, slot, CREATED] = now
                    memory.seen[area, slot, ALARMS] += 1
                if talked:
                    memory.seen[area, slot, TOUCHED] = now
                if began and talked:
                    memory.seen[area, slot, ENTERED] = now
                elif talked and broken:
                    memory.seen[area, slot, SOURCE] = now


@rule
def put_place(memory, rows, i, b, place, key, what):
    """Write a place of an agent's row. `key` is 64 times when, and the host; -1 where there is none."""
    row = PLACE_BYTES * place
    if key < 0:
        rows[i, b, row + AGE], rows[i, b, row + SINCE], rows[i, b, row + MARKS] = NO_AGE, NO_AGE, 0
        return
    area, slot = int(FIRST_AREA[b]) + (key & 63) // SLOTS, (key & 63) % SLOTS
    now, since = int(memory.clock), int(memory.seen[area, slot, RESTORED])
    when = int(memory.seen[area, slot, what])
    marks = _SERVER if slot < MOST_SERVERS else 0
    marks |= min(int(memory.seen[area, slot, ALARMS]), _FEW) << _ALARM_SHIFT
    if memory.seen[area, slot, REMOVED] > memory.seen[area, slot, CREATED]:
        marks |= _REMOVED
    rows[i, b, row + AGE] = min(now - when, OLDEST) if when >= 0 else NO_AGE
    rows[i, b, row + SINCE] = min(now - since, OLDEST)
    rows[i, b, row + MARKS] = marks


@rule
def mean(memory, b, action, kind, key):
    """A useful action is this kind on the host of a key, or nothing."""
    memory.meant[b, action] = -1 if key < 0 else int(_FIRST_ACTION[b, kind]) + (key & 63)


@rule
def look(memory, words, i, b, rows):
    """Find the places of an agent, write its row, and what its useful actions mean."""
    entered = entered_before = source = source_before = created = touched = -1
    stalest = 1 << 60
    counts_entered = counts_source = counts_created = counts_touched = users = servers = 0
    first, last = int(FIRST_AREA[b]), int(FIRST_AREA[b + 1])
    for area in range(first, last):
        there = int(memory.there[area])
        for slot in range(SLOTS):
            if (there >> slot) & 1 == 0:
                continue
            host = SLOTS * (area - first) + slot
            users += int(slot >= MOST_SERVERS)
            servers += int(slot < MOST_SERVERS)
            if memory.seen[area, slot, ENTERED] >= 0:
                counts_entered += 1
                key = 64 * int(memory.seen[area, slot, ENTERED]) + host
                if key > entered:
                    entered, entered_before = key, entered
                elif key > entered_before:
                    entered_before = key
            elif memory.seen[area, slot, SOURCE] >= 0:
                counts_source += 1
                key = 64 * int(memory.seen[area, slot, SOURCE]) + host
                if key > source:
                    source, source_before = key, source
                elif key > source_before:
                    source_before = key
            elif memory.seen[area, slot, CREATED] > memory.seen[area, slot, REMOVED]:
                counts_created += 1
                created = max(created, 64 * int(memory.seen[area, slot, CREATED]) + host)
            elif memory.seen[area, slot, TOUCHED] >= 0 and slot >= MOST_SERVERS:
                counts_touched += 1
                touched = max(touched, 64 * int(memory.seen[area, slot, TOUCHED]) + host)
            if slot >= MOST_SERVERS:
                stalest = min(stalest, 64 * int(memory.seen[area, slot, RESTORED]) + host)
    put_place(memory, rows, i, b, ENTERED_1, entered, ENTERED)
    put_place(memory, rows, i, b, ENTERED_2, entered_before, ENTERED)
    put_place(memory, rows, i, b, SOURCE_1, source, SOURCE)
    put_place(memory, rows, i, b, SOURCE_2, source_before, SOURCE)
    put_place(memory, rows, i, b, CREATED_1, created, CREATED)
    put_place(memory, rows, i, b, TOUCHED_1, touched, TOUCHED)
    put_place(memory, rows, i, b, STALEST, stalest, TOUCHED)
    keys = (entered, entered_before, source, source_before, created, touched, stalest)
    for k in range(NUM_RESTORES):
        mean(memory, b, RESTORES + k, RESTORE, keys[k])
    for k in range(NUM_REMOVES):
        mean(memory, b, REMOVES + k, REMOVE, keys[k])
    mean(memory, b, WAIT, SLEEP, 0)
    put_zones(memory, int(words[i, b, 0]) & PHASE_MASK, i, b, rows)
    rows[i, b, COUNT_ENTERED], rows[i, b, COUNT_SOURCE] = counts_entered, counts_source
    rows[i, b, COUNT_CREATED], rows[i, b, COUNT_TOUCHED] = counts_created, counts_touched
    rows[i, b, USERS], rows[i, b, SERVERS] = users, servers


@rule
def put_zones(memory, phase, i, b, rows):
    """Write what there is to say of an agent and its zones as a whole."""
    now, alert = int(memory.clock), int(memory.alert[b])
    rows[i, b, AGENT], rows[i, b, PHASE], rows[i, b, CLOCK] = b, phase, min(now // 2, OLDEST)
    rows[i, b, ALERT] = min(now - alert, OLDEST) if alert >= 0 else NO_AGE
    rows[i, b, BREAK_INS] = min(int(memory.break_ins[b]), OLDEST)


@rule
def tell_useful(memory, mask, i):
    """Which useful actions mean something now."""
    for b in range(NUM_BLUE):
        for action in range(NUM_USEFUL):
            mask[i, b, action] = memory.meant[b, action] >= 0


@kernel
def begin(memories, first, last, words, all_masks, rows, masks):
    """Begin an episode in envs `first` up to `last`."""
    for i in range(first, last):
        begin_memory(memories[i], all_masks, i)
        for b in range(NUM_BLUE):
            look(memories[i], words, i, b, rows)
        tell_useful(memories[i], masks, i)


@kernel
def remember(memories, first, last, actions, words, rows, masks):
    """A step was played in envs `first` up to `last`: these actions, of all there are, led to these words."""
    for i in range(first, last):
        memory = memories[i]
        memory.clock += 1
        for b in range(NUM_BLUE):
            act(memory, b, int(actions[i, b]))
            notice(memory, words, i, b)
            look(memory, words, i, b, rows)
        tell_useful(memory, masks, i)


@kernel
def translate(memories, first, last, useful, actions):
    """The useful actions as actions of all there are; one that means nothing now is Sleep."""
    for i in range(first, last):
        for b in range(NUM_BLUE):
            meant = memories[i].meant[b, useful[i, b]]
            actions[i, b] = _FIRST_ACTION[b, SLEEP] if meant < 0 else meant


def place_since(rows: np.ndarray, place: int) -> np.ndarray:
    """Steps since the host of a place was restored, 254 at most; 255 where there is none."""
    return rows[..., PLACE_BYTES * place + SINCE]


# What a policy sees of a row
_HALF_LIVES = (3.0, 12.0, 48.0)
NUM_AGES = len(_HALF_LIVES)
AGES = np.array(
    [[0.0 if age == NO_AGE else 0.5 ** (age / life) for life in _HALF_LIVES] for age in range(256)], np.float32
)
PLACE_NUMBERS = 2 * NUM_AGES + 4
NUM_PHASES = 3
_SCALES = np.array([256, 8, 4, 4, 4, 4, 30, 18], np.float32)
_SCALED = np.array(
    [
        CLOCK, BREAK_INS, COUNT_ENTERED, COUNT_SOURCE, COUNT_CREATED, COUNT_TOUCHED, USERS, SERVERS,
    ]
)  # fmt: skip
NUM_NUMBERS = PLACE_NUMBERS * len(PLACES) + NUM_BLUE + NUM_PHASES + NUM_AGES + len(_SCALED)


@kernel
def decode_rows(rows, numbers):
    """The numbers float32 [n, NUM_NUMBERS], 0 to about 1, that rows uint8 [n, ROW_BYTES] stand for; all are zeros before."""
    for i in range(len(rows)):
        at = 0
        for place in range(len(PLACES)):
            row = PLACE_BYTES * place
            marks = int(rows[i, row + MARKS])
            for k in range(NUM_AGES):
                numbers[i, at + k] = AGES[rows[i, row + AGE], k]
                numbers[i, at + NUM_AGES + k] = AGES[rows[i, row + SINCE], k]
            at += 2 * NUM_AGES
            numbers[i, at] = rows[i, row + SINCE] != NO_AGE
            numbers[i, at + 1] = marks & _SERVER
            numbers[i, at + 2] = ((marks >> _ALARM_SHIFT) & _FEW) / np.float32(_FEW)
            numbers[i, at + 3] = marks & _REMOVED != 0
            at += 4
        numbers[i, at + rows[i, AGENT]] = 1.0
        numbers[i, at + NUM_BLUE + rows[i, PHASE]] = 1.0
        at += NUM_BLUE + NUM_PHASES
        for k in range(NUM_AGES):
            numbers[i, at + k] = AGES[rows[i, ALERT], k]
        at += NUM_AGES
        for k in range(len(_SCALED)):
            numbers[i, at + k] = np.float32(rows[i, _SCALED[k]]) / _SCALES[k]
