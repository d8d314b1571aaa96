"""The Tab key finishes commands, options and names of envs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from redline.cli import COMMANDS, main
from redline.cli.bench import KINDS
from redline.cli.completion import SHELLS, candidates
from redline.cli.options import Output, asking, parse

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
OPTIONS = {
    "train cage2": {"--red-agent", "--total-steps", "--no-turbo", "--resume", "--quiet", "-q"},
    "train petri:cluster/J-0": {"--warm-start", "--total-steps"},
    "train": {"--total-steps", "--engine"},
    "train half-written": {"--total-steps", "--engine"},
    "train --resume runs/a": {"--resume", "--keep"},
    "eval": {"--policy", "--seed"},
    "eval cage2": {"--lengths"},
    "eval petri:jobshop/ft06": {"--gantt"},
    "search": {"--exhaustive"},
    "improve runs/a": {"--episodes", "--states"},
    "play cage2": {"--html", "--seed"},
    "export runs/a": {"--json"},
    "runs": {"--json"},
    "compare runs/a": {"--json"},
    "sweep cage2": {"--seeds"},
    "solve petri:jobshop/ft06": {"--seconds"},
    "report": {"--trust"},
    "profile cage2": {"--breakdown", "--num-envs"},
    "bench sim cage2": {"--batch-sizes", "--red-agent"},
    "bench engines slow": {"--mean-ms", "--num-envs"},
    "bench train": {"--peers"},
    "bench profiler": {"--turns"},
    "bench search": {"--episodes"},
    "verify cage2": {"--traces"},
    "verify": {"--json"},
    "envs": {"--json"},
    "new": {"--folder"},
}


def texts(line: str) -> set[str]:
    """The candidates for the last word of a line, which may be empty."""
    return {each.text for each in candidates(line.split(" "))}


def test_every_command_is_tried_below():
    tried = {line.split()[0] for line in OPTIONS} | {" ".join(line.split()[:2]) for line in OPTIONS}
    assert {*COMMANDS} - {"bench", "completion"} <= tried
    assert {f"bench {kind}" for kind in KINDS} <= tried


@pytest.mark.parametrize("line", OPTIONS)
def test_options_are_those_of_the_command_as_it_stands(line):
    assert texts(f"{line} -") >= OPTIONS[line]


def test_an_option_of_another_world_is_not_offered():
    assert "--red-agent" not in texts("train petri:cluster/J-0 --red")
    assert "--gantt" not in texts("eval cage2 --g")
    assert "--gamma" not in texts("train --resume runs/a --g")


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("", {"train", "eval", "bench", "completion"}),
        ("tr", {"train"}),
        ("bench ", {"sim", "engines", "train"}),
        ("bench s", {"sim", "search"}),
        ("completion ", {"bash", "zsh", "fish"}),
        ("train c", {"cage2", "cyborg:B_lineAgent"}),
        ("bench sim petri:cl", {"petri:cluster/J-0"}),
        ("eval ", {"cage2", "slow"}),
        ("train cage2 --engine s", {"serial", "shared"}),
    ],
)
def test_words_are_finished(line, some):
    found = texts(line)
    assert found >= some
    assert all(each.startswith(line.split(" ")[-1]) for each in found)


@pytest.mark.parametrize(
    "line", ["nonsense -", "bench nonsense -", "train cage2 --run-dir ", "report ", "train cage2 --gamma "]
)
def test_where_nothing_can_be_known_nothing_is_offered(line):
    assert texts(line) == set()


def test_whoever_asks_for_options_gets_no_command_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts("train cage2 --total-steps 10 --")
    assert not list(tmp_path.iterdir())
    assert not parse("order", Output, []).json  # and afterwards all is as before
    with asking(), pytest.raises(Exception, match="redline order"):
        parse("order", Output, [])


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "completion --words" in script and script.strip() == SHELLS[shell].strip()
    assert main(["completion"]) == 0
    assert f"redline completion {shell}" in capsys.readouterr().out


def test_an_unknown_shell_is_refused(capsys):
    assert main(["completion", "bsh"]) == 2
    assert "Did you mean 'bash'?" in capsys.readouterr().err


def completed_by_bash(line: str, folder: Path) -> list[str]:
    """The replies of a real bash that has loaded the script, for a line with the cursor at its end."""
    command = folder / "redline"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m redline "$@"\n')
    command.chmod(0o755)
    script = """
        eval "$(redline completion bash)"
        complete -p redline
        COMP_LINE="$1" COMP_POINT=${#1}
        _redline
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", line],
        env=path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    registered, *replies = done.stdout.splitlines()
    assert registered == "complete -o default -F _redline redline"
    assert not done.stderr
    return [reply for reply in replies if reply]


@needs_bash
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("redline tra", ["train"]),
        ("redline bench en", ["engines"]),
        ("redline train cage2 --red-", ["--red-agent"]),
        ("redline train petri:cl", ["cluster/J-0"]),  # bash keeps what stands before the colon
        ("redline eval cage2 --lengths ", []),
    ],
)
def test_a_real_bash_finishes_a_line(line, replies, tmp_path):
    assert completed_by_bash(line, tmp_path) == replies
