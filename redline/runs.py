"""The run folder: everything a report or a resume needs. Every file name in it is spelled here and nowhere else.

    NAME-20250131-142500/
      config.json       what was asked for
      metrics.csv       one row per update
      checkpoints/      see `redline.learn.checkpoint`
      scores.json       how the policy does once it is trained
      breakdown.json    where the time went
      report.html       all of this as a page
      stages.json       with a preset: what each stage came to; stages/ holds a run folder for each

A file here is either complete or absent, except logs such as `metrics.csv`, which grow: a power cut may tear the last
line, and every reader knows that.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import IO, Any

from redline.errors import RedlineError
from redline.files import encode_json, make_folder, plain_file, reason, replace_file, sync_folder
from redline.signature import signed

CONFIG = "config.json"
METRICS = "metrics.csv"
CHECKPOINTS = "checkpoints"
LOCK = ".lock"
SCORES = "scores.json"
SCHEDULE = "schedule.json"
BREAKDOWN = "breakdown.json"
REPORT = "report.html"
TENSORBOARD = "tensorboard"
STAGES = "stages.json"
STAGE_FOLDERS = "stages"
IMPROVEMENT = "improvement.json"
RESULT = "result"
"""In the folder of a stage: the checkpoint that the next one begins with."""

# In a checkpoint
STEP = "step-"
"""How the folder of a checkpoint begins; its step follows."""
ARRAYS = "arrays.safetensors"
VALUES = "values.json"
MANIFEST = "manifest.json"

# In the folder of a search
SEARCH_STATE = "search_state.json"
SEARCH_LOG = "search_log.csv"
TRAINING_LOG = "training_log.csv"
GP = "gp.json"
RANKING = "ranking.json"
ALIKE = "alike.json"
SUMMARY = "summary.json"
POLICIES = "policies"
UNDER_WAY = "under-way"
BEST = "best"

# Pictures
LEARNING_PNG = "learning.png"
RANKING_PNG = "ranking.png"
GP_PNG = "gp.png"
POSITIONS_PNG = "positions.png"

LONGEST_NAME = 255
"""Bytes of a name that a folder takes."""


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
        config = signed(config)
        run = cls(path, config)
        try:
            run.write_json(CONFIG, config)
        except OSError as error:
            with suppress(OSError):
                path.rmdir()  # refuses when anyone else's files are in it
            raise _cannot_begin(path, error) from error
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Claim the run for this process until the block ends, or say which process has it."""
        with self._open_lock() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                owner = file.read().strip() or "unknown"
                raise RedlineError(
                    f"{self.path} is in use by process {owner}. Wait for it to end, or stop it."
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def is_running(self) -> bool:
        """Whether a live process holds the claim of `locked`. Asking claims nothing and writes nothing."""
        path = self.path / LOCK
        try:
            owner = int(path.read_text()) if path.is_file() else 0
        except (OSError, ValueError):
            return False
        return owner > 0 and _has_open(owner, path)

    def _open_lock(self) -> IO[str]:
        """The file that tells who has the run. A link, a pipe or a device in its place is not written to."""
        path = self.path / LOCK
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise RedlineError(f"{path} is no file, so {self.path} cannot be claimed. Delete it.")
        return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+")

    def adopted(self) -> Run:
        """The same run, signed by this user: who has trusted it once need not say so again."""
        run = Run(self.path, signed(self.config))
        run.write_json(CONFIG, run.config)
        return run

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints; the first save makes it."""
        return self.path / CHECKPOINTS

    @property
    def metrics(self) -> Path:
        """The file that a `MetricsLog` writes and `load_metrics` reads."""
        return self.path / METRICS

    def write_json(self, name: str, value: object) -> None:
        """Write `name` in one stroke: readers find the old content or the new, even after a power cut."""
        replace_file(plain_file(self.path / name), encode_json(value))

    def read_json(self, name: str) -> Any:
        """The value that `write_json` wrote. Tuples have become lists."""
        return _read_json(self.path / name)


def _has_open(process: int, path: Path) -> bool:
    """Whether a process has a file open; of another user's process, whether it is alive."""
    try:
        opened = list(Path(f"/proc/{process}/fd").iterdir())
    except PermissionError:
        return True
    except OSError:
        return False
    for each in opened:
        with suppress(OSError):  # closed in the meantime
            if each.samefile(path):
                return True
    return False


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


def link_out_of(folder: Path) -> Path | None:
    """A link somewhere in a folder that leads out of it, if there is one: what is written there would land elsewhere."""
    home = os.path.realpath(folder)
    for where, folders, files in os.walk(folder):
        for each in (os.path.join(where, name) for name in (*folders, *files)):
            if os.path.islink(each) and os.path.commonpath([home, os.path.realpath(each)]) != home:
                return Path(each)
    return None


def run_folder_of(path: Path) -> Path:
    """The run folder that a checkpoint belongs to; any other folder stands for itself.

    Links are not followed: `checkpoints` may be one that leads out of the run.
    """
    path = path.absolute()
    if path.parent.name == CHECKPOINTS:
        return path.parent.parent
    if path.name in (CHECKPOINTS, RESULT):
        return path.parent
    return path


def within(folder: Path, name: object) -> Path:
    """What is called `name` in a folder. A name from a file must not lead out of it."""
    parts = Path(str(name)).parts
    too_long = any(len(part.encode(errors="replace")) > LONGEST_NAME for part in parts)
    if not isinstance(name, str) or not parts or ".." in parts or Path(name).is_absolute() or "\0" in name or too_long:
        raise RedlineError(
            f"{folder} cannot hold anything called {name!r:.60}. Its files were changed: use another run."
        )
    return folder / name


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """Whatever is wrong with what a file holds, found out while it is made use of, is told in one line about that file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else f"{error}"
        raise RedlineError(f"{path} does not hold what is written there: {why:.160}. Use another run.") from error


def _read_json(path: Path) -> Any:
    if path.exists() and not path.is_file():  # a pipe would keep us waiting for ever
        raise RedlineError(f"{path} is no file. Put it right or use another run.")
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise RedlineError(f"{path} is missing.") from error
    except OSError as error:
        raise RedlineError(f"{path} cannot be read: {reason(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise RedlineError(f"{path} is not valid JSON ({error}). Put it right or use another run.") from error


def scores_in(run: Run) -> list[dict[str, Any]]:
    """The scores of a run, if any, each with numbers for its mean, stderr and episodes."""
    if not (run.path / SCORES).exists():
        return []
    found = run.read_json(SCORES)
    scores = found.get("scores", []) if isinstance(found, dict) else None
    for each in scores if isinstance(scores, list) else [None]:
        numbers = [each.get(name) for name in ("mean", "stderr", "episodes")] if isinstance(each, dict) else [None]
        if not all(isinstance(number, int | float) for number in numbers):
            raise RedlineError(
                f"{run.path / SCORES} holds no scores. Delete it, and score the run again: redline eval."
            )
    return scores or []
