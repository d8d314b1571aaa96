"""The truth that Blue cannot see: Red's sessions, all events, blocks, and how reliable services are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from redline.worlds.cage4.rules.scenario import BY_NAME, CN, IN, MOST_HOSTS, NUM_RED, NUM_ZONES

UNMONITORED = (CN, IN)
GENERATOR = ("state_high", "state_low", "increment_high", "increment_low", "has_half", "half")


class RedSession(NamedTuple):
    """A session of Red."""

    agent: int
    number: int
    """Its id among those of its agent."""
    host: int
    root: bool
    abstract: bool
    pid: int


@dataclass(frozen=True)
class EnterpriseTruth:
    """What the rules know, for all envs: a copy, made only when asked for."""

    num_hosts: np.ndarray  # int32 [N]
    host_zone: np.ndarray  # int8 [N, 137]  -1 behind the last host
    sessions: list[list[RedSession]]  # of each env, agents in order
    access: np.ndarray  # int8 [N, 137]  Red's access: 0 none, 1 user, 2 root
    reliability: np.ndarray  # int8 [N, 137]  per cent, of the services that belong to a host
    ot_off: np.ndarray  # int8 [N, 137]  1 where Red has stopped the OT service
    decoys: np.ndarray  # int8 [N, 137]  kinds of decoys that run
    connection: np.ndarray  # bool [N, 137]  traffic that was noticed in the latest step
    creation: np.ndarray  # bool [N, 137]  processes that were noticed
    blocks: np.ndarray  # bool [N, 9, 9]  whether a zone lets nothing in from another
    phase: np.ndarray  # int32 [N]
    clock: np.ndarray  # int32 [N]  steps since reset


def true_state(state: np.recarray) -> EnterpriseTruth:
    """The truth of all envs."""
    there = np.arange(MOST_HOSTS) < state.num_hosts[:, None]
    sessions = [_sessions(state, i) for i in range(len(state))]
    access = np.zeros((len(state), MOST_HOSTS), np.int8)
    for i, held in enumerate(sessions):
        for session in held:
            access[i, session.host] = max(access[i, session.host], 1 + session.root)
    return EnterpriseTruth(
        num_hosts=state.num_hosts.copy(),
        host_zone=np.where(there, state.host_zone, np.int8(-1)),
        sessions=sessions,
        access=access,
        reliability=np.where(there, state.reliability, np.int8(0)),
        ot_off=np.where(there, state.ot_off, np.int8(0)),
        decoys=np.where(there, state.decoys, np.int8(0)),
        connection=noticed(state, state.connection),
        creation=noticed(state, state.creation),
        blocks=blocked(state),
        phase=state.phase.copy(),
        clock=state.clock.copy(),
    )


def _sessions(state: np.recarray, i: int) -> list[RedSession]:
    rows = session_table(state, i).tolist()
    return [
        RedSession(agent, number, host, bool(root), bool(abstract), pid)
        for agent, number, host, root, abstract, pid in rows
    ]


def session_table(state: np.recarray, i: int) -> np.ndarray:
    """Red's sessions in env `i`, int64 [sessions, 6], in the columns of `RedSession`."""
    first = state.session_first[i].astype(np.int64)
    count = int(first[-1])
    host = state.session_host[i, :count].astype(np.int64)
    columns = [np.repeat(np.arange(NUM_RED), np.diff(first)), state.session_id[i, :count], host]
    columns += [state.session_root[i, :count], state.session_abstract[i, :count]]
    columns += [state.session_pid[i, :count] + state.backup_pid[i, host].astype(np.int64)]
    return np.stack(columns, axis=1).astype(np.int64)


def noticed(state: np.recarray, events: np.ndarray) -> np.ndarray:
    """Which hosts have an event that Blue's monitors saw, bool [N, 137], from masks of slots [N, 9]."""
    there = np.arange(MOST_HOSTS) < state.num_hosts[:, None]
    zones = np.where(there, state.host_zone, IN)
    seen = (np.take_along_axis(events, zones.astype(np.int64), axis=1) >> state.host_slot) & 1
    return there & ~np.isin(zones, UNMONITORED) & (seen != 0)


def blocked(state: np.recarray) -> np.ndarray:
    """Which zones (axis 1) let nothing in from which others (axis 2), bool [N, 9, 9]."""
    ranked = (state.blocks[:, :, None] >> np.arange(NUM_ZONES)) & 1
    found = np.zeros(ranked.shape, np.bool_)
    found[:, :, list(BY_NAME)] = ranked != 0
    return found


def generators(state: np.recarray) -> np.ndarray:
    """The random generators uint64 [N, 6]: state and increment, upper half first, whether half a word waits, and it."""
    return np.stack([state[name].astype(np.uint64) for name in GENERATOR], axis=1)
