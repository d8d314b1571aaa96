"""The observation, as a pure function of the state: every number of the row is written every time, zeros all at once.

Four layouts: `tool` tells chambers, buffers, robots and the source apart; `jobs` has a block per job and per machine;
`places` fits any net; `graph` is a matrix with a row per place, row after row. Numbers lie between 0 and 1; `cells.py`
says where each one is.
"""

from __future__ import annotations

from redline.compiled.numbers import larger, smaller
from redline.compiled.speed import apart, inlined
from redline.worlds.petri.rules.cells import (
    ARM_CELLS,
    BUFFER_CELLS,
    CHAMBER_CELLS,
    JOB_CELLS,
    MACHINE_CELLS,
    NODE_CELLS,
    PLACE_CELLS,
    ROBOT_CELLS,
    SHOP_CELLS,
    SOURCE_CELLS,
    TOOL_CELLS,
)
from redline.worlds.petri.rules.cleans import (
    change_ends,
    clean_lasts,
    gate_note,
    has_type_gates,
    idle_clean_begins,
    is_empty,
    own_interval,
)
from redline.worlds.petri.rules.enabling import in_progress, preferred, queue_entry
from redline.worlds.petri.rules.firing import interval
from redline.worlds.petri.rules.tables import (
    BUFFER,
    FAR,
    GRAPH,
    JOBS,
    MACHINE,
    NONE,
    OPENS,
    PLACES,
    PROCESS,
    ROBOT,
    SOURCE,
    TOOL,
    UNLIMITED,
)
from redline.worlds.petri.rules.traits import for_nets, has_extras, layout_of

SCRAP_SCALE, HOLD_SCALE, STAY_SCALE, MOVE_SCALE = 20.0, 20.0, 40.0, 10.0
NEAR_CLEANING = 2


@inlined
def observe(net, state, obs):
    """Write the observation of env `i` into its row: zeros first, and then whatever is not zero."""
    for cell in range(len(obs)):
        obs[cell] = 0.0
    layout = layout_of(net)
    if layout == TOOL:
        observe_tool(net, state, obs)
    elif layout == JOBS:
        observe_jobs(net, state, obs)
    elif layout == GRAPH:
        observe_graph(net, state, obs)
    else:
        observe_places(net, state, obs)
    if net.constants.observe_clock:
        last = len(obs) - 1
        obs[last] = smaller(1.0, state.env.clock / net.constants.horizon)


@inlined
def share(part, whole):
    """`part` of `whole`, between 0 and 1; of nothing, everything is left."""
    if whole <= 0:
        return 1.0
    return smaller(1.0, larger(0.0, part / whole))


@inlined
def left_of(until, clock, whole):
    """How much of `whole` is left until an instant, 0 if it is over."""
    return share(until - clock, whole) if until > clock else 0.0


# Cluster tools


@for_nets(layout=TOOL)
@inlined
def observe_tool(net, state, obs):
    """Chambers, buffers, robots and the source in the order of the places, then the whole tool."""
    for p in range(len(net.places)):
        kind = net.places[p].kind
        if kind == PROCESS:
            observe_chamber(net, state, p, obs)
        elif kind == BUFFER:
            observe_buffer(net, state, p, obs)
        elif kind == ROBOT:
            observe_robot(net, state, p, obs)
        elif kind == SOURCE:
            observe_source(net, state, p, obs)
    observe_whole_tool(net, state, obs)


@inlined
def observe_chamber(net, state, p, obs):
    """The first token's progress and how long it may still stay; cleaning now and soon."""
    clock = state.env.clock
    static = net.places[p]
    place = state.places[p]
    cell = static.cell
    obs[cell + CHAMBER_CELLS.time_to_leave] = 1.0
    if place.head >= 0:
        token = state.tokens[place.head]
        obs[cell + CHAMBER_CELLS.occupied] = 1.0
        obs[cell + CHAMBER_CELLS.processing] = token.ready > clock
        obs[cell + CHAMBER_CELLS.finished] = token.ready <= clock
        obs[cell + CHAMBER_CELLS.time_left] = left_of(token.ready, clock, token.ready - token.entered)
        obs[cell + CHAMBER_CELLS.progress] = share(clock - token.entered, token.ready - token.entered)
        if static.max_stay != NONE:
            margin = token.ready + static.max_stay - clock
            obs[cell + CHAMBER_CELLS.time_to_leave] = smaller(1.0, larger(0.0, margin / SCRAP_SCALE))
    obs[cell + CHAMBER_CELLS.cleaning] = place.clean_until > clock
    obs[cell + CHAMBER_CELLS.clean_left] = left_of(place.clean_until, clock, static.clean_duration)
    to_go = static.clean_after - place.left
    if place.clean_until <= clock and to_go < NEAR_CLEANING:
        obs[cell + CHAMBER_CELLS.clean_soon] = (NEAR_CLEANING - to_go) / NEAR_CLEANING
    if has_extras(net) and static.notes != NONE:
        observe_cleans(net, state, p, obs)


@for_nets(extras=1)
@apart
def observe_cleans(net, state, p, obs):
    """The rest of the clean that runs, also of one between types; and how soon idleness leads to one."""
    clock = state.env.clock
    static = net.places[p]
    obs[static.cell + CHAMBER_CELLS.clean_left] = clean_left(net, state, p)
    begins = idle_clean_begins(net, state, p)
    if state.places[p].clean_until <= clock and begins != FAR:
        cell = static.cell + CHAMBER_CELLS.clean_soon
        obs[cell] = larger(obs[cell], 1.0 - share(begins - clock, static.idle_after))


@inlined
def clean_left(net, state, p):
    """Which share of a clean is left, be it for all types or, in an empty chamber, between types; 0 if none runs."""
    clock = state.env.clock
    place = state.places[p]
    left = left_of(place.clean_until, clock, clean_lasts(net, state, p))
    if is_empty(place):
        left = larger(left, left_of(change_ends(net, state, p), clock, net.places[p].change_duration))
    return left


@inlined
def observe_buffer(net, state, p, obs):
    """How full it is, and its first token's progress and time to leave."""
    clock = state.env.clock
    static = net.places[p]
    place = state.places[p]
    cell = static.cell
    obs[cell + BUFFER_CELLS.filled] = place.marking / static.capacity
    obs[cell + BUFFER_CELLS.time_to_leave] = 1.0
    if place.head >= 0:
        token = state.tokens[place.head]
        obs[cell + BUFFER_CELLS.processing] = token.ready > clock
        obs[cell + BUFFER_CELLS.finished] = token.ready <= clock
        obs[cell + BUFFER_CELLS.time_left] = left_of(token.ready, clock, token.ready - token.entered)
        if static.max_stay != NONE:
            margin = token.ready + static.max_stay - clock
            obs[cell + BUFFER_CELLS.time_to_leave] = share(margin, static.max_stay)


@inlined
def observe_robot(net, state, p, obs):
    """A block per arm in the order the tokens came, then whether the robot moves and for how long."""
    clock = state.env.clock
    static = net.places[p]
    size = len(ARM_CELLS) + static.targets
    cell = static.cell
    k = state.places[p].head
    for _ in range(static.capacity):
        obs[cell + ARM_CELLS.time_to_leave] = 1.0
        if k >= 0:
            observe_arm(net, state, p, k, obs, cell)
            k = state.tokens[k].next
        cell += size
    until = state.resources[static.resource].until
    obs[cell + ROBOT_CELLS.moving] = until > clock
    obs[cell + ROBOT_CELLS.time_left] = smaller(1.0, (until - clock) / MOVE_SCALE) if until > clock else 0.0


@inlined
def observe_arm(net, state, p, k, obs, cell):
    """Ready to load; held too long; for how long; how long it may be; and where the token will be offered to."""
    clock = state.env.clock
    static = net.places[p]
    token = state.tokens[k]
    obs[cell + ARM_CELLS.ready] = token.ready <= clock
    obs[cell + ARM_CELLS.time_held] = smaller(1.0, (clock - token.entered) / STAY_SCALE)
    if static.max_stay != NONE:
        margin = token.ready + static.max_stay - clock
        obs[cell + ARM_CELLS.held_too_long] = margin < 0
        obs[cell + ARM_CELLS.time_to_leave] = smaller(1.0, larger(0.0, margin / HOLD_SCALE))
    load = preferred(net, state, token.row, p)
    if load == NONE:
        load = first_load(net, token.row, p)
    if load != NONE:
        obs[cell + len(ARM_CELLS) + net.transitions[load].hot] = 1.0


@inlined
def first_load(net, row, hand):
    """The first load from `hand` on a token's route, room or not."""
    for j in range(net.steps[row].first, net.steps[row].last):
        if net.transitions[net.lists[j]].source == hand:
            return net.lists[j]
    return NONE


@inlined
def observe_source(net, state, p, obs):
    """How much is left, and whether the next token is of another type than the first."""
    static = net.places[p]
    place = state.places[p]
    obs[static.cell + SOURCE_CELLS.left] = place.marking / larger(1, static.tokens)
    other = place.head >= 0 and state.tokens[place.head].row != net.lists[net.constants.token_rows]
    obs[static.cell + SOURCE_CELLS.other_type] = other


@inlined
def observe_whole_tool(net, state, obs):
    """Work in progress, time until the release gate opens, share done."""
    env = state.env
    constants = net.constants
    cell = constants.globals_cell
    limit = constants.wip_limit if constants.wip_limit != FAR else constants.goal
    obs[cell + TOOL_CELLS.in_progress] = share(in_progress(env), limit)
    closed = env.gate_opens > env.clock
    time_to_release = left_of(env.gate_opens, env.clock, interval(net, env)) if closed else 0.0
    obs[cell + TOOL_CELLS.time_to_release] = time_to_release
    obs[cell + TOOL_CELLS.done] = env.finished / constants.goal
    if has_extras(net) and has_type_gates(net):
        obs[cell + TOOL_CELLS.time_to_release] = own_gate_left(net, state)


@for_nets(extras=1)
@apart
def own_gate_left(net, state):
    """Time until the first token that waits for its release may go, as a share of its type's interval."""
    k = state.places[net.constants.gate_place].head
    if k == NONE:
        return 0.0
    kind = net.lists[net.constants.token_kinds + k]
    opens = gate_note(net, state, kind, OPENS)
    if opens <= state.env.clock:
        return 0.0
    return left_of(opens, state.env.clock, own_interval(net, state, kind))


# Job shops


@for_nets(layout=JOBS)
@inlined
def observe_jobs(net, state, obs):
    """A block per job, one per machine, and the share of jobs done."""
    for p in range(len(net.places)):
        if net.places[p].kind == MACHINE:
            observe_machine(net, state, p, obs)
        elif net.places[p].job != NONE and state.places[p].marking > 0:
            observe_job(net, state, p, obs)
    for f in range(state.env.underway):
        observe_run(net, state, f, obs)
    done = state.env.finished / larger(1, net.constants.goal)
    obs[net.constants.globals_cell + SHOP_CELLS.done] = done


@inlined
def observe_job(net, state, p, obs):
    """Progress, work left, whether it runs and for how long, its next operation and machine, its wait."""
    clock = state.env.clock
    constants = net.constants
    place = state.places[p]
    static = net.places[p]
    op = net.operations[static.operation]
    cell = static.cell
    ready = queue_entry(net, state, p, 0) if static.queue != NONE else place.entered
    obs[cell + JOB_CELLS.progress] = op.done / op.of
    obs[cell + JOB_CELLS.work_left] = op.work_left / constants.most_work
    obs[cell + JOB_CELLS.running] = place.moving > 0 or ready > clock
    obs[cell + JOB_CELLS.time_left] = left_of(ready, clock, constants.longest)
    obs[cell + JOB_CELLS.next_duration] = op.duration / constants.longest
    idle = op.machine != NONE and state.places[op.machine].marking > state.places[op.machine].moving
    obs[cell + JOB_CELLS.next_machine_idle] = idle
    waited = smaller(1.0, larger(0, clock - ready) / (2.0 * constants.longest)) if place.moving == 0 else 0.0
    obs[cell + JOB_CELLS.time_waited] = waited
    obs[cell + JOB_CELLS.done] = op.machine == NONE


@inlined
def observe_run(net, state, f, obs):
    """The time left of a running operation, for its job and its machine."""
    firing = state.firings[f]
    transition = net.transitions[firing.transition]
    left = left_of(firing.ends, state.env.clock, net.constants.longest)
    for a in range(transition.in_first, transition.in_last):
        static = net.places[net.arcs[a].place]
        if static.kind == MACHINE:
            obs[static.cell + MACHINE_CELLS.time_left] = left
        elif static.job != NONE:
            obs[static.cell + JOB_CELLS.time_left] = left


@inlined
def observe_machine(net, state, p, obs):
    """Busy, time left (written by what runs on it), work still to come."""
    place = state.places[p]
    static = net.places[p]
    obs[static.cell + MACHINE_CELLS.busy] = place.marking == place.moving
    obs[static.cell + MACHINE_CELLS.time_left] = 0.0
    obs[static.cell + MACHINE_CELLS.work_to_come] = 1.0 - share(place.seconds, static.scale)


# Any net


@for_nets(layout=PLACES)
@inlined
def observe_places(net, state, obs):
    """How full each place is, and of that how much can be taken; how long each transition still fires; share done."""
    env = state.env
    for p in range(len(net.places)):
        place = state.places[p]
        static = net.places[p]
        obs[static.cell + PLACE_CELLS.tokens] = share(place.marking, static.scale)
        obs[static.cell + PLACE_CELLS.available] = share(place.marking - place.moving, static.scale)
    start = net.constants.globals_cell
    for f in range(env.underway):
        firing = state.firings[f]
        left = left_of(firing.ends, env.clock, net.transitions[firing.transition].duration)
        obs[start + firing.transition] = larger(obs[start + firing.transition], left)
    obs[start + len(net.transitions)] = share(env.finished, net.constants.goal)


@for_nets(layout=GRAPH)
@apart
def observe_graph(net, state, obs):
    """A row of numbers per place; what is on its way to a place is written by the firings under way."""
    for p in range(len(net.places)):
        observe_node(net, state, p, obs)
    for f in range(state.env.underway):
        transition = net.transitions[state.firings[f].transition]
        left = left_of(state.firings[f].ends, state.env.clock, transition.duration)
        for a in range(transition.out_first, transition.out_last):
            cell = net.places[net.arcs[a].place].cell + NODE_CELLS.time_to_arrive
            obs[cell] = larger(obs[cell], left)


@inlined
def observe_node(net, state, p, obs):
    """Tokens: all, to be taken, on their way. Of the first: time until ready, time to leave. Cleaning. Time until the
    last of what is on its way arrives. Share of the goal. And the kind of place, one-hot.
    """
    clock = state.env.clock
    static = net.places[p]
    place = state.places[p]
    cell = static.cell
    most = static.capacity if static.capacity != UNLIMITED else static.scale
    obs[cell + NODE_CELLS.tokens] = share(place.marking, most)
    obs[cell + NODE_CELLS.available] = share(place.marking - place.moving, most)
    obs[cell + NODE_CELLS.coming] = share(place.reserved, most)
    obs[cell + NODE_CELLS.time_to_leave] = 1.0
    if place.marking > 0 and (place.head != NONE or static.queue != NONE):
        ready = state.tokens[place.head].ready if static.queue == NONE else queue_entry(net, state, p, 0)
        entered = state.tokens[place.head].entered if static.queue == NONE else ready - static.min_stay
        obs[cell + NODE_CELLS.time_left] = left_of(ready, clock, ready - entered)
        if static.max_stay != NONE:
            obs[cell + NODE_CELLS.time_to_leave] = share(ready + static.max_stay - clock, static.max_stay)
    obs[cell + NODE_CELLS.clean_left] = clean_left(net, state, p)
    if static.goal > 0:
        obs[cell + NODE_CELLS.share_of_goal] = share(place.marking, static.goal)
    obs[cell + len(NODE_CELLS) + static.kind] = 1.0
