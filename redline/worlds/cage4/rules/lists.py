"""Lists in an env's pool of items: processes and suspicious pids of a host, ports that a session remembers of hosts.

An item holds one number and the place of the next. Places count from 1, so that 0 is the end of a list.
"""

from __future__ import annotations

from redline.compiled.speed import rule
from redline.worlds.cage4.rules.pcg import pick
from redline.worlds.cage4.rules.scenario import ROOT_SESSION, SESSION

KIND_BITS = 3  # a process is its pid, counted from the highest of the host's backup, and its kind


@rule
def empty_pool(env):
    """All items are free."""
    for k in range(len(env.next) - 1):
        env.next[k] = k + 2
    env.next[len(env.next) - 1] = 0
    env.free = 1


@rule
def new_item(env, value):
    """The place of a new item; 0, and the env is outgrown, where none is free."""
    place = int(env.free)
    if place == 0:
        env.outgrown = 1
        return 0
    env.free = env.next[place - 1]
    env.value[place - 1] = value
    env.next[place - 1] = 0
    return place


@rule
def free_item(env, place):
    """Give an item back."""
    env.next[place - 1] = env.free
    env.free = place


@rule
def free_list(env, place):
    """Give all items of a list back."""
    while place != 0:
        following = int(env.next[place - 1])
        free_item(env, place)
        place = following


# Processes


@rule
def add_process(env, host, kind, settings):
    """A new process at the end of the host's list. Returns its pid."""
    pid = int(env.top[host]) + 1 + pick(env, 9)
    append_process(env, host, pid, kind, settings)
    return pid


@rule
def append_process(env, host, pid, kind, settings):
    """A process whose pid is the highest of its host."""
    if pid > settings.highest_pid:
        env.outgrown = 1
        return
    place = new_item(env, (pid << KIND_BITS) | kind)
    if env.process_last[host] == 0:
        env.process_first[host] = place
    else:
        env.next[env.process_last[host] - 1] = place
    env.process_last[host] = place
    env.top[host] = pid


@rule
def find_process(env, host, pid):
    """The place of a process that came after the backup, and of the one before it; 0 where there is none."""
    before, place = 0, int(env.process_first[host])
    while place != 0:
        found = int(env.value[place - 1]) >> KIND_BITS
        if found == pid:
            return place, before
        before, place = place, int(env.next[place - 1])
    return 0, 0


@rule
def kind_at(env, place):
    """The kind of the process at a place."""
    return int(env.value[place - 1]) & ((1 << KIND_BITS) - 1)


@rule
def remove_process(env, host, place, before):
    """Take a process out of the list; the highest pid may fall."""
    following = int(env.next[place - 1])
    if before == 0:
        env.process_first[host] = following
    else:
        env.next[before - 1] = following
    if env.process_last[host] == place:
        env.process_last[host] = before
        env.top[host] = 0 if before == 0 else int(env.value[before - 1]) >> KIND_BITS
    free_item(env, place)


@rule
def make_root(env, host, pid):
    """The process of a session becomes root's. That of Red's first session belongs to a backup, where nobody asks."""
    place, _ = find_process(env, host, pid)
    if place != 0 and kind_at(env, place) == SESSION:
        env.value[place - 1] = (pid << KIND_BITS) | ROOT_SESSION


# Suspicious pids


@rule
def suspect(env, host, pid):
    """Blue remembers a pid; it never forgets one."""
    place = new_item(env, pid)
    if env.suspicious_last[host] == 0:
        env.suspicious_first[host] = place
    elif place != 0:
        env.next[env.suspicious_last[host] - 1] = place
    env.suspicious_last[host] = place


# Remembered ports: an item is a host and five bits

PORT_BITS = 5


@rule
def remember_ports(env, session, host, ports):
    """What a session knows of a host's ports, in place of what it knew before."""
    value, place = (host << PORT_BITS) | ports, int(env.session_ports[session])
    while place != 0:
        if int(env.value[place - 1]) >> PORT_BITS == host:
            env.value[place - 1] = value
            return
        place = int(env.next[place - 1])
    place = new_item(env, value)
    if place != 0:
        env.next[place - 1] = env.session_ports[session]
        env.session_ports[session] = place


@rule
def remembered_ports(env, session, host):
    """The ports that a session remembers of a host; 0 if it never scanned it."""
    place = int(env.session_ports[session])
    while place != 0:
        value = int(env.value[place - 1])
        if value >> PORT_BITS == host:
            return value & ((1 << PORT_BITS) - 1)
        place = int(env.next[place - 1])
    return 0
