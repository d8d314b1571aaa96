"""Playing a net, one env at a time: begin and step. An action fires a transition or waits; the clock skips dead time."""

from __future__ import annotations

import numpy as np

from redline.compiled.numbers import smaller
from redline.compiled.rows import light, one_of, row
from redline.compiled.speed import apart, at_speed, inlined, kernel
from redline.worlds.petri.rules.cleans import clear_notes
from redline.worlds.petri.rules.enabling import can_swap, enabled, may_fire
from redline.worlds.petri.rules.firing import (
    advance,
    begin_firing,
    end_round,
    judge,
    link,
    next_event,
    round_is_open,
    run_by_itself,
    skip,
)
from redline.worlds.petri.rules.observe import observe
from redline.worlds.petri.rules.state import (
    DEADLOCKED,
    DONE,
    LIVELOCKED,
    OUT_OF_STEPS,
    OUT_OF_TIME,
    OVERFLOWED,
    RUNNING,
    SCRAPPED,
    EnvState,
    NetState,
    no_finals,
)
from redline.worlds.petri.rules.tables import FAR, MAKESPAN, NONE, PROCESS, ROBOT, NetTables
from redline.worlds.petri.rules.traits import for_nets, has_extras, is_routed

FAILURE, UNFINISHED = 2.0, 2.0
LATE, LATE_ONCE = 2.0, 0.03  # a second past a deadline costs as much as two of the makespan, and the first one more
TIME, PROCESSING, OVERSTAY, HOLD = -10.0, 5.0, -4.0, -6.0  # per second
STEP, STEP_ON, START, BEGIN = range(4)  # what is done with an env; see `step`
WAFER_DONE, ALL_DONE, SCRAP, IDLE, TIME_LIMIT = 500.0, 3000.0, -4000.0, -1000.0, -100.0


@inlined
def begin(net, state):
    """A new episode: the starting marking at time 0."""
    clear(net, state)
    open_step(state.env)
    for p in range(len(net.places)):
        static = net.places[p]
        place = state.places[p]
        place.marking = static.tokens
        state.env.finished += smaller(static.tokens, static.goal)
        for n in range(static.tokens if static.queue != NONE else 0):
            state.notes[static.queue + n] = static.min_stay
    for k in range(len(state.tokens)):
        token = state.tokens[k]
        link(state, net.lists[net.constants.token_places + k], k)
        token.row = net.lists[net.constants.token_rows + k]
        token.entered = token.moving = 0
        token.ready = net.places[token.place].min_stay


@inlined
def clear(net, state):
    """No tokens anywhere, nothing under way."""
    env = state.env
    env.score = 0.0
    env.clock = env.steps = env.finished = env.fired = env.underway = 0
    env.released = env.gate_opens = env.idle = 0
    env.outcome = RUNNING
    env.scrapped = NONE
    env.gone = env.freed = env.margin_min = env.margin_sum = env.margins = 0
    for p in range(len(net.places)):
        place = state.places[p]
        place.head = place.tail = NONE
        place.moving = place.reserved = place.queue_first = place.entered = 0
        place.uses = place.left = place.clean_until = place.seconds = 0
    for r in range(len(state.resources)):
        state.resources[r].until = state.resources[r].seconds = 0
        state.resources[r].booked = NONE
    if has_extras(net):
        clear_notes(net, state)


@inlined
def offer_transitions(net, state, mask):
    """Mark the actions whose transition may fire. Returns how many transitions may."""
    for action in range(len(mask)):
        mask[action] = False
    count = 0
    bounds = net.constants.exits
    for p in range(len(net.places) + 1):
        # of most places nothing can be taken most of the time, which is quicker to see here than inside
        if p == len(net.places) or gives(net, state, p):
            for j in range(net.lists[bounds + p], net.lists[bounds + p + 1]):
                t = net.lists[j]
                if enabled(net, state, t):
                    mask[net.transitions[t].action] = True
                    count += 1
    if has_extras(net) and net.constants.swaps < net.constants.swaps_end:
        offer_swaps(net, state, mask)
    return count


@inlined
def gives(net, state, p):
    """Whether something in place `p` can be taken, as far as the place alone can tell."""
    place = state.places[p]
    if place.marking == place.moving:
        return False
    if not is_routed(net):
        return True
    clock = state.env.clock
    k = place.head
    while k >= 0:
        token = state.tokens[k]
        if not token.moving and token.ready <= clock:
            return True
        k = token.next
    return False


@for_nets(extras=1)
@apart
def offer_swaps(net, state, mask):
    """Mark the swaps whose pick may fire and whose place will then be possible."""
    action = first_swap(net)
    for j in range(net.constants.swaps, net.constants.swaps_end, 2):
        pick = net.lists[j]
        mask[action] = mask[net.transitions[pick].action] and can_swap(net, state, pick, net.lists[j + 1])
        action += 1


@inlined
def first_swap(net):
    """The first action that is a swap: they come last of all that fire."""
    constants = net.constants
    return constants.num_groups - (constants.swaps_end - constants.swaps) // 2


@inlined
def offer_waits(net, state, mask, can_fire, until):
    """Mark the waits: there must be something to wait for, which is `until`, and nothing urgent to be late for."""
    constants = net.constants
    env = state.env
    env.next_event = until
    left = until - env.clock
    if until == FAR or (constants.non_delay and can_fire):
        return
    if round_is_open(net, state):
        mask[constants.num_groups] = True  # the first wait ends the round; another would do the same
        return
    hurries = is_routed(net) and constants.urgent_wait != FAR and is_urgent(net, state)
    longest = constants.urgent_wait if hurries else FAR
    for j in range(constants.waits_end - constants.waits):
        wait = net.lists[constants.waits + j]
        mask[constants.num_groups + j] = (wait if wait > 0 else left) <= longest


@for_nets(routed=1)
@inlined
def is_urgent(net, state):
    """Whether a finished token waits in a chamber, or a robot holds one."""
    for k in range(len(state.tokens)):
        token = state.tokens[k]
        kind = net.places[token.place].kind
        if kind == ROBOT or (kind == PROCESS and not token.moving and token.ready <= state.env.clock):
            return True
    return False


@inlined
def settle(net, state, mask):
    """Let run what runs by itself, and skip time in which nothing can be chosen; then say what can."""
    env = state.env
    can_fire = 0
    until = FAR
    while env.outcome == RUNNING:
        run_by_itself(net, state)
        if env.outcome != RUNNING:
            break
        can_fire = offer_transitions(net, state, mask)
        until = next_event(net, state)
        if can_fire or (not net.constants.skip_forced_waits and until != FAR):
            break
        skip(net, state, until)
    if env.outcome == RUNNING:
        offer_waits(net, state, mask, can_fire, until)
    else:
        close_mask(mask)


@inlined
def close_mask(mask):
    """An ended episode has one action, which does nothing."""
    for action in range(len(mask)):
        mask[action] = action == 0


@inlined
def act(net, state, action):
    """Fire or wait, as a legal action says."""
    constants = net.constants
    if action >= constants.num_groups and round_is_open(net, state):
        end_round(net, state)
        return
    if action >= constants.num_groups:
        wait = net.lists[constants.waits + action - constants.num_groups]
        until = state.env.next_event
        advance(net, state, smaller(until, state.env.clock + wait) if wait > 0 else until)
        return
    if has_extras(net) and action >= first_swap(net):
        swap(net, state, constants.swaps + 2 * (action - first_swap(net)))
        return
    bounds = constants.offers + action
    for j in range(net.lists[bounds], net.lists[bounds + 1]):
        if may_fire(net, state, net.lists[j]):
            begin_firing(net, state, net.lists[j])
            return


@for_nets(extras=1)
@apart
def swap(net, state, j):
    """Begin a pick and book the place that follows it, both as the list of swaps says at `j`."""
    pick = net.lists[j]
    state.resources[net.transitions[pick].resource].booked = net.lists[j + 1]
    begin_firing(net, state, pick)


@inlined
def open_step(env):
    """Nothing has happened yet that the next step pays for."""
    env.elapsed = env.processing = env.overstaying = env.holding = env.arrived = env.idled = env.lost = env.late = 0


@inlined
def pay(net, state, mask):
    """What a step came to, after which it is over. Returns its reward."""
    env = state.env
    if env.outcome == RUNNING and env.steps >= net.constants.max_steps:
        env.outcome = OUT_OF_STEPS
        close_mask(mask)
    reward = score(net.constants, env)
    env.score += reward
    open_step(env)
    return reward


@inlined
def failed(constants, env):
    """Whether the episode ended short of its goal, and that has not been paid for."""
    if env.outcome == SCRAPPED:
        return constants.scrap_place == NONE and not constants.lenient
    return env.outcome == DEADLOCKED or env.outcome == LIVELOCKED or env.outcome == OVERFLOWED


@inlined
def score(constants, env):
    """The reward of this step."""
    if constants.goal == 0:
        return 0.0
    if constants.lenient:
        return timely(constants, env) - lateness(constants, env)
    return timely(constants, env)


@inlined
def lateness(constants, env):
    """The cost of lateness in this step, and at the end of an episode with a late token."""
    once = env.outcome == SCRAPPED
    if constants.reward == MAKESPAN:
        return LATE * env.late / constants.lower_bound + LATE_ONCE * once
    return -LATE * TIME * env.late - SCRAP * once


@inlined
def timely(constants, env):
    """The reward of this step, lateness aside."""
    if constants.reward == MAKESPAN:
        reward = env.arrived / constants.goal - env.elapsed / constants.lower_bound
        if failed(constants, env):
            reward -= FAILURE + UNFINISHED * (constants.goal - env.finished - env.gone) / constants.goal
        if env.lost > 0:  # losing all of them costs as much as failing at once
            reward -= (FAILURE + UNFINISHED) * env.lost / constants.goal
        return reward
    reward = TIME * env.elapsed + PROCESSING * env.processing + OVERSTAY * env.overstaying + HOLD * env.holding
    reward += WAFER_DONE * env.arrived + IDLE * env.idled + SCRAP * env.lost
    if env.outcome == DONE:
        reward += ALL_DONE
    elif env.outcome == OUT_OF_TIME:
        reward += TIME_LIMIT
    elif failed(constants, env):
        reward += SCRAP
    return reward


@inlined
def take_turn(net, state, i, task, actions, obs, mask, rewards, terminated, truncated, final_obs, finals):
    """Do a task with one env. In a loop, so that there is one copy of what both playing and beginning end with."""
    env = state.env
    fresh = task >= START
    while True:
        if fresh:
            begin(net, state)
            moves = task != BEGIN
            if moves:
                judge(net, state)
        else:
            env.steps += 1
            # an action that the mask forbids changes nothing
            moves = env.outcome == RUNNING and mask[actions[i]]
            if moves:
                act(net, state, actions[i])
        if moves:
            settle(net, state, mask)  # time skipped before the first decision is paid for by the first step
        if not fresh:
            rewards[i] = pay(net, state, mask)
            truncated[i] = env.outcome == OUT_OF_TIME or env.outcome == OUT_OF_STEPS
            terminated[i] = env.outcome != RUNNING and not truncated[i]
        observe(net, state, obs)
        if fresh or env.outcome == RUNNING:
            return
        summarise(net, state, i, finals)
        if task == STEP:
            return
        for k in range(len(obs)):
            final_obs[i, k] = obs[k]
        fresh = True


@kernel
def step(tables, states, first, last, task, actions, obs, mask, rewards, terminated, truncated, final_obs, finals):
    """Do a task with envs `first` up to `last`. Envs share nothing, so slices may run anywhere and in any order.

    STEP plays an action. With STEP_ON an env whose episode is over shows its last observation in `final_obs`, what it
    came to in `finals`, and begins again at once. START begins an episode and goes to its first decision, BEGIN does not
    go there. All in one kernel, since each would be compiled with all rules.
    """
    net = light(tables)
    for i in range(first, last):
        take_turn(
            net, one_of(states, i, EnvState), i, task, actions, row(obs, i), row(mask, i), rewards, terminated, truncated,
            final_obs, finals,
        )  # fmt: skip


def reset(
    net: NetTables, state: NetState, first: int, last: int, obs: np.ndarray, mask: np.ndarray, settled: bool,
    turbo: bool = True,
) -> None:  # fmt: skip
    """Begin an episode in envs `first` up to `last`, and go to its first decision unless not to be `settled`."""
    flags = np.zeros(0, np.bool_)
    at_speed(step, turbo)(
        net, state, first, last, START if settled else BEGIN, np.zeros(0, np.int64), obs, mask, np.zeros(0), flags, flags,
        obs, no_finals(),
    )  # fmt: skip


@inlined
def summarise(net, state, i, finals):
    """Keep the results of an episode where they can be read after the next one has begun."""
    env = state.env
    finals.score[i] = env.score
    counts = finals.counts[i]
    counts.outcome = env.outcome
    counts.clock = env.clock
    counts.finished = env.finished
    counts.steps = env.steps
    counts.margin_min = env.margin_min
    counts.margin_sum = env.margin_sum
    counts.margins = env.margins
    counts.scrapped = env.scrapped
    counts.gone = env.gone
    for r in range(len(state.resources)):
        finals.resource_seconds[i, r] = state.resources[r].seconds
    for p in range(len(net.places)):
        finals.place_seconds[i, p] = state.places[p].seconds
