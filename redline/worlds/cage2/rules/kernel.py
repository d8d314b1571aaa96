"""The rules of CAGE-2, one env at a time: reset and step. Blue acts, then Green, then Red; then Blue is told and pays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.rng import uniform
from redline.compiled.speed import inlined, kernel
from redline.worlds.cage2.rules.draws import count_bits, draw_green
from redline.worlds.cage2.rules.memory import forget
from redline.worlds.cage2.rules.obedience import close_account, open_account, pay_for_fix, pay_for_idleness
from redline.worlds.cage2.rules.observe import (
    NO,
    PRIVILEGED,
    UNKNOWN_ACCESS,
    mark,
    marked,
    observe,
    observe_nothing,
    show_activity,
)
from redline.worlds.cage2.rules.red import listening_ports, red_acts, scan_traffic
from redline.worlds.cage2.rules.scenario import (
    B_LINE,
    BLUE_ANALYSE,
    BLUE_DECOY,
    BLUE_REMOVE,
    BLUE_RESTORE,
    BLUE_SLEEP,
    COSTS_ONE,
    COSTS_TEN,
    DECOY_HOSTS,
    DECOY_NEEDS,
    DECOYS_BY_WORTH,
    DEFENDED,
    FALSE,
    FOOTHOLD,
    FULL,
    MAIL_SERVERS,
    MEANDER,
    MEMORY,
    NUM_HOSTS,
    OP_SERVER,
    RED_SLEEP,
    REDUCED,
    REDUCED_DECOY,
    REDUCED_RESTORE,
    TRUE,
    UNKNOWN,
    USEFUL,
    USEFUL_DECOYS,
    USEFUL_ONLY,
    USER_SUBNET,
    Settings,
)
from redline.worlds.play_on import playing_on

RESTORE_COST, OT_COST = 10, 100  # tenths of a point


@kernel
def begin(env, settings):
    """A new episode: everything as it was at the very start, except the random stream, which goes on."""
    env.table = 0
    env.activity = 0
    env.clock = 0
    env.lost = 0
    env.seen = env.unseen = env.malware = env.dead_mail = 0
    env.root = 1 << FOOTHOLD
    for host in range(NUM_HOSTS):
        env.decoys[host] = 0
        env.ports[host] = 0
    env.ot = env.knows_ot = 0
    env.known_hosts = env.known_names = 1 << FOOTHOLD
    env.known_subnets = 1 << USER_SUBNET
    env.stage = 0
    env.target = env.last_exploited = env.last_escalated = -1
    env.issued = env.scanned = env.exploited = env.escalated = env.mapped = 0
    env.swept = env.scan_empty = 0
    env.red_success = env.blue_success = UNKNOWN
    env.red_kind = env.green_kind = 0
    env.red_target = env.green_host = -1
    env.red_exploit = env.red_other = env.red_top = env.red_outcome = env.red_detected = env.red_escalation = -1
    open_account(env)
    env.scans_noticed = 0
    env.last_action = env.latest_scan = -1
    env.impossible = 0
    if settings.observation == MEMORY:
        forget(env)
    if not env.scripted:
        env.red_agent = draw_red_agent(env, settings)


@kernel
def draw_red_agent(env, settings):
    """The episode's Red agent. A mixture of one needs no draw."""
    if settings.b_line_share == 1.0:
        return B_LINE
    if settings.meander_share == 1.0:
        return MEANDER
    if settings.b_line_share + settings.meander_share == 0.0:
        return RED_SLEEP
    draw = uniform(env)
    if draw < settings.b_line_share:
        return B_LINE
    return MEANDER if draw < settings.b_line_share + settings.meander_share else RED_SLEEP


@kernel
def accepts(env, host, decoy):
    """Whether the decoy can start: its operating system fits and the port it asks for is free."""
    fits = (int(DECOY_HOSTS[decoy]) >> host) & 1
    return fits and (listening_ports(env, host) & int(DECOY_NEEDS[decoy])) == 0


@kernel
def restore(env, host, leaderboard):
    """Back to the clean image. Red keeps its foothold, and what it knows."""
    keep = ~(1 << host)
    env.seen &= keep
    env.unseen &= keep
    if host != FOOTHOLD:
        env.root &= keep
    env.malware &= keep
    env.decoys[host] = 0
    if host == OP_SERVER:
        env.ot = 2  # the original's backup loses the service's process, so it can never be stopped again
    if leaderboard and (MAIL_SERVERS >> host) & 1:
        env.dead_mail |= 1 << host


@kernel
def blue_acts(env, action, leaderboard):
    """Blue's action takes effect. Returns the host that got a decoy, and the host where Analyse found malware."""
    env.blue_success = TRUE
    if action < BLUE_ANALYSE:
        if action == BLUE_SLEEP:
            env.blue_success = UNKNOWN
        return -1, -1
    host = (action - BLUE_ANALYSE) % NUM_HOSTS
    if action >= BLUE_RESTORE:
        restore(env, host, leaderboard)
        mark(env, host, NO)
    elif action >= BLUE_DECOY:
        decoy = (action - BLUE_DECOY) // NUM_HOSTS
        if accepts(env, host, decoy):
            env.decoys[host] = int(env.decoys[host]) | (1 << decoy)
            return host, -1
        env.blue_success = FALSE
    elif action >= BLUE_REMOVE:
        env.seen &= ~(1 << host)
        if marked(env, host) != NO:
            mark(env, host, UNKNOWN_ACCESS)
    elif (int(env.malware) >> host) & 1:
        return -1, host
    return -1, -1


@kernel
def green_acts(env):
    """Green sleeps or scans a host. Returns the host with traffic (-1 for none), its events and ports."""
    host = draw_green(env)
    env.green_kind = host >= 0
    env.green_host = host
    if host < 0:
        return -1, 0, 0
    events, ports = scan_traffic(env, host)
    return host, events, ports


@kernel
def tell_blue(env, decoy_host, green_host, green_events, green_ports, red_host, red_events, red_ports, cw2):
    """Automatic Monitor: traffic becomes activity, and activity may become a suspicion."""
    if red_events == 0:
        red_host = -1
    if green_host >= 0:
        if green_host == red_host:
            red_events += green_events
            red_ports |= green_ports
        else:
            show_activity(env, green_host, int(green_host == decoy_host), green_events, green_ports, cw2)
    if red_host >= 0:
        show_activity(env, red_host, int(red_host == decoy_host), red_events, red_ports, cw2)


@kernel
def points_lost(env, action):
    """Tenths of a point this step costs Blue."""
    root = int(env.root)
    lost = 10 * count_bits(root & COSTS_TEN) + count_bits(root & COSTS_ONE)
    if env.ot == 1:
        lost += OT_COST
    if action >= BLUE_RESTORE:
        lost += RESTORE_COST
    return lost


@kernel
def play(env, action, settings):
    """One step of one env. Returns the tenths of a point lost."""
    env.activity = 0
    decoy_host, malware_host = blue_acts(env, action, settings.leaderboard)
    green_host, green_events, green_ports = -1, 0, 0
    if settings.green:
        green_host, green_events, green_ports = green_acts(env)
    red_host, red_events, red_ports = red_acts(env, settings.leaderboard)
    tell_blue(env, decoy_host, green_host, green_events, green_ports, red_host, red_events, red_ports, settings.cw2)
    if malware_host >= 0:  # last, so that it overrides what Monitor suspects
        mark(env, malware_host, PRIVILEGED)
    lost = points_lost(env, action)
    env.last_action = action
    env.clock += 1
    env.lost += lost
    return lost


@kernel
def reset(state, first, last, settings, packed):
    """Begin an episode in envs `first` up to `last`."""
    for i in range(first, last):
        begin(state[i], settings)
        observe_nothing(packed, i)


@inlined
def advance(state, i, action, settings, packed, final_packed, final_lost):
    """One step of env `i`, with all that follows from it. Returns the reward, and whether its time is up.

    An env whose time is up shows its last observation and its score in `final_*` and begins again at once. With a
    workflow the reward includes what obedience pays, and with `tidy` what needless acts cost; `final_lost` never does.
    """
    env = state[i]
    paid = 0.0
    if settings.accidents > 0.0 and uniform(env) < settings.accidents:
        action = BLUE_RESTORE + int(DEFENDED[int(uniform(env) * len(DEFENDED))])
        paid = RESTORE_COST / 10.0 - settings.rebate
    if settings.workflow:
        paid += pay_for_fix(env, action, settings)
    lost = play(env, action, settings)
    observe(env, settings, packed, i)
    ended = env.clock == settings.max_steps
    if ended and settings.workflow:
        paid += pay_for_idleness(env, settings)
        close_account(env)
    if action != BLUE_SLEEP:
        paid -= settings.tidy
    if action >= BLUE_RESTORE:
        paid += settings.rebate
    if ended:
        # word by word: slices count references, and threads would contend for the count
        for k in range(packed.shape[1]):
            final_packed[i, k] = packed[i, k]
        final_lost[i] = env.lost
        begin(env, settings)
        observe_nothing(packed, i)
    return lost / -10.0 + paid, ended


@kernel
def step(state, first, last, actions, settings, packed, rewards, ended, final_packed, final_lost):
    """Advance envs `first` up to `last`. Envs share nothing, so slices may run anywhere and in any order."""
    for i in range(first, last):
        rewards[i], ended[i] = advance(state, i, int(actions[i]), settings, packed, final_packed, final_lost)


class Defence(NamedTuple):
    """All that a step needs, and where it leaves what comes of it; arrays over envs."""

    state: np.ndarray
    settings: Settings
    choice: int  # which set of actions is chosen from, in the order of ACTIONS
    obs: np.ndarray
    final_obs: np.ndarray
    final_lost: np.ndarray


@inlined
def defend(world, i, action):
    """One step of env `i`, whatever the set its action is from. Returns reward, terminated and truncated."""
    action = full_action(world.state[i], action, world.choice)
    reward, ended = advance(
        world.state, i, action, world.settings, world.obs, world.final_obs, world.final_lost
    )  # fmt: skip
    return reward, False, ended


@inlined
def tell(world, i, told, place):
    """The account of the episode that ended last in env `i`."""
    env = world.state[i]
    told[place].lost = world.final_lost[i]
    told[place].aligned = env.last_aligned
    told[place].fixes = env.last_fixes
    told[place].complied = env.last_complied


TOLD = np.dtype([("lost", np.int64), ("aligned", np.float64), ("fixes", np.int64), ("complied", np.int64)])
play_on = playing_on(defend, tell)


@kernel
def full_action(env, action, choice):
    """An action of one of the sets as one of the full set: `decoy h` is the next best decoy that `h` still takes.

    The useful set has fewer actions, and only decoys that can be of use.
    """
    if choice == FULL:
        return action
    if choice == USEFUL_ONLY:
        action = int(USEFUL[action])
    if action >= REDUCED_DECOY:
        return next_decoy(env, action - REDUCED_DECOY, USEFUL_DECOYS if choice == USEFUL_ONLY else DECOYS_BY_WORTH)
    return action + BLUE_RESTORE - REDUCED_RESTORE if action >= REDUCED_RESTORE else action


@kernel
def settle(state, first, last, settings, ended, rewards):
    """Settle the accounts of episodes that ended without `step` having seen it: they do not begin again by themselves."""
    if settings.workflow:
        for i in range(first, last):
            if ended[i]:
                rewards[i] += pay_for_idleness(state[i], settings)
                close_account(state[i])


@kernel
def expand_actions(state, first, last, reduced, actions):
    """Actions of the reduced set as actions of the full one."""
    for i in range(first, last):
        actions[i] = full_action(state[i], int(reduced[i]), REDUCED)


@kernel
def expand_useful(state, first, last, useful, actions):
    """Actions of the useful set as actions of the full one."""
    for i in range(first, last):
        actions[i] = full_action(state[i], int(useful[i]), USEFUL_ONLY)


@kernel
def next_decoy(env, host, by_worth):
    """The action that starts the best decoy not yet running on `host`; Sleep when there is none."""
    for k in range(len(by_worth)):
        decoy = int(by_worth[k])
        if (int(env.decoys[host]) >> decoy) & 1 == 0 and accepts(env, host, decoy):
            return BLUE_DECOY + decoy * NUM_HOSTS + host
    return BLUE_SLEEP
