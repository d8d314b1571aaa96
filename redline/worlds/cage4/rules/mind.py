"""Red's mind: what each agent makes of what it was told, and what it does next."""

from __future__ import annotations

from redline.compiled.speed import apart, rule
from redline.worlds.cage4.rules.pcg import pick, uniform
from redline.worlds.cage4.rules.scenario import (
    CHANCES_UP_TO,
    DISCOVERY,
    KD,
    LINKS,
    LISTED,
    MOST_SERVERS,
    NUM_ZONES,
    PRIORITIES,
    RD,
    RED_DURATION,
    SWEEP,
    WINS,
    F,
    K,
    U,
)
from redline.worlds.cage4.rules.sessions import is_foreign

# how an action ended
UNKNOWN, FAILED, SUCCEEDED, IN_PROGRESS = range(4)
# what is shown of it
NOTHING, TARGET, TARGET_NAMED, BREAK_IN, ESCALATION, ESCALATION_AND_LINKS, ZONE = range(7)
NO_ACTION = -1


@rule
def meet(env, agent, host, named):
    """A host is shown: a new one is known from now on, of another the name may be."""
    place = int(env.known_at[agent, host]) - 1
    if place >= 0:
        env.known_name[agent, place] |= named
        return
    place = int(env.known[agent])
    if place == env.known_host.shape[1]:
        env.outgrown = 1
        return
    env.known[agent] = place + 1
    env.known_host[agent, place], env.known_name[agent, place] = host, named
    env.known_state[agent, place] = K if env.had_turn[agent] else U
    env.known_at[agent, host] = place + 1


@rule
def advance(env, agent, place, kind, succeeded):
    """The state of a known host after an action on it. The original turns U into F abroad also where nothing was won."""
    state = int(env.known_state[agent, place])
    after = int(WINS[state, kind])
    if after < 0:
        return
    if not succeeded:
        after = state
    if after == U and is_foreign(env, agent, int(env.known_host[agent, place])):
        after = F
    env.known_state[agent, place] = after


@rule
def take_outcome(env, agent):
    """The latest action changes the state of its host, a sweep that of all known hosts of the zone."""
    kind, succeeded = int(env.told_kind[agent]), env.told[agent] == SUCCEEDED
    if kind == NO_ACTION or env.told[agent] == IN_PROGRESS:
        return
    if kind != SWEEP:
        place = int(env.known_at[agent, env.told_target[agent]]) - 1
        if place >= 0:
            advance(env, agent, place, kind, succeeded)
        return
    for place in range(env.known[agent]):
        if env.host_zone[env.known_host[agent, place]] == env.told_target[agent]:
            advance(env, agent, place, kind, succeeded)


@rule
def meet_all(env, agent):
    """All hosts that were shown, in order: those of the action, of sessions received, of all own sessions."""
    shown, target = int(env.told_show[agent]), int(env.told_target[agent])
    if shown == ZONE:
        for host in range(env.zone_first[target] + 1, env.zone_first[target + 1]):
            meet(env, agent, host, 0)
    elif shown != NOTHING:
        meet(env, agent, target, int(shown != TARGET))
        if shown == BREAK_IN:
            meet(env, agent, int(env.told_source[agent]), 0)
        elif shown == ESCALATION_AND_LINKS:
            meet_linked(env, agent, int(env.host_zone[target]))
    for k in range(env.received[agent]):
        meet(env, agent, int(env.received_host[agent, k]), 1)
    if env.opened[agent]:
        for k in range(env.session_first[agent], env.session_first[agent + 1]):
            meet(env, agent, int(env.session_host[k]), 1)
        env.opened[agent] = 0


@apart
def meet_linked(env, agent, zone):
    """The first servers of the zones that a zone's first server knows."""
    for other in range(NUM_ZONES):
        if (LINKS[zone] >> other) & 1:
            meet(env, agent, int(env.zone_first[other]) + 1 + int(env.zone_users[other]), 1)


@rule
def forget_lost(env, agent):
    """Hosts thought to be held of which no session was shown are merely known.

    That of a break-in abroad is shown once, so it is in doubt at the next turn.
    """
    shows_session = env.told_show[agent] >= BREAK_IN and env.told_show[agent] < ZONE
    shown = int(env.told_target[agent]) if shows_session else -1
    if not env.doubtful[agent] and not shows_session:
        return
    env.doubtful[agent] = shows_session
    first, last = int(env.session_first[agent]), int(env.session_first[agent + 1])
    for place in range(env.known[agent]):
        state = int(env.known_state[agent, place])
        if state >= U and state <= RD:
            host = int(env.known_host[agent, place])
            lost = host != shown
            if lost and env.held[host] > 0:
                for k in range(first, last):
                    if env.session_host[k] == host:
                        lost = False
                        break
            if lost:
                env.known_state[agent, place] = KD


@rule
def red_thinks(env, agent, settings):
    """An active agent takes in what it was told, and chooses an action unless one is under way."""
    take_outcome(env, agent)
    meet_all(env, agent)
    forget_lost(env, agent)
    env.had_turn[agent] = 1
    if env.told[agent] != IN_PROGRESS:
        red_chooses(env, agent, settings)


@rule
def red_chooses(env, agent, settings):
    """A host, what to do with it, and through which session: any whose id the agent ever knew."""
    place = any_host(env, agent) if settings.red_agent != DISCOVERY else preferred_host(env, agent)
    kind = draw_kind(env, int(env.known_state[agent, place]), int(settings.red_agent))
    target = int(env.known_host[agent, place])
    if kind == SWEEP:
        target = draw_zone(env, int(env.known_zones[agent]))
    env.red_kind[agent], env.red_target[agent] = kind, target
    env.red_session[agent] = env.ids[agent, pick(env, int(env.num_ids[agent]))]
    env.red_left[agent] = RED_DURATION[kind]


@rule
def draw_kind(env, state, variant):
    """An action, by the chances that the state of the host gives them."""
    drawn, k = uniform(env), 0
    while CHANCES_UP_TO[variant, state, k] <= drawn:
        k += 1
    return int(LISTED[k])


@rule
def draw_zone(env, zones):
    """Any zone of a mask."""
    count = 0
    for zone in range(NUM_ZONES):
        count += (zones >> zone) & 1
    chosen = pick(env, count)
    for zone in range(NUM_ZONES):
        if (zones >> zone) & 1:
            if chosen == 0:
                return zone
            chosen -= 1
    return -1


@rule
def any_host(env, agent):
    """The place of any known host that is not foreign and held."""
    count = 0
    for place in range(env.known[agent]):
        count += int(env.known_state[agent, place] != F)
    chosen = pick(env, count)
    if count == env.known[agent]:
        return chosen
    for place in range(env.known[agent]):
        if env.known_state[agent, place] != F:
            if chosen == 0:
                return place
            chosen -= 1
    return -1


# DiscoveryFSRed


@apart
def preferred_host(env, agent):
    """A state by its priority, among those that are there, then a host in that state: mostly a server, if one is known."""
    state = preferred_state(env, agent)
    count = servers = 0
    for place in range(env.known[agent]):
        if env.known_state[agent, place] == state:
            count += 1
            servers += int(is_known_server(env, agent, place))
    if count > 1 and servers > 0:
        if uniform(env) <= 0.75 or servers == count:
            return nth_in_state(env, agent, state, True, True, pick(env, servers))
        return nth_in_state(env, agent, state, True, False, pick(env, count - servers))
    return nth_in_state(env, agent, state, False, False, pick(env, count))


@rule
def is_known_server(env, agent, place):
    """Whether the agent knows that it is a server."""
    return env.known_name[agent, place] != 0 and env.host_slot[env.known_host[agent, place]] < MOST_SERVERS


@rule
def nth_in_state(env, agent, state, by_role, server, chosen):
    """The place of a host in a state; `by_role` only those that are servers, or only those that are not."""
    for place in range(env.known[agent]):
        if env.known_state[agent, place] == state and (not by_role or is_known_server(env, agent, place) == server):
            if chosen == 0:
                return place
            chosen -= 1
    return -1


@rule
def preferred_state(env, agent):
    """One of the states that hosts are in, in the order in which they appear; the arithmetic is the original's."""
    seen = count = total = 0
    for place in range(env.known[agent]):
        state = int(env.known_state[agent, place])
        if state != F and (seen >> state) & 1 == 0:
            seen |= 1 << state
            count += 1
            total += int(PRIORITIES[state])
    if total == 0:
        return nth_state(env, agent, pick(env, count))
    factor, last = 1 / (total / 100), 0.0
    for n in range(count):
        last += PRIORITIES[nth_state(env, agent, n)] / 100 * factor
    drawn, up_to, n = uniform(env), 0.0, 0
    while True:
        up_to += PRIORITIES[nth_state(env, agent, n)] / 100 * factor
        if up_to / last > drawn:
            return nth_state(env, agent, n)
        n += 1


@rule
def nth_state(env, agent, n):
    """The n-th of the states that hosts are in."""
    seen = 0
    for place in range(env.known[agent]):
        state = int(env.known_state[agent, place])
        if state != F and (seen >> state) & 1 == 0:
            if n == 0:
                return state
            n -= 1
            seen |= 1 << state
    return -1
