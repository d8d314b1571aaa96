"""Observations of the attacker: a few words of bits, and the numbers they stand for.

Fully observed, the words hold the four flags of the latest action, the subnets that are reachable and discovered, and
the access to every host. Partially observed, they hold what the latest action brought to light and nothing else: its
flags, its kind and host, the access it showed, and, for a scan of subnets, which ones were shown, which of these are
reachable and which are new. All else about a host never changes and is looked up when words become numbers.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import at_speed, kernel, rule
from redline.worlds.encoding import Plain, plain, require_form
from redline.worlds.nasim.rules.scenario import AttackScenario
from redline.worlds.nasim.rules.tables import (
    ACCESS_SHIFT,
    ESCALATION,
    EXPLOIT,
    FLAGS,
    HEADER_BITS,
    HOST_SHIFT,
    HOSTS_PER_WORD,
    KIND_SHIFT,
    OS_SCAN,
    PROCESS_SCAN,
    SERVICE_SCAN,
    START,
    SUBNET_SCAN,
    NetworkTables,
    observation_names,
    tabulate,
)

NUM_FLAGS = len(FLAGS)
_HOST_MASK = (1 << (HEADER_BITS - HOST_SHIFT)) - 1


@rule
def tell_start(tables, state, i, words):
    """The observation before the first action."""
    env = state.envs[i]
    if tables.fully_obs:
        tell_all(tables, state, i, words)
    else:
        clear(words, i)
        put(tables, words, i, env.discovered, env.reachable, 0)


@rule
def tell(tables, state, i, action, words):
    """The observation after an action."""
    if tables.fully_obs:
        tell_all(tables, state, i, words)
    else:
        tell_result(tables, state, i, action, words)


@rule
def clear(words, i):
    """No bit set."""
    for k in range(words.shape[1]):
        words[i, k] = 0


@rule
def put(tables, words, i, first, second, third):
    """Three masks of subnets, each in its place."""
    places = tables.places
    words[i, places.word[0]] |= first << places.shift[0]
    words[i, places.word[1]] |= second << places.shift[1]
    words[i, places.word[2]] |= third << places.shift[2]


@rule
def taken(tables, words, i, k):
    """The `k`-th of these masks."""
    return (words[i, tables.places.word[k]] >> tables.places.shift[k]) & tables.places.subnets


@rule
def tell_all(tables, state, i, words):
    """The flags and the whole state."""
    env = state.envs[i]
    clear(words, i)
    words[i, 0] = env.result
    put(tables, words, i, env.reachable, env.discovered, 0)
    held = words.shape[1] - state.access.shape[1]
    for word in range(state.access.shape[1]):
        words[i, held + word] = state.access[i, word]


@rule
def tell_result(tables, state, i, action, words):
    """The flags, and what the action found out. A failure shows nothing else, not even what was tried."""
    env = state.envs[i]
    clear(words, i)
    words[i, 0] = env.result
    if (env.result & 1) == 0:
        return
    header = env.result | action.header
    if action.kind in (EXPLOIT, ESCALATION, PROCESS_SCAN):
        access = (state.access[i, action.word] >> action.shift) & 3
        header |= access << ACCESS_SHIFT
    words[i, 0] = header
    if action.kind == SUBNET_SCAN:
        put(tables, words, i, action.linked, env.reachable & action.linked, env.found)


@rule
def show(tables, values, i, host, first, last):
    """Columns `first` up to `last` of a host's row, of those that never change."""
    begin = host * tables.columns.end
    for k in range(first, last):
        values[i, begin + k] = tables.rows[host, k]


@rule
def show_host(tables, values, i, host, reachable):
    """That there is a host at this address."""
    columns = tables.columns
    show(tables, values, i, host, 0, columns.compromised)
    values[i, host * columns.end + columns.reachable] = reachable
    values[i, host * columns.end + columns.discovered] = 1.0


@rule
def show_flags(tables, values, i, flags):
    """The row behind all hosts."""
    begin = len(tables.rows) * tables.columns.end
    for k in range(NUM_FLAGS):
        values[i, begin + k] = (flags >> k) & 1


@rule
def show_target(tables, values, i, host, kind, access):
    """All that an action which succeeded brings to light about its host."""
    columns = tables.columns
    begin = host * columns.end
    show_host(tables, values, i, host, 1.0)
    values[i, begin + columns.access] = access
    if kind in (EXPLOIT, ESCALATION, SUBNET_SCAN):
        values[i, begin + columns.compromised] = 1.0
    if kind == EXPLOIT:
        show(tables, values, i, host, columns.value, columns.discovery_value)
        show(tables, values, i, host, columns.os, columns.processes)
    elif kind == SERVICE_SCAN:
        show(tables, values, i, host, columns.services, columns.processes)
    elif kind == OS_SCAN:
        show(tables, values, i, host, columns.os, columns.services)
    elif kind == PROCESS_SCAN:
        show(tables, values, i, host, columns.processes, columns.end)


@kernel
def decode_result(tables, words, values):
    """The numbers float32 [n, size] of partial observations; `values` are all zero before."""
    columns = tables.columns
    for i in range(len(words)):
        header = words[i, 0]
        show_flags(tables, values, i, header)
        shown, reachable, found = taken(tables, words, i, 0), taken(tables, words, i, 1), taken(tables, words, i, 2)
        if shown != 0:
            for host in range(len(tables.rows)):
                subnet = tables.subnet_of[host]
                if (shown >> subnet) & 1:
                    show_host(tables, values, i, host, (reachable >> subnet) & 1)
                    if (found >> subnet) & 1:
                        show(tables, values, i, host, columns.discovery_value, columns.access)
        kind = (header >> KIND_SHIFT) & 7
        if kind != START:
            host = (header >> HOST_SHIFT) & _HOST_MASK
            show_target(tables, values, i, host, kind, (header >> ACCESS_SHIFT) & 3)


@kernel
def decode_all(tables, words, values):
    """The numbers float32 [n, size] of full observations; `values` are all zero before."""
    columns = tables.columns
    held = words.shape[1] - tables.access_words
    for i in range(len(words)):
        show_flags(tables, values, i, words[i, 0])
        reachable, discovered = taken(tables, words, i, 0), taken(tables, words, i, 1)
        for host in range(len(tables.rows)):
            begin, subnet = host * columns.end, tables.subnet_of[host]
            access = (words[i, held + host // HOSTS_PER_WORD] >> (2 * (host % HOSTS_PER_WORD))) & 3
            show(tables, values, i, host, 0, columns.end)
            values[i, begin + columns.compromised] = access > 0
            values[i, begin + columns.reachable] = (reachable >> subnet) & 1
            values[i, begin + columns.discovered] = (discovered >> subnet) & 1
            values[i, begin + columns.access] = access


class AttackWords:
    """The encoding of observations: which words there are, and the numbers they stand for."""

    dtype = np.dtype(np.int64)

    def __init__(self, scenario: AttackScenario, fully_obs: bool, turbo: bool = True) -> None:
        self.tables = tabulate(scenario, fully_obs)
        words = 1 + max(self.tables.places.word) + (self.tables.access_words if fully_obs else 0)
        self.shape = (words,)
        self.size = observation_size(self.tables)
        self._names = observation_names(scenario)
        self._decode = at_speed(decode_all if fully_obs else decode_result, turbo)

    @property
    def decoded(self) -> Plain:
        """The original's own form."""
        return plain((self.size,), np.float32, self._names)

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The numbers float32 [n, size] of words int64 [n, words]."""
        require_form(self, stored)
        values = np.zeros((len(stored), self.size), np.float32)
        self._decode(self.tables, stored, values)
        return values


def observation_size(tables: NetworkTables) -> int:
    """Numbers in an observation: a row for each host, and one for the flags."""
    return (len(tables.rows) + 1) * tables.columns.end
