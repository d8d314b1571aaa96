"""Green: users who work on their hosts and with servers, fall for phishing, and raise false alarms."""

from __future__ import annotations

from redline.compiled.speed import apart, rule
from redline.worlds.cage4.rules.events import note_connection, note_creation
from redline.worlds.cage4.rules.lists import add_process
from redline.worlds.cage4.rules.pcg import pick, uniform
from redline.worlds.cage4.rules.scenario import (
    ACCESS_FAILS,
    BLUE_OWNER,
    NAME_RANK,
    NUM_RED,
    SERVED,
    SESSION,
    WORK_FAILS,
)
from redline.worlds.cage4.rules.sessions import add_session
from redline.worlds.cage4.rules.used_ports import use_port

ACCESS, WORK, IDLE = range(3)
FALSE_ALARM = PHISHED = 0.01


@apart
def list_served(env):
    """The servers that users of each zone work with in this phase, in the order of hosts."""
    for zone in range(8):
        count = 0
        for other in range(8):
            if (SERVED[env.phase, zone] >> other) & 1:
                first = int(env.zone_first[other]) + 1 + int(env.zone_users[other])
                for k in range(env.zone_servers[other]):
                    env.served[zone, count] = first + k
                    count += 1
        env.served_count[zone] = count


@rule
def green_chooses(env):
    """Every user decides what to do."""
    for k in range(env.num_green):
        env.green_choice[k] = pick(env, 3)


@rule
def green_acts(env, settings, shares, i):
    """Every user does it. Points that fail to be earned go to the defender of the user's zone."""
    for k in range(env.num_green):
        choice, host = int(env.green_choice[k]), int(env.green_host[k])
        zone = int(env.host_zone[host])
        if choice == ACCESS:
            if not access_service(env, zone):
                shares[i, BLUE_OWNER[zone]] += ACCESS_FAILS[env.phase, zone]
        elif choice == WORK and not work(env, host, settings):
            shares[i, BLUE_OWNER[zone]] += WORK_FAILS[env.phase, zone]


@rule
def access_service(env, zone):
    """A user of a zone reaches a server, unless traffic is blocked in either direction. Whether it works nobody asks."""
    server = int(env.served[zone, pick(env, int(env.served_count[zone]))])
    use_port(env, server)
    other = int(env.host_zone[server])
    if (int(env.blocks[zone]) >> NAME_RANK[other]) & 1 or (int(env.blocks[other]) >> NAME_RANK[zone]) & 1:
        note_connection(env, server)
        return False
    if uniform(env) < FALSE_ALARM:
        note_connection(env, server)
    return True


@rule
def work(env, host, settings):
    """A user works with one of the services of the own host, decoys included, as far as it is reliable."""
    real = int(env.real_services[host]) - int(env.ot_off[host])
    chosen = pick(env, real + int(env.decoys[host]))
    reliability = int(env.reliability[host]) if chosen < real else int(env.decoy_reliability[host, chosen - real])
    if pick(env, 100) >= reliability:
        return False
    if uniform(env) < FALSE_ALARM:
        use_port(env, host)
        note_creation(env, host)
    if uniform(env) < PHISHED and env.held[host] == 0:
        phish(env, host, settings)
    return True


@apart
def phish(env, host, settings):
    """Red gets a session on a host where it has none: the agent of the last host in the same zone that is held, or any.

    Firewalls do not matter, and nothing is noticed.
    """
    sender = holder_in_zone(env, int(env.host_zone[host]))
    if sender < 0:
        sender = any_holder(env)
    add_session(env, sender, host, 0, 1, add_process(env, host, SESSION, settings))


@rule
def holder_in_zone(env, zone):
    """The first Red agent on the last host of a zone that Red holds; -1 if it holds none."""
    sender, last = -1, -1
    for agent in range(NUM_RED):
        for k in range(env.session_first[agent], env.session_first[agent + 1]):
            host = int(env.session_host[k])
            if host > last and env.host_zone[host] == zone:
                sender, last = agent, host
    return sender


@rule
def is_first_on_host(env, agent, k):
    """Whether no earlier session of the same agent is on the same host."""
    for before in range(env.session_first[agent], k):
        if env.session_host[before] == env.session_host[k]:
            return False
    return True


@rule
def any_holder(env):
    """Any pair of a host and a Red agent that holds it; its agent."""
    count = 0
    for agent in range(NUM_RED):
        for k in range(env.session_first[agent], env.session_first[agent + 1]):
            count += int(is_first_on_host(env, agent, k))
    chosen = pick(env, count)
    for host in range(env.num_hosts):
        if env.held[host] > 0:
            for agent in range(NUM_RED):
                for k in range(env.session_first[agent], env.session_first[agent + 1]):
                    if env.session_host[k] == host:
                        if chosen == 0:
                            return agent
                        chosen -= 1
                        break
    return -1
