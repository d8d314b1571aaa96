from __future__ import annotations

import ast
import errno
import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redline
from redline import files, runs
from redline.errors import RedlineError
from redline.files import guarded, replace_file
from redline.metrics import MetricsLog, load_metrics
from redline.runs import Run
from redline.signature import unsigned
from tests.full_disk import files_limited_to

NOON = datetime(2025, 1, 31, 12, 0, 5)


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def row(step: int) -> dict[str, Any]:
    return {"step": step, "loss": step / 3, "engine": "vector"}


def write_rows(path: Path, steps: range, resume_at_step: int | None = None) -> bytes:
    with MetricsLog(path, resume_at_step) as log:
        for step in steps:
            log.append(row(step))
    return path.read_bytes()


def quiet(path: Path, **options: Any) -> MetricsLog:
    """A log on a clock that stands still."""
    return MetricsLog(path, clock=FakeClock(), **options)


# The folder


def test_a_run_folder_is_named_after_its_run_and_its_time(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "new" / "runs", "cage2", {"seed": 1}, now=NOON)
    assert run.path == tmp_path / "new" / "runs" / "cage2-20250131-120005"
    assert Run.open(run.path) == run
    assert (run.checkpoints, run.metrics) == (run.path / "checkpoints", run.path / "metrics.csv")


def test_runs_begun_in_the_same_second_are_numbered(tmp_path: Path) -> None:
    names = [Run.create(tmp_path, "cage2", {}, now=NOON).path.name for _ in range(3)]
    assert names == ["cage2-20250131-120005", "cage2-20250131-120005-2", "cage2-20250131-120005-3"]


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "external:package.module:factory", "../../etc", "", "."])
def test_no_name_leads_out_of_the_root(tmp_path: Path, name: str) -> None:
    assert Run.create(tmp_path, name, {}).path.parent == tmp_path


@pytest.mark.parametrize("begin", [lambda path: Run.create(path, "cage2", {}), lambda path: Run.at(path, {})])
@pytest.mark.parametrize(
    ("place", "why"), [("a file", "it is a file"), ("a file/below", "Not a directory"), ("/proc/runs", "")]
)
def test_a_place_that_cannot_hold_a_run_is_one_line_with_a_way_out(
    tmp_path: Path, begin: Any, place: str, why: str
) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(RedlineError) as caught:
        begin(tmp_path / place)
    assert str(caught.value).startswith(f"Cannot begin a run in {tmp_path / place}: {why}")
    assert "Pass a folder you can write to, such as " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("begin", [lambda root: Run.create(root, "a", {"b": 1}), lambda root: Run.at(root / "a", {})])
def test_a_full_disk_leaves_no_empty_run_behind(tmp_path: Path, begin: Any) -> None:
    with files_limited_to(1), pytest.raises(RedlineError, match="Cannot begin a run"):
        begin(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_chosen_folder_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert Run.at(tmp_path, {"seed": 1}).path == tmp_path
    assert unsigned(Run.open(tmp_path).config) == {"seed": 1}


@pytest.mark.parametrize("part", ["config.json", "metrics.csv", "checkpoints"])
def test_a_folder_that_holds_a_run_is_not_used_twice(tmp_path: Path, part: str) -> None:
    path = tmp_path / "mine"
    (path / part).mkdir(parents=True)
    (tmp_path / "mine-2").mkdir()
    with pytest.raises(RedlineError, match=f"--resume {path}, or pass another folder, such as {path}-3"):
        Run.at(path, {})


def test_opening_what_is_no_run_suggests_the_newest_one(tmp_path: Path) -> None:
    older = Run.at(tmp_path / "older", {})
    newest = Run.at(tmp_path / "newest", {})
    os.utime(older.path / "config.json", (1, 1))
    with pytest.raises(RedlineError, match=f"is no run folder: it has no config.json. The newest .* {newest.path}."):
        Run.open(tmp_path)
    with pytest.raises(RedlineError, match=f"There is no run folder at .*/absent. The newest .* {newest.path}."):
        Run.open(tmp_path / "absent")
    with pytest.raises(RedlineError, match=r"There is no run folder at .*/very/absent\.$"):
        Run.open(tmp_path / "very" / "absent")


@pytest.mark.parametrize(("content", "why"), [("{", "not valid JSON"), ("", "not valid JSON"), ("[1]", "holds a list")])
def test_a_broken_config_is_explained(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RedlineError, match=f"config.json .*{why}"):
        Run.open(tmp_path)


# JSON files


def test_json_comes_back_and_numpy_is_welcome(tmp_path: Path) -> None:
    run = Run.at(tmp_path, {})
    run.write_json("result.json", {"mean": np.float32(0.5), "scores": np.arange(3), "path": tmp_path, "pair": (1, 2)})
    assert run.read_json("result.json") == {"mean": 0.5, "scores": [0, 1, 2], "path": str(tmp_path), "pair": [1, 2]}


def test_a_full_disk_leaves_the_old_json_and_no_draft(tmp_path: Path) -> None:
    run = Run.at(tmp_path, {})
    run.write_json("result.json", [1])
    with files_limited_to(10), pytest.raises(OSError):
        run.write_json("result.json", list(range(100)))
    assert run.read_json("result.json") == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "result.json"]


def test_reading_json_that_is_missing_or_a_folder_is_explained(tmp_path: Path) -> None:
    run = Run.at(tmp_path, {})
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(RedlineError, match=r"absent\.json is missing"):
        run.read_json("absent.json")
    with pytest.raises(RedlineError, match=r"folder\.json is no file"):
        run.read_json("folder.json")


def test_what_json_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="A set cannot be written as JSON"):
        Run.at(tmp_path, {}).write_json("bad.json", {1})


def test_a_file_system_that_cannot_sync_folders_is_good_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    files.sync_folder(tmp_path)


# Metrics


def test_the_first_row_names_the_columns(tmp_path: Path) -> None:
    assert write_rows(tmp_path / "metrics.csv", range(2)) == (
        b"step,loss,engine\n0,0.0,vector\n1,0.3333333333333333,vector\n"
    )


def test_rows_wait_until_there_are_enough(tmp_path: Path) -> None:
    log = quiet(tmp_path / "metrics.csv", every=3)
    log.append(row(1))
    log.append(row(2))
    assert not log.path.exists()
    log.append(row(3))
    assert list(load_metrics(log.path)["step"]) == [1, 2, 3]
    log.append(row(4))
    assert list(load_metrics(log.path)["step"]) == [1, 2, 3]


def test_a_slow_run_is_flushed_every_two_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    log = MetricsLog(tmp_path / "metrics.csv", clock=clock)
    clock.seconds = 1.9
    log.append(row(1))
    assert not log.path.exists()
    clock.seconds = 2.0
    log.append(row(2))
    assert list(load_metrics(log.path)["step"]) == [1, 2]
    clock.seconds = 3.9
    log.append(row(3))
    assert list(load_metrics(log.path)["step"]) == [1, 2]


def test_an_exception_does_not_lose_rows(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), quiet(tmp_path / "metrics.csv") as log:
        log.append(row(1))
        raise KeyboardInterrupt
    assert list(load_metrics(log.path)["step"]) == [1]


@pytest.mark.parametrize("write", [MetricsLog.flush, MetricsLog.sync, MetricsLog.close])
def test_rows_can_be_written_at_once(tmp_path: Path, write: Any) -> None:
    log = quiet(tmp_path / "metrics.csv")
    log.append(row(1))
    write(log)
    write(log)
    assert list(load_metrics(log.path)["step"]) == [1]


def test_a_new_column_is_empty_in_the_rows_before_it(tmp_path: Path) -> None:
    log = quiet(tmp_path / "metrics.csv", every=1)
    log.append({"step": 1, "note": "a,b"})
    log.append({"step": 2, "note": "c", "return": -3.5})
    log.append({"step": 3, "return": None})
    assert log.path.read_bytes() == b'step,note,return\n1,"a,b",\n2,c,-3.5\n3,,\n'


def test_a_row_stays_on_one_line(tmp_path: Path) -> None:
    with quiet(tmp_path / "metrics.csv") as log:
        log.append({"step": 1, "note": 'two\nlines, "quoted"\r\n'})
    assert load_metrics(log.path)["note"].tolist() == ['two lines, "quoted"']


def test_a_deleted_file_begins_again_with_its_header(tmp_path: Path) -> None:
    log = quiet(tmp_path / "metrics.csv", every=1)
    log.append(row(1))
    log.path.unlink()
    log.append(row(2))
    log.append(row(3))
    assert list(load_metrics(log.path)["step"]) == [2, 3]


def test_a_new_log_does_not_overwrite_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    before = write_rows(path, range(3))
    with pytest.raises(RedlineError, match=f"already holds metrics. Continue that run with --resume {tmp_path}."):
        MetricsLog(path)
    assert path.read_bytes() == before


# Metrics of a resumed run


def test_a_run_cut_at_any_byte_after_its_checkpoint_resumes_to_the_same_file(tmp_path: Path) -> None:
    whole = write_rows(tmp_path / "whole.csv", range(8))
    checkpoint_end = len(write_rows(tmp_path / "short.csv", range(4)))
    path = tmp_path / "metrics.csv"
    for end in range(checkpoint_end, len(whole) + 1):
        path.write_bytes(whole[:end])
        assert write_rows(path, range(4, 8), resume_at_step=3) == whole


def test_rows_past_the_resumed_step_are_gone_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write_rows(path, range(8))
    MetricsLog(path, resume_at_step=3)
    assert list(load_metrics(path)["step"]) == [0, 1, 2, 3]


@pytest.mark.parametrize("tail", [b"4,1.33", b"\0" * 200_000, b"4,\xff\n\n\n", b'4,"1.3\n'])
def test_a_tail_torn_by_a_power_cut_is_dropped(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "metrics.csv"
    before = write_rows(path, range(4))
    path.write_bytes(before + tail)
    assert write_rows(path, range(0), resume_at_step=9) == before


@pytest.mark.parametrize("content", [None, b"", b"step,lo"])
def test_a_resume_without_metrics_begins_them(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "metrics.csv"
    if content is not None:
        path.write_bytes(content)
    write_rows(path, range(2), resume_at_step=9)
    assert list(load_metrics(path)["step"]) == [0, 1]


def test_metrics_without_steps_cannot_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("time,loss\n1,2\n")
    with pytest.raises(RedlineError, match="has no column 'step', so it cannot be cut back to step 3"):
        MetricsLog(path, resume_at_step=3)
    assert path.read_text() == "time,loss\n1,2\n"


# Disks that refuse


@pytest.mark.parametrize("num_bytes", [0, 30, 75])
def test_rows_refused_by_a_full_disk_are_written_when_there_is_room(tmp_path: Path, num_bytes: int) -> None:
    whole = write_rows(tmp_path / "whole.csv", range(8))
    warnings: list[str] = []
    with quiet(tmp_path / "metrics.csv", every=1, warn=warnings.append) as log:
        with files_limited_to(num_bytes):
            for step in range(6):
                log.append(row(step))
        for step in range(6, 8):
            log.append(row(step))
    assert log.path.read_bytes() == whole
    assert warnings == [f"Cannot write metrics to {log.path}: File too large. Training goes on and will try again."]


def test_a_new_column_refused_by_a_full_disk_is_added_when_there_is_room(tmp_path: Path) -> None:
    log = quiet(tmp_path / "metrics.csv", every=1, warn=lambda line: None)
    log.append({"step": 1})
    with files_limited_to(3):
        log.append({"step": 2, "return": 5})
    log.append({"step": 3})
    assert log.path.read_bytes() == b"step,return\n1,\n2,5\n3,\n"


def test_only_the_newest_rows_wait_for_a_disk_that_stays_full(tmp_path: Path) -> None:
    log = quiet(tmp_path / "metrics.csv", every=5_000, warn=lambda line: None)
    with files_limited_to(0):
        for step in range(12_000):
            log.append({"step": step})
    log.close()
    assert load_metrics(log.path)["step"].tolist() == list(range(2_000, 12_000))


def test_a_disk_that_never_recovers_costs_rows_and_two_lines_of_warning(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    warnings: list[str] = []
    with quiet(tmp_path / "a file" / "metrics.csv", every=2, warn=warnings.append) as log:
        for step in range(5):
            log.append(row(step))
    log.close()
    assert warnings == [
        f"Cannot write metrics to {log.path}: Not a directory. Training goes on and will try again.",
        f"The last 5 rows of metrics are lost: {log.path} could not be written.",
    ]


def test_warnings_go_to_stderr_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = quiet(tmp_path / "absent" / "metrics.csv", every=1)
    log.append(row(1))
    assert capsys.readouterr().err.startswith("Cannot write metrics to ")


def test_a_guarded_write_warns_once_and_says_whether_it_worked(tmp_path: Path) -> None:
    warnings: list[str] = []
    write = guarded(Run(tmp_path, {}).write_json, warnings.append, "the summary")
    with files_limited_to(1):
        assert not write("summary.json", {"steps": 1})
        assert not write("summary.json", {"steps": 2})
    assert write(name="summary.json", value={"steps": 3})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"steps": 3}
    assert warnings == ["Cannot write the summary: File too large. Training goes on and will try again."]


def test_a_guarded_write_does_not_hide_our_bugs(tmp_path: Path) -> None:
    write = guarded(Run(tmp_path, {}).write_json, pytest.fail)
    with pytest.raises(TypeError):
        write("summary.json", {1})


# Reading metrics


def test_columns_are_floats_where_possible_and_text_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,return,engine\n1,,vector\n2,-inf,\n3,nan,pool\n")
    columns = load_metrics(path)
    assert list(columns) == ["step", "return", "engine"]
    np.testing.assert_array_equal(columns["step"], np.array([1.0, 2.0, 3.0]), strict=True)
    np.testing.assert_array_equal(columns["return"], np.array([np.nan, -np.inf, np.nan]), strict=True)
    assert columns["engine"].tolist() == ["vector", "", "pool"]


def test_torn_rows_and_rows_of_the_wrong_width_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(b'step,loss\n1,2\n2\n3,"4\n5,6,7\n\n\0\0\n8,9\r\n10,1')
    assert load_metrics(path)["step"].tolist() == [1.0, 3.0, 8.0]
    assert load_metrics(path)["loss"].tolist() == [2.0, 4.0, 9.0]


@pytest.mark.parametrize(("content", "columns"), [(b"", {}), (b"step,lo", {}), (b"step,loss\n", {"step", "loss"})])
def test_metrics_without_rows_are_empty_columns(tmp_path: Path, content: bytes, columns: set[str]) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    loaded = load_metrics(path)
    assert set(loaded) == set(columns)
    assert all(len(column) == 0 for column in loaded.values())


def test_missing_metrics_are_explained(tmp_path: Path) -> None:
    with pytest.raises(RedlineError, match=r"There are no metrics at .*metrics\.csv\. Pass the metrics\.csv of"):
        load_metrics(tmp_path / "metrics.csv")


def test_runs_and_checkpoints_do_not_load_torch() -> None:
    code = "import sys, redline.runs, redline.learn.checkpoint; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(redline.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60).returncode == 0


# File names

NAMES = {value for name, value in vars(runs).items() if name.isupper() and isinstance(value, str)}
FILES = {name for name in NAMES if "." in name}


def spelled_in(path: Path) -> set[str]:
    """Names of files and folders of a run that a module spells itself. Docstrings may."""
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = {name for node in strings if id(node) not in told for name in FILES if is_in(name, node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            found |= {str(node.right.value)} & NAMES
    return found


def is_in(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None


def test_file_names_of_a_run_folder_are_spelled_in_one_module():
    package = Path(runs.__file__).parent
    spelled = {
        str(path.relative_to(package)): names
        for path in package.rglob("*.py")
        if path != Path(runs.__file__) and (names := spelled_in(path))
    }
    assert spelled == {}


def test_no_two_file_names_of_a_run_folder_are_alike():
    given = [value for name, value in vars(runs).items() if name.isupper() and isinstance(value, str)]
    assert len(given) == len(NAMES) > 20


def test_a_device_is_written_to_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(pipe, b"picture")
    assert pipe.is_fifo()
    assert os.read(reader, 100) == b"picture"
    os.close(reader)
