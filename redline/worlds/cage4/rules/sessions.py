"""Red's sessions. Those of an agent stand side by side in the order in which they were opened, agents in order."""

from __future__ import annotations

from redline.compiled.speed import apart, rule
from redline.worlds.cage4.rules.lists import free_list
from redline.worlds.cage4.rules.pcg import pick
from redline.worlds.cage4.rules.scenario import NUM_RED, RED_OWNER, RED_REACH


@rule
def is_foreign(env, agent, host):
    """Whether a host is outside of a Red agent's zones."""
    return (RED_REACH[agent] >> env.host_zone[host]) & 1 == 0


@rule
def find_session(env, agent, number):
    """Where the session of that id is, -1 if the agent has none."""
    for k in range(env.session_first[agent], env.session_first[agent + 1]):
        if env.session_id[k] == number:
            return k
    return -1


@rule
def copy_session(env, source, target):
    """One session as another is."""
    env.session_id[target], env.session_host[target] = env.session_id[source], env.session_host[source]
    env.session_root[target], env.session_abstract[target] = env.session_root[source], env.session_abstract[source]
    env.session_pid[target], env.session_ports[target] = env.session_pid[source], env.session_ports[source]


@apart
def add_session(env, agent, host, root, abstract, pid):
    """A session at the end of an agent's own, with an id above all others of it. Returns the id."""
    first, place, last = (
        int(env.session_first[agent]),
        int(env.session_first[agent + 1]),
        int(env.session_first[NUM_RED]),
    )
    number = 0
    for k in range(first, place):
        number = max(number, int(env.session_id[k]) + 1)
    if last == len(env.session_id):
        env.outgrown = 1
        return number
    for k in range(last, place, -1):
        copy_session(env, k - 1, k)
    for later in range(agent + 1, NUM_RED + 1):
        env.session_first[later] += 1
    env.session_id[place], env.session_host[place] = number, host
    env.session_root[place], env.session_abstract[place] = root, abstract
    env.session_pid[place], env.session_ports[place] = pid, 0
    env.held[host] += 1
    env.opened[agent] = env.changed[agent] = 1
    if is_foreign(env, agent, host):
        env.foreign = 1
    return number


@apart
def remove_session(env, agent, place):
    """A session of an agent ends, and what it remembers is forgotten."""
    free_list(env, int(env.session_ports[place]))
    env.held[env.session_host[place]] -= 1
    env.changed[agent] = env.doubtful[agent] = 1
    for k in range(place, int(env.session_first[NUM_RED]) - 1):
        copy_session(env, k + 1, k)
    for later in range(agent + 1, NUM_RED + 1):
        env.session_first[later] -= 1


@apart
def remove_sessions_on(env, host):
    """All sessions on a host end."""
    for agent in range(NUM_RED):
        for k in range(int(env.session_first[agent + 1]) - 1, int(env.session_first[agent]) - 1, -1):
            if env.session_host[k] == host:
                remove_session(env, agent, k)


@apart
def remove_session_of(env, host, pid):
    """The session that a process of a host belonged to ends, if there is one."""
    for agent in range(NUM_RED):
        for k in range(env.session_first[agent], env.session_first[agent + 1]):
            if env.session_host[k] == host and env.session_pid[k] == pid:
                remove_session(env, agent, k)
                return


@apart
def change_hands(env):
    """Sessions outside of their agent's zones are given to the zone's own agent, as new abstract ones."""
    for agent in range(NUM_RED):
        k = int(env.session_first[agent])
        while k < env.session_first[agent + 1]:
            host = int(env.session_host[k])
            if not is_foreign(env, agent, host):
                k += 1
                continue
            number, root, pid = int(env.session_id[k]), int(env.session_root[k]), int(env.session_pid[k])
            remove_session(env, agent, k)
            owner = int(RED_OWNER[env.host_zone[host]])
            if owner < agent:
                k += 1  # the agent's sessions move on by one
            given = add_session(env, owner, host, root, 1, pid)
            if env.fresh_host[agent] == host and env.fresh_id[agent] == number:
                env.received_host[owner, env.received[owner]] = host
                env.received[owner] += 1
                learn_id(env, owner, given)


@rule
def learn_id(env, agent, number):
    """A Red agent will never forget an id again."""
    for k in range(env.num_ids[agent]):
        if env.ids[agent, k] == number:
            return
    if env.num_ids[agent] == env.ids.shape[1]:
        env.outgrown = 1
        return
    env.ids[agent, env.num_ids[agent]] = number
    env.num_ids[agent] += 1


@rule
def look_after_sessions(env, agent):
    """An agent without a session 0 renumbers one of its own; then it learns ids and zones of all of them."""
    if not env.changed[agent]:
        return
    env.changed[agent] = 0
    first, last = int(env.session_first[agent]), int(env.session_first[agent + 1])
    if find_session(env, agent, 0) < 0:
        renumber(env, first, last, pick(env, last - first))
    for k in range(first, last):
        env.known_zones[agent] |= 1 << int(env.host_zone[env.session_host[k]])
        if env.session_abstract[k]:
            learn_id(env, agent, int(env.session_id[k]))


@apart
def renumber(env, first, last, chosen):
    """The chosen session gets id 0 and goes to the end. A plain one stays plain, and paralyses its agent."""
    place = first + chosen
    host, root, abstract = int(env.session_host[place]), int(env.session_root[place]), int(env.session_abstract[place])
    pid, ports = int(env.session_pid[place]), int(env.session_ports[place])
    for k in range(place, last - 1):
        copy_session(env, k + 1, k)
    env.session_id[last - 1], env.session_host[last - 1] = 0, host
    env.session_root[last - 1], env.session_abstract[last - 1] = root, abstract
    env.session_pid[last - 1], env.session_ports[last - 1] = pid, ports
