"""What a state of CAGE-4 may hold: all that play comes to, and nothing that rules would stumble over."""

from __future__ import annotations

import numpy as np
import pytest

from redline.errors import RedlineError
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.team import pick_allowed

Records = np.recarray


@pytest.fixture(scope="module")
def env() -> Cage4VectorEnv:
    """Envs in the middle of their episodes."""
    env, random = Cage4VectorEnv(8), np.random.default_rng(0)
    _, infos = env.reset(seed=0)
    for _ in range(200):
        infos = env.step(pick_allowed(infos["action_mask"], random))[-1]
    return env


@pytest.mark.parametrize("face", ["flat", "memory"])
def test_every_field_is_declared(face: str) -> None:
    assert Cage4VectorEnv(1, face=face).undeclared_fields() == []


@pytest.mark.parametrize("red_agent", ["FiniteStateRedAgent", "DiscoveryFSRed", "SleepAgent"])
def test_whatever_play_comes_to_is_let_through(red_agent: str) -> None:
    env, random = Cage4VectorEnv(8, red_agent=red_agent, steps=70), np.random.default_rng(1)
    _, infos = env.reset(seed=1)
    for t in range(150):
        infos = env.step(pick_allowed(infos["action_mask"], random))[-1]
        if t % 10 == 0:
            env.restore(env.snapshot())


def test_whatever_defenders_remember_is_let_through_and_nothing_else() -> None:
    env, random = Cage4VectorEnv(8, steps=70, face="memory"), np.random.default_rng(1)
    _, infos = env.reset(seed=1)
    for t in range(150):
        infos = env.step(pick_allowed(infos["action_mask"], random))[-1]
        if t % 10 == 0:
            env.restore(env.snapshot())
    snapshot = env.snapshot()
    snapshot["words"].reshape(8, -1)[5, 7] = 0x80  # the highest byte of a word
    with pytest.raises(RedlineError, match="The saved words holds -9223372036"):
        env.restore(snapshot)


def first_session_elsewhere(env: np.record) -> None:
    env.session_host[0] = env.zone_first[0] + 1


def list_in_a_ring(env: np.record) -> None:
    env.next[env.free - 1] = env.free


def two_lists_share_an_item(env: np.record) -> None:
    env.suspicious_first[1] = env.suspicious_last[1] = env.free


def crowded_shelf(env: np.record) -> None:
    host = int(np.flatnonzero(env.used_width[: env.num_hosts])[0])
    env.used[env.used_first[host]] = 200


CHANGES = {
    "a zone more": lambda env: env.zone_users.__setitem__(0, env.zone_users[0] % 10 + 1),
    "a host in another zone": lambda env: env.host_zone.__setitem__(3, 8),
    "a generator that stands still": lambda env: setattr(env, "increment_low", 0),
    "half a word that is too large": lambda env: setattr(env, "half", 1 << 40),
    "a session in another's zone": first_session_elsewhere,
    "a list in a ring": list_in_a_ring,
    "an item in two lists": two_lists_share_an_item,
    "a shelf with more than it holds": crowded_shelf,
    "shelves beyond the end": lambda env: setattr(env, "used_end", 0),
    "a host that is known and cannot be found": lambda env: env.known_at.__setitem__((0, 2), 64),
    "an agent without a host": lambda env: (env.known.__setitem__(0, 0), env.known_at.__setitem__(0, 0)),
    "more decoys than kinds": lambda env: (env.decoys.__setitem__(1, 4), env.decoy_kind.__setitem__(1, 2)),
    "an action on a host that is not there": lambda env: (
        env.blue_left.__setitem__(0, 2), env.blue_kind.__setitem__(0, 2), env.blue_target.__setitem__(0, 136)
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_state_that_rules_would_stumble_over_is_refused(change: str, env: Cage4VectorEnv) -> None:
    snapshot = env.snapshot()
    records: Records = snapshot["records"].reshape(-1).view(env.state.dtype).view(np.recarray)
    CHANGES[change](records[5])
    with pytest.raises(RedlineError, match="The saved "):
        env.restore(snapshot)
