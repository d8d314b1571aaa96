"""Recordings of an original simulator, and their replay: is a world the original, step for step?

A recording is an .npz file of E episodes of up to T steps:

    actions [E, T], length [E]       what was done, for how many steps
    options                          the options of the world it was made under, as JSON; may be missing
    begin.FIELD [E, …]               written into the record of each env once its episode has begun
    choice.FIELD [E, T, …]           written before each step: what chance decided in the original
    first_obs [E, numbers]           compared before the first step
    obs [E, T, numbers], reward [E, T], terminated [E, T], truncated [E, T], mask [E, T, actions], state.FIELD [E, T, …]
                                     compared after each step, as far as they are there

A `Recorder` writes one. Numbers of an observation are those that a network sees; masks say what is allowed next.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike
from rich.markup import escape

from redline.errors import RedlineError, unknown
from redline.files import plain_file
from redline.worlds.encoding import Encoding
from redline.worlds.naming import with_query
from redline.worlds.results import StepResults
from redline.worlds.world import Answer, Say

Arrays = dict[str, np.ndarray]

MOST_BYTES = 2 << 30
"""The largest recording that is read."""
BEFORE = -1
"""The step of a difference that shows before the first one."""
BEGIN, CHOICE, STATE = "begin.", "choice.", "state."
_COMPARED = ("obs", "reward", "terminated", "truncated", "mask")
_KNOWN = ("actions", "length", "options", "first_obs", *_COMPARED)
_DAMAGE = (ValueError, OSError, EOFError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class ReplayableEnv(Protocol):
    """A batch of envs that can be made to play recorded episodes."""

    num_envs: int
    num_actions: int
    action_names: tuple[str, ...]
    stored: Encoding
    state: np.recarray
    """A record per env."""
    obs: np.ndarray
    mask: np.ndarray
    dictated: bool
    """Whether nothing is drawn: what chance decides is written into `state`."""

    def reset(self, *, seed: int) -> Any:
        """Begin an episode in every env."""

    def look(self) -> None:
        """Write observations and masks anew, after `state` was written into."""

    def play(self, first: int, last: int, actions: np.ndarray, results: StepResults) -> None:
        """Play one step in envs `first` up to `last`; those that end do not begin again."""


@dataclass(frozen=True)
class Difference:
    """A value that differs from the recording."""

    episode: int
    step: int
    what: str
    place: str
    expected: int | float
    got: int | float
    action: str

    def __str__(self) -> str:
        when = "before the first step" if self.step == BEFORE else f"step {self.step} ({self.action})"
        place = f" of {self.place}" if self.place else ""
        return f"episode {self.episode}, {when}: {self.what}{place}: expected {self.expected}, got {self.got}"


@dataclass
class Comparison:
    """The differences that the replay of a recording found."""

    episodes: int
    steps: int = 0
    """Steps that were played and compared. An episode that cannot go on as recorded is left there."""
    mismatches: int = 0
    """Steps that differ from the recording in anything compared; beginnings that do count as one."""
    by_array: dict[str, int] = field(default_factory=dict)
    """Steps that differ, per array."""
    first: Difference | None = None
    """The earliest one of the first episode that has any."""


# Reading


def load_arrays(path: Path, most_bytes: int = MOST_BYTES) -> Arrays:
    """The arrays of an .npz file of numbers and texts. Nothing in it is run, nor more memory taken than it may fill."""
    if path.is_dir():
        raise RedlineError(f"{path} is a folder. Pass the path of a recording, such as traces.npz.")
    if not path.exists():
        raise RedlineError(f"There is no recording {path}. Pass the path of one, such as traces.npz.")
    try:
        with zipfile.ZipFile(plain_file(path)) as file:
            claimed = sum(member.file_size for member in file.infolist())
            if claimed > most_bytes:
                raise RedlineError(
                    f"{path} claims to hold {claimed / 2**30:.1f} GiB. Recordings of up to {most_bytes / 2**30:.3g} GiB "
                    "are read: make several of it."
                )
            return {_array_name(member): _array_in(path, file, member) for member in file.infolist()}
    except _DAMAGE as error:
        why = "it may be cut short" if _was_zip(path) else "it is no .npz file"
        raise RedlineError(f"{path} cannot be read as a recording: {why}. Pass an .npz file of numbers.") from error


def _was_zip(path: Path) -> bool:
    """Whether a file begins as an .npz file does, or was cut before that."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(2) in (b"PK", b"")


def _array_name(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _array_in(path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """An array of a file, unless its header claims more than the file holds."""
    name = _array_name(member)
    with file.open(member) as stream:
        version = np.lib.format.read_magic(cast(BinaryIO, stream))
        if version not in _HEADERS:
            raise RedlineError(f"{path}: {name} is written in a form that is not known here: {version}.")
        shape, by_columns, dtype = _header(version, cast(BinaryIO, stream))
        if dtype.hasobject or dtype.names is not None:
            raise RedlineError(f"{path}: {name} holds objects; a recording holds numbers.")
        size = math.prod(shape, start=int(dtype.itemsize))
        if not 0 <= size <= member.file_size:
            raise RedlineError(
                f"{path}: {name} claims {size:,} bytes and has {member.file_size:,}. The file is damaged."
            )
        return np.ndarray(shape, dtype, bytearray(stream.read(size)), order="F" if by_columns else "C")


def _header(version: tuple[int, int], stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of an array. A header is written as Python is, and numpy does not expect all that can be."""
    try:
        shape, by_columns, dtype = _HEADERS[version](stream)
    except (TypeError, MemoryError, RecursionError, tokenize.TokenError) as error:
        raise ValueError(f"no header of an array: {error}") from error
    return tuple(map(int, shape)), by_columns, dtype


class Recording:
    """Recorded episodes, checked against the envs that are to play them again."""

    def __init__(self, path: Path, arrays: Arrays) -> None:
        self._path, self._arrays = path, arrays
        for name in ("actions", "length"):
            if name not in arrays:
                raise self._refusal(f"it has no array {name!r}, and a recording has")
        self.actions, self.length = arrays["actions"], arrays["length"]
        if self.actions.ndim != 2 or self.actions.dtype.kind not in "iu":
            raise self._refusal(f"actions of shape {self.actions.shape} and type {self.actions.dtype} must be [E, T]")
        self.episodes, self.steps = self.actions.shape
        self._require_shape("length", (self.episodes,))
        if self.length.dtype.kind not in "iu" or (self.episodes and self.length.min() < 0):
            raise self._refusal("lengths of episodes must be whole numbers of at least 0")
        if self.episodes and self.length.max() > self.steps:
            raise self._refusal(f"an episode claims {self.length.max()} steps, but only {self.steps} are recorded")
        self.valid = np.arange(self.steps) < self.length[:, None]  # bool [E, T]
        if not self.valid.any():
            raise self._refusal(f"it holds no steps to compare: {self.episodes} episodes, all of length 0")
        self.options = self._read_options()

    @classmethod
    def load(cls, path: Path) -> Recording:
        """The recording in a file."""
        return cls(path, load_arrays(path))

    def fields(self, kind: str) -> Arrays:
        """The arrays of one kind (`begin.`, `choice.`, `state.`), by the field of the record they belong to."""
        return {name.removeprefix(kind): each for name, each in self._arrays.items() if name.startswith(kind)}

    def get(self, name: str) -> np.ndarray | None:
        """The array of that name, if there is one."""
        return self._arrays.get(name)

    def compared(self) -> Arrays:
        """The arrays that are compared after each step."""
        return {name: each for name, each in self._arrays.items() if name in _COMPARED or name.startswith(STATE)}

    def require_fit(self, env: ReplayableEnv) -> None:
        """Refuse a recording that these envs could not play."""
        self._require_names(env)
        whole, numbers = (self.episodes, self.steps), env.stored.size
        shapes = {"obs": (*whole, numbers), "mask": (*whole, env.num_actions), "first_obs": (self.episodes, numbers)}
        for name, array in self._arrays.items():
            if name not in ("actions", "length", "options"):
                self._require_numbers(name, array)
                self._require_shape(name, self._shape_of(name, env) or shapes.get(name, whole))
        actions = self.actions[self.valid]
        if actions.min() < 0 or actions.max() >= env.num_actions:
            raise self._refusal(f"actions must be 0 to {env.num_actions - 1}, found {actions.min()} to {actions.max()}")
        for kind in (BEGIN, CHOICE):
            for name, array in self.fields(kind).items():
                self._require_range(f"{kind}{name}", array, env.state.dtype[name].base)

    def _read_options(self) -> dict[str, Any]:
        text = self._arrays.get("options", np.array("{}"))
        try:
            found = json.loads(str(text)) if text.dtype.kind == "U" and text.ndim == 0 else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._refusal('its options are not written as JSON, such as {"size": 3}')
        return found

    def _require_names(self, env: ReplayableEnv) -> None:
        known = env.state.dtype.names or ()
        for name in self._arrays:
            kind, dot, of = name.partition(".")
            if f"{kind}{dot}" in (BEGIN, CHOICE, STATE):
                if of not in known:
                    raise unknown(f"field of the record for {self._path.name}'s {name}", of, known)
            elif name not in _KNOWN:
                raise unknown(f"array of a recording (in {self._path.name})", name, (*_KNOWN, "begin.…", "choice.…"))
        if not self.compared() and "first_obs" not in self._arrays:
            raise self._refusal("it holds nothing to compare, such as obs, reward or state.FIELD")

    def _shape_of(self, name: str, env: ReplayableEnv) -> tuple[int, ...] | None:
        """The shape of an array that belongs to a field of the record."""
        kind, dot, of = name.partition(".")
        if not dot:
            return None
        first = (self.episodes,) if f"{kind}." == BEGIN else (self.episodes, self.steps)
        return (*first, *env.state.dtype[of].shape)

    def _require_shape(self, name: str, shape: tuple[int, ...]) -> None:
        found = self._arrays[name].shape
        if found != shape:
            raise self._refusal(f"{name} has shape {found}; it must be {shape} to go with actions and the world")

    def _require_numbers(self, name: str, array: np.ndarray) -> None:
        if array.dtype.kind not in "iufb":
            raise self._refusal(f"{name} holds {array.dtype}; it must hold numbers")
        if array.dtype.kind == "f" and not np.isfinite(self._played(array)).all():
            raise self._refusal(f"{name} holds a number that is not finite")

    def _require_range(self, name: str, array: np.ndarray, dtype: np.dtype) -> None:
        """Refuse numbers that a field of the record cannot hold."""
        if dtype.kind == "f":
            return
        held = self._played(array)
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if held.size and not (low <= held.min() and held.max() <= high and (held == np.trunc(held)).all()):
            raise self._refusal(
                f"{name} holds {held.min()} to {held.max()}; its field takes whole numbers {low} to {high}"
            )

    def _played(self, array: np.ndarray) -> np.ndarray:
        """The numbers of an array that are looked at."""
        return array[self.valid] if array.shape[:2] == self.valid.shape else array

    def _refusal(self, why: str) -> RedlineError:
        return RedlineError(f"{self._path} cannot be replayed: {why}.")


# Replaying


def replay(recording: Recording, env: ReplayableEnv) -> Comparison:
    """Play every recorded episode and count the steps that come out differently."""
    recording.require_fit(env)
    return _Replay(recording, env).run()


class _Replay:
    """One pass over a recording, in one env per episode: plays, compares, and keeps count."""

    def __init__(self, recording: Recording, env: ReplayableEnv) -> None:
        self._recording, self._env = recording, env
        self._compared, self._choices = recording.compared(), recording.fields(CHOICE)
        self._playing = np.zeros(recording.episodes, np.bool_)
        self._left = np.zeros(recording.episodes, np.bool_)  # cannot go on as recorded
        self._wrong = np.zeros((recording.episodes, recording.steps + 1), np.bool_)  # the beginning, then the steps
        self._results = StepResults.zeros(recording.episodes)
        self._found = Comparison(recording.episodes)

    def run(self) -> Comparison:
        self._begin()
        for t in range(self._recording.steps):
            self._step(t)
        self._found.mismatches = int(self._wrong.sum())
        return self._found

    def _begin(self) -> None:
        env = self._env
        env.dictated = True
        env.reset(seed=0)
        for name, values in self._recording.fields(BEGIN).items():
            env.state[name] = values
        env.look()
        self._playing[:] = self._recording.length > 0
        first_obs = self._recording.get("first_obs")
        if first_obs is not None:
            self._compare("first_obs", BEFORE, first_obs, env.stored.decode(env.obs))

    def _step(self, t: int) -> None:
        env, length = self._env, self._recording.length
        self._playing[:] = (length > t) & ~self._left
        actions = np.where(self._playing, self._recording.actions[:, t], 0).astype(np.int64)
        self._leave_forbidden(t, actions)
        for name, values in self._choices.items():
            env.state[name][self._playing] = values[self._playing, t]
        for first, last in _runs(self._playing):
            env.play(first, last, actions, self._results)
        self._found.steps += int(self._playing.sum())
        goes_on = self._playing & (length > t + 1)
        for name, expected in self._compared.items():
            self._compare(name, t, expected[:, t], self._got(name), goes_on if name == "mask" else None)
        ended = self._results.terminated | self._results.truncated
        self._compare("end", t, np.zeros_like(ended), ended, goes_on)
        self._left |= goes_on & ended

    def _leave_forbidden(self, t: int, actions: np.ndarray) -> None:
        """Leave the episodes whose next action is not allowed here: rules need not know what to make of it."""
        if self._env.mask.shape[1]:
            allowed = self._env.mask[np.arange(len(actions)), actions]
            self._compare("action", t, np.ones_like(allowed), allowed)
            self._left |= self._playing & ~allowed
            self._playing &= allowed

    def _got(self, name: str) -> np.ndarray:
        env = self._env
        if name.startswith(STATE):
            return np.asarray(env.state[name.removeprefix(STATE)])
        if name == "obs":
            return env.stored.decode(env.obs)
        rewards, terminated, truncated = self._results
        arrays = {"reward": rewards, "terminated": terminated, "truncated": truncated}
        return arrays[name] if name in arrays else self._mask()

    def _mask(self) -> np.ndarray:
        env = self._env
        return env.mask if env.mask.shape[1] else np.ones((env.num_envs, env.num_actions), np.bool_)

    def _compare(
        self, name: str, t: int, expected: np.ndarray, got: np.ndarray, where: np.ndarray | None = None
    ) -> None:
        """Count the episodes that differ in step `t`, among those that play it, or `where` only."""
        expected, got = (each.reshape(len(each), -1) for each in _of_one_precision(expected, got))
        differs = (expected != got) & (self._playing if where is None else where)[:, None]
        bad = differs.any(axis=1)
        if not bad.any():
            return
        self._found.by_array[name] = self._found.by_array.get(name, 0) + int(bad.sum())
        self._wrong[bad, t + 1] = True
        episode, column = (int(k) for k in np.argwhere(differs)[0])
        first = self._found.first
        if first is None or (episode, t) < (first.episode, first.step):
            values = expected[episode, column].item(), got[episode, column].item()
            self._found.first = self._difference(name, episode, t, column, values)

    def _difference(
        self, name: str, episode: int, t: int, column: int, values: tuple[int | float, int | float]
    ) -> Difference:
        action = "" if t == BEFORE else self._action_name(int(self._recording.actions[episode, t]))
        expected, got = (int(value) if isinstance(value, bool) else value for value in values)
        what = {"end": "the episode is over, and goes on in the recording", "action": "an action that is not allowed"}
        return Difference(episode, t, what.get(name, name), self._place(name, column), expected, got, action)

    def _action_name(self, action: int) -> str:
        return self._env.action_names[action] if self._env.action_names else f"action {action}"

    def _place(self, name: str, column: int) -> str:
        """Where a column of an array is, in words."""
        if name in ("obs", "first_obs"):
            names = getattr(self._env.stored, "names", ())
            return names[column] if names else f"number {column}"
        if name == "mask":
            return self._action_name(column)
        shape = self._env.state.dtype[name.removeprefix(STATE)].shape if name.startswith(STATE) else ()
        return str([int(k) for k in np.unravel_index(column, shape)]) if shape else ""


def _runs(chosen: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last (exclusive) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]])))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _of_one_precision(expected: np.ndarray, got: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays; floats of different precision in the lower one, in which they can be equal."""
    if expected.dtype.kind == got.dtype.kind == "f":
        lower = min(expected.dtype, got.dtype, key=lambda dtype: dtype.itemsize)
        return expected.astype(lower), got.astype(lower)
    return expected, got


# The command


@dataclass(frozen=True)
class Recordings:
    """Recordings to replay, and how."""

    traces: tuple[str, ...] = ()
    """Recordings (.npz) to replay, separated by commas."""
    turbo: bool = True
    """Replay with the compiled rules; off, with the interpreted ones."""


def verify_recordings(batch: Callable[..., ReplayableEnv], name: str, options: Recordings, say: Say) -> Answer:
    """Replay recordings of the world that `batch` makes. Exit code 1 when anything differs."""
    if not options.traces:
        raise RedlineError(f"No recording was given. Try: redline verify {name} --traces FILE.npz")
    results = [_verify(batch, name, Path(path), options.turbo) for path in options.traces]
    return answer_of(results)


def _verify(batch: Callable[..., ReplayableEnv], name: str, path: Path, turbo: bool) -> dict[str, Any]:
    recording = Recording.load(path)
    bare, given = with_query(name, {})
    env = batch(recording.episodes, bare, turbo=turbo, autoreset=False, **{**recording.options, **given})
    started = time.monotonic()
    found = replay(recording, env)
    first = None if found.first is None else {**dataclasses.asdict(found.first), "text": str(found.first)}
    counts = {"episodes": found.episodes, "steps": found.steps, "mismatches": found.mismatches}
    seconds = time.monotonic() - started
    return {"file": str(path), **counts, "by_array": found.by_array, "first_mismatch": first, "seconds": seconds}


def answer_of(results: Sequence[dict[str, Any]]) -> Answer:
    """The report of several replays; the `rules` of a replay are told where it has any."""
    totals = {key: sum(result[key] for result in results) for key in ("episodes", "steps", "mismatches")}
    first = next((result["first_mismatch"] for result in results if result["first_mismatch"]), None)
    lines = [line for result in results for line in _lines(result)]
    data = {**totals, "files": results, "first_mismatch": first}
    return Answer(data, lines, exit_code=1 if totals["mismatches"] else 0)


def _lines(result: dict[str, Any]) -> list[str]:
    rules = f"rules {result['rules']}, " if "rules" in result else ""
    found = "no mismatches" if not result["mismatches"] else f"[bold red]{result['mismatches']:,} mismatches[/]"
    lines = [
        f"{escape(Path(result['file']).name)}: {result['steps']:,} steps of {result['episodes']:,} episodes compared "
        f"({rules}{result['seconds']:.1f} s): {found}"
    ]
    if result["first_mismatch"] is not None:
        differing = ", ".join(f"{name} {count:,}" for name, count in result["by_array"].items())
        lines.append(f"  first: {escape(result['first_mismatch']['text'])}")
        lines.append(f"  steps that differ, by what was compared: {differing}")
    return lines


# Recording


class Recorder:
    """Writes down what an original does, for `redline verify` to play again.

    recorder = Recorder()
    recorder.begin(obs, level=original.level)
    recorder.step(action, obs, reward, terminated, truncated, choice={"demand": original.demand})
    recorder.save("original.npz")
    """

    def __init__(self, **options: object) -> None:
        """`options` are those of the world that plays the same as the original."""
        self._options = options
        self._begins: list[Arrays] = []
        self._steps: list[list[Arrays]] = []

    def begin(self, first_obs: ArrayLike | None = None, **fields: ArrayLike) -> None:
        """An episode has begun. `fields` of the record are set to what the original began with."""
        found = {f"{BEGIN}{name}": np.array(value) for name, value in fields.items()}
        self._begins.append(found | _given(first_obs=first_obs))
        self._steps.append([])

    def step(
        self,
        action: int,
        obs: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        choice: Mapping[str, ArrayLike] | None = None,
        state: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """A step was played. `choice` is what chance decided in it, `state` how it is now; both by field of the record."""
        if not self._steps:
            raise RedlineError("There is no episode to record a step of. Call begin first.")
        told = _given(
            actions=action, obs=obs, reward=reward, terminated=terminated, truncated=truncated, mask=mask,
            **{f"{CHOICE}{name}": value for name, value in (choice or {}).items()},
            **{f"{STATE}{name}": value for name, value in (state or {}).items()},
        )  # fmt: skip
        self._steps[-1].append(told)

    def save(self, path: Path | str) -> None:
        """Write all episodes to an .npz file."""
        steps = [step for episode in self._steps for step in episode]
        if not steps:
            raise RedlineError(f"No step was recorded, so there is nothing to write to {path}.")
        arrays = {name: np.stack(values) for name, values in _by_name(self._begins, "episode").items()}
        for name, values in _by_name(steps, "step").items():
            arrays[name] = self._spread(np.stack(values))
        arrays["length"] = np.array([len(episode) for episode in self._steps])
        arrays["options"] = np.array(json.dumps(self._options))
        np.savez_compressed(path, allow_pickle=False, **arrays)

    def _spread(self, rows: np.ndarray) -> np.ndarray:
        """Rows of all steps, one after another, as an array [E, T, …] with zeros behind the end of an episode."""
        lengths = np.array([len(episode) for episode in self._steps])
        spread = np.zeros((len(lengths), lengths.max(), *rows.shape[1:]), rows.dtype)
        spread[np.arange(lengths.max()) < lengths[:, None]] = rows
        return spread


def _given(**values: ArrayLike | None) -> Arrays:
    """Copies of the values that are there: an original may change its own."""
    return {name: np.array(value) for name, value in values.items() if value is not None}


def _by_name(rows: list[Arrays], what: str) -> dict[str, list[np.ndarray]]:
    """The values of all rows, by name; each row must have the same names and shapes."""
    first = {name: value.shape for name, value in rows[0].items()}
    for k, row in enumerate(rows):
        if {name: value.shape for name, value in row.items()} != first:
            raise RedlineError(
                f"What was recorded of {what} {k} ({_shapes(row)}) is not like that of the first ({_shapes(rows[0])}). "
                "Record the same of each."
            )
    return {name: [row[name] for row in rows] for name in rows[0]}


def _shapes(row: Arrays) -> str:
    return ", ".join(f"{name} {list(value.shape)}" for name, value in row.items()) or "nothing"
