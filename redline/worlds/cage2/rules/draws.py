"""The five random choices of CAGE-2. A scripted env takes them from its script, all others from their own stream."""

from __future__ import annotations

from redline.compiled.rng import uniform
from redline.compiled.speed import kernel
from redline.worlds.cage2.rules.scenario import FOOTHOLD, GREEN_TARGETS

TOP_CHANCE = 0.75  # Red takes its favourite exploit
DETECTION_CHANCE = 0.95  # Monitor notices a new shell
GREEN_CHANCE = 0.5  # Green scans instead of sleeping


@kernel
def count_bits(mask):
    """How many bits are set, for masks of up to 16 bits."""
    pairs = mask - ((mask >> 1) & 0x5555)
    fours = (pairs & 0x3333) + ((pairs >> 2) & 0x3333)
    eights = (fours + (fours >> 4)) & 0x0F0F
    return (eights + (eights >> 8)) & 0x1F


@kernel
def lowest_bit(mask):
    """Index of the lowest bit set."""
    return count_bits((mask & -mask) - 1)


@kernel
def nth_bit(mask, n):
    """Index of the bit that has `n` set bits below it."""
    for _ in range(n):
        mask &= mask - 1
    return lowest_bit(mask)


@kernel
def draw_host(env, eligible):
    """One of the eligible hosts, each as likely."""
    if env.scripted:
        host = int(env.script_host)
        if host >= 0 and (eligible >> host) & 1:
            return host
        env.impossible = 1
    if eligible == 0:  # no episode comes to this, but a file may say that one has
        return FOOTHOLD
    if env.scripted:
        return lowest_bit(eligible)
    return nth_bit(eligible, int(uniform(env) * count_bits(eligible)))


@kernel
def draw_exploit(env, candidates, favourite):
    """The favourite three times in four, otherwise one of the other candidates. A single candidate needs no draw."""
    others = candidates & ~(1 << favourite)
    if others == 0:
        return favourite
    if env.scripted:
        other, top = int(env.script_other), int(env.script_top)
        if other < 0 or other >= count_bits(others) or top < 0:
            env.impossible = 1
            other, top = 0, 1
    else:
        other = int(uniform(env) * count_bits(others))
        top = int(uniform(env) < TOP_CHANCE)
    env.red_other = other
    env.red_top = top
    return favourite if top else nth_bit(others, other)


@kernel
def draw_detection(env):
    """Whether Monitor notices Red's new shell."""
    detected = int(env.script_detected) if env.scripted else int(uniform(env) < DETECTION_CHANCE)
    if detected < 0:
        env.impossible = 1
        detected = 1
    env.red_detected = detected
    return detected


@kernel
def draw_green(env):
    """The host Green scans, -1 when it sleeps."""
    if env.scripted:
        if not env.script_green_kind:
            return -1
        for k in range(len(GREEN_TARGETS)):
            if GREEN_TARGETS[k] == env.script_green_host:
                return int(GREEN_TARGETS[k])
        env.impossible = 1
        return -1
    if uniform(env) < GREEN_CHANCE:
        return int(GREEN_TARGETS[int(uniform(env) * len(GREEN_TARGETS))])
    return -1
