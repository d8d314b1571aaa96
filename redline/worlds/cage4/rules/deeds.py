"""Red's deeds. Each returns how it ended, and writes down what its agent is shown."""

from __future__ import annotations

from redline.compiled.speed import apart, rule
from redline.worlds.cage4.rules.events import note_connection, note_creation
from redline.worlds.cage4.rules.lists import (
    add_process,
    kind_at,
    make_root,
    remember_ports,
    remembered_ports,
    suspect,
)
from redline.worlds.cage4.rules.mind import (
    BREAK_IN,
    ESCALATION,
    ESCALATION_AND_LINKS,
    FAILED,
    SUCCEEDED,
    TARGET,
    TARGET_NAMED,
    ZONE,
)
from redline.worlds.cage4.rules.pcg import pick, uniform
from redline.worlds.cage4.rules.scenario import (
    AGGRESSIVE,
    APACHE,
    CN,
    DECEPTION,
    DECOY_PORT,
    DEGRADE,
    ESCALATE,
    EXPLOIT,
    IMPACT,
    IN,
    MYSQL,
    NAME_RANK,
    OT,
    PARENT,
    PORT_25,
    PORT_80,
    PORT_443,
    PORT_3390,
    PORT_SSH,
    SESSION,
    SMTP,
    SWEEP,
    WEB,
)
from redline.worlds.cage4.rules.sessions import add_session, find_session
from redline.worlds.cage4.rules.used_ports import use_port

MISSED = 1 - 0.95  # as the original writes it
LOUD, QUIET = 0.75, 0.25


@rule
def red_acts(env, agent, settings):
    """The due action of an agent takes effect."""
    kind, target = int(env.red_kind[agent]), int(env.red_target[agent])
    session = find_session(env, agent, int(env.red_session[agent]))
    if kind == SWEEP:
        return sweep(env, agent, session)
    if kind == EXPLOIT:
        return exploit(env, agent, session, target, settings)
    if kind == ESCALATE:
        return escalate(env, agent, session, target)
    if kind == DECEPTION:
        return discover_deception(env, agent, session, target)
    if kind == DEGRADE:
        return degrade(env, agent, target)
    if kind == IMPACT:
        return stop_ot(env, agent, session, target)
    return scan(env, agent, session, target, LOUD if kind == AGGRESSIVE else QUIET)


@rule
def sweep(env, agent, session):
    """All hosts of the zone answer."""
    if session < 0:
        return FAILED
    env.told_show[agent] = ZONE
    return SUCCEEDED


@rule
def is_blocked(env, session, target):
    """Whether the target's zone lets nothing in from the session's."""
    source = int(env.host_zone[env.session_host[session]])
    return (int(env.blocks[env.host_zone[target]]) >> NAME_RANK[source]) & 1 != 0


@apart
def scan(env, agent, session, target, rate):
    """The session remembers the target's open ports. Decoys always notice it."""
    if session < 0 or not env.session_abstract[session] or is_blocked(env, session, target):
        return FAILED
    noticed = uniform(env) <= rate
    if noticed:
        note_connection(env, target)
        for _ in range(int(env.real_services[target]) - int(env.ot_off[target])):
            use_port(env, target)
    services = int(env.services[target])
    ports = PORT_SSH | (PORT_80 if services & WEB else 0)
    ports |= (PORT_3390 if services & MYSQL else 0) | (PORT_25 if services & SMTP else 0)
    place = int(env.process_first[target])
    while place != 0:
        kind = kind_at(env, place)
        if kind >= APACHE:
            ports |= int(DECOY_PORT[kind])
            note_connection(env, target)
            use_port(env, target)
        place = int(env.next[place - 1])
    remember_ports(env, session, target, ports)
    env.told_show[agent] = TARGET
    return SUCCEEDED


@apart
def discover_deception(env, agent, session, target):
    """Processes are looked at one by one. What is found out is of no use to the original, so neither is it here."""
    if session < 0:
        return FAILED
    flagged = False
    for _ in range(int(env.backup_count[target]) - int(env.ot_off[target])):
        uniform(env)
        flagged |= uniform(env) <= 0.1
    place = int(env.process_first[target])
    while place != 0:
        decoy = kind_at(env, place) >= APACHE
        if uniform(env) <= 0.5 and decoy:
            flagged = True
        else:
            flagged |= uniform(env) <= 0.1 and not decoy
        place = int(env.next[place - 1])
    if flagged:
        env.told_show[agent] = TARGET_NAMED
    return SUCCEEDED


@apart
def exploit(env, agent, session, target, settings):
    """One of the ways that the remembered ports offer; if there are several, never the best."""
    if session < 0 or not env.session_abstract[session]:
        return FAILED
    ports = remembered_ports(env, session, target)
    if ports == 0 or is_blocked(env, session, target):
        return FAILED
    way = choose_way(env, ports)
    if way == PORT_SSH:
        return break_in_by_ssh(env, agent, session, target, settings)
    return attack_service(env, agent, session, target, way, settings)


@rule
def choose_way(env, ports):
    """The port to go through, of those that are left when the best is taken away; 25 beats 3390, 443, 80 and 22."""
    if ports & PORT_3390 and ports & (PORT_80 | PORT_443) == 0:
        ports &= ~PORT_3390
    if ports == PORT_SSH:
        return PORT_SSH
    for best in (PORT_25, PORT_3390, PORT_443, PORT_80):
        if ports & best:
            ports &= ~best
            break
    count = 0
    for way in (PORT_80, PORT_443, PORT_SSH, PORT_3390):
        count += int(ports & way != 0)
    chosen = pick(env, count)
    uniform(env)
    for way in (PORT_80, PORT_443, PORT_SSH, PORT_3390):
        if ports & way:
            if chosen == 0:
                return way
            chosen -= 1
    return PORT_SSH


@rule
def notice_on_way(env, host):
    """A host on the way may notice the traffic."""
    if uniform(env) > MISSED:
        note_connection(env, host)


@rule
def climbs_to(zone, other):
    """Whether `other` is `zone` or above it in the tree of zones."""
    while zone >= 0:
        if zone == other:
            return True
        zone = int(PARENT[zone])
    return False


@rule
def travel(env, source, target):
    """All hosts on the way may notice: the source, routers up and down the tree of zones, and the target."""
    notice_on_way(env, source)
    if source == target:
        return
    here, there = int(env.host_zone[source]), int(env.host_zone[target])
    zone = here
    while True:
        notice_on_way(env, int(env.zone_first[zone]))
        if climbs_to(there, zone):
            break
        zone = int(PARENT[zone])
    while zone != there:
        below = there
        while PARENT[below] != zone:
            below = int(PARENT[below])
        zone = below
        notice_on_way(env, int(env.zone_first[zone]))
    notice_on_way(env, target)


@rule
def break_in_by_ssh(env, agent, session, target, settings):
    """It works always, and is noticed always."""
    source = int(env.session_host[session])
    travel(env, source, target)
    use_port(env, target)
    note_connection(env, target)
    return break_in(env, agent, source, target, True, settings)


@rule
def attack_service(env, agent, session, target, way, settings):
    """A decoy notices; real web servers withstand; databases do not."""
    services = int(env.services[target])
    if way == PORT_3390 or (way == PORT_80 and services & WEB):
        if way == PORT_80:
            env.told_show[agent] = TARGET
            return FAILED
        uniform(env)
        use_port(env, target)
        return break_in(env, agent, int(env.session_host[session]), target, False, settings)
    if not has_decoy_on(env, target, way):
        return FAILED
    note_connection(env, target)
    use_port(env, target)
    uniform(env)
    use_port(env, target)
    use_port(env, target)
    env.told_show[agent] = TARGET
    return FAILED


@rule
def has_decoy_on(env, host, port):
    """Whether a decoy listens on a port."""
    place = int(env.process_first[host])
    while place != 0:
        if DECOY_PORT[kind_at(env, place)] == port:
            return True
        place = int(env.next[place - 1])
    return False


@rule
def break_in(env, agent, source, target, surely_noticed, settings):
    """A plain session on the target."""
    pid = add_process(env, target, SESSION, settings)
    number = add_session(env, agent, target, 0, 0, pid)
    if surely_noticed or uniform(env) > MISSED:
        note_creation(env, target)
        zone = int(env.host_zone[target])
        if zone != CN and zone != IN:
            suspect(env, target, pid)
    env.fresh_id[agent], env.fresh_host[agent] = number, target
    env.told_show[agent], env.told_source[agent] = BREAK_IN, source
    return SUCCEEDED


@rule
def sessions_on(env, agent, host):
    """How many sessions an agent has on a host, and whether one of them is root's."""
    count, rooted = 0, False
    for k in range(env.session_first[agent], env.session_first[agent + 1]):
        if env.session_host[k] == host:
            count += 1
            rooted |= env.session_root[k] != 0
    return count, rooted


@apart
def escalate(env, agent, session, target):
    """One of the agent's sessions on the target becomes root's, unless one is already."""
    count, rooted = sessions_on(env, agent, target)
    if count == 0:
        return FAILED
    if not rooted:
        chosen = pick(env, count)
        if session < 0 or not env.session_abstract[session]:
            return FAILED
        for k in range(env.session_first[agent], env.session_first[agent + 1]):
            if env.session_host[k] == target:
                if chosen == 0:
                    env.session_root[k] = 1
                    make_root(env, target, int(env.session_pid[k]))
                    break
                chosen -= 1
    zone = int(env.host_zone[target])
    is_first_server = target == int(env.zone_first[zone]) + 1 + int(env.zone_users[zone])
    env.told_show[agent] = ESCALATION_AND_LINKS if is_first_server and session >= 0 else ESCALATION
    return SUCCEEDED


@rule
def degrade(env, agent, target):
    """Every service of the target that is on becomes less reliable."""
    _, rooted = sessions_on(env, agent, target)
    if not rooted:
        return FAILED
    env.reliability[target] = max(0, int(env.reliability[target]) - 20)
    for k in range(env.decoys[target]):
        env.decoy_reliability[target, k] = max(0, int(env.decoy_reliability[target, k]) - 20)
    env.told_show[agent] = TARGET_NAMED
    return SUCCEEDED


@rule
def stop_ot(env, agent, session, target):
    """The OT service of the target stops."""
    _, rooted = sessions_on(env, agent, target)
    if not rooted or int(env.services[target]) & OT == 0 or env.ot_off[target]:
        return FAILED
    env.told_show[agent] = TARGET_NAMED
    if session < 0:
        return FAILED
    env.ot_off[target] = 1
    return SUCCEEDED
