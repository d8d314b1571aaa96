"""Paths and streams as they may be: brackets, newlines, other encodings, closed, and envs that print."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redline.cli import main
from redline.errors import RedlineError
from redline.runs import Run

TINY = ["--num-envs", "2", "--num-steps", "4", "--total-steps", "8", "--eval-episodes", "2"]
ROOT = Path(__file__).parents[2]
TALKER = """
import os, sys
import gymnasium

class Talker(gymnasium.Wrapper):
    def step(self, action):
        print("a step!")
        os.write(1, b"one more\\n")
        os.system("echo and a child")
        return super().step(action)

def make():
    return Talker(gymnasium.make("CartPole-v1"))
"""


def redline(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "redline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["pa[/b]th", "pa[/bold]th", "[bold]", "two\nlines", "a b", "ü\udcff", "-q"])
def test_a_run_folder_may_have_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "cage2", *TINY, f"--run-dir={tmp_path / name}"]) == 0
    told = capsys.readouterr().out
    assert "two" in name or name.encode(errors="replace").decode() in told
    assert main(["report", str(tmp_path / name)]) == 0


@pytest.mark.parametrize("engine", ["serial", "vector", "pipes", "shared", "ready", "pool"])
def test_an_env_that_prints_does_not_spoil_json(engine: str, tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(TALKER)
    found = redline("train", "external:talker:make", "--engine", engine, *TINY, "--json", cwd=tmp_path)
    assert json.loads(found.stdout)["steps"] >= 8, found.stderr
    assert "a step!" in found.stderr and "and a child" in found.stderr


def test_closed_streams_are_no_failure() -> None:
    script = f"{sys.executable} -m redline envs >&- 2>&-"
    assert subprocess.run(script, shell=True, cwd=ROOT).returncode == 0


def by_shell(command: str, where: str) -> subprocess.CompletedProcess[str]:
    """What comes of a command whose streams go elsewhere, with buffers as Python has them."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    script = f"{sys.executable} -m redline {command} {where}"
    return subprocess.run(script, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", ["--version", "envs", "envs --json", "train --help"])
def test_an_answer_that_could_not_be_written_is_a_failure(command: str) -> None:
    found = by_shell(command, "> /dev/full")
    assert (found.returncode, found.stderr) == (1, "redline: No space left on device.\n")


@pytest.mark.parametrize("command", ["--version", "envs", "train --help"])
def test_whoever_reads_only_the_beginning_is_no_failure(command: str) -> None:
    found = by_shell(command, "| true")
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(("command", "code"), [("--version", 0), ("nonsense", 2), ("report nonsense", 2)])
def test_a_complaint_that_could_not_be_written_changes_no_exit_code(command: str, code: int) -> None:
    assert by_shell(command, "2> /dev/full").returncode == code


def test_no_training_is_lost_to_what_it_could_not_say(tmp_path: Path) -> None:
    found = by_shell(f"train cage2 --preset none {' '.join(TINY)} --run-dir {tmp_path / 'run'}", "2> /dev/full")
    assert found.returncode == 0 and "Next:" in found.stdout


def test_no_file_is_opened_in_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    words = "from redline.cli.streams import make_writable; make_writable(); import sys; file = open(sys.argv[1], 'w')"
    script = f'{sys.executable} -c "{words}; file.write(str(file.fileno()))" {tmp_path / "it"} <&- >&- 2>&-'
    subprocess.run(script, shell=True, cwd=ROOT, check=True)
    assert int((tmp_path / "it").read_text()) > 2


def test_a_memory_that_holds_no_library_is_told_in_one_line() -> None:
    script = f"ulimit -v 1000000; exec {sys.executable} -m redline train cage2 --total-steps 100"
    found = subprocess.run(script, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert found.returncode == 2
    assert found.stderr == (
        "redline: This process may use 976 MB of memory, and needs 1,400 to begin with. Try ulimit -v 2867200.\n"
    )


def test_letters_that_an_encoding_does_not_have_are_replaced() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "redline", "envs", "petri"]
    assert subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0


def test_a_path_that_is_too_long_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["eval", "x" * 5000], ["train", "cage2", *TINY, "--run-dir", "y" * 300], ["report", "z" * 5000]):
        assert main([*arguments, "--quiet"]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "Traceback" not in told


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("net.pnml", ["envs", "petri:{}"]),
        ("shop.txt", ["envs", "petri:jobshop/{}"]),
        ("tool.json", ["envs", "petri:cluster/{}"]),
        ("network.yaml", ["train", "nasim:{}"]),
        ("plan.json", ["verify", "petri", "--schedule", "{}"]),
        ("episodes.npz", ["verify", "cage2", "--traces", "{}"]),
    ],
)
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(
    name: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / name)
    assert main([word.format(tmp_path / name) for word in command]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("redline: ")


@pytest.mark.parametrize(
    ("name", "command", "code"),
    [
        ("scores.json", ["eval", "{}", "--episodes", "1", "--lengths", "3"], 0),
        ("report.html", ["report", "{}"], 2),
    ],
)
def test_a_pipe_in_a_run_is_not_written_to(
    name: str, command: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, small = str(tmp_path / "run"), ["--num-envs", "2", "--num-steps", "4", "--total-steps", "8", "--hidden", "4"]
    assert (
        main(["train", "cage2", "--preset", "none", *small, "--eval-episodes", "0", "--run-dir", run, "--quiet"]) == 0
    )
    (tmp_path / "run" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "run" / name)
    assert main([word.format(run) for word in command]) == code
    told = capsys.readouterr().err
    assert "it is a pipe or a device" in told or "No such device" in told
    assert (tmp_path / "run" / name).is_fifo()


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    assert str(RedlineError("a\nb\x1b[2J\u2028\udcff")) == "a\\nb\\x1b[2J\\u2028\\udcff"


def test_names_in_a_list_of_runs_stand_for_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run.at(tmp_path / "pa[/b]th [x]", {"env": "cage2"})
    assert main(["runs", str(tmp_path)]) == 0
    assert "pa[/b]th [x]" in capsys.readouterr().out


def test_a_program_may_have_any_stream_in_the_place_of_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one without a descriptor, as programs that run tests put there."""
    error = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stderr", error)
    assert main(["trian"]) == 2
    error.flush()
    assert b"Did you mean 'train'?" in error.buffer.getvalue()  # type: ignore[attr-defined]
