"""What a defender does, told from a number of its episodes: by phase, on which decoys, and in answer to what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from redline.learn.watching import WatchedEpisode
from redline.report.draw import NOTHING, percent
from redline.report.page import note, table
from redline.worlds.cage2.rules.observe import ATTACK, SCAN
from redline.worlds.cage2.rules.scenario import (
    BLUE_ANALYSE,
    BLUE_DECOY,
    BLUE_REMOVE,
    BLUE_RESTORE,
    DECOYS,
    HOSTS,
    NUM_HOSTS,
)

KINDS = ("Sleep", "Monitor", "Analyse", "Remove", "Decoy", "Restore")
PHASES = (("steps 1–10", 0, 10), ("steps 11–30", 10, 30), ("later", 30, 10**9))
EVENTS = ("nothing", "a scan", "an attack", "an attack on Op_Server0 or Enterprise")
CRUCIAL = (1, 2, 3, 7)
"""Hosts whose loss costs most."""


def kind_of(action: int) -> str:
    """The kind of an action of the full set."""
    starts = (0, 1, BLUE_ANALYSE, BLUE_REMOVE, BLUE_DECOY, BLUE_RESTORE)
    return KINDS[max(k for k, start in enumerate(starts) if action >= start)]


def habits(episodes: Sequence[WatchedEpisode]) -> str:
    """Tables of what a defender does."""
    records = [[step.note for step in episode.steps] for episode in episodes]
    body = "<h3>Actions by phase</h3>" + _shares(_by_phase(records), "phase")
    body += "<h3>Response to alerts</h3>" + _shares(_by_event(episodes), "alert")
    placed = _decoys(records)
    if placed:
        body += "<h3>Decoys per episode</h3>" + table(["host", *DECOYS], placed)
    return body + note(f"Shares of all actions in {len(episodes)} fresh episodes.")


def _by_phase(records: Iterable[Sequence[Any]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {name: Counter() for name, _, _ in PHASES}
    for episode in records:
        for name, first, last in PHASES:
            found[name].update(kind_of(int(record.last_action)) for record in episode[first:last])
    return found


def _by_event(episodes: Iterable[WatchedEpisode]) -> dict[str, Counter[str]]:
    """Kinds of actions by what the observation before them said."""
    found: dict[str, Counter[str]] = {event: Counter() for event in EVENTS}
    for episode in episodes:
        before = episode.start
        for step in episode.steps:
            found[_event(before)][kind_of(int(step.note.last_action))] += 1
            before = step.note
    return found


def _event(record: Any) -> str:
    shown = [int(record.activity) >> 4 * host & 0b11 for host in range(NUM_HOSTS)]
    if any(shown[host] == ATTACK for host in CRUCIAL):
        return EVENTS[3]
    return EVENTS[2] if ATTACK in shown else EVENTS[1] if SCAN in shown else EVENTS[0]


def _shares(counts: dict[str, Counter[str]], what: str) -> str:
    lines = []
    for name, found in counts.items():
        total = sum(found.values())
        if total:
            lines.append([name, *(percent(found[kind] / total) if found[kind] else NOTHING for kind in KINDS), total])
    return table([what, *KINDS, "steps"], lines)


def _decoys(records: Sequence[Sequence[Any]]) -> list[list[object]]:
    """How often each decoy was begun on each host, per episode; hosts that never got one are left out."""
    begun: Counter[tuple[int, int]] = Counter()
    for episode in records:
        for record in episode:
            action = int(record.last_action)
            if BLUE_DECOY <= action < BLUE_RESTORE and record.blue_success == 1:
                decoy, host = divmod(action - BLUE_DECOY, NUM_HOSTS)
                begun[host, decoy] += 1
    lines: list[list[object]] = []
    for host, name in enumerate(HOSTS):
        counts = [begun[host, decoy] / len(records) for decoy in range(len(DECOYS))]
        if any(counts):
            lines.append([name, *(f"{count:.2g}" if count else NOTHING for count in counts)])
    return lines
