"""The metrics of a run: a CSV file that grows by one row per update."""

from __future__ import annotations

import csv
import io
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from redline.errors import RedlineError
from redline.files import guarded, plain_file, read_if_there, replace_file, warn_on_stderr

FLUSH_SECONDS = 2.0
MAX_WAITING_ROWS = 10_000


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
        elif read_if_there(path):
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
        with plain_file(self.path).open("ab") as file:
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
        rows = _whole_lines(read_if_there(self.path)[: self._size])[1:]
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
        raise RedlineError(f"There are no metrics at {path}. Pass the {path.name} of a run that has made an update.")
    lines = _whole_lines(path.read_bytes())
    if not lines:
        return {}
    columns = _cells(lines[0])
    rows = [cells for cells in map(_cells, lines[1:]) if len(cells) == len(columns)]
    return {column: _as_array([row[k] for row in rows]) for k, column in enumerate(columns)}


def load_numbers(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """The columns of a metrics file, of which those called `names` hold numbers, in one row at least."""
    found = load_metrics(path)
    for name in names:
        if name not in found or found[name].dtype.kind != "f":
            raise RedlineError(
                f"{path} has no numbers called {name!r}. It was not written by `redline train`, or is damaged."
            )
        if not len(found[name]):
            raise RedlineError(f"There are no updates in {path} yet. Pass a run that has made one.")
    return found


def _as_array(cells: list[str]) -> np.ndarray:
    try:
        return np.array([float(cell or "nan") for cell in cells], dtype=np.float64)
    except ValueError:
        return np.array(cells, dtype=np.str_)


def _resume_point(path: Path, step: int) -> tuple[list[str], int]:
    """The columns of a metrics file, and its length in bytes once the rows past `step` are gone."""
    lines = _whole_lines(read_if_there(path))
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


def final_return(returns: np.ndarray) -> float:
    """Mean return of the last tenth of a run's updates, of those in which an episode ended; NaN where none did."""
    known = returns[np.isfinite(returns)]
    if not len(known):
        return float("nan")
    count = max(1, len(returns) // 10)
    return float(known[-count:].mean())
