"""`redline verify nasim`: is our simulator the original, step for step? Both play the same episodes side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from redline.compiled.rng import seed_streams
from redline.errors import RedlineError
from redline.worlds.nasim.env import FLAGS, NasimVectorEnv
from redline.worlds.nasim.options import NetworkOptions
from redline.worlds.nasim.original import OriginalNasim
from redline.worlds.nasim.rules.scenario import AttackScenario
from redline.worlds.nasim.rules.tables import SUBNET_SCAN, tabulate
from redline.worlds.nasim.scenarios import FIXED
from redline.worlds.world import Answer, Command, Say


@dataclass(frozen=True)
class SideBySide(NetworkOptions):
    """Networks to play, and for how long."""

    networks: tuple[str, ...] = tuple(FIXED)
    """Networks by name, separated by commas; your own as file.yaml."""
    steps: int = 2000
    """Steps to play of each."""
    turbo: bool = True
    """Play with the compiled kernel; off, with the interpreted one."""

    def __post_init__(self) -> None:
        """Refuse what cannot be played."""
        super().__post_init__()
        if self.steps < 1:
            raise RedlineError(f"--steps {self.steps} cannot be compared. Try --steps 2000.")


class Told(NamedTuple):
    """All that an env says in the course of many steps; axis 0 is time."""

    first_obs: np.ndarray  # float32 [T, size]  of the episode that is under way
    obs: np.ndarray  # float32 [T, size]
    rewards: np.ndarray  # float64 [T]
    terminated: np.ndarray  # bool [T]
    truncated: np.ndarray  # bool [T]
    flags: np.ndarray  # bool [T, 4]
    values: np.ndarray  # float64 [T]
    streams: np.ndarray  # uint64 [T]  where the random numbers have got to


def run(name: str, options: SideBySide, say: Say) -> Answer:
    """Play all networks. Exit code 1 when anything differs."""
    results = [_verify(network, options) for network in options.networks]
    mismatches = sum(result["mismatches"] for result in results)
    first = next((result["first_mismatch"] for result in results if result["first_mismatch"]), None)
    steps = sum(result["steps"] for result in results)
    data = {"steps": steps, "mismatches": mismatches, "networks": results, "first_mismatch": first}
    return Answer(data, [_line(result) for result in results], exit_code=1 if mismatches else 0)


VERIFY = Command(SideBySide, run)


def _verify(name: str, options: SideBySide) -> dict[str, Any]:
    network = NetworkOptions(options.fully_obs, options.network_seed)
    started = time.monotonic()
    try:
        ours, theirs = play_both(name, network, options.steps, seed=0, turbo=options.turbo)
    except ImportError as error:
        raise RedlineError("The original is not installed. Try: pip install nasim==0.12.0") from error
    differing = differences(ours, theirs)
    first = min(differing, key=lambda what: differing[what][0], default=None)
    return {
        "network": name,
        "steps": options.steps,
        "mismatches": len(set().union(*(steps.tolist() for steps in differing.values()))),
        "first_mismatch": None if first is None else _mismatch(name, first, int(differing[first][0]), ours, theirs),
        "seconds": time.monotonic() - started,
    }


def _mismatch(name: str, what: str, step: int, ours: Told, theirs: Told) -> dict[str, Any]:
    mine, original = (np.atleast_1d(getattr(told, what)[step]) for told in (ours, theirs))
    place = int(np.flatnonzero(mine != original)[0])
    at = f"[{place}]" if len(mine) > 1 else ""
    text = f"{name}, step {step}: {what}{at} is {mine[place]}, and {original[place]} in the original"
    return {"network": name, "step": step, "what": what, "text": text}


def _line(result: dict[str, Any]) -> str:
    first = result["first_mismatch"]
    found = "no mismatches" if first is None else f"{result['mismatches']:,} mismatches. First: {first['text']}"
    return f"{result['network']}: {result['steps']:,} steps compared ({result['seconds']:.1f} s): {found}"


def play_both(name: str, options: NetworkOptions, num_steps: int, seed: int, turbo: bool = True) -> tuple[Told, Told]:
    """All that ours and the original say, given the same actions and the same random numbers."""
    env = NasimVectorEnv(1, name, turbo=turbo, encoded=True, autoreset=False, **vars(options))
    actions = mixed_actions(env.network, num_steps, np.random.default_rng(seed))
    original = OriginalNasim(name, options, seed_streams(seed, 1)[0])
    return play_ours(env, actions, seed), play_theirs(original, actions)


def mixed_actions(network: AttackScenario, num_steps: int, random: np.random.Generator) -> np.ndarray:
    """Half of them any action; the others such as lead on, without which large networks are hardly entered."""
    table = tabulate(network, fully_obs=False).actions
    leading = np.flatnonzero((table.works == 1) | (table.kind == SUBNET_SCAN))
    any_action, leading_on = random.integers(0, len(table), num_steps), random.choice(leading, num_steps)
    return np.where(random.random(num_steps) < 0.5, any_action, leading_on)


def play_ours(env: NasimVectorEnv, actions: np.ndarray, seed: int) -> Told:
    """All that our env says; it does not begin again by itself, as the original does not."""
    record, decode = env.state.envs, env.stored.decode
    first_words, steps = env.reset(seed=seed)[0][0], []
    for action in actions:
        words, reward, terminated, truncated, _ = env.step(np.array([action]))
        steps.append(
            (first_words, words[0], reward[0], terminated[0], truncated[0], *record[["result", "gain", "rng"]][0])
        )
        if terminated[0] or truncated[0]:
            first_words = env.reset()[0][0]
    first, last, rewards, terminations, truncations, results, *rest = map(np.array, zip(*steps, strict=True))
    flags = (results[:, None] >> np.arange(len(FLAGS)) & 1).astype(np.bool_)
    return _told(decode(first), decode(last), rewards, terminations, truncations, flags, *rest)


def play_theirs(original: OriginalNasim, actions: np.ndarray) -> Told:
    """All that the original says."""
    env, steps = original.env, []
    first_obs = env.reset()[0]
    with original.drawing_ours():
        for action in actions.tolist():
            obs, reward, terminated, truncated, info = env.step(action)
            flags = [info[name] for name in FLAGS]
            steps.append((first_obs, obs, reward, terminated, truncated, flags, info["value"], original.stream.rng))
            if terminated or truncated:
                first_obs = env.reset()[0]
    return _told(*map(np.array, zip(*steps, strict=True)))


def _told(*columns: np.ndarray) -> Told:
    told = Told(*columns)
    return told._replace(rewards=told.rewards.astype(np.float64), values=told.values.astype(np.float64))


def differences(ours: Told, theirs: Told) -> dict[str, np.ndarray]:
    """The steps that differ, by what differs in them."""
    found = {}
    for what, mine, original in zip(Told._fields, ours, theirs, strict=True):
        if mine.shape != original.shape or mine.dtype != original.dtype:
            raise RedlineError(
                f"{what} is {mine.dtype} {mine.shape}, and {original.dtype} {original.shape} originally."
            )
        steps = np.flatnonzero((mine != original).reshape(len(mine), -1).any(axis=1))
        if len(steps):
            found[what] = steps
    return found
