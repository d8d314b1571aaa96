"""Writing files so that a crash, a full disk or a power cut never leaves half of one."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec

import numpy as np

Inputs = ParamSpec("Inputs")


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
    """Print one line where it does not mix with results, if anybody can be told."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def reason(error: OSError) -> str:
    """Why the operating system refused, in its own words: `No space left on device`."""
    return error.strerror or str(error) or type(error).__name__


def encode_json(value: object) -> bytes:
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
    """Give `path` new content in one stroke. On failure the old content stands. A device is written to, not replaced."""
    if path.exists() and not path.is_file():
        _write_to_device(path, data)
        return
    draft = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(draft, data)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    sync_folder(path.parent)


def _write_to_device(path: Path, data: bytes) -> None:
    """Write to a device, or to a pipe that somebody reads: whoever opens another one waits for ever."""
    device = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(device, True)
    with open(device, "wb") as file:
        file.write(data)


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until the disk has it.

    A link, a pipe or an old draft in its place is removed, never written to.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o666), "wb") as file:
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


def plain_file(path: Path) -> Path:
    """The path, unless a pipe or a device is there, which could keep whoever reads it waiting for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path


def read_if_there(path: Path) -> bytes:
    """The content of a file, nothing where there is none."""
    try:
        return plain_file(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
