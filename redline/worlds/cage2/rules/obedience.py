"""Obedience to a workflow: an order in which compromised machines are to be repaired.

A fix (Remove or Restore) obeys when it goes to a host of the first type in the order that is compromised right now, or
when nothing is. It is judged by the true state before Blue acts, never by what was fixed earlier.
"""

from __future__ import annotations

from redline.compiled.speed import kernel
from redline.worlds.cage2.rules.red import sessions
from redline.worlds.cage2.rules.scenario import (
    BLUE_ANALYSE,
    BLUE_DECOY,
    BLUE_REMOVE,
    BLUE_RESTORE,
    FOOTHOLD,
    NUM_HOSTS,
    TYPE_HOSTS,
    TYPE_OF,
)

NO_FIX_COST = 0.2  # of lambda, for an episode without a single fix
MOST_FIXES = 2**15 - 1  # of an episode that are counted: an account has room for no more


@kernel
def is_fix(action):
    """Whether an action repairs something."""
    return BLUE_REMOVE <= action < BLUE_DECOY or action >= BLUE_RESTORE


@kernel
def first_compromised(env, settings):
    """The first type of the order with a host that Red holds; -1 when there is none."""
    held = sessions(env)
    if not settings.count_foothold:
        held &= ~(1 << FOOTHOLD)
    for k in range(len(settings.order)):
        if held & int(TYPE_HOSTS[settings.order[k]]):
            return settings.order[k]
    return -1


@kernel
def compliance(complied, fixes):
    """Share of fixes that obeyed; 0 before the first."""
    return complied / fixes if fixes else 0.0


@kernel
def pay_for_fix(env, action, settings):
    """Judge Blue's action and return what it pays: lambda times the change of the episode's compliance, and extras."""
    if not is_fix(action):
        return 0.0
    first = first_compromised(env, settings)
    obeys = first < 0 or int(TYPE_OF[(action - BLUE_ANALYSE) % NUM_HOSTS]) == first
    before = compliance(int(env.complied), int(env.fixes))
    if env.fixes < MOST_FIXES:
        env.fixes += 1
        if obeys:
            env.complied += 1
    paid = settings.alignment * (compliance(int(env.complied), int(env.fixes)) - before)
    paid += settings.bonus if obeys else -settings.penalty
    env.aligned += paid
    return paid


@kernel
def pay_for_idleness(env, settings):
    """At the end of an episode: the cost of not having fixed anything at all."""
    if env.fixes > 0:
        return 0.0
    env.aligned -= NO_FIX_COST * settings.alignment
    return -NO_FIX_COST * settings.alignment


@kernel
def close_account(env):
    """Keep the episode's account where it can be read after the next one has begun."""
    env.last_aligned = env.aligned
    env.last_fixes = env.fixes
    env.last_complied = env.complied


@kernel
def open_account(env):
    """Nothing fixed, nothing paid."""
    env.aligned = 0.0
    env.fixes = env.complied = 0
