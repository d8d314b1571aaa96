"""The rules of CAGE-4, one env at a time: reset and step.

In a step all choose, time passes, and what is due takes effect: Blue's actions, then Green's, then Red's.
"""

from __future__ import annotations

from redline.compiled.speed import apart, kernel, rule
from redline.worlds.cage4.rules.blue import blue_acts, blue_chooses, host_in_slot, pass_blue_time
from redline.worlds.cage4.rules.deeds import red_acts
from redline.worlds.cage4.rules.events import clear_events
from redline.worlds.cage4.rules.generate import clean_hosts, generate, place_agents
from redline.worlds.cage4.rules.green import green_acts, green_chooses, list_served
from redline.worlds.cage4.rules.mind import (
    IN_PROGRESS,
    NO_ACTION,
    NOTHING,
    SUCCEEDED,
    UNKNOWN,
    red_thinks,
)
from redline.worlds.cage4.rules.observe import observe
from redline.worlds.cage4.rules.pcg import shuffle
from redline.worlds.cage4.rules.scenario import (
    ALLOW,
    BLOCK,
    BLUE_OWNER,
    BLUE_TABLE,
    FEW_ACTIONS,
    IMPACT,
    IMPACTS,
    MONITOR,
    MOST_ACTIONS,
    MOST_HOSTS,
    NOBODY,
    NUM_BLUE,
    NUM_RED,
    NUM_ZONES,
    RED_REACH,
    RED_SLEEPS,
    SLEEP,
)
from redline.worlds.cage4.rules.sessions import add_session, change_hands, find_session, look_after_sessions


@apart
def begin(env, settings):
    """A new episode in a new network. The generator goes on."""
    generate(env)
    foothold, shared_start = place_agents(env)
    clean_hosts(env)
    clear_events(env)
    env.clock = env.phase = env.outgrown = env.foreign = 0
    env.score = env.early_score = 0.0
    list_served(env)
    for zone in range(NUM_ZONES):
        env.blocks[zone] = 0
    for b in range(NUM_BLUE):
        env.blue_left[b] = env.message[b] = 0
    for k in range(env.num_green):
        env.green_choice[k] = 2
    for agent in range(NUM_RED + 1):
        env.session_first[agent] = 0
    for agent in range(NUM_RED):
        begin_red(env, agent)
    env.known_zones[NUM_RED - 1] = 1 << shared_start
    add_session(env, 0, foothold, 0, 1, 0)
    env.active[0], env.num_ids[0], env.ids[0, 0] = 1, 1, 0


@rule
def begin_red(env, agent):
    """An agent that does nothing and knows nothing but its zone."""
    env.active[agent] = env.red_left[agent] = env.had_turn[agent] = env.known[agent] = env.num_ids[agent] = 0
    env.known_zones[agent] = RED_REACH[agent]
    env.opened[agent] = env.changed[agent] = env.doubtful[agent] = 1
    env.told[agent], env.told_kind[agent], env.told_show[agent], env.received[agent] = UNKNOWN, NO_ACTION, NOTHING, 0
    env.red_kind[agent] = env.due_kind[agent] = NO_ACTION
    env.fresh_host[agent] = -1
    for host in range(MOST_HOSTS):
        env.known_at[agent, host] = 0


@rule
def enter_phase(env, settings):
    """A new phase gives users other servers to work with."""
    phase = int(env.clock >= settings.second_phase) + int(env.clock >= settings.third_phase)
    if phase != env.phase:
        env.phase = phase
        list_served(env)


@rule
def red_choose(env, settings):
    """Every active Red agent thinks; who has no action under way begins one."""
    for agent in range(NUM_RED):
        if env.red_left[agent] == 0:
            env.red_kind[agent], env.red_left[agent] = NO_ACTION, 1
        if env.active[agent] and settings.red_agent != RED_SLEEPS:
            red_thinks(env, agent, settings)


@rule
def pass_red_time(env):
    """Actions whose time has come are due; those whose session is gone are dropped. Returns how many were."""
    dropped = 0
    for agent in range(NUM_RED):
        env.red_left[agent] -= 1
        env.waiting[agent] = env.red_left[agent] > 0
        env.due_kind[agent] = NO_ACTION if env.waiting[agent] else env.red_kind[agent]
        is_due = env.due_kind[agent] != NO_ACTION
        env.dropped[agent] = is_due and find_session(env, agent, int(env.red_session[agent])) < 0
        dropped += int(env.dropped[agent])
    return dropped


@rule
def red_act(env, settings):
    """Due actions take effect, and every agent is told how its own ended."""
    for agent in range(NUM_RED):
        env.told_kind[agent], env.told_show[agent], env.received[agent] = NO_ACTION, NOTHING, 0
        env.fresh_host[agent] = -1
        env.told[agent] = IN_PROGRESS if env.waiting[agent] else UNKNOWN
    for agent in range(NUM_RED):
        if env.due_kind[agent] != NO_ACTION and not env.dropped[agent]:
            env.told_kind[agent], env.told_target[agent] = env.due_kind[agent], env.red_target[agent]
            env.told[agent] = red_acts(env, agent, settings)


@rule
def settle_sessions(env):
    """Sessions change hands, agents with sessions are active, and look after them."""
    if env.foreign:
        change_hands(env)
        env.foreign = 0
    for agent in range(NUM_RED):
        env.active[agent] = env.session_first[agent + 1] > env.session_first[agent]
        if env.active[agent]:
            look_after_sessions(env, agent)
            if env.dropped[agent]:
                env.told[agent] = SUCCEEDED


@rule
def charge_impacts(env, shares, i):
    """Impacts that came due cost points, whether they worked, failed or were dropped, if their agent has a session left."""
    for agent in range(NUM_RED):
        if env.due_kind[agent] == IMPACT and env.active[agent]:
            zone = int(env.host_zone[env.red_target[agent]])
            shares[i, BLUE_OWNER[zone]] += IMPACTS[env.phase, zone]


@rule
def play(env, actions, messages, i, settings, shares):
    """One step of one env. Returns its reward; `shares` gets what each defender, and nobody, has to do with it."""
    enter_phase(env, settings)
    clear_events(env)
    shares[i, NOBODY] = 0
    for b in range(NUM_BLUE):
        shares[i, b] = blue_chooses(env, b, int(actions[i, b]))
        env.message[b] = messages[i, b]
    if settings.green:
        green_chooses(env)
    red_choose(env, settings)
    pass_blue_time(env)
    dropped = pass_red_time(env)
    shuffle(env, NUM_BLUE + int(env.num_green) + NUM_RED - dropped)
    blue_acts(env, settings)
    if settings.green:
        green_acts(env, settings, shares, i)
    red_act(env, settings)
    settle_sessions(env)
    charge_impacts(env, shares, i)
    points = 0
    for b in range(NUM_BLUE + 1):
        points += int(shares[i, b])
    env.clock += 1
    env.early_score = env.score
    env.score += points
    return float(points)


@rule
def allow(env, mask, i):
    """Which actions mean something: hosts that are there, and all others."""
    for b in range(NUM_BLUE):
        for action in range(MOST_ACTIONS):
            kind, zone, slot = BLUE_TABLE[b, action]
            on_host = kind != ALLOW and kind != BLOCK and kind != SLEEP and kind != MONITOR
            mask[i, b, action] = action < FEW_ACTIONS or b == NUM_BLUE - 1
            if on_host:
                mask[i, b, action] = host_in_slot(env, zone, slot) >= 0


@rule
def tell_acting(env, acting, i):
    """Who chooses in the next step: those whose latest action is over."""
    for b in range(NUM_BLUE):
        acting[i, b] = env.blue_left[b] == 0


@rule
def start(env, i, settings, words, mask, acting):
    """Begin an episode and show it."""
    begin(env, settings)
    observe(env, words, i)
    allow(env, mask, i)
    tell_acting(env, acting, i)


@kernel
def reset(state, first, last, settings, words, mask, acting):
    """Begin an episode in envs `first` up to `last`."""
    for i in range(first, last):
        start(state[i], i, settings, words, mask, acting)


@kernel
def step(
    state, first, last, actions, messages, settings, autoreset,
    words, mask, acting, rewards, shares, ended, final_words, final_score, early_score,
):  # fmt: skip
    """Advance envs `first` up to `last`. Envs share nothing, so slices may run anywhere and in any order.

    An episode that ends shows its last observation and its scores in `final_*`, and begins again at once if `autoreset`.
    """
    for i in range(first, last):
        env = state[i]
        rewards[i] = play(env, actions, messages, i, settings, shares)
        observe(env, words, i)
        tell_acting(env, acting, i)
        ended[i] = env.clock >= settings.last_step
        if ended[i]:
            # word by word: slices count references, and threads would contend for the count
            for b in range(words.shape[1]):
                for k in range(words.shape[2]):
                    final_words[i, b, k] = words[i, b, k]
            final_score[i], early_score[i] = env.score, env.early_score
            if autoreset and not env.outgrown:
                start(env, i, settings, words, mask, acting)
