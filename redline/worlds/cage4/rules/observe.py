"""What Blue sees: the flat observation of the original, kept in four words per agent.

A word for each of up to three zones holds phase, blocks, process and connection events; the last one holds messages and
the number of the agent.
"""

from __future__ import annotations

import numpy as np

from redline.compiled.speed import kernel, rule
from redline.worlds.cage4.rules.scenario import (
    BLUE_ZONES,
    BY_NAME,
    MESSAGE_BITS,
    NUM_BLUE,
    NUM_ZONES,
    POLICY,
    SLOTS,
)

MOST_ZONES = 3
OBS_WORDS = MOST_ZONES + 1
PHASE_BITS = 2
BLOCKS_SHIFT, CREATION_SHIFT, CONNECTION_SHIFT = PHASE_BITS, PHASE_BITS + NUM_ZONES, PHASE_BITS + NUM_ZONES + SLOTS
ZONE_NUMBERS = 3 * NUM_ZONES + 2 * SLOTS
NUM_MESSAGES = NUM_BLUE - 1
SIZES = tuple(1 + len(zones) * ZONE_NUMBERS + NUM_MESSAGES * MESSAGE_BITS for zones in BLUE_ZONES)
"""Numbers in the observation of each agent."""
MOST_NUMBERS = max(SIZES)
ZONE_OF = np.array([[zones[k] if k < len(zones) else -1 for k in range(MOST_ZONES)] for zones in BLUE_ZONES])
_RANKED = np.array(BY_NAME)
SLOT_MASK = (1 << SLOTS) - 1
PHASE_MASK = (1 << PHASE_BITS) - 1
AGENT_SHIFT = NUM_MESSAGES * MESSAGE_BITS
"""The bit of the last word where the number of the agent begins."""
WORD_BITS = max(CONNECTION_SHIFT + SLOTS, AGENT_SHIFT + (NUM_BLUE - 1).bit_length())
"""Bits that a word has use for."""


@rule
def observe(env, words, i):
    """Write the words of all agents of env `i`."""
    phase = int(env.phase)
    for b in range(NUM_BLUE):
        for k in range(MOST_ZONES):
            zone, word = int(ZONE_OF[b, k]), 0
            if zone >= 0:
                word = phase | (int(env.blocks[zone]) << BLOCKS_SHIFT)
                word |= (int(env.creation[zone]) & SLOT_MASK) << CREATION_SHIFT
                word |= (int(env.connection[zone]) & SLOT_MASK) << CONNECTION_SHIFT
            words[i, b, k] = word
        told = shift = 0
        for sender in range(NUM_BLUE):
            if sender != b:
                told |= int(env.message[sender]) << shift
                shift += MESSAGE_BITS
        words[i, b, MOST_ZONES] = told | (b << AGENT_SHIFT)


@kernel
def decode_words(words, numbers):
    """The numbers int8 [n, 210] that words int64 [n, 4] of agents stand for, zeros behind them."""
    for i in range(len(words)):
        phase = words[i, 0] & PHASE_MASK
        numbers[i, 0] = phase
        agent = words[i, MOST_ZONES] >> AGENT_SHIFT
        at = 1
        for k in range(MOST_ZONES):
            zone = ZONE_OF[agent, k]
            if zone < 0:
                continue
            word = words[i, k]
            for other in range(NUM_ZONES):
                numbers[i, at + other] = _RANKED[other] == zone
                numbers[i, at + NUM_ZONES + other] = (word >> (BLOCKS_SHIFT + other)) & 1
                numbers[i, at + 2 * NUM_ZONES + other] = POLICY[phase, zone, other]
            at += 3 * NUM_ZONES
            for slot in range(SLOTS):
                numbers[i, at + slot] = (word >> (CREATION_SHIFT + slot)) & 1
                numbers[i, at + SLOTS + slot] = (word >> (CONNECTION_SHIFT + slot)) & 1
            at += 2 * SLOTS
        for bit in range(NUM_MESSAGES * MESSAGE_BITS):
            numbers[i, at + bit] = (words[i, MOST_ZONES] >> bit) & 1
        for rest in range(at + NUM_MESSAGES * MESSAGE_BITS, MOST_NUMBERS):
            numbers[i, rest] = 0
