"""A new network, drawn as the original draws it: call for call, also where what is drawn never matters."""

from __future__ import annotations

from redline.compiled.speed import rule
from redline.worlds.cage4.rules.lists import empty_pool
from redline.worlds.cage4.rules.pcg import pick, uniform
from redline.worlds.cage4.rules.scenario import (
    AD,
    CN,
    IN,
    MOST_SERVERS,
    MYSQL,
    NUM_ZONES,
    OA,
    OB,
    OF,
    OT,
    PA,
    RA,
    RB,
    ROUTER,
    SMTP,
    WEB,
)
from redline.worlds.cage4.rules.used_ports import forget_all

FIRST_PID, PIDS = 1000, 9000
DISTRIBUTIONS = 2


@rule
def generate(env):
    """Zones, hosts, and their services.

    Pids are told apart in the whole network while it is drawn; `value` serves to remember them, as no list exists yet.
    """
    for k in range(len(env.value)):
        env.value[k] = 0
    for zone in range(NUM_ZONES):
        env.zone_network[zone] = pick(env, 256 - zone)  # only labels of actions tell of it
    env.num_hosts = env.num_green = 0
    for zone in range(NUM_ZONES):
        generate_zone(env, zone)
    env.zone_first[NUM_ZONES] = env.num_hosts


@rule
def generate_zone(env, zone):
    """A router, hosts of users, servers."""
    env.zone_first[zone] = env.num_hosts
    env.zone_users[zone] = env.zone_servers[zone] = 0
    pick(env, 254)  # an address; servers take the last one
    generate_host(env, zone, ROUTER)
    if zone == IN:
        return
    users = 3 + pick(env, 8)
    for k in range(users):
        pick(env, 253 - k)
        generate_host(env, zone, MOST_SERVERS + k)
    servers = 1 + pick(env, 6)
    for k in range(servers):
        generate_host(env, zone, k)
    env.zone_users[zone], env.zone_servers[zone] = users, servers


@rule
def generate_host(env, zone, slot):
    """A host with its services; only the highest of its pids matters later."""
    host = int(env.num_hosts)
    env.num_hosts = host + 1
    env.host_zone[host], env.host_slot[host] = zone, slot
    env.services[host] = env.real_services[host] = env.backup_pid[host] = env.backup_count[host] = 0
    pick(env, DISTRIBUTIONS)
    if slot == ROUTER:
        return
    if slot >= MOST_SERVERS:
        env.green_host[env.num_green] = host
        env.num_green += 1
    highest, bits, real = new_pid(env), 0, 1
    if zone in (OA, OB):
        highest, bits, real = max(highest, new_pid(env)), OT, 2
    web, mysql, smtp = new_pid(env), new_pid(env), new_pid(env)
    extras = pick(env, 4)
    for k in range(extras):
        chosen = pick(env, 3 - k)
        for service in (WEB, MYSQL, SMTP):
            if bits & service == 0:
                if chosen == 0:
                    bits |= service
                    highest = max(highest, web if service == WEB else mysql if service == MYSQL else smtp)
                    break
                chosen -= 1
    real += extras
    for _ in range(real):
        uniform(env)  # whether it is vulnerable: never
    env.services[host], env.real_services[host] = bits, real
    env.backup_pid[host], env.backup_count[host] = highest, real


@rule
def new_pid(env):
    """A pid that nothing in the network has yet."""
    while True:
        pid = pick(env, PIDS)
        word, bit = pid >> 3, 1 << (pid & 7)
        if int(env.value[word]) & bit == 0:
            env.value[word] = int(env.value[word]) | bit
            return FIRST_PID + pid


@rule
def start_session(env, host):
    """A process with the next pid of a host, before the backup is made."""
    env.backup_pid[host] = int(env.backup_pid[host]) + 1 + pick(env, 9)
    env.backup_count[host] += 1


@rule
def start_blue(env, first, last, server):
    """Blue's sessions in hosts `first` up to `last`: its server's first."""
    start_session(env, server)
    for host in range(first, last):
        if host != server:
            start_session(env, host)


@rule
def draw_server(env, first, last):
    """The host of a Blue agent's server session."""
    return first + pick(env, last - first)


@rule
def draw_start(env, zone):
    """Where a Red agent would start: any host of a zone but its router."""
    first = int(env.zone_first[zone])
    return first + 1 + pick(env, int(env.zone_first[zone + 1]) - first - 1)


@rule
def place_agents(env):
    """Sessions of Blue, Green and Red, as processes. Returns Red's foothold, and the zone of the last Red agent's start.

    Zones 5 to 7, which one Blue and one Red agent share, stand side by side.
    """
    first = env.zone_first
    server_0, server_1 = (
        draw_server(env, int(first[RA]), int(first[OA])),
        draw_server(env, int(first[OA]), int(first[RB])),
    )
    server_2, server_3 = (
        draw_server(env, int(first[RB]), int(first[OB])),
        draw_server(env, int(first[OB]), int(first[CN])),
    )
    pick(env, 3)
    server_4 = draw_server(env, int(first[PA]), int(first[IN]))
    foothold = draw_start(env, CN)
    for zone in (RA, OA, RB, OB):
        draw_start(env, zone)
    shared = PA + pick(env, 3)
    draw_start(env, shared)
    start_blue(env, int(first[RA]), int(first[OA]), server_0)
    start_blue(env, int(first[OA]), int(first[RB]), server_1)
    start_blue(env, int(first[RB]), int(first[OB]), server_2)
    start_blue(env, int(first[OB]), int(first[CN]), server_3)
    start_blue(env, int(first[PA]), int(first[IN]), server_4)
    for k in range(env.num_green):
        start_session(env, int(env.green_host[k]))
    start_session(env, foothold)
    return foothold, shared


@rule
def clean_hosts(env):
    """Hosts as their backups have them."""
    empty_pool(env)
    for host in range(env.num_hosts):
        env.ot_off[host] = env.decoys[host] = env.top[host] = env.held[host] = 0
        env.reliability[host] = 100
        env.process_first[host] = env.process_last[host] = 0
        env.suspicious_first[host] = env.suspicious_last[host] = 0
    forget_all(env)


assert (PA, AD, OF, IN) == (5, 6, 7, 8)
