"""The run folder: everything a report or a resume needs.

    NAME-20250131-142500/
      config.json     what was asked for
      metrics.csv     one row per update
      checkpoints/    see `redline.learn.checkpoint`

A file here is either complete or absent, except `metrics.csv`, which grows: a power cut may tear its last line, and
every reader knows that.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self

import numpy as np

from redline.errors import RedlineError

CONFIG = "config.json"
METRICS = "metrics.csv"
CHECKPOINTS = "checkpoints"

FLUSH_SECONDS = 2.0
MAX_WAITING_ROWS = 10_000

Inputs = ParamSpec("Inputs")


@dataclass(frozen=True)
class Run:
    """A folder that holds everything a report or a resume needs."""

    path: Path
    config: dict[str, Any]

    @classmethod
    def create(cls, root: Path, name: str, config: dict[str, Any], now: datetime | None = None) -> Run:
        """A new folder `root/name-YYYYmmdd-HHMMSS`, never one that exists."""
        stem = f"{_file_name(name)}-{now or datetime.now():%Y%m%d-%H%M%S}"
        try:
            make_folder(root)
            path = _make_unused(root, stem)
        except OSError as error:
            raise _cannot_begin(root, error) from error
        return cls._begin(path, config)

    @classmethod
    def at(cls, path: Path, config: dict[str, Any]) -> Run:
        """A new run in exactly this folder, which may exist but must not hold a run."""
        if any((path / part).exists() for part in (CONFIG, METRICS, CHECKPOINTS)):
            raise RedlineError(
                f"{path} already holds a run. Continue it with --resume {path}, or pass another folder, "
                f"such as {_unused_neighbour(path)}."
            )
        try:
            make_folder(path)
        except OSError as error:
            raise _cannot_begin(path, error) from error
        return cls._begin(path, config)

    @classmethod
    def open(cls, path: Path) -> Run:
        """The run that an existing folder holds."""
        if not path.is_dir():
            raise RedlineError(f"There is no run folder at {path}.{_suggest_newest_run(path.parent)}")
        if not (path / CONFIG).exists():
            raise RedlineError(f"{path} is no run folder: it has no {CONFIG}.{_suggest_newest_run(path)}")
        config = _read_json(path / CONFIG)
        if not isinstance(config, dict):
            raise RedlineError(f"{path / CONFIG} holds a {type(config).__name__}, but a config is a JSON object.")
        return cls(path, config)

    @classmethod
    def _begin(cls, path: Path, config: dict[str, Any]) -> Run:
        run = cls(path, config)
        try:
            run.write_json(CONFIG, config)
        except OSError as error:
            with suppress(OSError):
                path.rmdir()  # refuses when anyone else's files are in it
            raise _cannot_begin(path, error) from error
        return run

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints; the first save makes it."""
        return self.path / CHECKPOINTS

    @property
    def metrics(self) -> Path:
        """The file that a `MetricsLog` writes and `load_metrics` reads."""
        return self.path / METRICS

    def write_json(self, name: str, value: Any) -> None:
        """Write `name` in one stroke: readers find the old content or the new, even after a power cut."""
        replace_file(self.path / name, encode_json(value))

    def read_json(self, name: str) -> Any:
        """What `write_json` wrote. Tuples have become lists."""
        return _read_json(self.path / name)


def newest_run(root: Path) -> Path | None:
    """The run in `root` that was begun last."""
    begun = {path.parent: path.stat().st_mtime_ns for path in root.glob(f"*/{CONFIG}")}
    return max(begun, key=lambda path: (begun[path], path.name), default=None)


def _suggest_newest_run(root: Path) -> str:
    run = newest_run(root)
    return "" if run is None else f" The newest run in {root} is {run}."


def _file_name(name: str) -> str:
    """Env names such as `ALE/Pong-v5` and `external:package.module:factory` must not become paths."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "run"


def _make_unused(root: Path, stem: str) -> Path:
    for number in count(1):
        path = root / (stem if number == 1 else f"{stem}-{number}")
        with suppress(FileExistsError):
            path.mkdir()
            sync_folder(root)
            return path
    raise AssertionError("count() never ends")


def _unused_neighbour(path: Path) -> Path:
    neighbours = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(neighbour for neighbour in neighbours if not neighbour.exists())


def _cannot_begin(path: Path, error: OSError) -> RedlineError:
    why = "it is a file" if path.is_file() else reason(error)
    elsewhere = Path(tempfile.gettempdir()) / "redline-runs"
    return RedlineError(f"Cannot begin a run in {path}: {why}. Pass a folder you can write to, such as {elsewhere}.")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise RedlineError(f"{path} is missing.") from error
    except OSError as error:
        raise RedlineError(f"{path} cannot be read: {reason(error)}.") from error
    except ValueError as error:
        raise RedlineError(f"{path} is not valid JSON ({error}). Put it right or use another run.") from error


class MetricsLog:
    """Appends rows to a CSV file and never stops the training for it.

    The first row names the columns; a later row may leave some empty or add new ones. Rows wait in memory until there
    are `every` of them or the last flush is two seconds old. When the disk refuses them, they wait for the next flush;
    beyond 10,000 the oldest are given up.

    With `resume_at_step`, rows past that step are cut off, so that the file of a resumed run equals that of one that
    never stopped. For this to hold, call `sync` before each checkpoint.
    """

    def __init__(
        self,
        path: Path,
        resume_at_step: int | None = None,
        *,
        every: int = 20,
        clock: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self._every = every
        self._clock = clock
        self._warn = warn or warn_on_stderr
        self._write_or_wait = guarded(self._write, self._warn, f"metrics to {path}")
        self._waiting: deque[dict[str, object]] = deque(maxlen=max(every, MAX_WAITING_ROWS))
        self._rows_since_flush = 0
        self._last_flush = clock()
        self._columns: list[str] = []
        self._size = 0  # bytes known to be whole rows; whatever lies beyond is cut off by the next write
        if resume_at_step is not None:
            self._columns, self._size = _resume_point(path, resume_at_step)
            self.flush()
        elif _read_if_there(path):
            raise RedlineError(f"{path} already holds metrics. Continue that run with --resume {path.parent}.")

    def append(self, row: Mapping[str, float | int | str | None]) -> None:
        """Take one row; it reaches the file at the next flush."""
        self._waiting.append(dict(row))
        self._rows_since_flush += 1
        if self._rows_since_flush >= self._every or self._clock() - self._last_flush >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Hand the waiting rows to the operating system: they outlive this process, though not a power cut."""
        self._flush(sync=False)

    def sync(self) -> None:
        """Bring every row so far to the disk itself."""
        self._flush(sync=True)

    def close(self) -> None:
        """Bring every row to the disk, and say so if some cannot be."""
        self.sync()
        if self._waiting:
            self._warn(f"The last {len(self._waiting)} rows of metrics are lost: {self.path} could not be written.")
            self._waiting.clear()

    def __enter__(self) -> Self:
        """The log itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the log, whatever happened."""
        self.close()

    def _flush(self, sync: bool) -> None:
        self._rows_since_flush = 0
        self._last_flush = self._clock()
        if self._write_or_wait(sync):
            self._waiting.clear()

    def _write(self, sync: bool) -> None:
        self._take_in_new_columns()
        with self.path.open("ab") as file:
            start = min(file.tell(), self._size)
            file.truncate(start)
            data = self._encode_waiting(with_header=start == 0)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        self._size = start + len(data)

    def _take_in_new_columns(self) -> None:
        named = dict.fromkeys(column for row in self._waiting for column in row)
        new = [column for column in named if column not in self._columns]
        if new and self._size:
            self._widen(new)
        self._columns = self._columns + new

    def _widen(self, new: list[str]) -> None:
        """Rewrite the file with more columns, empty in the rows it has."""
        rows = _whole_lines(_read_if_there(self.path)[: self._size])[1:]
        padding = b"," * len(new) + b"\n"
        data = _encode_row(self._columns + new) + b"".join(row + padding for row in rows)
        replace_file(self.path, data)
        self._size = len(data)

    def _encode_waiting(self, with_header: bool) -> bytes:
        if not self._waiting:
            return b""
        header = _encode_row(self._columns) if with_header else b""
        return header + b"".join(_encode_row(row.get(column) for column in self._columns) for row in self._waiting)


def load_metrics(path: Path) -> dict[str, np.ndarray]:
    """The columns of a metrics file: float64 where every cell is a number or empty (NaN), else text.

    Torn rows are left out, so a file may be read while a run is writing it.
    """
    if not path.is_file():
        raise RedlineError(f"There are no metrics at {path}. Pass the {METRICS} of a run that has made an update.")
    lines = _whole_lines(path.read_bytes())
    if not lines:
        return {}
    columns = _cells(lines[0])
    rows = [cells for cells in map(_cells, lines[1:]) if len(cells) == len(columns)]
    return {column: _as_array([row[k] for row in rows]) for k, column in enumerate(columns)}


def _as_array(cells: list[str]) -> np.ndarray:
    try:
        return np.array([float(cell or "nan") for cell in cells], dtype=np.float64)
    except ValueError:
        return np.array(cells, dtype=np.str_)


def _resume_point(path: Path, step: int) -> tuple[list[str], int]:
    """The columns of a metrics file, and its length in bytes once the rows past `step` are gone."""
    lines = _whole_lines(_read_if_there(path))
    if not lines:
        return [], 0
    columns = _cells(lines[0])
    if "step" not in columns:
        raise RedlineError(f"{path} has no column 'step', so it cannot be cut back to step {step}. Move it away first.")
    size = end = len(lines[0]) + 1
    for line in lines[1:]:
        end += len(line) + 1
        row_step = _row_step(_cells(line), columns)
        if row_step is None:
            continue
        if row_step > step:
            break
        size = end
    return columns, size


def _row_step(cells: list[str], columns: list[str]) -> float | None:
    if len(cells) != len(columns):
        return None
    with suppress(ValueError):
        return float(cells[columns.index("step")])
    return None


def _whole_lines(data: bytes) -> list[bytes]:
    """Every line that ends. What follows the last newline was torn by a crash, or is still being written."""
    return data.split(b"\n")[:-1]


def _cells(line: bytes) -> list[str]:
    """The cells of one line, on its own: a stray quote in a damaged line must not swallow the lines after it."""
    try:
        return next(csv.reader([line.decode(errors="replace").rstrip("\r")]), [])
    except csv.Error:
        return []


def _encode_row(cells: Iterable[object]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([_one_line(cell) for cell in cells])
    return line.getvalue().encode(errors="replace")


def _one_line(cell: object) -> object:
    return " ".join(cell.splitlines()) if isinstance(cell, str) else cell


def guarded(
    write: Callable[Inputs, object], warn: Callable[[str], None], what: str = "to the run folder"
) -> Callable[Inputs, bool]:
    """`write`, but an OSError does not stop the training: the first one warns, later ones are silent.

    The result says whether the write worked. `what` completes the sentence "Cannot write …".
    """
    warned = False

    def write_if_possible(*args: Inputs.args, **kwargs: Inputs.kwargs) -> bool:
        nonlocal warned
        try:
            write(*args, **kwargs)
        except OSError as error:
            if not warned:
                warned = True
                warn(f"Cannot write {what}: {reason(error)}. Training goes on and will try again.")
            return False
        return True

    return write_if_possible


def warn_on_stderr(line: str) -> None:
    """Print one line where it does not mix with results."""
    print(line, file=sys.stderr, flush=True)


def reason(error: OSError) -> str:
    """Why the operating system refused, in its own words: `No space left on device`."""
    return error.strerror or str(error) or type(error).__name__


def encode_json(value: Any) -> bytes:
    """JSON for people to read. Numpy values and paths are welcome; NaN and infinities are written Python's way."""
    return (json.dumps(value, indent=2, default=_plain) + "\n").encode()


def _plain(value: object) -> object:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"A {type(value).__name__} cannot be written as JSON: {value!r}")


def make_folder(path: Path) -> None:
    """Make a folder and its parents, where missing."""
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Give `path` new content in one stroke. On failure the old content stands."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(draft, data)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    sync_folder(path.parent)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the disk knows which files a folder holds: a rename is not safe before."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(folder)


def _read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
