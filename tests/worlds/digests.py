"""Digests of every compiled world: a change that is meant to change nothing must leave them as they are.

`python -m tests.worlds.digests` takes them anew and prints the cases that differ; `--write` stores them. Actions come
from whole numbers alone, and states, words and rewards are compared byte for byte, so every CPU gets the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import redline

STORED = Path(__file__).parents[1] / "data" / "digests.json"
NUM_ENVS = 16
NUM_STEPS = 240
STATE_EVERY = 8
ORDER = "user,op_host,enterprise,op_server,defender"
TIGHT = "arms=2&wafers=6"

CASES: dict[str, dict[str, Any]] = {
    "cage2": {},
    "cage2 meander": {"red_agent": "RedMeanderAgent", "max_steps": 50},
    "cage2 asleep": {"red_agent": "SleepAgent", "max_steps": 30},
    "cage2 both": {"red_agent": "B_lineAgent,RedMeanderAgent", "green_agent": "GreenAgent"},
    "cage2 leaderboard": {"rules": "leaderboard", "red_agent": "B_lineAgent,RedMeanderAgent"},
    "cage2 cw2": {"wrapper": "cw2", "observation": "table+scan"},
    "cage2 leaderboard cw2": {"rules": "leaderboard", "wrapper": "cw2", "green_agent": "GreenAgent"},
    "cage2 reduced": {"actions": "reduced", "observation": "table+scan"},
    "cage2 memory": {"actions": "useful", "observation": "memory", "rules": "leaderboard"},
    "cage2 memory meander": {"actions": "reduced", "observation": "memory", "red_agent": "RedMeanderAgent"},
    "cage2 forget": {"observation": "memory", "forget": "decoys,event,age"},
    "cage2 endless": {"max_steps": 0},
    "cage2 shaped": {"actions": "useful", "tidy": 0.003, "restore_rebate": 0.3, "accidents": 0.05},
    "cage2 workflow": {"workflow": ORDER, "max_steps": 30},
    "cage2 workflow paid": {
        "workflow": "critical_first",
        "alignment_lambda": 10.0,
        "compliance_bonus": 0.5,
        "violation_penalty": 0.25,
        "count_foothold": True,
        "actions": "reduced",
    },
    "cage4": {},
    "cage4 discovery": {"red_agent": "DiscoveryFSRed", "steps": 60},
    "cage4 asleep": {"red_agent": "SleepAgent", "steps": 31},
    "cage4 no green": {"green_agent": "SleepAgent", "steps": 90},
    "cage4 room": {"room": 2, "steps": 120},
    "cage4 memory": {"face": "memory", "steps": 100},
    "nasim:tiny": {},
    "nasim:small": {},
    "nasim:medium": {},
    "nasim:medium-multi-site": {"fully_obs": True},
    "nasim:small-gen": {"network_seed": 3},
    "nasim:large-gen": {},
    "petri:jobshop/ft06": {},
    "petri:jobshop/ft06 blocking": {"buffers": "blocking"},
    "petri:jobshop/la01": {},
    f"petri:cluster/J-0?{TIGHT}": {},
    "petri:cluster/J-0?wafers=12": {},
    "petri:cluster/J-0?wafers=6&layout=places": {},
    "petri:cluster/J-0?wafers=6&cleaning=on": {},
    "petri:cluster/J-0?wafers=6&idle_cleaning=on&change_cleaning=on": {},
    "petri:cluster/J-0?wafers=6&clock=serial": {},
    "petri:cluster/J-0?wafers=6&clock=lockstep": {},
    f"petri:cluster/J-0?{TIGHT}&swap_action=on&stop_on_scrap=off": {},
    "petri:cluster/J-0?wafers=6&gate=derived&gate_per_type=on": {},
    "petri:cluster/J-0?wafers=6&reward=ct_dense&hold=soft": {},
    "petri:cluster/J-0?wafers=6&lenient=on&observe_clock=on&skip_forced_waits=off&urgent_wait_cap=off": {},
    "petri:cluster/J-0?wafers=6&lookahead=off&parallel=free&tm1=rule": {},
}
"""Options by the name of a case; the env's name is its first word."""


def take(case: str) -> dict[str, str]:
    """The digests of a case, by what was digested."""
    env = redline.make_env(case.split()[0], NUM_ENVS, encoded=True, **CASES[case])
    hashes: dict[str, Any] = {}

    def add(name: str, values: Any) -> None:
        digest = hashes.setdefault(name, hashlib.blake2b(digest_size=4))
        digest.update(np.ascontiguousarray(values).tobytes())

    obs, infos = env.reset(seed=7)
    for t in range(NUM_STEPS):
        obs, rewards, terminated, truncated, infos = env.step(_actions(env, t))
        add("words", obs)
        add("rewards", rewards)
        add("ends", np.stack([terminated, truncated]))
        if "action_mask" in infos:
            add("masks", infos["action_mask"])
        if t % STATE_EVERY == 0:
            for name, values in _state(env):
                add(name, values)
    env.close()
    return {name: digest.hexdigest() for name, digest in sorted(hashes.items())}


def _actions(env: Any, t: int) -> np.ndarray:
    """An allowed action of each env, and of each agent in it, that follows from step and place alone."""
    masks = env.action_masks()
    rows = masks.reshape(-1, masks.shape[-1])
    chosen = [_pick(np.flatnonzero(mask), t * len(rows) + k) for k, mask in enumerate(rows)]
    return np.array(chosen, np.int64).reshape(masks.shape[:-1])


def _pick(allowed: np.ndarray, number: int) -> int:
    """One of some actions, by a whole number well mixed (splitmix64)."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return int(allowed[(mixed ^ mixed >> 31) % len(allowed)])


def _state(env: Any) -> Iterator[tuple[str, np.ndarray]]:
    for part, array in env.state_arrays().items():
        plain = array.view(np.ndarray)
        for field in plain.dtype.names or ():
            yield f"{part}.{field}", plain[field]
        if plain.dtype.names is None:
            yield part, plain


def main(arguments: list[str]) -> None:
    """Compare, or store."""
    known = json.loads(STORED.read_text()) if STORED.exists() else {}
    found = {case: take(case) for case in CASES}
    for case in found:
        if found[case] != known.get(case):
            differs = [name for name, digest in found[case].items() if known.get(case, {}).get(name) != digest]
            print(f"{case}: {', '.join(differs)}")
    if "--write" in arguments:
        rows = [f"{json.dumps(case)}: {json.dumps(row, separators=(',', ':'))}" for case, row in found.items()]
        STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
