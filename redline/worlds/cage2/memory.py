"""`Memory`: what a defender trained with `--observation memory` sees, worked out outside of Redline's simulator.

It is fed with the 52 values of the table and with Blue's own actions, nothing else, and needs numpy alone. So a policy
plays wherever CAGE-2 is played, the original CybORG included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from redline.errors import RedlineError, unknown
from redline.worlds.cage2.rules.remembered import FIRST_USER, OLDEST, PLACES, RESTORED, SUSPECTS
from redline.worlds.cage2.rules.scenario import (
    BLUE_ANALYSE,
    BLUE_DECOY,
    BLUE_RESTORE,
    BLUE_SLEEP,
    DECOY_HOSTS,
    DECOY_NEEDS,
    DECOY_OPENS,
    DECOY_ROOM,
    HOSTS,
    LISTENING,
    MAIL_SERVERS,
    NUM_ACTIONS,
    NUM_HOSTS,
    REDUCED_DECOY,
    REDUCED_RESTORE,
    RULES,
    USEFUL,
    USEFUL_DECOYS,
    action_names,
)

TABLE_SIZE = 4 * NUM_HOSTS
ACTION_NAMES = action_names("useful")
"""The actions `useful`, in words."""
INPUTS = tuple(name for name, _, _ in PLACES)
"""The numbers that a policy sees, in order, by name."""


class Memory:
    """Blue's memory of one episode.

    Ask `full_action` what the policy's choice is called among the 145 actions, play it, and `see` the table that came of
    it. `numbers` is what the policy sees next.
    """

    def __init__(self, rules: str = "leaderboard") -> None:
        if rules not in RULES:
            raise unknown("rule set", rules, RULES)
        self._leaderboard = rules == "leaderboard"
        self.reset()

    def reset(self) -> np.ndarray:
        """Begin an episode. Returns `numbers`: nothing but zeros."""
        self._decoys: list[set[int]] = [set() for _ in HOSTS]
        self._known = [0] * NUM_HOSTS
        self._scanned: set[int] = set()
        self._restored: set[int] = set()
        self._entered_unseen: set[int] = set()
        self._event: tuple[int, bool] | None = None
        self._same_host = self._attack_before = False
        self._age = OLDEST
        self.numbers = np.zeros(len(INPUTS), np.int8)
        return self.numbers

    def full_action(self, useful: int) -> int:
        """One of the 37 actions `useful` as one of all 145."""
        action = int(USEFUL[useful])
        if action >= REDUCED_DECOY:
            return self._next_decoy(action - REDUCED_DECOY)
        return action + BLUE_RESTORE - REDUCED_RESTORE if action >= REDUCED_RESTORE else action

    def see(self, table: Sequence[int] | np.ndarray, action: int) -> np.ndarray:
        """Blue played `action` (of all 145), and the table shows these 52 values now. Returns `numbers`."""
        if len(table) != TABLE_SIZE or not 0 <= action < NUM_ACTIONS:
            raise RedlineError(
                f"A table of {len(table)} values after action {action} cannot be: it has {TABLE_SIZE} values, and "
                f"actions are 0 to {NUM_ACTIONS - 1}."
            )
        self._do(action)
        events = [(host, bool(table[4 * host + 1])) for host in range(NUM_HOSTS) if table[4 * host]]
        for host, attack in events:
            self._notice(host, attack)
        if not events:
            self._age = min(self._age + 1, OLDEST)
        self.numbers = self._numbers(table)
        return self.numbers

    def _do(self, action: int) -> None:
        """What Blue's own action does to decoys and memory."""
        block, host = divmod(action - BLUE_ANALYSE, NUM_HOSTS)
        if action >= BLUE_RESTORE:
            self._decoys[host] = set()
            self._restored.add(host)
            self._entered_unseen.discard(host)
        elif action >= BLUE_DECOY:
            decoy = block - (BLUE_DECOY - BLUE_ANALYSE) // NUM_HOSTS
            if self._accepts(host, decoy):
                self._decoys[host].add(decoy)

    def _notice(self, host: int, attack: bool) -> None:
        if attack:
            self._entered_unseen.discard(host)
        else:
            self._notice_scan(host)
        self._same_host = self._event is not None and self._event[0] == host
        self._attack_before = self._event is not None and self._event[1]
        self._event, self._age = (host, attack), 0

    def _notice_scan(self, host: int) -> None:
        decoys = len(self._decoys[host])
        dead = self._leaderboard and MAIL_SERVERS >> host & 1 and host in self._restored
        if host not in self._scanned:
            self._known[host] = decoys
        elif host < FIRST_USER:
            self._known[host] = max(self._known[host], decoys) if self._leaderboard else decoys
        elif host > FIRST_USER and not decoys and not dead:
            self._entered_unseen.add(host)
        self._scanned.add(host)

    def _accepts(self, host: int, decoy: int) -> bool:
        """Whether the decoy can start: its operating system fits and the port it asks for is free."""
        taken = int(LISTENING[host])
        for running in self._decoys[host]:
            taken |= int(DECOY_OPENS[running])
        return bool(int(DECOY_HOSTS[decoy]) >> host & 1) and not taken & int(DECOY_NEEDS[decoy])

    def _next_decoy(self, host: int) -> int:
        for decoy in map(int, USEFUL_DECOYS):
            if decoy not in self._decoys[host] and self._accepts(host, decoy):
                return BLUE_DECOY + decoy * NUM_HOSTS + host
        return BLUE_SLEEP

    def _numbers(self, table: Sequence[int] | np.ndarray) -> np.ndarray:
        """Everything remembered, by name, in the order of `INPUTS`."""
        columns = [f"{host}.{column}" for host in HOSTS for column in ("A1", "A0", "C1", "C0")]
        found = {name: int(value) for name, value in zip(columns, table, strict=True)}
        for host, room in DECOY_ROOM.items():
            for k in range(room):
                found[f"{HOSTS[host]}.decoys>{k}"] = len(self._decoys[host]) > k
                found[f"{HOSTS[host]}.decoys_when_scanned>{k}"] = self._known[host] > k
        found |= {f"{HOSTS[host]}.was_scanned": True for host in self._scanned}
        found |= {f"{HOSTS[host]}.was_restored": host in self._restored for host in RESTORED}
        found |= {f"{HOSTS[host]}.entered_unseen": host in self._entered_unseen for host in SUSPECTS}
        found |= {f"event.age>{k}": self._age > k for k in range(OLDEST)}
        if self._event is not None:
            host, attack = self._event
            found |= {f"event.{HOSTS[host]}": True, "event.attack": attack}
            found |= {"event.same_host": self._same_host, "event.attack_before": self._attack_before}
        return np.array([found.get(name, 0) for name in INPUTS], np.int8)
