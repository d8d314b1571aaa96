from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import redline
from redline import runs
from redline.errors import RedlineError
from redline.learn import checkpoint
from redline.learn.checkpoint import ARRAYS, MANIFEST, VALUES, discard_after, latest, load, resolve, save
from tests.full_disk import files_limited_to

FILES = (ARRAYS, VALUES, MANIFEST)


def save_step(folder: Path, step: int, keep: int = 3, content: int = 0) -> Path:
    return save(folder, step, {"weights": np.full((4, 8), content)}, {"content": content}, keep)


def steps(folder: Path) -> list[int]:
    return sorted(load(path).step for path in folder.iterdir())


def complaint(path: Path) -> str:
    """What `load` has against a checkpoint; always one line."""
    with pytest.raises(RedlineError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def flip_bit(file: Path, index: int) -> None:
    data = bytearray(file.read_bytes())
    data[index] ^= 1
    file.write_bytes(data)


def forge_manifest(path: Path, **changes: Any) -> None:
    """A manifest whose checksums are right, but whose content was chosen by someone else."""
    sizes = {name: (path / name).read_bytes() for name in (ARRAYS, VALUES)}
    files = {name: {"bytes": len(data), "sha256": checkpoint._sha256(data)} for name, data in sizes.items()}
    manifest: dict[str, Any] = {"format": 1, "step": 1, "files": files} | changes
    manifest["sha256"] = checkpoint._manifest_sha256(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


# What goes in comes out


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"],
)
def test_every_dtype_comes_back_exactly(tmp_path: Path, dtype: str) -> None:
    array = np.array([[0, 1, 2], [3, 100, 127]]).astype(dtype)
    back = load(save(tmp_path, 1, {"array": array}, {})).arrays["array"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array, strict=True)


@pytest.mark.parametrize(
    "array",
    [
        np.float32(0.1) * np.ones(()),
        np.zeros((0, 52), np.float32),
        np.arange(6).reshape(2, 3).T,
        np.arange(10)[::-2],
        np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
        np.arange(3, dtype=">u4"),
        np.array([np.nan, np.inf, -0.0, 5e-324]),
        np.array([2**64 - 1], np.uint64),
    ],
    ids=["scalar", "empty", "transposed", "reversed", "fortran", "big-endian", "extreme floats", "greatest uint64"],
)
def test_an_array_of_any_shape_and_memory_order_comes_back_exactly(tmp_path: Path, array: np.ndarray) -> None:
    back = load(save(tmp_path, 1, {"array": array}, {})).arrays["array"]
    np.testing.assert_array_equal(back, array)
    assert back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("=")


def test_loaded_arrays_may_be_written_to(tmp_path: Path) -> None:
    arrays = load(save_step(tmp_path, 1)).arrays
    arrays["weights"][0, 0] = 7


def test_values_come_back_as_json_keeps_them(tmp_path: Path) -> None:
    values = {
        "rng": {"state": 2**127 + 1, "name": "PCG64"},
        "rate": 0.1 + 0.2,
        "best": -np.inf,
        "text": "ä\n",
        "none": None,
    }
    extra = {"step": np.int64(3), "loss": np.float32(0.5), "done": np.bool_(True), "seeds": (1, 2)}
    back = load(save(tmp_path, 1, {}, values | extra)).values
    assert back == values | {"step": 3, "loss": 0.5, "done": True, "seeds": [1, 2]}


def test_a_checkpoint_knows_its_step_and_its_path(tmp_path: Path) -> None:
    path = save_step(tmp_path, 51_200)
    assert path == tmp_path / "step-000000051200"
    assert (load(path).step, load(path).path) == (51_200, path)
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)


def test_the_manifest_lists_size_and_checksum_of_each_file(tmp_path: Path) -> None:
    path = save_step(tmp_path, 7)
    manifest = json.loads((path / MANIFEST).read_text())
    assert (manifest["format"], manifest["step"]) == (checkpoint.FORMAT, 7)
    assert {name: entry["bytes"] for name, entry in manifest["files"].items()} == {
        name: (path / name).stat().st_size for name in (ARRAYS, VALUES)
    }


def test_a_value_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="set"):
        save(tmp_path / "new", 1, {}, {"bad": {1, 2}})
    assert not (tmp_path / "new").exists()


# Which checkpoints stay


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save_step(tmp_path, step, keep=2)
    assert steps(tmp_path) == [4, 5]


def test_saving_at_an_earlier_step_deletes_neither_itself_nor_later_ones(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_step(tmp_path, step)
    save_step(tmp_path, 15, keep=1)
    assert steps(tmp_path) == [15, 20, 30]


def test_checkpoints_past_the_resumed_step_can_be_discarded(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_step(tmp_path, step)
    discard_after(tmp_path, 10)
    discard_after(tmp_path / "never made", 10)
    assert steps(tmp_path) == [10]


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RedlineError, match="Keep at least 1"):
        save_step(tmp_path, 1, keep=0)


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save_step(tmp_path, 1, content=1)
    path = save_step(tmp_path, 1, content=2)
    assert load(path).values == {"content": 2}
    assert list(tmp_path.iterdir()) == [path]


def test_the_latest_is_the_highest_step_whatever_else_lies_there(tmp_path: Path) -> None:
    newest = save_step(tmp_path, 10**12)  # one digit more than the rest
    save_step(tmp_path, 999_999_999_999)
    (tmp_path / ".tmp-step-9000000000000").mkdir()
    (tmp_path / "step-9000000000000").write_text("a file, not a folder")
    (tmp_path / "step-final").mkdir()
    assert latest(tmp_path) == newest


def test_leftovers_of_a_crash_are_cleaned_by_the_next_save(tmp_path: Path) -> None:
    leftover = tmp_path / ".tmp-step-000000000001"
    leftover.mkdir()
    (leftover / ARRAYS).write_bytes(b"half of it")
    path = save_step(tmp_path, 1)
    assert list(tmp_path.iterdir()) == [path]


def test_a_replacement_cut_short_is_found_and_then_taken_back(tmp_path: Path) -> None:
    path = save_step(tmp_path, 1, content=1)
    replaced = path.rename(tmp_path / f"{path.name}.replaced")
    assert latest(tmp_path) == replaced
    assert load(replaced).values == {"content": 1}
    save_step(tmp_path, 2)
    assert load(path).values == {"content": 1}


# When saving fails


@pytest.mark.parametrize("step", [1, 2], ids=["over an old step", "a new step"])
@pytest.mark.parametrize("num_bytes", [0, 100, 4000])
def test_a_full_disk_leaves_the_earlier_checkpoint_and_nothing_else(tmp_path: Path, step: int, num_bytes: int) -> None:
    good = save_step(tmp_path, 1, content=1)
    with files_limited_to(num_bytes), pytest.raises(OSError):
        save(tmp_path, step, {"weights": np.zeros(1000)}, {})
    assert list(tmp_path.iterdir()) == [good]
    assert load(good).values == {"content": 1}


@pytest.mark.parametrize("place", ["a file/below", "/proc/checkpoints"])
def test_an_unwritable_folder_is_an_os_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(OSError):
        save_step(tmp_path / place, 1)


def test_a_rename_that_fails_puts_the_replaced_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = save_step(tmp_path, 1, content=1)
    rename = Path.rename

    def refuse_drafts(path: Path, target: Path) -> Path:
        if path.name.startswith(".tmp-"):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_drafts)
    with pytest.raises(OSError):
        save_step(tmp_path, 1, content=2)
    assert list(tmp_path.iterdir()) == [good]
    assert load(good).values == {"content": 1}


# When a checkpoint is damaged


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = save_step(tmp_path, 1)
    (path / name).unlink()
    assert complaint(path).startswith(f"{path / name} is missing.")


@pytest.mark.parametrize("name", [ARRAYS, VALUES])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_truncated_file_is_named_with_its_sizes(tmp_path: Path, name: str, share: float) -> None:
    path = save_step(tmp_path, 1)
    whole = (path / name).stat().st_size
    os.truncate(path / name, int(whole * share))
    assert complaint(path).startswith(f"{path / name} is truncated: {int(whole * share)} of {whole} bytes.")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_a_truncated_manifest_is_unreadable(tmp_path: Path, share: float) -> None:
    path = save_step(tmp_path, 1)
    os.truncate(path / MANIFEST, int((path / MANIFEST).stat().st_size * share))
    assert complaint(path).startswith(f"{path / MANIFEST} is unreadable JSON")


@pytest.mark.parametrize("name", [ARRAYS, VALUES])
@pytest.mark.parametrize("index", [0, 9, -1])
def test_one_flipped_bit_is_noticed(tmp_path: Path, name: str, index: int) -> None:
    path = save_step(tmp_path, 1)
    flip_bit(path / name, index)
    assert complaint(path).startswith(f"{path / name} is damaged: content changed, its checksum differs.")


def test_a_flipped_bit_anywhere_in_the_manifest_is_noticed(tmp_path: Path) -> None:
    path = save_step(tmp_path, 51_200)
    for index in range((path / MANIFEST).stat().st_size - 1):  # the last byte is a newline
        flip_bit(path / MANIFEST, index)
        assert str(path / MANIFEST) in complaint(path)
        flip_bit(path / MANIFEST, index)
    assert load(path).step == 51_200


def test_a_file_that_has_grown_is_noticed(tmp_path: Path) -> None:
    path = save_step(tmp_path, 1)
    with (path / VALUES).open("ab") as file:
        file.write(b" ")
    assert "checksum differs" in complaint(path)


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = save_step(tmp_path, 1)
    forge_manifest(path, format=2)
    assert "has format version 2, newer than the 1 this Redline reads: upgrade it." in complaint(path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "one"}'])
def test_json_that_is_no_manifest_is_refused(tmp_path: Path, content: str) -> None:
    path = save_step(tmp_path, 1)
    (path / MANIFEST).write_text(content)
    assert str(path / MANIFEST) in complaint(path)


@pytest.mark.parametrize("changes", [{"files": {}}, {"files": 3}, {"step": None}])
def test_a_forged_manifest_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = save_step(tmp_path, 1)
    forge_manifest(path, **changes)
    assert str(path / MANIFEST) in complaint(path)


@pytest.mark.parametrize("name", [ARRAYS, VALUES])
def test_a_forged_pickle_is_refused_and_not_run(tmp_path: Path, name: str) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "pwned"),)

    path = save_step(tmp_path, 1)
    (path / name).write_bytes(pickle.dumps(Payload()))
    forge_manifest(path)
    assert f"{path / name} is unreadable" in complaint(path)
    assert not (tmp_path / "pwned").exists()


def test_the_previous_good_one_is_offered(tmp_path: Path) -> None:
    good, rotten, newest = (save_step(tmp_path, step) for step in (1, 2, 3))
    flip_bit(rotten / ARRAYS, -1)
    os.truncate(newest / ARRAYS, 10)
    assert complaint(newest).endswith(f"The previous good one is {good}: pass --resume {good}.")


def test_without_a_good_one_before_it_a_new_run_is_advised(tmp_path: Path) -> None:
    path = save_step(tmp_path, 1)
    save_step(tmp_path, 2)
    (path / ARRAYS).unlink()
    assert complaint(path).endswith("There is no good one before it: start a new run.")


def test_a_pruned_checkpoint_is_answered_with_the_newest(tmp_path: Path) -> None:
    newest = save_step(tmp_path, 2)
    assert complaint(tmp_path / "step-000000000001").endswith(f"The newest one there is {newest}.")


# What a user may pass


def test_a_run_a_checkpoints_folder_and_a_checkpoint_all_lead_to_a_checkpoint(tmp_path: Path) -> None:
    older, newer = (save_step(tmp_path / "run" / "checkpoints", step) for step in (1, 2))
    assert resolve(tmp_path / "run") == newer
    assert resolve(tmp_path / "run" / "checkpoints") == newer
    assert resolve(older) == older


def test_a_renamed_copy_of_a_checkpoint_loads(tmp_path: Path) -> None:
    best = save_step(tmp_path, 5).rename(tmp_path / "best")
    assert load(resolve(best)).step == 5


def test_a_damaged_checkpoint_is_left_for_load_to_explain(tmp_path: Path) -> None:
    path = save_step(tmp_path, 1)
    (path / MANIFEST).unlink()
    assert resolve(path) == path


def test_a_path_without_a_checkpoint_is_explained(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(RedlineError, match=r"There is nothing at .*/absent"):
        resolve(tmp_path / "absent")
    with pytest.raises(RedlineError, match=r"notes\.txt is a file"):
        resolve(tmp_path / "notes.txt")
    with pytest.raises(RedlineError, match=r"run holds no checkpoint\. Perhaps its run stopped"):
        resolve(tmp_path / "run")
    with pytest.raises(RedlineError, match="checkpoints holds no checkpoint"):
        latest(tmp_path / "run" / "checkpoints")
    with pytest.raises(RedlineError, match="absent holds no checkpoint"):
        latest(tmp_path / "absent")


def test_a_folder_of_runs_is_answered_with_its_newest_run(tmp_path: Path) -> None:
    run = runs.Run.at(tmp_path / "petri", {})
    with pytest.raises(RedlineError, match=f"The newest run in it is {run.path}."):
        resolve(tmp_path)


# Killed while saving: this file runs itself in a clean process, which forks the victims


@pytest.mark.parametrize("step", [1, 2], ids=["over an old step", "a new step"])
def test_a_save_killed_after_any_change_on_the_disk_leaves_a_checkpoint_that_loads(tmp_path: Path, step: int) -> None:
    assert run_this_file("kill_after_every_change", tmp_path, step) > 10


def test_a_process_killed_while_it_saves_and_saves_leaves_a_checkpoint_that_loads(tmp_path: Path) -> None:
    assert run_this_file("kill_while_saving", tmp_path, 0) == 20


def run_this_file(function: str, folder: Path, step: int) -> int:
    """How many victims were killed; each left a checkpoint that loads, or this raises."""
    environment = os.environ | {"PYTHONPATH": str(Path(redline.__file__).parents[1])}
    command = [sys.executable, __file__, function, str(folder), str(step)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def kill_after_every_change(root: Path, step: int) -> int:
    save_step(root / "before", 1, content=1)
    num_changes = 0
    killed = True
    while killed:
        folder = root / str(num_changes)
        shutil.copytree(root / "before", folder)
        killed = die_saving(folder, step, num_changes)
        check_survivor(folder)
        num_changes += 1
    return num_changes - 1


def die_saving(folder: Path, step: int, num_changes: int) -> bool:
    """Save in a child that is killed after so many changes on the disk; False if it got to the end before."""

    def save_until_killed() -> None:
        kill_me_after(num_changes, folder)
        save_step(folder, step, keep=1, content=2)

    status = os.waitpid(fork(save_until_killed), 0)[1]
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


def fork(action: Callable[[], None]) -> int:
    """The process id of a child that does one thing and ends, come what may."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def kill_me_after(num_changes: int, folder: Path) -> None:
    watched = (checkpoint.__file__, runs.__file__, shutil.__file__)
    before = listing(folder)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal before, num_changes
        if frame.f_code.co_filename not in watched:
            return None
        now = listing(folder)
        num_changes -= now != before
        before = now
        if num_changes <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def listing(folder: Path) -> list[tuple[str, int]]:
    """Every path and its size."""
    return sorted(
        (os.path.join(parent, name), os.stat(os.path.join(parent, name)).st_size)
        for parent, folders, files in os.walk(folder)
        for name in folders + files
    )


def kill_while_saving(root: Path, _: int) -> int:
    for victim in range(20):
        folder = root / str(victim)
        reader, writer = os.pipe()
        child = fork(partial(save_for_ever, folder, writer))
        os.close(writer)
        assert os.read(reader, 1 + victim)  # blocks until something is saved; then the child is amid another save
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        check_survivor(folder)
    return victim + 1


def save_for_ever(folder: Path, saved: int) -> None:
    for number in range(10**9):
        save_step(folder, number // 2, keep=1 + number % 3, content=1 + number % 2)
        os.write(saved, b".")


def check_survivor(folder: Path) -> None:
    for path in folder.glob("step-*"):
        load(path)  # none is half written or half deleted
    survivor = load(latest(folder))
    assert survivor.values["content"] in (1, 2)
    assert (survivor.arrays["weights"] == survivor.values["content"]).all()
    after = save_step(folder, survivor.step + 1, keep=1)
    assert [after] == list(folder.iterdir())


if __name__ == "__main__":
    os.fsync = lambda fd: None  # it guards against power cuts, and SIGKILL is none
    print(globals()[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3])))
