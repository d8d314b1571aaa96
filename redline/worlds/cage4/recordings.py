"""Replay recorded episodes of the original and compare every step, the random generator included.

A recording holds Blue's actions and where the generator stood; everything else must come out of our own rules.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import RedlineError
from redline.worlds.cage4.env import Cage4VectorEnv
from redline.worlds.cage4.naming import action_label, full_labels, host_names
from redline.worlds.cage4.rules.observe import MOST_NUMBERS, SIZES
from redline.worlds.cage4.rules.scenario import (
    BLUE_AGENTS,
    MESSAGE_BITS,
    MOST_HOSTS,
    MYSQL,
    NUM_ACTIONS,
    NUM_BLUE,
    OT,
    SMTP,
    WEB,
    ZONES,
    EnterpriseOptions,
)
from redline.worlds.cage4.truth import GENERATOR, blocked, generators, noticed, session_table
from redline.worlds.recordings import BEFORE, Comparison, Difference, load_arrays

Arrays = dict[str, np.ndarray]
_OF_EPISODES = {"length": (), "gen_before": (6,)}
_OF_STEPS = {"actions": (NUM_BLUE,), "rewards": (), "obs": (NUM_BLUE, MOST_NUMBERS), "gen": (6,)}
_TEXTS = ("network", "labels", "blocks")
_COUNTS = ("length", "seed", "session_count", "steps", "room")
_KINDS = {
    **dict.fromkeys((*_TEXTS, "red_agent", "green_agent"), "U"),
    **dict.fromkeys((*_COUNTS, "gen", "gen_before", "gen_start"), "iu"),
    **dict.fromkeys(("rewards", "obs", "sessions", "messages", "actions"), "iufb"),
}
"""Kinds of types that arrays may be of."""
_OPTIONS = ("red_agent", "green_agent", "steps", "room")
_SERVICES = {WEB: "APACHE2", MYSQL: "MYSQLD", SMTP: "SMTP", OT: "OTSERVICE"}
BATCH = 128
"""Episodes that are replayed side by side."""


@dataclass(frozen=True)
class TeamRecording:
    """Episodes of the original, one behind the other."""

    arrays: Arrays
    first: np.ndarray  # int64 [E]  where the steps of an episode begin
    first_session: np.ndarray  # int64 [S + 1]  where the sessions of a step begin
    options: dict[str, Any]

    @property
    def episodes(self) -> int:
        """How many there are."""
        return len(self.first)

    def text(self, name: str, episode: int) -> Any:
        """JSON of an episode; None if the recording has none."""
        with _as_recorded(name):
            return json.loads(str(self.arrays[name][episode])) if name in self.arrays else None

    @classmethod
    def load(cls, path: Path) -> TeamRecording:
        """Read a file, and refuse what is no recording."""
        arrays = load_arrays(path)
        _require(path, arrays)
        length = arrays["length"] = arrays["length"].astype(np.int64)  # whichever whole numbers were recorded
        counts = arrays.get("session_count", np.zeros(len(arrays["actions"]), np.int64)).astype(np.int64)
        options = {name: arrays[name].item() for name in _OPTIONS if name in arrays}
        options.setdefault("steps", int(length.max()) + 1)
        ends, session_ends = np.cumsum(length), np.cumsum(counts)
        return cls(arrays, ends - length, np.concatenate([[0], session_ends]), options)


def _require(path: Path, arrays: Arrays) -> None:
    missing = [name for name in (*_OF_EPISODES, *_OF_STEPS) if name not in arrays]
    if missing:
        raise RedlineError(f"{path} is not a CAGE-4 recording: it lacks {', '.join(missing)}.")
    _require_kinds(path, arrays)
    episodes, steps = arrays["length"].size, sum(arrays["length"].reshape(-1).tolist())
    if arrays["length"].ndim != 1 or steps < 1 or arrays["length"].min() < 1:
        raise RedlineError(f"{path} holds no steps to compare, or an episode without any.")
    shapes = {**{name: (episodes, *rest) for name, rest in _OF_EPISODES.items()}}
    shapes |= {name: (steps, *rest) for name, rest in _OF_STEPS.items()}
    if "sessions" in arrays:
        if "session_count" not in arrays:
            raise RedlineError(f"{path} has sessions, but lacks session_count, which tells whose they are.")
        shapes |= {"session_count": (steps,), "sessions": (sum(arrays["session_count"].reshape(-1).tolist()), 6)}
    shapes |= {"messages": (steps, NUM_BLUE, MESSAGE_BITS), "events": (steps, 2, 18), "gen_start": (episodes, 6)}
    shapes |= dict.fromkeys(("seed", *_TEXTS), (episodes,)) | dict.fromkeys(_OPTIONS, ())
    for name, shape in shapes.items():
        if name in arrays and arrays[name].shape != shape:
            raise RedlineError(f"{path}: {name} has shape {arrays[name].shape}; with these lengths it must be {shape}.")
    actions = arrays["actions"]
    if actions.dtype.kind not in "iu" or (actions < 0).any() or (actions >= np.array(NUM_ACTIONS)).any():
        raise RedlineError(
            f"{path}: actions must be 0 to {NUM_ACTIONS[0] - 1}, and to {NUM_ACTIONS[-1] - 1} of the last."
        )
    _require_generators(path, arrays["gen_before"])


def _require_kinds(path: Path, arrays: Arrays) -> None:
    """Refuse arrays of another type than they are of."""
    for name, kinds in _KINDS.items():
        if name in arrays and arrays[name].dtype.kind not in kinds:
            raise RedlineError(f"{path}: {name} is of type {arrays[name].dtype}, which no recording has there.")
    if "events" in arrays and arrays["events"].dtype != np.uint8:
        raise RedlineError(f"{path}: events are of type {arrays['events'].dtype}; they are bits, packed to uint8.")
    for name in _COUNTS:
        if name in arrays and arrays[name].size and int(arrays[name].min()) < 0:
            raise RedlineError(f"{path}: {name} holds {arrays[name].min()}; it can only be 0 or more.")


def _require_generators(path: Path, found: np.ndarray) -> None:
    """Refuse where no generator can stand: rules would draw for ever, or beyond what there is."""
    columns = dict(zip(GENERATOR, found.astype(np.uint64).T, strict=True))
    if (columns["increment_low"] & np.uint64(1) == 0).any() or (columns["half"] >> np.uint64(32)).any():
        raise RedlineError(f"{path}: gen_before is no state of a generator.")
    if (columns["has_half"] > 1).any():
        raise RedlineError(f"{path}: gen_before is no state of a generator.")


def replay(
    recording: TeamRecording, given: dict[str, Any] | None = None, turbo: bool = True, most_episodes: int | None = None
) -> Comparison:
    """Play recorded episodes again, `BATCH` at a time; `given` options stand in place of those of the recording."""
    options = EnterpriseOptions(**{**recording.options, **(given or {})})
    number = recording.episodes if most_episodes is None else min(most_episodes, recording.episodes)
    found = Comparison(number)
    for start in range(0, number, BATCH):
        episodes = np.arange(start, min(start + BATCH, number))
        _Replay(recording, episodes, options, turbo, found).run()
    return found


class _Replay:
    """Some episodes, side by side."""

    def __init__(
        self, recording: TeamRecording, episodes: np.ndarray, options: EnterpriseOptions, turbo: bool, found: Comparison
    ) -> None:
        self.recording, self.arrays, self.episodes, self.found = recording, recording.arrays, episodes, found
        self.env = Cage4VectorEnv(len(episodes), options, turbo=turbo, autoreset=False)
        self._earliest: tuple[int, int] | None = None
        self._block_lines = (
            [str(each).split("\n") for each in self.arrays["blocks"][episodes]] if "blocks" in self.arrays else []
        )

    def run(self) -> None:
        """Compare beginnings, then all steps."""
        self._begin()
        length = self.arrays["length"][self.episodes]
        for t in range(int(length.max())):
            running = t < length
            at = self.recording.first[self.episodes] + np.minimum(t, length - 1)
            if "messages" in self.arrays:
                self.env.messages = self.arrays["messages"][at]
            obs, rewards, *_ = self.env.step(self.arrays["actions"][at].astype(np.int64))
            self.found.steps += int(running.sum())
            self._count(t, dict(self._compared(at, obs, rewards)), running)

    def _begin(self) -> None:
        env, arrays = self.env, self.arrays
        differing = {}
        if "seed" in arrays:
            env.reset(seed=[int(seed) for seed in arrays["seed"][self.episodes]])
            differing["gen_before"] = _unequal(generators(env.state), arrays["gen_before"][self.episodes])
        else:
            env.reset(seed=0)
        for name, column in zip(GENERATOR, arrays["gen_before"][self.episodes].T, strict=True):
            env.state[name] = column
        env.reset()
        if "gen_start" in arrays:
            differing["gen_start"] = _unequal(generators(env.state), arrays["gen_start"][self.episodes])
        differing["network"] = np.array([self._network_differs(j, e) for j, e in enumerate(self.episodes)])
        self._count(BEFORE, differing, np.ones(len(self.episodes), np.bool_))

    def _network_differs(self, j: int, episode: int) -> bool:
        network, labels = self.recording.text("network", episode), self.recording.text("labels", episode)
        with _as_recorded("network"):
            return self._differs(self.env.state[j], self.env.mask[j], network, labels)

    def _differs(self, record: np.record, mask: np.ndarray, network: Any, labels: Any) -> bool:
        if network is not None and [described(each) for each in network["hosts"]] != list(our_hosts(record)):
            return True
        return labels is not None and any(
            full_labels(record, mask, b) != labels[agent][: NUM_ACTIONS[b]] for b, agent in enumerate(BLUE_AGENTS)
        )

    def _compared(self, at: np.ndarray, obs: np.ndarray, rewards: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """What is compared after a step, and which envs differ in it."""
        arrays, state = self.arrays, self.env.state
        yield "rewards", rewards != arrays["rewards"][at]
        theirs, numbers = arrays["obs"][at], np.arange(MOST_NUMBERS) < np.array(SIZES)[:, None]
        yield "obs", ((obs != theirs) & numbers).any(axis=(1, 2))
        yield "gen", _unequal(generators(state), arrays["gen"][at])
        if "sessions" in arrays:
            yield "sessions", np.array([self._sessions_differ(j, step) for j, step in enumerate(at)])
        if "events" in arrays:
            ours = np.stack([noticed(state, state.connection), noticed(state, state.creation)], axis=1)
            their_bits = np.unpackbits(arrays["events"][at], axis=2)[:, :, :MOST_HOSTS]
            yield "events", (ours != their_bits).any(axis=(1, 2))
        if "blocks" in arrays:
            yield "blocks", (blocked(state) != self._their_blocks(at)).any(axis=(1, 2))

    def _sessions_differ(self, j: int, step: int) -> bool:
        first, last = self.recording.first_session[step : step + 2]
        return not np.array_equal(session_table(self.env.state, j), self.arrays["sessions"][first:last])

    def _their_blocks(self, at: np.ndarray) -> np.ndarray:
        steps = at - self.recording.first[self.episodes]
        with _as_recorded("blocks"):
            return np.stack([parsed_blocks(lines[t]) for lines, t in zip(self._block_lines, steps, strict=True)])

    def _count(self, t: int, differing: dict[str, np.ndarray], running: np.ndarray) -> None:
        """Count the envs that differ after step `t`, and remember the first of them."""
        found = self.found
        found.mismatches += int((np.any(list(differing.values()), axis=0) & running).sum())
        for name, which in differing.items():
            wrong = np.flatnonzero(which & running)
            if len(wrong):
                found.by_array[name] = found.by_array.get(name, 0) + len(wrong)
                j = int(wrong[0])
                if self._earliest is None or (int(self.episodes[j]), t) < self._earliest:
                    self._earliest = (int(self.episodes[j]), t)
                    self.found.first = self._difference(name, j, t)

    def _difference(self, name: str, j: int, t: int) -> Difference:
        episode = int(self.episodes[j])
        place, expected, got = "", 0.0, 0.0
        step = self.recording.first[episode] + max(t, 0)
        actions = self.arrays["actions"][step]
        if name == "rewards":
            expected, got = (
                float(self.arrays["rewards"][step]),
                float(self.env.state.score[j] - self.env.state.early_score[j]),
            )
        action = "; ".join(action_label(b, int(each)) for b, each in enumerate(actions))
        return Difference(episode, t, name, place, expected, got, action)


@contextmanager
def _as_recorded(name: str) -> Iterator[None]:
    """Whatever is wrong with a text of a recording is told in one line."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RedlineError(f"The {name} of a recording cannot be read: {error!s:.100}.") from error


@functools.lru_cache(maxsize=4096)
def parsed_blocks(line: str) -> np.ndarray:
    """A recorded line of blocks, bool [9, 9]."""
    found = np.zeros((len(ZONES), len(ZONES)), np.bool_)
    for zone, others in json.loads(line):
        found[ZONES.index(zone), [ZONES.index(other) for other in others]] = True
    return found


def _unequal(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return (ours != theirs).any(axis=1)


def described(host: dict[str, Any]) -> tuple[str, frozenset[str], int, int]:
    """A recorded host: its name, its services, how many processes it has, and the highest pid."""
    services = frozenset(name.rpartition(".")[2] for name, *_ in host["services"])
    pids = [pid for pid, _ in host["processes"]]
    return host["name"], services, len(pids), max(pids, default=0)


def our_hosts(env: np.record) -> Iterator[tuple[str, frozenset[str], int, int]]:
    """The hosts of an env, described likewise."""
    for h, name in enumerate(host_names(env)):
        bits = int(env.services[h])
        services = [service for bit, service in _SERVICES.items() if bits & bit]
        ssh = ["SSHD"] if env.real_services[h] else []
        yield name, frozenset([*ssh, *services]), int(env.backup_count[h]), int(env.backup_pid[h])
