"""Readers of recorded episodes: arrays of another type, shape or content, some missing, and files that are damaged."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np

from tests.fuzz.mutate import VALUES, mutated_bytes
from tests.fuzz.reader import DATA, Draw, Reader, a_file, a_folder

Arrays = dict[str, np.ndarray]
NUMBERS = (-1, 0, 1, 5, 127, 2**31, -(2**40), 2**63 - 1)


def _changed(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """An array that is not quite the same."""
    if array.dtype.kind in "US" and rng.random() < 0.7:
        return np.array(rng.choice(("", "x", json.dumps(rng.choice(VALUES)), "[" * 5000, str(array)[:-1])))
    changes = (
        lambda: array if array.dtype.kind in "US" else array.astype(rng.choice((float, np.int8, np.uint64, bool))),
        lambda: array[:0] if array.ndim else array,
        lambda: array.reshape(-1),
        lambda: np.full(array.shape, np.nan),
        lambda: np.full(array.shape, rng.choice(NUMBERS)),
        lambda: _poked(rng, array),
        lambda: _poked(rng, array),
        lambda: _poked(rng, array),
        lambda: rng.choice((np.zeros(0), np.array("x"), np.array(-1), np.array(7), np.zeros((2, 2, 2)))),
    )  # fmt: skip
    return rng.choice(changes)()


def _poked(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """An array with another number somewhere."""
    if array.dtype.kind not in "iufb" or not array.size:
        return array
    found = array.astype(np.int64) if rng.random() < 0.5 else array.copy()
    with np.errstate(all="ignore"):
        found.reshape(-1)[rng.randrange(found.size)] = np.array(rng.choice(NUMBERS)).astype(found.dtype)
    return found


def _drawing(recordings: list[Arrays]) -> Draw:
    def draw(rng: random.Random) -> bytes:
        arrays, out = dict(rng.choice(recordings)), io.BytesIO()
        name = rng.choice(list(arrays))
        arrays[name] = _changed(rng, arrays[name])
        if rng.random() < 0.1:
            del arrays[name]
        elif rng.random() < 0.05:
            arrays[f"{name}x"] = arrays.pop(name)
        np.savez(out, **arrays)
        data = out.getvalue()
        return mutated_bytes(rng, data, [data]) if rng.random() < 0.3 else data

    return draw


def recordings() -> Reader:
    """Of CAGE-2."""
    from redline.worlds.cage2.recordings import load_traces, replay

    with np.load(DATA / "cage2_final.npz") as file:
        whole = dict(file)
    episodes, steps = whole["blue_action"].shape
    short = {name: array[:2] if array.shape[:1] == (episodes,) else array for name, array in whole.items()}
    short = {name: array[:, :2] if array.shape[1:2] == (steps,) else array for name, array in short.items()}
    short["length"] = np.minimum(short["length"], 2)

    def read(data: bytes) -> None:
        with a_file(data, ".npz") as path:
            replay(load_traces(path))

    return Reader(_drawing([short]), read)


def team_recordings() -> Reader:
    """Of CAGE-4."""
    from redline.worlds.cage4.recordings import TeamRecording, replay

    with np.load(DATA / "cage4" / "seven_steps.npz") as file:
        whole = dict(file)
    first = _first_episode(whole)
    first.pop("room", None)  # another one is compiled anew

    def read(data: bytes) -> None:
        with a_file(data, ".npz") as path:
            replay(TeamRecording.load(path))

    return Reader(_drawing([first]), read)


def _first_episode(arrays: Arrays) -> Arrays:
    """Of a recording whose steps, and the sessions of steps, stand one behind the other."""
    episodes, steps = len(arrays["length"]), int(arrays["length"][0])
    total = int(arrays["length"].sum())
    found = {}
    for name, array in arrays.items():
        if name == "sessions":
            found[name] = array[: int(arrays["session_count"][:steps].sum())]
        elif array.shape[:1] == (total,):
            found[name] = array[:steps]
        else:
            found[name] = array[:1] if array.shape[:1] == (episodes,) else array
    return found


def other_recordings() -> Reader:
    """Of any world."""
    from examples.elevator_original import record
    from redline.worlds.recordings import Recording, replay
    from redline.worlds.registry import world_of

    name = "world:examples.elevator:WORLD"
    path = a_folder() / "elevator.npz"
    record(path, episodes=2)
    with np.load(path) as file:
        whole = dict(file)
    steps = whole["actions"].shape[1]
    short = {key: array[:, :5] if array.shape[1:2] == (steps,) else array for key, array in whole.items()}
    short["length"] = np.minimum(short["length"], 5)

    def read(data: bytes) -> None:
        with a_file(data, ".npz") as given:
            recording = Recording.load(Path(given))
            make = world_of(name).batch
            assert make is not None
            replay(recording, make(recording.episodes, name, autoreset=False, **recording.options))

    return Reader(_drawing([short]), read)


READERS = (recordings, team_recordings, other_recordings)
