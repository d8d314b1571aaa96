"""What Blue may remember, by name: plain numbers, for rules and tracker alike.

The observation `memory` is all Blue's own knowledge: the table, the decoys it started, and what it saw since the episode
began. A bit per statement; counts are thermometers (the first `n` of their bits are set).
"""

from __future__ import annotations

from redline.errors import unknown
from redline.worlds.cage2.rules.scenario import DECOY_ROOM, FOOTHOLD, HOSTS, NUM_HOSTS

DEFENDER = 0
USER1, USER3, USER4 = 9, 11, 12
OP_SERVER0 = 7
FIRST_USER = FOOTHOLD

RESTORED = (USER3, USER4, OP_SERVER0)
"""Hosts that one Restore changes for good: a mail server is dead then, the OT service cannot be stopped."""
SUSPECTS = tuple(range(USER1, NUM_HOSTS))
"""Hosts in which an exploit may go unseen."""
OLDEST = 3
"""Steps after which an event is simply old."""
NEVER_SUSPECT = (DEFENDER, FOOTHOLD)
"""Hosts whose suspicion says nothing: the one cannot be entered, the other never be freed."""

# where the bits stand: word, and the first of them
DECOYS_AT, SCANNED_AT, RESTORED_AT = (1, 0), (1, 16), (1, 29)
KNOWN_AT, EVENT_HOST_AT, ATTACK_AT, AGE_AT, AGAIN_AT, BEFORE_AT, MISSED_AT = (
    (2, 0), (2, 16), (2, 29), (2, 30), (2, 33), (2, 34), (2, 35),
)  # fmt: skip


def _table_places() -> list[tuple[str, int, int]]:
    columns = ("A1", "A0", "C1", "C0")
    return [
        (f"{host}.{columns[c]}", 0, 4 * h + c)
        for h, host in enumerate(HOSTS)
        for c in range(4)
        if c < 2 or h not in NEVER_SUSPECT
    ]


def _row(at: tuple[int, int], names: list[str]) -> list[tuple[str, int, int]]:
    word, shift = at
    return [(name, word, shift + k) for k, name in enumerate(names)]


def _counts(at: tuple[int, int], what: str) -> list[tuple[str, int, int]]:
    return _row(at, [f"{HOSTS[h]}.{what}>{k}" for h, room in DECOY_ROOM.items() for k in range(room)])


PLACES: tuple[tuple[str, int, int], ...] = (
    *_table_places(),
    *_counts(DECOYS_AT, "decoys"),
    *_row(SCANNED_AT, [f"{host}.was_scanned" for host in HOSTS]),
    *_row(RESTORED_AT, [f"{HOSTS[h]}.was_restored" for h in RESTORED]),
    *_counts(KNOWN_AT, "decoys_when_scanned"),
    *_row(EVENT_HOST_AT, [f"event.{host}" for host in HOSTS]),
    *_row(ATTACK_AT, ["event.attack"]),
    *_row(AGE_AT, [f"event.age>{k}" for k in range(OLDEST)]),
    *_row(AGAIN_AT, ["event.same_host"]),
    *_row(BEFORE_AT, ["event.attack_before"]),
    *_row(MISSED_AT, [f"{HOSTS[h]}.entered_unseen" for h in SUSPECTS]),
)
"""Every number of the observation `memory` in order: name, word, bit."""
MEMORY_WORDS = 3
FIELDS = (
    "decoys", "was_scanned", "was_restored", "decoys_when_scanned", "event", "age", "same_host", "attack_before",
    "entered_unseen",
)  # fmt: skip
"""What is remembered beside the table, by the last word of its names; `event` is all of the latest event."""


def kept_bits(forgotten: tuple[str, ...]) -> tuple[int, int, int]:
    """A mask for each word, with the bits of all fields but the forgotten ones."""
    for name in forgotten:
        if name not in FIELDS:
            raise unknown("field to forget", name, FIELDS)
    masks = [0] * MEMORY_WORDS
    for name, word, shift in PLACES:
        masks[word] |= (not {*_parts(name)} & {*forgotten}) << shift
    first, second, third = masks
    return first, second, third


def _parts(name: str) -> list[str]:
    """The words of a name, without counts: `event.age>1` is `event` and `age`."""
    return name.partition(">")[0].split(".")
