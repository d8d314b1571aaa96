"""Playing a net, one env at a time: reset and step. An action fires a transition or waits; the clock skips dead time."""

from __future__ import annotations

from redline.compiled.speed import apart, inlined, kernel, rule
from redline.worlds.petri.rules.cleans import clear_notes
from redline.worlds.petri.rules.enabling import can_swap, enabled, has_extras
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
)
from redline.worlds.petri.rules.tables import FAR, MAKESPAN, NONE, PROCESS, ROBOT

FAILURE, UNFINISHED = 2.0, 2.0
LATE, LATE_ONCE = 2.0, 0.03  # a second past a deadline costs as much as two of the makespan, and the first one more
TIME, PROCESSING, OVERSTAY, HOLD = -10.0, 5.0, -4.0, -6.0  # per second
WAFER_DONE, ALL_DONE, SCRAP, IDLE, TIME_LIMIT = 500.0, 3000.0, -4000.0, -1000.0, -100.0


@rule
def begin(net, state, i):
    """A new episode: the starting marking at time 0."""
    clear(net, state, i)
    open_step(state.envs[i])
    for p in range(net.places.shape[0]):
        static = net.places[p]
        place = state.places[i, p]
        place.marking = static.tokens
        state.envs[i].finished += min(static.tokens, static.goal)
        for n in range(static.tokens if static.queue != NONE else 0):
            state.notes[i, static.queue + n] = static.min_stay
    for k in range(state.tokens.shape[1]):
        token = state.tokens[i, k]
        link(state, i, net.lists[net.constants[0].token_places + k], k)
        token.row = net.lists[net.constants[0].token_rows + k]
        token.entered = token.moving = 0
        token.ready = net.places[token.place].min_stay


@inlined
def clear(net, state, i):
    """No tokens anywhere, nothing under way."""
    env = state.envs[i]
    env.score = 0.0
    env.clock = env.steps = env.finished = env.fired = env.underway = 0
    env.released = env.gate_opens = env.idle = 0
    env.outcome = RUNNING
    env.scrapped = NONE
    env.gone = env.freed = env.margin_min = env.margin_sum = env.margins = 0
    for p in range(net.places.shape[0]):
        place = state.places[i, p]
        place.head = place.tail = NONE
        place.moving = place.reserved = place.queue_first = place.entered = 0
        place.uses = place.left = place.clean_until = place.seconds = 0
    for r in range(state.resources.shape[1]):
        state.resources[i, r].until = state.resources[i, r].seconds = 0
        state.resources[i, r].booked = NONE
    if has_extras(net):
        clear_notes(net, state, i)


@inlined
def offer_transitions(net, state, i, mask):
    """Mark the actions whose transition may fire. Returns how many transitions may."""
    for action in range(mask.shape[1]):
        mask[i, action] = False
    count = 0
    for t in range(net.transitions.shape[0]):
        transition = net.transitions[t]
        # most places are empty most of the time, which is quicker to see here than inside
        likely = transition.controllable and (
            transition.source == NONE or state.places[i, transition.source].marking > 0
        )
        if likely and enabled(net, state, i, t):
            mask[i, transition.action] = True
            count += 1
    if has_extras(net) and net.constants[0].swaps < net.constants[0].swaps_end:
        offer_swaps(net, state, i, mask)
    return count


@apart
def offer_swaps(net, state, i, mask):
    """Mark the swaps whose pick may fire and whose place will then be possible."""
    action = first_swap(net)
    for j in range(net.constants[0].swaps, net.constants[0].swaps_end, 2):
        pick = net.lists[j]
        mask[i, action] = mask[i, net.transitions[pick].action] and can_swap(net, state, i, pick, net.lists[j + 1])
        action += 1


@inlined
def first_swap(net):
    """The first action that is a swap: they come last of all that fire."""
    constants = net.constants[0]
    return constants.num_groups - (constants.swaps_end - constants.swaps) // 2


@inlined
def offer_waits(net, state, i, mask, can_fire):
    """Mark the waits: there must be something to wait for, and nothing urgent to be late for."""
    constants = net.constants[0]
    env = state.envs[i]
    env.next_event = next_event(net, state, i)
    left = env.next_event - env.clock
    if env.next_event == FAR or (constants.non_delay and can_fire):
        return
    if round_is_open(net, state, i):
        mask[i, constants.num_groups] = True  # the first wait ends the round; another would do the same
        return
    longest = constants.urgent_wait if constants.urgent_wait != FAR and is_urgent(net, state, i) else FAR
    for j in range(constants.waits_end - constants.waits):
        wait = net.lists[constants.waits + j]
        mask[i, constants.num_groups + j] = (wait if wait > 0 else left) <= longest


@inlined
def is_urgent(net, state, i):
    """Whether a finished token waits in a chamber, or a robot holds one."""
    for k in range(state.tokens.shape[1]):
        token = state.tokens[i, k]
        kind = net.places[token.place].kind
        if kind == ROBOT or (kind == PROCESS and not token.moving and token.ready <= state.envs[i].clock):
            return True
    return False


@rule
def settle(net, state, i, mask):
    """Let run what runs by itself, and skip time in which nothing can be chosen; then say what can."""
    env = state.envs[i]
    can_fire = 0
    while env.outcome == RUNNING:
        run_by_itself(net, state, i)
        if env.outcome != RUNNING:
            break
        can_fire = offer_transitions(net, state, i, mask)
        if can_fire or (not net.constants[0].skip_forced_waits and next_event(net, state, i) != FAR):
            break
        skip(net, state, i)
    if env.outcome == RUNNING:
        offer_waits(net, state, i, mask, can_fire)
    else:
        close_mask(mask, i)


@inlined
def close_mask(mask, i):
    """An ended episode has one action, which does nothing."""
    for action in range(mask.shape[1]):
        mask[i, action] = action == 0


@rule
def act(net, state, i, action):
    """Fire or wait, as a legal action says."""
    constants = net.constants[0]
    if action >= constants.num_groups and round_is_open(net, state, i):
        end_round(net, state, i)
        return
    if action >= constants.num_groups:
        wait = net.lists[constants.waits + action - constants.num_groups]
        until = state.envs[i].next_event
        advance(net, state, i, min(until, state.envs[i].clock + wait) if wait > 0 else until)
        return
    if has_extras(net) and action >= first_swap(net):
        swap(net, state, i, constants.swaps + 2 * (action - first_swap(net)))
        return
    for t in range(net.transitions.shape[0]):
        transition = net.transitions[t]
        if transition.action == action and transition.controllable and enabled(net, state, i, t):
            begin_firing(net, state, i, t)
            return


@apart
def swap(net, state, i, j):
    """Begin a pick and book the place that follows it, both as the list of swaps says at `j`."""
    pick = net.lists[j]
    state.resources[i, net.transitions[pick].resource].booked = net.lists[j + 1]
    begin_firing(net, state, i, pick)


@inlined
def open_step(env):
    """Nothing has happened yet that the next step pays for."""
    env.elapsed = env.processing = env.overstaying = env.holding = env.arrived = env.idled = env.lost = env.late = 0


@inlined
def play(net, state, i, action, mask):
    """One step of one env. Returns its reward. An action that the mask forbids changes nothing."""
    env = state.envs[i]
    env.steps += 1
    if env.outcome == RUNNING and mask[i, action]:
        act(net, state, i, action)
        settle(net, state, i, mask)
    if env.outcome == RUNNING and env.steps >= net.constants[0].max_steps:
        env.outcome = OUT_OF_STEPS
        close_mask(mask, i)
    reward = score(net.constants[0], env)
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


@rule
def start(net, state, i, mask):
    """Begin an episode and go to its first decision. Time skipped before it is paid for by the first step."""
    begin(net, state, i)
    judge(net, state, i)
    settle(net, state, i, mask)


@kernel
def reset(net, state, first, last, obs, mask, settled):
    """Begin an episode in envs `first` up to `last`, and go to its first decision unless not to be `settled`."""
    for i in range(first, last):
        if settled:
            start(net, state, i, mask)
        else:
            begin(net, state, i)
        observe(net, state, i, obs)


@kernel
def step(net, state, first, last, actions, obs, mask, rewards, terminated, truncated, autoreset, final_obs, finals):
    """Advance envs `first` up to `last`. Envs share nothing, so slices may run anywhere and in any order.

    With `autoreset` an env whose episode is over shows its last observation in `final_obs`, what it came to in
    `finals`, and begins again at once.
    """
    for i in range(first, last):
        env = state.envs[i]
        rewards[i] = play(net, state, i, actions[i], mask)
        truncated[i] = env.outcome == OUT_OF_TIME or env.outcome == OUT_OF_STEPS
        terminated[i] = env.outcome != RUNNING and not truncated[i]
        observe(net, state, i, obs)
        if env.outcome != RUNNING:
            summarise(net, state, i, finals)
            if autoreset:
                for k in range(obs.shape[1]):
                    final_obs[i, k] = obs[i, k]
                start(net, state, i, mask)
                observe(net, state, i, obs)


@inlined
def summarise(net, state, i, finals):
    """Keep the results of an episode where they can be read after the next one has begun."""
    env = state.envs[i]
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
    for r in range(state.resources.shape[1]):
        finals.resource_seconds[i, r] = state.resources[i, r].seconds
    for p in range(net.places.shape[0]):
        finals.place_seconds[i, p] = state.places[i, p].seconds
