"""The ephemeral ports that every host has used: a number that was drawn before on the same host is drawn once more.

A server uses hundreds of ports in an episode, out of 10,848. They are kept in one byte each: a port is one of 43 shelves
and its number on the shelf, and the ports of a host stand in the order of their shelves, behind 43 bytes that count them.
Bytes of a host stand between those of the hosts before and after it; where they meet, room is shared out anew.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import apart, rule
from redline.worlds.cage4.rules.pcg import pick
from redline.worlds.cage4.rules.scenario import MOST_SERVERS

PORTS = 60_000 - 49_152
SHELVES, SHELF_BITS = 43, 8
MOST_ON_SHELF = 255


@rule
def forget_all(env):
    """No host has used a port."""
    for host in range(env.num_hosts):
        env.used_first[host] = env.used_count[host] = 0
    make_room(env, 0)


@rule
def use_port(env, host):
    """Draw an ephemeral port of a host; once more if it was used before. A second hit is kept."""
    if not new_port(env, host, pick(env, PORTS)):
        new_port(env, host, pick(env, PORTS))


@rule
def new_port(env, host, port):
    """Whether a port of a host is used for the first time. From now on it is used."""
    count = int(env.used_count[host])
    if bytes_of(count + 1) > env.used_first[host + 1] - env.used_first[host]:
        make_room(env, host)
        if env.outgrown:
            return True
    first = int(env.used_first[host])
    if count == 0:
        for shelf in range(SHELVES):
            env.used[first + shelf] = 0
    shelf, number = port >> SHELF_BITS, port & ((1 << SHELF_BITS) - 1)
    start = np.int64(first + SHELVES)
    for k in range(first, first + shelf):
        start += np.int64(env.used[k])
    on_shelf = np.int64(env.used[first + shelf])
    for k in range(start, start + on_shelf):
        if np.int64(env.used[k]) == number:
            return False
    if on_shelf == MOST_ON_SHELF:
        env.outgrown = 1
        return True
    put_on_shelf(env, first, shelf, number, count)
    env.used_count[host] = count + 1
    return True


@rule
def put_on_shelf(env, first, shelf, number, count):
    """Each shelf behind moves its first port to its other end, so that a gap opens at the end of this one."""
    gap = first + SHELVES + count
    for k in range(SHELVES - 1, shelf, -1):
        on_shelf = np.int64(env.used[first + k])
        if on_shelf > 0:
            env.used[gap] = env.used[gap - on_shelf]
            gap -= on_shelf
    env.used[gap] = number
    env.used[first + shelf] = np.int64(env.used[first + shelf]) + 1


@rule
def bytes_of(count):
    """Bytes that so many ports of a host take; none where there are none."""
    return 0 if count == 0 else SHELVES + count


@rule
def weight(env, host):
    """How much room a host may need beside that of others."""
    return int(env.used_count[host]) + (128 if env.host_slot[host] < MOST_SERVERS else 16)


@apart
def make_room(env, host):
    """Move the bytes of all hosts so that each has room to grow, and this one enough for another port."""
    weights, spare = 0, len(env.used) - bytes_of(1)
    for h in range(env.num_hosts):
        weights += weight(env, h)
        spare -= bytes_of(int(env.used_count[h]))
    if spare < 0:
        env.outgrown = 1
        return
    # all to the front, then each to its new place from behind: nothing is overwritten before it is moved
    at = 0
    for h in range(env.num_hosts):
        first, size = int(env.used_first[h]), bytes_of(int(env.used_count[h]))
        for k in range(size):
            env.used[at + k] = env.used[first + k]
        env.used_first[h] = at
        at += size
    end = len(env.used)
    env.used_first[env.num_hosts] = end
    for h in range(int(env.num_hosts) - 1, 0, -1):
        first, size = int(env.used_first[h]), bytes_of(int(env.used_count[h]))
        end -= size + spare * weight(env, h) // weights + (bytes_of(1) if h == host else 0)
        for k in range(size - 1, -1, -1):
            env.used[end + k] = env.used[first + k]
        env.used_first[h] = end
