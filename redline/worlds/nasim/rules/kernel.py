"""The rules of a penetration test, one env at a time: reset and step.

Each action is checked in the order in which the original checks it, and draws a number where the original draws one,
so that equal draws give equal episodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from redline.compiled.rng import uniform
from redline.compiled.speed import kernel, rule
from redline.worlds.nasim.rules.observe import tell, tell_start
from redline.worlds.nasim.rules.scenario import NO_ACCESS, ROOT, USER
from redline.worlds.nasim.rules.state import AttackState
from redline.worlds.nasim.rules.tables import ESCALATION, EXPLOIT, OS_SCAN, PROCESS_SCAN, SUBNET_SCAN, NetworkTables
from redline.worlds.play_on import playing_on

FAILED, SUCCESS, CONNECTION_ERROR, PERMISSION_ERROR, UNDEFINED_ERROR = 0, 1, 2, 4, 8
"""How an action ended, as the flags of an observation."""


@rule
def begin(tables, state, i):
    """A new episode: the attacker knows the subnets that the internet reaches, and holds nothing."""
    env = state.envs[i]
    env.clock = 0
    env.score = 0.0
    env.reachable = env.discovered = tables.public
    env.held = env.rooted = 0
    env.missing = tables.goals
    env.result = env.found = env.pays = 0
    env.gain = np.float32(0.0)
    for word in range(state.access.shape[1]):
        state.access[i, word] = 0


@rule
def access_to(state, i, action):
    """How the attacker holds the host of an action."""
    return (state.access[i, action.word] >> action.shift) & 3


@rule
def permitted(env, action):
    """Whether a host is held from which the action may reach out. Public subnets are attacked from the internet.

    The original asks again, for exploits, whether the firewalls let their traffic through. Once this is true, so is
    that: it never looks at the firewall between the internet and a public subnet, and it looks a host's own firewall
    up by a name that no host has.
    """
    held = env.held if action.needs <= USER else env.rooted
    return action.public or (held & action.sources) != 0


@rule
def attempt(tables, state, i, action):
    """The action takes effect, if it can. Returns its flags."""
    env = state.envs[i]
    if (env.reachable & env.discovered & action.bit) == 0:
        return CONNECTION_ERROR
    if action.kind <= EXPLOIT and not permitted(env, action):
        return PERMISSION_ERROR
    access = access_to(state, i, action)
    if action.kind == ESCALATION and access == NO_ACCESS:
        return CONNECTION_ERROR
    surely = action.kind == EXPLOIT and access != NO_ACCESS  # who is in already gets in again
    if not surely and uniform(env) > action.prob:
        return UNDEFINED_ERROR
    if action.kind <= OS_SCAN:
        return SUCCESS
    if action.kind == SUBNET_SCAN:
        return scan_subnet(tables, env, action, access)
    if action.kind == EXPLOIT and action.works:
        env.held |= action.bit
        env.reachable |= action.linked
        climb(state, i, action, access)
        return SUCCESS
    # The original takes an exploit that finds nothing to exploit for an action on the host itself, so we do too.
    if access == NO_ACCESS or access < action.needs:
        return PERMISSION_ERROR
    if action.kind == PROCESS_SCAN:
        return SUCCESS
    if action.kind == ESCALATION and action.works:
        climb(state, i, action, access)
        return SUCCESS
    return FAILED


@rule
def scan_subnet(tables, env, action, access):
    """From a host that is held, all hosts in its own and linked subnets are discovered."""
    if access == NO_ACCESS:
        return CONNECTION_ERROR
    env.found = action.linked & ~env.discovered
    env.discovered |= action.linked
    if env.found != 0:
        env.pays = 1
        for host in range(len(tables.discovery)):
            if (env.found >> tables.subnet_of[host]) & 1:
                env.gain = env.gain + tables.discovery[host]
    return SUCCESS


@rule
def climb(state, i, action, access):
    """The attacker gets the action's access; root is never lost, and pays once."""
    if access == ROOT:
        return
    env = state.envs[i]
    word = state.access[i, action.word]
    state.access[i, action.word] = (word & ~(np.int64(3) << action.shift)) | (action.access << action.shift)
    if action.access == ROOT:
        env.rooted |= action.bit
        env.missing -= action.sensitive
        env.pays = 1
        env.gain = action.value


@rule
def play(tables, state, i, action):
    """One step of one env. Returns its reward."""
    env = state.envs[i]
    env.found = env.pays = 0
    env.gain = np.float32(0.0)
    env.result = attempt(tables, state, i, action)
    env.clock += 1
    # the original keeps values in single precision, and costs in double unless they meet
    reward = np.float64(env.gain - action.short_cost) if env.pays else 0.0 - action.cost
    env.score += reward
    return reward


@kernel
def reset(tables, state, first, last, words):
    """Begin an episode in envs `first` up to `last`."""
    for i in range(first, last):
        begin(tables, state, i)
        tell_start(tables, state, i, words)


class Attack(NamedTuple):
    """All that a step needs, and where it leaves what comes of it; arrays over envs."""

    tables: NetworkTables
    state: AttackState
    obs: np.ndarray
    final_obs: np.ndarray
    ended: np.ndarray


@rule
def advance(tables, state, i, choice, autoreset, words, final_words, ended):
    """One step of env `i`, with all that follows from it. Returns reward, terminated and truncated.

    An episode that ends shows its last observation in `final_words`, what there is to tell of it in `ended`, and
    begins again at once if `autoreset`.
    """
    action = tables.actions[choice]
    reward = play(tables, state, i, action)
    tell(tables, state, i, action, words)
    env = state.envs[i]
    terminated = env.missing == 0
    truncated = env.clock >= tables.step_limit if tables.step_limit > 0 else False
    if terminated or truncated:
        ended[i].score = env.score
        ended[i].length = env.clock
        ended[i].won = terminated
        # word by word: slices count references, and threads would contend for the count
        for k in range(words.shape[1]):
            final_words[i, k] = words[i, k]
        if autoreset:
            begin(tables, state, i)
            tell_start(tables, state, i, words)
    return reward, terminated, truncated


@kernel
def step(tables, state, first, last, actions, autoreset, words, rewards, terminated, truncated, final_words, ended):
    """Advance envs `first` up to `last`. Envs share nothing, so slices may run anywhere and in any order."""
    for i in range(first, last):
        rewards[i], terminated[i], truncated[i] = advance(
            tables, state, i, actions[i], autoreset, words, final_words, ended
        )


@rule
def attack(world, i, action):
    """One step of env `i`, for a kernel that plays on."""
    return advance(world.tables, world.state, i, action, True, world.obs, world.final_obs, world.ended)


@rule
def tell_of_end(world, i, told, place):
    """The account of the episode that ended last in env `i`."""
    told[place] = world.ended[i]


play_on = playing_on(attack, tell_of_end)
