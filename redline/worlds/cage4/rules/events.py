"""Events: what Blue's monitors see on a host in one step. Of many of a kind, one bit is left."""

from __future__ import annotations

from redline.compiled.speed import rule
from redline.worlds.cage4.rules.scenario import NUM_ZONES


@rule
def note_connection(env, host):
    """Traffic that was noticed."""
    env.connection[env.host_zone[host]] |= 1 << int(env.host_slot[host])


@rule
def note_creation(env, host):
    """A process that was noticed."""
    env.creation[env.host_zone[host]] |= 1 << int(env.host_slot[host])


@rule
def clear_events(env):
    """A new step."""
    for zone in range(NUM_ZONES):
        env.connection[zone] = env.creation[zone] = 0
