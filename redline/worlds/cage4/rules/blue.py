"""Blue: five agents whose actions last several steps."""

from __future__ import annotations

from redline.compiled.speed import apart, rule
from redline.worlds.cage4.rules.lists import (
    add_process,
    append_process,
    find_process,
    free_list,
    kind_at,
    remove_process,
)
from redline.worlds.cage4.rules.pcg import pick
from redline.worlds.cage4.rules.scenario import (
    ALLOW,
    APACHE,
    BLOCK,
    BLUE_DURATION,
    BLUE_TABLE,
    DECOY_PORT,
    DEPLOY,
    HARAKA,
    MOST_SERVERS,
    NAME_RANK,
    NUM_BLUE,
    PORT_25,
    PORT_80,
    PORT_443,
    REMOVE,
    RESTORE,
    ROOT_SESSION,
    SLEEP,
    SMTP,
    TOMCAT,
    VSFTPD,
    WEB,
)
from redline.worlds.cage4.rules.sessions import remove_session_of, remove_sessions_on


@rule
def host_in_slot(env, zone, slot):
    """The host in a slot of a zone: six servers, then ten of users; -1 if it is not there."""
    if slot < MOST_SERVERS:
        if slot >= env.zone_servers[zone]:
            return -1
        return int(env.zone_first[zone]) + 1 + int(env.zone_users[zone]) + slot
    number = slot - MOST_SERVERS
    return -1 if number >= env.zone_users[zone] else int(env.zone_first[zone]) + 1 + number


@rule
def blue_chooses(env, b, action):
    """An agent begins an action, unless another is under way. Returns what asking for it costs, also while one is."""
    kind, zone, target = int(BLUE_TABLE[b, action, 0]), int(BLUE_TABLE[b, action, 1]), int(BLUE_TABLE[b, action, 2])
    other = zone
    if kind != ALLOW and kind != BLOCK and kind != SLEEP:
        target = host_in_slot(env, zone, target)
        if target < 0:
            kind = SLEEP
    if env.blue_left[b] == 0:
        env.blue_kind[b], env.blue_target[b], env.blue_other[b] = kind, target, other
        env.blue_left[b] = BLUE_DURATION[kind]
    return -1 if kind == RESTORE else 0


@rule
def pass_blue_time(env):
    """Actions whose time has come are due."""
    for b in range(NUM_BLUE):
        env.blue_left[b] -= 1
        env.blue_due[b] = env.blue_left[b] == 0


@rule
def blue_acts(env, settings):
    """Due actions take effect: those on traffic before all others."""
    for b in range(NUM_BLUE):
        if env.blue_due[b]:
            kind, zone = int(env.blue_kind[b]), int(env.blue_other[b])
            if kind in (ALLOW, BLOCK):
                bit = 1 << int(NAME_RANK[env.blue_target[b]])
                blocked = int(env.blocks[zone])
                env.blocks[zone] = blocked | bit if kind == BLOCK else blocked & ~bit
    for b in range(NUM_BLUE):
        if env.blue_due[b]:
            kind, host = int(env.blue_kind[b]), int(env.blue_target[b])
            if kind == REMOVE:
                remove(env, host, settings)
            elif kind == RESTORE:
                restore(env, host)
            elif kind == DEPLOY:
                deploy(env, host, settings)


@apart
def remove(env, host, settings):
    """Suspicious processes are stopped. A decoy is started again; the session of another ends. Root's are left alone."""
    item = int(env.suspicious_first[host])
    while item != 0:
        pid = int(env.value[item - 1])
        item = int(env.next[item - 1])
        place, before = find_process(env, host, pid)
        if place == 0 or kind_at(env, place) == ROOT_SESSION:
            continue
        kind, service = kind_at(env, place), -1
        for k in range(env.decoys[host]):
            if env.decoy_pid[host, k] == pid:
                service = k
        remove_process(env, host, place, before)
        if service >= 0:
            again = int(env.top[host]) + 1 + pick(env, 9)
            append_process(env, host, again, kind, settings)
            env.decoy_pid[host, service] = again
        else:
            remove_session_of(env, host, pid)


@apart
def restore(env, host):
    """The host becomes as its backup has it. What is suspicious stays so."""
    if env.held[host] > 0:
        remove_sessions_on(env, host)
    free_list(env, int(env.process_first[host]))
    env.process_first[host] = env.process_last[host] = env.top[host] = 0
    env.ot_off[host] = env.decoys[host] = 0
    env.reliability[host] = 100
    env.used_width[host] = 0


@apart
def open_ports(env, host):
    """Ports of 80, 443 and 25 that processes of a host use, real ones and decoys."""
    services = int(env.services[host])
    ports = (PORT_80 if services & WEB else 0) | (PORT_25 if services & SMTP else 0)
    place = int(env.process_first[host])
    while place != 0:
        ports |= int(DECOY_PORT[kind_at(env, place)])
        place = int(env.next[place - 1])
    return ports


@apart
def deploy(env, host, settings):
    """A decoy is started, any of those whose port is free. The last kind asks for one that always is."""
    ports = open_ports(env, host)
    fits_80, fits_443, fits_25 = int(ports & PORT_80 == 0), int(ports & PORT_443 == 0), int(ports & PORT_25 == 0)
    chosen = pick(env, fits_80 + fits_443 + fits_25 + 1)
    kind = VSFTPD
    if chosen < fits_80:
        kind = APACHE
    elif chosen < fits_80 + fits_443:
        kind = TOMCAT
    elif chosen < fits_80 + fits_443 + fits_25:
        kind = HARAKA
    pid = add_process(env, host, kind, settings)
    place = 0
    while place < env.decoys[host] and env.decoy_kind[host, place] != kind:
        place += 1
    if place == env.decoys[host]:
        env.decoys[host] += 1
    env.decoy_kind[host, place], env.decoy_pid[host, place], env.decoy_reliability[host, place] = kind, pid, 100
