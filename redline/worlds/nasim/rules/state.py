"""The state of a penetration test: one record per env, and a few words that say which hosts are held."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.rng import seed_streams

# every whole number is 64 bits wide: narrower ones would wrap around when interpreted, and only then
RECORD = np.dtype(
    [
        ("rng", np.uint64),
        ("clock", np.int64),  # steps since reset
        ("reachable", np.int64),  # mask of subnets
        ("discovered", np.int64),  # mask of subnets
        ("held", np.int64),  # mask of subnets with a host that is held
        ("rooted", np.int64),  # mask of subnets with a host that is held as root
        ("missing", np.int64),  # sensitive hosts not yet held as root
        ("score", np.float64),  # sum of rewards since reset
        # the latest step
        ("result", np.int64),  # its flags: how it ended
        ("found", np.int64),  # mask of subnets discovered by it
        ("pays", np.int64),  # 1 if it reached a host whose value counts, be it 0
        ("gain", np.float32),
    ]
)


ENDED = np.dtype([("score", np.float64), ("length", np.int64), ("won", np.int64)])
"""An episode that ended, as it is told of."""


class AttackState(NamedTuple):
    """All envs at once; axis 0 is the env."""

    envs: np.recarray  # RECORD [N]
    access: np.ndarray  # int64 [N, words]  two bits per host: NO_ACCESS, USER or ROOT


def new_ended(num_envs: int) -> np.recarray:
    """Nothing told yet of any env."""
    return np.zeros(num_envs, ENDED).view(np.recarray)


def new_state(num_envs: int, access_words: int, seed: int) -> AttackState:
    """Seeded but not reset."""
    envs = np.zeros(num_envs, RECORD).view(np.recarray)
    envs.rng = seed_streams(seed, num_envs)
    return AttackState(envs, np.zeros((num_envs, access_words), np.int64))
