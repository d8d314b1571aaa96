"""Checkpoints: all that training needs to go on, as safetensors and JSON. Loading one never runs code from it.

A checkpoint appears under its name only when it is complete and on the disk, and disappears in one stroke too. So a
crash at any moment leaves the earlier ones as they were, and `latest` finds one that loads.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as decode_arrays
from safetensors.numpy import save as encode_arrays

from redline.errors import RedlineError
from redline.files import encode_json, make_folder, reason, sync_folder, write_synced
from redline.runs import ARRAYS, CHECKPOINTS, MANIFEST, STEP, VALUES, newest_run
from redline.signature import is_signed, signed

FORMAT = 1
"""Version of this layout; raise it when code written for the old one would misread the new one.

    step-000000051200/
      arrays.safetensors   every array under its name
      values.json          an object: everything that is not an array
      manifest.json        {"format": 1,
                            "step": 51200,
                            "files": {"arrays.safetensors": {"bytes": 4096, "sha256": "…"}, "values.json": {…}},
                            "signature": "…",  by a key of the user's, see `redline.signature`; may be missing
                            "sha256": "…"}   of this object without this entry, as compact JSON with sorted keys

The same folder may hold `.tmp-…` (unfinished or half deleted: rubbish) and `step-….replaced` (what a step held before,
there only while the step is being saved once more).
"""


_NAME = re.compile(STEP + r"(\d{12,})(\.replaced)?")
_REPLACED = ".replaced"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of one checkpoint folder."""

    path: Path
    step: int
    arrays: dict[str, np.ndarray]
    values: dict[str, Any]
    ours: bool = False  # whether it is, byte for byte, what this user has saved


def save(folder: Path, step: int, arrays: dict[str, np.ndarray], values: dict[str, Any], keep: int = 3) -> Path:
    """Write a checkpoint into `folder`, delete all but the `keep` last up to this step, and return its path.

    Checkpoints of later steps are left alone: see `discard_after`. After an OSError the earlier ones are as
    they were. Only one process may save into a folder at a time.
    """
    if keep < 1:
        raise RedlineError(f"Keeping {keep} checkpoints would delete the one just saved. Keep at least 1.")
    files = _encode(step, arrays, values)
    make_folder(folder)
    _tidy(folder)
    path = folder / f"{STEP}{step:012d}"
    draft = _temporary(path)
    try:
        _write_all(draft, files)
        _put(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    for old in [other for other in _newest_first(folder) if _age(other) <= _age(path)][keep:]:
        _remove(old)
    return path


def load(path: Path) -> Checkpoint:
    """The checkpoint in the folder `path`, after comparing every byte with its checksum."""
    if not path.is_dir():
        raise RedlineError(f"There is no checkpoint folder at {path}.{_suggest_newest(path.parent)}")
    try:
        return _read(path)
    except _Damage as damage:
        raise RedlineError(f"{damage} {_way_out(path)}") from damage


def latest(folder: Path) -> Path:
    """The checkpoint of the highest step in `folder`."""
    found = _newest_first(folder)
    if not found:
        raise RedlineError(f"{folder} holds no checkpoint. Pass the folder of a run that has saved one.")
    return found[0]


def has_any(folder: Path) -> bool:
    """Whether there is a checkpoint in `folder`."""
    return bool(_newest_first(folder))


def resolve(path: Path) -> Path:
    """The checkpoint that a user means by a run folder, its checkpoints folder, or a checkpoint itself."""
    if not path.exists():
        raise RedlineError(f"There is nothing at {path}. Pass a run folder or one of its checkpoints.")
    if not path.is_dir():
        raise RedlineError(f"{path} is a file, but a checkpoint is a folder. Pass {path.parent}.")
    if (path / MANIFEST).exists():
        return path
    for folder in (path / CHECKPOINTS, path):
        if _newest_first(folder):
            return latest(folder)
    if _NAME.fullmatch(path.name):
        return path  # damaged: loading it will say how
    raise RedlineError(f"{path} holds no checkpoint. {_suggest_run(path)}")


def discard_after(folder: Path, step: int) -> None:
    """Delete the checkpoints past `step`: training that resumes there will not pass through them again."""
    if folder.is_dir():
        _tidy(folder)
        for path in _newest_first(folder):
            if _step(path) > step:
                _remove(path)


class _Damage(Exception):
    """Which file of a checkpoint is damaged, and how."""


def _encode(step: int, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> dict[str, bytes]:
    # Safetensors copies raw memory and would silently scramble a transposed or strided view.
    rows_first = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    files = {ARRAYS: encode_arrays(rows_first), VALUES: encode_json(values)}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "step": step,
        "files": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()},
    }
    manifest = signed(manifest)
    manifest["sha256"] = _manifest_sha256(manifest)
    return files | {MANIFEST: encode_json(manifest)}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _manifest_sha256(manifest: dict[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    return _sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def _write_all(draft: Path, files: dict[str, bytes]) -> None:
    draft.mkdir()
    for name, data in files.items():
        write_synced(draft / name, data)
    sync_folder(draft)


def _put(draft: Path, path: Path) -> None:
    """Move a finished draft to its name. What was there stays beside it until the new one is safe."""
    replaced = path.with_name(path.name + _REPLACED)
    if path.exists():
        path.rename(replaced)
    try:
        draft.rename(path)
    except OSError:
        if replaced.exists():
            replaced.rename(path)
        raise
    sync_folder(path.parent)
    if replaced.exists():
        _remove(replaced)


def _remove(path: Path) -> None:
    """Delete a checkpoint so that no moment shows half of it."""
    doomed = path.rename(_temporary(path))
    shutil.rmtree(doomed, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """A name beside `path` that no reader looks at."""
    return path.with_name(f".tmp-{path.name}")


def _tidy(folder: Path) -> None:
    """Undo what a crash left behind: delete rubbish, and finish or take back a replacement."""
    for rubbish in folder.glob(".tmp-*"):
        shutil.rmtree(rubbish, ignore_errors=True)
    for replaced in folder.glob(f"{STEP}*{_REPLACED}"):
        path = replaced.with_suffix("")
        if path.exists():
            _remove(replaced)
        else:
            replaced.rename(path)


def _newest_first(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=_age, reverse=True)


def _age(path: Path) -> tuple[int, bool]:
    """Greater is newer."""
    return _step(path), path.suffix != _REPLACED


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


def _read(path: Path) -> Checkpoint:
    manifest = _read_manifest(path / MANIFEST)
    try:
        step, files = int(manifest["step"]), manifest["files"]
        expected = {name: (int(files[name]["bytes"]), str(files[name]["sha256"])) for name in (ARRAYS, VALUES)}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _Damage(f"{path / MANIFEST} is not a manifest: it lacks a valid {error}.") from error
    arrays_data = _read_file(path / ARRAYS, *expected[ARRAYS])
    values_data = _read_file(path / VALUES, *expected[VALUES])
    arrays, values = _parse_arrays(path / ARRAYS, arrays_data), _parse_json(path / VALUES, values_data)
    bare = {name: value for name, value in manifest.items() if name != "sha256"}
    return Checkpoint(path, step, arrays, values, ours=is_signed(bare))


def _read_manifest(file: Path) -> dict[str, Any]:
    manifest = _parse_json(file, _read_bytes(file))
    version = manifest.get("format")
    if not isinstance(version, int):
        raise _Damage(f"{file} is not a manifest: it names no format version.")
    if version > FORMAT:
        raise _Damage(f"{file} has format version {version}, newer than the {FORMAT} this Redline reads: upgrade it.")
    if manifest.get("sha256") != _manifest_sha256(manifest):
        raise _Damage(f"{file} is damaged: content changed, its checksum differs.")
    return manifest


def _read_file(file: Path, num_bytes: int, sha256: str) -> bytes:
    data = _read_bytes(file)
    if len(data) < num_bytes:
        raise _Damage(f"{file} is truncated: {len(data)} of {num_bytes} bytes.")
    if _sha256(data) != sha256:
        raise _Damage(f"{file} is damaged: content changed, its checksum differs.")
    return data


def _read_bytes(file: Path) -> bytes:
    if file.exists() and not file.is_file():  # a pipe would keep us waiting for ever
        raise _Damage(f"{file} is no file.")
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise _Damage(f"{file} is missing.") from error
    except OSError as error:
        raise _Damage(f"{file} cannot be read: {reason(error)}.") from error


def _parse_json(file: Path, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Damage(f"{file} is unreadable JSON: {error}.") from error
    if not isinstance(value, dict):
        raise _Damage(f"{file} is unreadable: it holds a {type(value).__name__}, not a JSON object.")
    return value


def _parse_arrays(file: Path, data: bytes) -> dict[str, np.ndarray]:
    try:
        arrays = decode_arrays(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise _Damage(f"{file} is unreadable: {error}.") from error
    for name, array in arrays.items():
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise _Damage(f"{file} is unreadable: {name!r:.60} holds truth values that are neither true nor false.")
    return arrays


def _way_out(path: Path) -> str:
    for other in _newest_first(path.parent):
        if _age(other) < _age(path) and _is_good(other):
            return f"The previous good one is {other}: pass --resume {other}."
    return "There is no good one before it: start a new run."


def _is_good(path: Path) -> bool:
    try:
        _read(path)
    except _Damage:
        return False
    return True


def _suggest_newest(folder: Path) -> str:
    found = _newest_first(folder)
    return f" The newest one there is {found[0]}." if found else " Pass a run folder or one of its checkpoints."


def _suggest_run(path: Path) -> str:
    run = newest_run(path)
    if run is not None:
        return f"The newest run in it is {run}."
    return "Perhaps its run stopped before the first was saved: start a new run, without --resume."
