"""Red: what its actions do, and how its three agents choose them.

An action returns the traffic it causes as `(events, ports)` on its target; Blue sees nothing else of Red.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.speed import kernel
from redline.worlds.cage2.rules.draws import count_bits, draw_detection, draw_exploit, draw_host
from redline.worlds.cage2.rules.scenario import (
    ABSENT,
    B_LINE,
    CANDIDATES,
    DISCOVER_SERVICES,
    DISCOVER_SYSTEMS,
    ENTERPRISE,
    ENTERPRISE2,
    ENTERPRISE_SUBNET,
    ESCALATE,
    EXPLOIT,
    EXPLOIT_DECOYS,
    EXPLOIT_PORT,
    FALSE,
    FAVOURITE,
    GAIN,
    HARAKA,
    IMPACT,
    LINK,
    LISTENERS,
    LISTENING,
    MEANDER,
    NO_ACCOUNT,
    OP_SERVER,
    OPERATIONAL,
    PORTS_OF_DECOYS,
    RED_PORTS,
    ROOT_GAIN,
    SLEEP,
    SPECIAL_PORT,
    SSH,
    SUBNET_MEMBERS,
    SUBNET_OF,
    TRUE,
    UNKNOWN,
    USER_SUBNET,
    USER_TARGETS,
    WINDOWS,
)

NOTHING = (0, 0)
NEVER_SCANNED, UNREACHABLE, NO_LISTENER, HIT_DECOY, LANDED, WEAK_ACCOUNT_MISSING, INEFFECTIVE = range(7)
SSH_TRIES = 10  # brute force: ten failed logins, then perhaps the one that works

DRAWN_HOST, ITS_LINK = -1, -2  # the user host that B_line draws, and the Enterprise host that one leads to


class AttackStage(NamedTuple):
    """A stage of B_line's plan, and the one it falls back to when this one fails."""

    kind: int
    target: int
    on_failure: int


ATTACK = (
    AttackStage(DISCOVER_SYSTEMS, USER_SUBNET, on_failure=0),
    AttackStage(DISCOVER_SERVICES, DRAWN_HOST, on_failure=1),
    AttackStage(EXPLOIT, DRAWN_HOST, on_failure=2),
    AttackStage(ESCALATE, DRAWN_HOST, on_failure=2),
    AttackStage(DISCOVER_SERVICES, ITS_LINK, on_failure=2),
    AttackStage(EXPLOIT, ITS_LINK, on_failure=2),
    AttackStage(ESCALATE, ITS_LINK, on_failure=5),
    AttackStage(DISCOVER_SYSTEMS, ENTERPRISE_SUBNET, on_failure=5),
    AttackStage(DISCOVER_SERVICES, ENTERPRISE2, on_failure=5),
    AttackStage(EXPLOIT, ENTERPRISE2, on_failure=5),
    AttackStage(ESCALATE, ENTERPRISE2, on_failure=9),
    AttackStage(DISCOVER_SERVICES, OP_SERVER, on_failure=9),
    AttackStage(EXPLOIT, OP_SERVER, on_failure=9),
    AttackStage(ESCALATE, OP_SERVER, on_failure=12),
    AttackStage(IMPACT, OP_SERVER, on_failure=13),
)
STAGE_KIND, STAGE_TARGET, STAGE_ON_FAILURE = (np.array(column, np.int8) for column in zip(*ATTACK, strict=True))
FIRST_SCAN, OP_SERVER_EXPLOIT, LAST_STAGE = 1, 12, 14


@kernel
def listening_ports(env, host):
    """Ports open right now, decoys included."""
    return int(LISTENING[host]) | int(PORTS_OF_DECOYS[env.decoys[host]])


@kernel
def scan_traffic(env, host):
    """The traffic of a port scan of `host`: one event per listener, and the ports they are on."""
    return int(LISTENERS[host]) + count_bits(int(env.decoys[host])), listening_ports(env, host)


@kernel
def sessions(env):
    """Hosts on which Red has a session of any kind."""
    return int(env.seen) | int(env.unseen) | int(env.root)


@kernel
def reaches(env, hosts):
    """Whether Red gets to these hosts of one subnet: the Operational one opens with any session in Enterprise."""
    return (hosts & OPERATIONAL) == 0 or (sessions(env) & ENTERPRISE) != 0


@kernel
def discover_systems(env, subnet):
    """Ping sweep: Red learns the addresses of a subnet it can reach."""
    members = int(SUBNET_MEMBERS[subnet])
    if not reaches(env, members):
        env.red_success = FALSE
        return NOTHING
    env.known_hosts |= members
    env.red_success = TRUE
    return NOTHING


@kernel
def discover_services(env, host, keep_old_ports):
    """Port scan. The original reports success even where nothing could be reached, and so do we."""
    env.red_success = TRUE
    if not reaches(env, 1 << host):
        env.scan_empty = 1
        return NOTHING
    env.scan_empty = 0
    ports = listening_ports(env, host) & RED_PORTS
    env.ports[host] = int(env.ports[host]) | ports if keep_old_ports else ports
    return scan_traffic(env, host)


@kernel
def exploit(env, host):
    """Red tries one exploit of those its port list suggests."""
    env.red_success = FALSE
    remembered = int(env.ports[host])
    if remembered == 0:
        env.red_outcome = NEVER_SCANNED
        return NOTHING
    chosen = draw_exploit(env, int(CANDIDATES[remembered]), int(FAVOURITE[remembered]))
    env.red_exploit = chosen
    if not reaches(env, 1 << host):
        env.red_outcome = UNREACHABLE
        return NOTHING
    port = int(EXPLOIT_PORT[chosen])
    gain = int(GAIN[host, chosen])
    if gain == ABSENT:  # real listeners come first; only without one does a decoy catch the exploit
        if int(env.decoys[host]) & int(EXPLOIT_DECOYS[chosen]) == 0:
            env.red_outcome = NO_LISTENER
            return NOTHING
        env.red_outcome = HIT_DECOY
        return (SSH_TRIES if chosen == SSH else 2), port
    if gain == NO_ACCOUNT:
        env.red_outcome = WEAK_ACCOUNT_MISSING
        return SSH_TRIES, port
    if chosen == HARAKA and (int(env.dead_mail) >> host) & 1:
        env.red_outcome = INEFFECTIVE
        return 1, port
    env.red_outcome = LANDED
    env.red_success = TRUE
    env.known_names |= 1 << host
    if chosen == SSH:  # a login, not a shell: no malware, and nothing that Remove could find
        env.unseen |= 1 << host
        return SSH_TRIES + 1, port
    return open_shell(env, host, gain, port)


@kernel
def open_shell(env, host, gain, port):
    """A landed exploit leaves malware and a session. Blue can remove it if it is unprivileged and was noticed."""
    env.malware |= 1 << host
    detected = draw_detection(env)
    if gain == ROOT_GAIN:
        env.root |= 1 << host
    elif detected:
        env.seen |= 1 << host
    else:
        env.unseen |= 1 << host
    if detected:
        return 2, port | SPECIAL_PORT
    return 1, port


@kernel
def escalate(env, host):
    """Any session on the host becomes privileged; what the host knows, Red knows."""
    if (sessions(env) >> host) & 1 == 0:
        env.red_success = FALSE
        return NOTHING
    env.red_success = TRUE
    env.red_escalation = 0
    if (int(env.root) >> host) & 1 == 0:
        env.root |= 1 << host
        env.malware |= 1 << host
        env.red_escalation = 1 if (WINDOWS >> host) & 1 else 2
    env.known_subnets |= 1 << int(SUBNET_OF[host])
    if LINK[host] >= 0:
        env.known_hosts |= 1 << int(LINK[host])
    if host == OP_SERVER:
        env.knows_ot = 1
    return NOTHING


@kernel
def impact(env):
    """Stops the OT service, once and for all the steps that follow, unless a Restore has made it unstoppable."""
    if (sessions(env) >> OP_SERVER) & 1 and env.knows_ot:
        env.red_success = TRUE
        if env.ot == 0:
            env.ot = 1
    else:
        env.red_success = FALSE
    return NOTHING


@kernel
def choose_b_line(env):
    """Straight for Op_Server0: the next stage after a success, a fixed fallback after anything else."""
    if env.red_success == TRUE:
        stage = min(int(env.stage) + 1, LAST_STAGE)
    else:
        stage = int(STAGE_ON_FAILURE[env.stage])
    if stage == OP_SERVER_EXPLOIT and env.scan_empty and (int(env.issued) >> OP_SERVER_EXPLOIT) & 1 == 0:
        stage = FIRST_SCAN  # the original starts over when its first look at Op_Server0 found nothing
    env.stage = stage
    env.issued |= 1 << stage
    if stage == FIRST_SCAN and env.target < 0:
        env.target = draw_host(env, USER_TARGETS)
    target = int(STAGE_TARGET[stage])
    if target == DRAWN_HOST:
        target = int(env.target)
    elif target == ITS_LINK:
        target = int(LINK[env.target])
    return int(STAGE_KIND[stage]), target


@kernel
def meander_learns(env):
    """Meander digests how its last action went."""
    tried = int(env.last_exploited)
    if tried >= 0:
        if env.red_success == TRUE:
            env.mapped |= 1 << tried
        else:
            env.exploited &= ~(1 << tried)
            meander_purges(env)
        env.last_exploited = -1
    held = int(env.last_escalated)
    if held >= 0:
        if env.red_success == FALSE:
            env.escalated &= ~(1 << held)
            if (int(env.mapped) >> held) & 1:
                env.exploited &= ~(1 << held)
        env.last_escalated = -1


@kernel
def meander_purges(env):
    """After a failed exploit Meander forgets one tier of conquests: Operational if it has any there, else Enterprise."""
    tier = OPERATIONAL if int(env.escalated) & OPERATIONAL else ENTERPRISE
    lost = int(env.escalated) & tier
    env.escalated &= ~lost
    env.exploited &= ~lost


@kernel
def choose_meander(env):
    """Breadth first: sweep, then scan, then escalate, then exploit whatever is left, in random order."""
    meander_learns(env)
    if (int(env.escalated) >> OP_SERVER) & 1:
        env.last_escalated = OP_SERVER
        return IMPACT, OP_SERVER
    unswept = int(env.known_subnets) & ~int(env.swept)
    if unswept:
        subnet = count_bits((unswept & -unswept) - 1)
        env.swept |= 1 << subnet  # even if the sweep is about to fail
        return DISCOVER_SYSTEMS, subnet
    unscanned = int(env.known_hosts) & ~int(env.scanned)
    if unscanned:
        host = draw_host(env, unscanned)
        env.scanned |= 1 << host
        return DISCOVER_SERVICES, host
    within = int(env.known_names) & ~int(env.escalated) & (~int(env.mapped) | int(env.exploited))
    if within:
        host = draw_host(env, within)
        env.escalated |= 1 << host
        env.last_escalated = host
        return ESCALATE, host
    host = draw_host(env, int(env.known_hosts) & ~int(env.exploited))
    env.exploited |= 1 << host
    env.last_exploited = host
    return EXPLOIT, host


@kernel
def choose(env):
    """The Red agent's next action, `(kind, target)`."""
    if env.red_agent == B_LINE:
        return choose_b_line(env)
    if env.red_agent == MEANDER:
        return choose_meander(env)
    return SLEEP, -1


@kernel
def red_acts(env, keep_old_ports):
    """Red decides and acts. Returns the host with traffic (-1 for none), its events and ports."""
    kind, target = choose(env)
    env.red_kind = kind
    env.red_target = target
    env.red_exploit = env.red_other = env.red_top = env.red_outcome = env.red_detected = env.red_escalation = -1
    events, ports = 0, 0
    if kind == DISCOVER_SYSTEMS:
        discover_systems(env, target)
    elif kind == DISCOVER_SERVICES:
        events, ports = discover_services(env, target, keep_old_ports)
    elif kind == EXPLOIT:
        events, ports = exploit(env, target)
    elif kind == ESCALATE:
        escalate(env, target)
    elif kind == IMPACT:
        impact(env)
    else:
        env.red_success = UNKNOWN
    return target, events, ports
