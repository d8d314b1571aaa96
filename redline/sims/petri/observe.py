"""What a policy sees, as a pure function of the state: every number of the row is written every time.

Four layouts: `tool` tells chambers, buffers, robots and the source apart; `jobs` has a block per job and per machine;
`places` fits any net; `graph` is a matrix [places, GRAPH_CELLS], row after row. Numbers lie between 0 and 1.
"""

from __future__ import annotations

from redline.sims.petri.cleans import (
    change_ends,
    clean_lasts,
    gate_note,
    has_type_gates,
    idle_clean_begins,
    is_empty,
    own_interval,
)
from redline.sims.petri.enabling import has_extras, in_progress, preferred, queue_entry
from redline.sims.petri.firing import interval
from redline.sims.petri.tables import (
    ARM_CELLS,
    BUFFER,
    FAR,
    GRAPH,
    GRAPH_CELLS,
    JOB_CELLS,
    JOBS,
    MACHINE,
    NODE_CELLS,
    NONE,
    OPENS,
    PLAIN_CELLS,
    PROCESS,
    ROBOT,
    SOURCE,
    TOOL,
    UNLIMITED,
)
from redline.sims.speed import apart, inlined, rule

SCRAP_SCALE, HOLD_SCALE, STAY_SCALE, MOVE_SCALE = 20.0, 20.0, 40.0, 10.0
NEAR_CLEANING = 2


@rule
def observe(net, state, i, obs):
    """Write the observation of env `i` into its row."""
    layout = net.constants[0].layout
    if layout == TOOL:
        observe_tool(net, state, i, obs)
    elif layout == JOBS:
        observe_jobs(net, state, i, obs)
    elif has_extras(net) and layout == GRAPH:
        observe_graph(net, state, i, obs)
    else:
        observe_places(net, state, i, obs)
    if net.constants[0].observe_clock:
        last = obs.shape[1] - 1
        obs[i, last] = min(1.0, state.envs[i].clock / net.constants[0].horizon)


@inlined
def share(part, whole):
    """`part` of `whole`, between 0 and 1; of nothing, everything is left."""
    if whole <= 0:
        return 1.0
    return min(1.0, max(0.0, part / whole))


@inlined
def left_of(until, clock, whole):
    """How much of `whole` is left until an instant, 0 if it is over."""
    return share(until - clock, whole) if until > clock else 0.0


# Cluster tools


@inlined
def observe_tool(net, state, i, obs):
    """Chambers, buffers, robots and the source in the order of the places, then the whole tool."""
    for p in range(net.places.shape[0]):
        kind = net.places[p].kind
        if kind == PROCESS:
            observe_chamber(net, state, i, p, obs)
        elif kind == BUFFER:
            observe_buffer(net, state, i, p, obs)
        elif kind == ROBOT:
            observe_robot(net, state, i, p, obs)
        elif kind == SOURCE:
            observe_source(net, state, i, p, obs)
    observe_whole_tool(net, state, i, obs)


@inlined
def observe_chamber(net, state, i, p, obs):
    """Nine numbers: the token's progress and how long it may still stay; cleaning now and soon."""
    clock = state.envs[i].clock
    static = net.places[p]
    place = state.places[i, p]
    cell = static.cell
    for k in range(5):
        obs[i, cell + k] = 0.0
    obs[i, cell + 5] = 1.0
    if place.head >= 0:
        token = state.tokens[i, place.head]
        obs[i, cell] = 1.0
        obs[i, cell + 1] = token.ready > clock
        obs[i, cell + 2] = token.ready <= clock
        obs[i, cell + 3] = left_of(token.ready, clock, token.ready - token.entered)
        obs[i, cell + 4] = share(clock - token.entered, token.ready - token.entered)
        if static.max_stay != NONE:
            obs[i, cell + 5] = min(1.0, max(0.0, (token.ready + static.max_stay - clock) / SCRAP_SCALE))
    obs[i, cell + 6] = place.clean_until > clock
    obs[i, cell + 7] = left_of(place.clean_until, clock, static.clean_duration)
    to_go = static.clean_after - place.left
    near = place.clean_until <= clock and to_go < NEAR_CLEANING
    obs[i, cell + 8] = (NEAR_CLEANING - to_go) / NEAR_CLEANING if near else 0.0
    if has_extras(net) and static.notes != NONE:
        observe_cleans(net, state, i, p, obs)


@apart
def observe_cleans(net, state, i, p, obs):
    """What is left of the clean that runs, also of one between types; and how soon idleness leads to one."""
    clock = state.envs[i].clock
    static = net.places[p]
    obs[i, static.cell + 7] = clean_left(net, state, i, p)
    begins = idle_clean_begins(net, state, i, p)
    if state.places[i, p].clean_until <= clock and begins != FAR:
        soon = 1.0 - share(begins - clock, static.idle_after)
        obs[i, static.cell + 8] = max(obs[i, static.cell + 8], soon)


@inlined
def clean_left(net, state, i, p):
    """Which share of a clean is left, be it for all types or, in an empty chamber, between types; 0 if none runs."""
    clock = state.envs[i].clock
    place = state.places[i, p]
    left = left_of(place.clean_until, clock, clean_lasts(net, state, i, p))
    if is_empty(place):
        left = max(left, left_of(change_ends(net, state, i, p), clock, net.places[p].change_duration))
    return left


@inlined
def observe_buffer(net, state, i, p, obs):
    """Five numbers: how full it is, and its first token's progress and time to leave."""
    clock = state.envs[i].clock
    static = net.places[p]
    place = state.places[i, p]
    cell = static.cell
    obs[i, cell] = place.marking / static.capacity
    for k in range(1, 4):
        obs[i, cell + k] = 0.0
    obs[i, cell + 4] = 1.0
    if place.head >= 0:
        token = state.tokens[i, place.head]
        obs[i, cell + 1] = token.ready > clock
        obs[i, cell + 2] = token.ready <= clock
        obs[i, cell + 3] = left_of(token.ready, clock, token.ready - token.entered)
        if static.max_stay != NONE:
            obs[i, cell + 4] = share(token.ready + static.max_stay - clock, static.max_stay)


@inlined
def observe_robot(net, state, i, p, obs):
    """A block per arm in the order the tokens came, then whether the robot moves and for how long."""
    clock = state.envs[i].clock
    static = net.places[p]
    size = ARM_CELLS + static.targets
    cell = static.cell
    k = state.places[i, p].head
    for _ in range(static.capacity):
        for c in range(size):
            obs[i, cell + c] = 0.0
        obs[i, cell + 3] = 1.0
        if k >= 0:
            observe_arm(net, state, i, p, k, obs, cell)
            k = state.tokens[i, k].next
        cell += size
    until = state.resources[i, static.resource].until
    obs[i, cell] = until > clock
    obs[i, cell + 1] = min(1.0, (until - clock) / MOVE_SCALE) if until > clock else 0.0


@inlined
def observe_arm(net, state, i, p, k, obs, cell):
    """Ready to load; held too long; for how long; how long it may be; and where the token will be offered to."""
    clock = state.envs[i].clock
    static = net.places[p]
    token = state.tokens[i, k]
    obs[i, cell] = token.ready <= clock
    obs[i, cell + 2] = min(1.0, (clock - token.entered) / STAY_SCALE)
    if static.max_stay != NONE:
        margin = token.ready + static.max_stay - clock
        obs[i, cell + 1] = margin < 0
        obs[i, cell + 3] = min(1.0, max(0.0, margin / HOLD_SCALE))
    load = preferred(net, state, i, token.row, p)
    if load == NONE:
        load = first_load(net, token.row, p)
    if load != NONE:
        obs[i, cell + ARM_CELLS + net.transitions[load].hot] = 1.0


@inlined
def first_load(net, row, hand):
    """The first load from `hand` on a token's route, room or not."""
    for j in range(net.steps[row].first, net.steps[row].last):
        if net.transitions[net.lists[j]].source == hand:
            return net.lists[j]
    return NONE


@inlined
def observe_source(net, state, i, p, obs):
    """Two numbers: how much is left, and whether the next token is of another type than the first."""
    static = net.places[p]
    place = state.places[i, p]
    obs[i, static.cell] = place.marking / max(1, static.tokens)
    other = place.head >= 0 and state.tokens[i, place.head].row != net.lists[net.constants[0].token_rows]
    obs[i, static.cell + 1] = other


@inlined
def observe_whole_tool(net, state, i, obs):
    """Work in progress, time until the release gate opens, share done."""
    env = state.envs[i]
    constants = net.constants[0]
    cell = constants.globals_cell
    limit = constants.wip_limit if constants.wip_limit != FAR else constants.goal
    obs[i, cell] = share(in_progress(env), limit)
    closed = env.gate_opens > env.clock
    obs[i, cell + 1] = left_of(env.gate_opens, env.clock, interval(net, env)) if closed else 0.0
    obs[i, cell + 2] = env.finished / constants.goal
    if has_extras(net) and has_type_gates(net):
        obs[i, cell + 1] = own_gate_left(net, state, i)


@apart
def own_gate_left(net, state, i):
    """Time until the first token that waits for its release may go, as a share of its type's interval."""
    k = state.places[i, net.constants[0].gate_place].head
    if k == NONE:
        return 0.0
    kind = net.lists[net.constants[0].token_kinds + k]
    opens = gate_note(net, state, i, kind, OPENS)
    if opens <= state.envs[i].clock:
        return 0.0
    return left_of(opens, state.envs[i].clock, own_interval(net, state, i, kind))


# Job shops


@inlined
def observe_jobs(net, state, i, obs):
    """A block per job, one per machine, and the share of jobs done."""
    for p in range(net.places.shape[0]):
        if net.places[p].kind == MACHINE:
            observe_machine(net, state, i, p, obs)
        elif net.places[p].job != NONE and state.places[i, p].marking > 0:
            observe_job(net, state, i, p, obs)
    for f in range(state.envs[i].underway):
        observe_run(net, state, i, f, obs)
    obs[i, net.constants[0].globals_cell] = state.envs[i].finished / max(1, net.constants[0].goal)


@inlined
def observe_job(net, state, i, p, obs):
    """Eight numbers: progress, work left, whether it runs and for how long, its next operation and machine, its wait."""
    clock = state.envs[i].clock
    constants = net.constants[0]
    place = state.places[i, p]
    static = net.places[p]
    op = net.operations[static.operation]
    cell = static.job * JOB_CELLS
    ready = queue_entry(net, state, i, p, 0) if static.queue != NONE else place.entered
    obs[i, cell] = op.done / op.of
    obs[i, cell + 1] = op.work_left / constants.most_work
    obs[i, cell + 2] = place.moving > 0 or ready > clock
    obs[i, cell + 3] = left_of(ready, clock, constants.longest)
    obs[i, cell + 4] = op.duration / constants.longest
    idle = op.machine != NONE and state.places[i, op.machine].marking > state.places[i, op.machine].moving
    obs[i, cell + 5] = idle
    obs[i, cell + 6] = min(1.0, max(0, clock - ready) / (2.0 * constants.longest)) if place.moving == 0 else 0.0
    obs[i, cell + 7] = op.machine == NONE


@inlined
def observe_run(net, state, i, f, obs):
    """The time left of a running operation, for its job and its machine."""
    firing = state.firings[i, f]
    transition = net.transitions[firing.transition]
    left = left_of(firing.ends, state.envs[i].clock, net.constants[0].longest)
    for a in range(transition.in_first, transition.in_last):
        static = net.places[net.arcs[a].place]
        if static.kind == MACHINE:
            obs[i, static.cell + 1] = left
        elif static.job != NONE:
            obs[i, static.job * JOB_CELLS + 3] = left


@inlined
def observe_machine(net, state, i, p, obs):
    """Three numbers: busy, time left (written by what runs on it), work still to come."""
    place = state.places[i, p]
    static = net.places[p]
    obs[i, static.cell] = place.marking == place.moving
    obs[i, static.cell + 1] = 0.0
    obs[i, static.cell + 2] = 1.0 - share(place.seconds, static.scale)


# Any net


@inlined
def observe_places(net, state, i, obs):
    """How full each place is, and of that how much can be taken; how long each transition still fires; share done."""
    env = state.envs[i]
    for p in range(net.places.shape[0]):
        place = state.places[i, p]
        cell = p * PLAIN_CELLS
        obs[i, cell] = share(place.marking, net.places[p].scale)
        obs[i, cell + 1] = share(place.marking - place.moving, net.places[p].scale)
    start = net.constants[0].globals_cell
    for t in range(net.transitions.shape[0]):
        obs[i, start + t] = 0.0
    for f in range(env.underway):
        firing = state.firings[i, f]
        left = left_of(firing.ends, env.clock, net.transitions[firing.transition].duration)
        obs[i, start + firing.transition] = max(obs[i, start + firing.transition], left)
    obs[i, start + net.transitions.shape[0]] = share(env.finished, net.constants[0].goal)


@apart
def observe_graph(net, state, i, obs):
    """A row of numbers per place; what is on its way to a place is written by the firings under way."""
    for p in range(net.places.shape[0]):
        observe_node(net, state, i, p, obs)
    for f in range(state.envs[i].underway):
        transition = net.transitions[state.firings[i, f].transition]
        left = left_of(state.firings[i, f].ends, state.envs[i].clock, transition.duration)
        for a in range(transition.out_first, transition.out_last):
            cell = net.places[net.arcs[a].place].cell + 6
            obs[i, cell] = max(obs[i, cell], left)


@inlined
def observe_node(net, state, i, p, obs):
    """Tokens: all, to be taken, on their way. Of the first: time until ready, time to leave. Cleaning. Time until the
    last of what is on its way arrives. Share of the goal. And the kind of place, one-hot.
    """
    clock = state.envs[i].clock
    static = net.places[p]
    place = state.places[i, p]
    cell = static.cell
    most = static.capacity if static.capacity != UNLIMITED else static.scale
    for k in range(GRAPH_CELLS):
        obs[i, cell + k] = 0.0
    obs[i, cell] = share(place.marking, most)
    obs[i, cell + 1] = share(place.marking - place.moving, most)
    obs[i, cell + 2] = share(place.reserved, most)
    obs[i, cell + 4] = 1.0
    if place.marking > 0 and (place.head != NONE or static.queue != NONE):
        ready = state.tokens[i, place.head].ready if static.queue == NONE else queue_entry(net, state, i, p, 0)
        entered = state.tokens[i, place.head].entered if static.queue == NONE else ready - static.min_stay
        obs[i, cell + 3] = left_of(ready, clock, ready - entered)
        if static.max_stay != NONE:
            obs[i, cell + 4] = share(ready + static.max_stay - clock, static.max_stay)
    obs[i, cell + 5] = clean_left(net, state, i, p)
    obs[i, cell + 7] = share(place.marking, static.goal) if static.goal > 0 else 0.0
    obs[i, cell + NODE_CELLS + static.kind] = 1.0
