"""The ephemeral ports that every host has used: a number that was drawn before on the same host is drawn once more.

A server uses hundreds of ports in an episode, out of 10,848. A port is a byte on one of 43 shelves. All shelves of a host
are equally wide and stand side by side; each begins with the number of ports on it. When one is full, the host gets wider
ones behind all that is in use, and when nothing is left there, what is in use is moved together.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import apart, rule
from redline.worlds.cage4.rules.pcg import pick

PORTS = 60_000 - 49_152
SHELVES, SHELF_BITS = 43, 8
FIRST_WIDTH, DOUBLED_UP_TO, WIDENED_BY, WIDEST = 2, 8, 4, 120


@rule
def forget_all(env):
    """No host has used a port."""
    env.used_end = 0
    for host in range(env.num_hosts):
        env.used_width[host] = 0


@rule
def use_port(env, host):
    """Draw an ephemeral port of a host; once more if it was used before. A second hit is kept."""
    if not new_port(env, host, pick(env, PORTS)):
        new_port(env, host, pick(env, PORTS))


@rule
def new_port(env, host, port):
    """Whether a port of a host is used for the first time. From now on it is used."""
    shelf, number = port >> SHELF_BITS, port & ((1 << SHELF_BITS) - 1)
    width = int(env.used_width[host])
    at = int(env.used_first[host]) + shelf * width
    count = 0 if width == 0 else np.int64(env.used[at])
    for k in range(at + 1, at + 1 + count):
        if env.used[k] == number:
            return False
    if count + 1 >= width:
        widen(env, host)
        if env.outgrown:
            return True
        at = int(env.used_first[host]) + shelf * int(env.used_width[host])
    env.used[at + 1 + count] = number
    env.used[at] = count + 1
    return True


@apart
def widen(env, host):
    """Wider shelves for a host."""
    width = int(env.used_width[host])
    wider = FIRST_WIDTH if width == 0 else 2 * width if width < DOUBLED_UP_TO else width + WIDENED_BY
    if wider > WIDEST or not has_room(env, SHELVES * wider):
        env.outgrown = 1
        return
    old, new = int(env.used_first[host]), int(env.used_end)
    for shelf in range(SHELVES):
        env.used[new + shelf * wider] = 0
        if width > 0:
            for k in range(np.int64(env.used[old + shelf * width]) + 1):
                env.used[new + shelf * wider + k] = env.used[old + shelf * width + k]
    env.used_first[host], env.used_width[host] = new, wider
    env.used_end = new + SHELVES * wider


@rule
def has_room(env, size):
    """Whether so many bytes are free, perhaps after tidying up."""
    if int(env.used_end) + size > len(env.used):
        tidy_up(env)
    return int(env.used_end) + size <= len(env.used)


@apart
def tidy_up(env):
    """Move the shelves of all hosts to the front, in the order in which they stand."""
    end, done = 0, -1
    while True:
        host = -1
        for h in range(env.num_hosts):
            later = env.used_width[h] > 0 and env.used_first[h] > done
            if later and (host < 0 or env.used_first[h] < env.used_first[host]):
                host = h
        if host < 0:
            break
        done = int(env.used_first[host])
        size = SHELVES * int(env.used_width[host])
        for k in range(size):
            env.used[end + k] = env.used[done + k]
        env.used_first[host] = end
        end += size
    env.used_end = end
